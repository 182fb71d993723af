"""Show why influence maximization forgets much on Citeseer: it chooses nodes far from the mean of their class.

Compares IM with IM restricted to the candidates nearest to the mean of their class in embedding space, under the
paper's protocol.

    python examples/influence_and_typicality.py citeseer --seeds 10
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import mean, stdev

import torch

from ergnn import Learner, RunConfig, forgetting_mean, performance_mean
from ergnn.lab.run import members_of, streams_of
from ergnn.learning.evaluation import evaluate_streams
from ergnn.replay.selectors import Selection, SelectionContext, best_per_class
from ergnn.replay.selectors.influence import Influence


class TypicalInfluence(Influence):
    """IM among the fraction ``nearest`` of the candidates of each class, by distance from the mean embedding."""

    def __init__(self, nearest: float) -> None:
        super().__init__()
        self.nearest = nearest
        self.chosen_ranks: list[float] = []

    def select(self, context: SelectionContext) -> Selection:
        scores, vectors, labels = self.score(context), context.embed(context.nodes), context.labels
        rank = torch.zeros_like(scores)  # 0 is the nearest of the class, 1 the farthest
        for c in context.task.classes:
            own = (labels == c).nonzero().flatten()
            distance = (vectors[own] - vectors[own].mean(0)).norm(dim=1)
            rank[own] = distance.argsort().argsort().to(rank.dtype) / max(len(own) - 1, 1)
        far = rank > self.nearest
        chosen = best_per_class(torch.where(far, scores.min() - 1, scores), context)
        self.chosen_ranks += rank[torch.isin(context.nodes, chosen.nodes)].tolist()
        return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="citeseer")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = RunConfig(args.dataset, selector="im", protocol="paper", seeds=args.seeds, epochs=args.epochs).resolved()
    streams = [preset.stream for preset in streams_of(config, members_of(config))]
    for nearest in (1.0, 0.5, 0.25):
        selector = TypicalInfluence(nearest)
        own = config.learner.with_settings({"selector": selector})
        learners = [Learner(replace(own, seed=seed)) for seed, _ in members_of(config)]
        matrices = evaluate_streams(learners, streams)
        fm = [100 * forgetting_mean(matrix) for matrix in matrices]
        pm = [100 * performance_mean(matrix) for matrix in matrices]
        spread = stdev(fm) if len(fm) > 1 else 0.0
        print(
            f"nearest {nearest:4.0%}: FM {mean(fm):5.2f} ± {spread:.2f}  PM {mean(pm):5.2f}  "
            f"rank of the selected nodes {mean(selector.chosen_ranks):.2f}"
        )


if __name__ == "__main__":
    main()
