"""Specification of a Reddit-like graph: nodes, classes, degrees and features, all computed in integers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.reddit_like.lanes import LANE, LANE_SUM_DEVIATION, arange, lane_sums
from ergnn.config.errors import InputError
from ergnn.data.hashing import hashes, stream_key

CLASSES = 41
FULL_NODES, FULL_EDGES, FEATURES = 232_965, 114_615_892, 602
"""Reddit's published counts; edges are directed, two per link."""
SPLIT = (153_431, 23_831, 55_703)
"""Reddit's published numbers of training, validation and test nodes."""
SIZE_RATIO = 20.0
"""Size ratio of the largest to the smallest class; sizes fall geometrically in between. Our choice."""
SPREAD = 1.0
"""σ of the log-normal degrees; with a mean of 492 and 232,965 nodes the largest is 11,132. Our choice."""
LABEL_NOISE = 0.05
"""Fraction of nodes whose label differs from their community, so that no model reaches 100 %. Our choice."""
BLOCK = 1 << 20
"""Nodes per block."""

_COMMUNITY, _LABEL, _WEIGHT, _SPLIT, _CENTRE, _NOISE, EDGES = range(7)
_TABLE_BITS = 10


@dataclass(frozen=True)
class RedditLike:
    """A Reddit-like graph; equal values give equal files on every device.

    Each node has a community (41 of unequal size) and a weight. The second node of a link is drawn in proportion to
    weight, from the node's own community with probability ``homophily`` and from all nodes otherwise (a
    degree-corrected block model). Features are ``signal`` times the community's center plus noise of variance 1.

    Args:
        nodes: number of nodes.
        edges: number of directed edges, even; by default 492 per node as in Reddit, or nodes / 50 if that is less.
        features: number of features per node.
        homophily: probability of a link within the community, as above.
        signal: magnitude of a center's entries in standard deviations of the noise.
        seed: seed of everything.
    """

    nodes: int = FULL_NODES
    edges: int | None = None
    features: int = FEATURES
    homophily: float = 0.85
    signal: float = 0.125
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 20 * CLASSES:
            raise InputError(f"reddit-like: nodes is {self.nodes}; {CLASSES} classes need {20 * CLASSES} or more")
        if self.edges is None:
            share = min(FULL_EDGES / FULL_NODES, self.nodes / 50)
            links = FULL_EDGES // 2 if self.nodes == FULL_NODES else round(self.nodes * share / 2)
            object.__setattr__(self, "edges", 2 * links)
        assert self.edges is not None
        most = self.nodes * (self.nodes // 8)
        if self.edges % 2 or not 2 <= self.edges <= most:
            raise InputError(
                f"reddit-like: edges is {self.edges}; directed edges come in pairs: an even number from 2 to {most} "
                f"for {self.nodes} nodes"
            )
        if self.edges >= 2**31:
            raise InputError(f"reddit-like: edges is {self.edges}; it must be below {2**31}")
        if self.features < 1:
            raise InputError(f"reddit-like: features is {self.features}; it must be 1 or more")
        if not 0.0 <= self.homophily <= 1.0:
            raise InputError(f"reddit-like: homophily is {self.homophily}; it must lie between 0 and 1")
        if not 0.0 <= self.signal <= 16.0:
            raise InputError(f"reddit-like: signal is {self.signal}; it must lie between 0 and 16")

    @property
    def links(self) -> int:
        """Number of undirected edges."""
        assert self.edges is not None
        return self.edges // 2

    @property
    def slug(self) -> str:
        """Folder name."""
        return f"n{self.nodes}-e{self.edges}-f{self.features}-h{self.homophily:g}-s{self.signal:g}-seed{self.seed}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def key(self, purpose: int) -> int:
        return stream_key(self.seed, purpose)

    def communities(self, start: int, end: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the community of nodes ``start`` … ``end`` − 1, int64."""
        drawn = hashes(self.key(_COMMUNITY), arange(start, end, device)) & (2**32 - 1)
        bounds, names = _class_bounds()
        return torch.tensor(names, device=device)[
            torch.bucketize(drawn, torch.tensor(bounds, device=device), right=True)
        ]

    def labels(self, start: int, end: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the labels: the community, or another one for a few nodes."""
        community = self.communities(start, end, device)
        drawn = hashes(self.key(_LABEL), arange(start, end, device))
        wrong = (drawn & (LANE - 1)) < round(LABEL_NOISE * LANE)
        other = (community + 1 + ((drawn >> 16) & (2**40 - 1)) % (CLASSES - 1)) % CLASSES
        return torch.where(wrong, other, community)

    def splits(self, start: int, end: int, device: torch.device | str = "cpu") -> Tensor:
        """Return 0 for training, 1 for validation, 2 for test, in Reddit's proportions."""
        drawn = (hashes(self.key(_SPLIT), arange(start, end, device)) & (2**32 - 1)) % sum(SPLIT)
        return torch.bucketize(drawn, torch.tensor([SPLIT[0], SPLIT[0] + SPLIT[1]], device=device), right=True)

    def weights(self, start: int, end: int, device: torch.device | str = "cpu") -> Tensor:
        """Log-normal weights as integers, about 2²⁵ on average.

        A sum of eight 16-bit numbers approximates a normal one (so that it ends at 4.9 σ); 2^x is a shift by the
        integer part of x and a table lookup for the fraction.
        """
        node = arange(start, end, device)
        normal = lane_sums(self.key(_WEIGHT), 2 * node) + lane_sums(self.key(_WEIGHT), 2 * node + 1)
        scale = round(SPREAD / math.log(2) / (LANE_SUM_DEVIATION * math.sqrt(2)) * 2**36)
        exponent = (normal * scale) >> 20  # in units of 2⁻¹⁶
        table = torch.tensor([round(2 ** (i / 2**_TABLE_BITS + 16)) for i in range(2**_TABLE_BITS)], device=device)
        fraction = (exponent & (2**16 - 1)) >> (16 - _TABLE_BITS)
        return torch.bitwise_left_shift(table[fraction], (exponent >> 16) + 8)

    def node_features(self, start: int, end: int, community: Tensor) -> Tensor:
        """Return ``[end − start, features]`` float32: integers times one constant, so all devices round equally."""
        device, f = community.device, self.features
        centers = lane_sums(self.key(_CENTRE), arange(0, CLASSES * f, device)).view(CLASSES, f)
        noise = lane_sums(self.key(_NOISE), arange(start * f, end * f, device)).view(end - start, f)
        total = noise.mul_(1024).add_(centers.mul_(round(1024 * self.signal))[community])
        return total.to(torch.float32).mul_(1.0 / (1024 * LANE_SUM_DEVIATION))


@lru_cache
def _class_bounds() -> tuple[list[int], list[int]]:
    """Return the end of each class but the last on 0 … 2³², and the label at each position."""
    sizes = [SIZE_RATIO ** (-i / (CLASSES - 1)) for i in range(CLASSES)]
    bounds = [round(2**32 * sum(sizes[: i + 1]) / sum(sizes)) for i in range(CLASSES - 1)]
    names = sorted(range(CLASSES), key=lambda c: stream_key(c))
    return bounds, names
