"""Write a selector: choose the nodes with embeddings farthest from the means of the other classes.

python examples/own_selector.py [epochs]
"""

import sys

import torch
from torch import Tensor

import ergnn
from ergnn.replay import SelectionContext, Selector
from ergnn.testing import check_selector


@ergnn.SELECTORS.register("far", help="farthest from the other classes' mean embeddings")
class Far(Selector):
    """Scores nodes by the distance to the nearest mean of another class of the task."""

    def score(self, context: SelectionContext) -> Tensor:
        h, y = context.embed(context.nodes), context.labels
        classes = torch.tensor(context.task.classes)
        means = torch.stack([h[y == c].mean(0) for c in classes])
        distances = torch.cdist(h, means)
        return distances.masked_fill(y.unsqueeze(1) == classes, float("inf")).min(1).values


def main(epochs: int = 100) -> None:
    check_selector("far")  # raises an AssertionError that names the violated rule
    print("far satisfies the contract")
    for selector in ("random", "far"):
        config = ergnn.RunConfig("cora", backbone="gcn", selector=selector, split="seeded", seeds=3, epochs=epochs)
        result = ergnn.run(config)
        pm, fm = result.pm, result.fm
        print(f"{selector:>8}: PM {pm.mean:.1%} ± {pm.std:.1%}  FM {fm.mean:.1%} ± {fm.std:.1%}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
