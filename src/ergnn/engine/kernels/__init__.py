"""Attention and sums over the neighbors of a large graph, with no tensor that has an entry for each edge.

:mod:`.attention` and :mod:`.sums` are what layers call. On a GPU they run as Triton kernels (:mod:`.triton_attention`,
:mod:`.triton_sums`, imported only there); elsewhere, and for numbers other than float32, as plain torch on a few
million edges at a time (:mod:`.twin`), with the same dropout bit for bit.
"""
