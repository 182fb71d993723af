"""Somebody else's module as a model with heads."""

from __future__ import annotations

from torch import Tensor, nn

from ergnn.errors import InputError


class PlainModel(nn.Module):
    """Any module with ``forward(x, adj)``: its outputs, cut into equal columns, are the heads.

    Args:
        module: called with dense attributes and PyG's ``edge_index``.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.head_widths: list[int] = []

    def add_head(self, out_channels: int) -> None:
        if self.head_widths and out_channels != self.head_width:
            raise InputError(
                f"{type(self.module).__name__} has heads of {self.head_width} outputs; a task of {out_channels} "
                "classes does not fit"
            )
        self.head_widths.append(out_channels)

    @property
    def head_width(self) -> int:
        return self.head_widths[0]

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.module(x, adj)

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        inner = getattr(self.module, "embed", None)
        if inner is None:
            raise InputError(
                f"{type(self.module).__name__} has no embed(x, adj); selectors in embedding space need one"
            )
        return inner(x, adj)
