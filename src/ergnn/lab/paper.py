"""The numbers printed in the ER-GNN paper.

Fan Zhou and Chengtai Cao, "Overcoming Catastrophic Forgetting in Graph Neural Networks with Experience
Replay", AAAI 2021: table 2 (PM and FM on three graphs), table 3 (FM of ER-SGC and ER-GIN) and table 4 (FM
on permuted MNIST). Means of 10 runs; the paper gives no spread, and does not fix head, edges, epochs or FM's
denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PER_CLASS = 1
"""Experience nodes per class in every table of the paper (e = 1)."""


PaperResult = dict[str, float | None]
"""One printed row as fractions, by measure: ``fm``, ``aa``, ``bwt``, ``score``, and ``pm``, which is None if only FM is
printed; of the ER-GNN paper also the number of its ``table``."""

GRAPHS = ("cora", "citeseer", "reddit")

# table, backbone, method, selector; PM and FM in percent, as printed, on Cora, Citeseer and Reddit, or permuted MNIST
_PRINTED = """
2 deepwalk finetune -      85.63 34.51  64.79 25.92  76.93 33.24
2 node2vec finetune -      85.99 35.46  65.18 24.87  78.24 34.66
2 sage     finetune -      94.15 37.73  81.26 28.06  95.01 40.06
2 gin      finetune -      90.17 33.81  74.92 27.42  93.75 36.28
2 gcn      finetune -      93.62 31.90  80.63 25.47  94.43 35.17
2 sgc      finetune -      93.06 33.93  78.18 28.31  94.01 38.59
2 gat      finetune -      94.19 30.84  81.37 25.06  95.13 34.97
2 gat      replay   random 93.58 29.17  81.48 23.73  93.84 32.79
2 gat      replay   mf     94.15 22.49  80.03 17.96  94.18 26.44
2 gat      replay   mf*    94.23 21.88  81.83 17.83  94.63 23.54
2 gat      replay   cm     93.98 22.14  78.78 18.03  93.33 26.17
2 gat      replay   cm*    94.25 21.03  80.86 17.86  94.23 23.15
2 gat      replay   im     95.66 21.14  80.85 17.08  95.36 23.09
3 sgc      replay   mf         - 25.00      - 20.34      - 27.62
3 sgc      replay   cm         - 25.46      - 19.38      - 26.27
3 sgc      replay   im         - 26.11      - 17.16      - 25.04
3 gin      replay   mf         - 27.98      - 21.01      - 25.36
3 gin      replay   cm         - 27.38      - 20.72      - 24.23
3 gin      replay   im         - 26.74      - 20.68      - 23.75
4 mlp      finetune -          - 29
4 mlp      ewc      -          - 22
4 mlp      gem      -          - 18
4 mlp      replay   im         - 14
"""

_Key = tuple[str, str, str, str | None]


def _results() -> Iterator[tuple[_Key, PaperResult]]:
    for line in _PRINTED.strip().splitlines():
        table, backbone, method, selector, *numbers = line.split()
        fractions = [None if text == "-" else round(float(text) / 100, 4) for text in numbers]
        graphs = ("permuted-mnist",) if table == "4" else GRAPHS
        for graph, pm, fm in zip(graphs, fractions[::2], fractions[1::2], strict=True):
            key = graph, backbone, method, None if selector == "-" else selector
            yield key, {"pm": pm, "fm": fm, "table": int(table)}


PAPER_RESULTS: dict[_Key, PaperResult] = dict(_results())
"""Every printed result: (dataset, backbone, method, selector or None) → PM, FM and number of the table."""


def paper_result(
    dataset: str,
    backbone: str = "",
    method: str = "replay",
    selector: str | None = None,
    per_class: int | None = PER_CLASS,
    head: str | None = None,
    input: str = "features",
    **others: Any,
) -> PaperResult | None:
    """Return the printed result of one setting, as fractions; None if there is none.

    Names are ours: the paper's GNN rows are ``method="finetune"``, its ER rows ``"replay"`` with a selector.
    ``selector`` and ``per_class`` matter for ``"replay"`` only, ``others`` do not matter. A growing head must
    distinguish the classes of all tasks, which is harder than the paper's setting, so it has no printed result.

    >>> paper_result("cora", "gat", "replay", "im")
    {'pm': 0.9566, 'fm': 0.2114, 'table': 2}
    >>> paper_result("cora", "gat", "finetune")["fm"]
    0.3084
    >>> paper_result("cora", "gat", "replay", "im", per_class=5) is None
    True
    """
    if head == "growing" or (method == "replay" and per_class != PER_CLASS):
        return None
    source = backbone if input == "features" else input
    result = PAPER_RESULTS.get((dataset, source, method, selector if method == "replay" else None))
    return result.copy() if result else None
