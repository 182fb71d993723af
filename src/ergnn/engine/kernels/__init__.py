"""Attention and sums over the neighbors in a large graph, without tensors that have an entry per edge.

Layers call :mod:`.attention` and :mod:`.sums`. On a GPU, these run Triton kernels (:mod:`.triton_attention`,
:mod:`.triton_sums`, imported only there). On a CPU, and for dtypes other than float32, they run plain PyTorch on chunks
of edges (:mod:`.torch_attention`), with the same dropout bit for bit.
"""
