"""Scores of held-out nodes, against scikit-learn, and what is warned of."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

from ergnn.learning.evaluation import HeldOut

CLASSES = ["ok", "late", "never", "rare"]


def held_out(truth: list[int], predicted: list[int]) -> HeldOut:
    probabilities = np.eye(len(CLASSES))[predicted]
    return HeldOut([], CLASSES, np.zeros(len(truth), int), np.array(truth), np.array(predicted), probabilities)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("decimals", [1, 6])  # many equal probabilities, or none
def test_scores_over_all_nodes_are_those_of_scikit_learn(classes: int, decimals: int) -> None:
    rng = np.random.default_rng(classes)
    truth = np.append(np.arange(classes), rng.choice(classes, 300, p=rng.dirichlet(np.ones(classes))))
    out = np.round(rng.dirichlet(np.ones(classes), len(truth)) + np.eye(classes)[truth] / 2, decimals)
    out = np.column_stack([out, np.zeros(len(out))])  # a class that no node has
    found = HeldOut([], [*CLASSES, "none"], np.zeros(len(truth), int), truth, out.argmax(1), out).overall()
    assert found is not None
    areas = [roc_auc_score(truth == c, out[:, c]) for c in range(classes)]
    assert found == pytest.approx(
        {
            "nodes": len(truth),
            "accuracy": accuracy_score(truth, out.argmax(1)),
            "majority": accuracy_score(truth, np.full(len(truth), np.bincount(truth).argmax())),
            "balanced_accuracy": balanced_accuracy_score(truth, out.argmax(1)),
            "macro_f1": f1_score(truth, out.argmax(1), average="macro"),
            "roc_auc": np.mean(areas),
        },
        abs=1e-12,
    )
    normal = out[:, :classes] / out[:, :classes].sum(1, keepdims=True)
    whole = HeldOut([], CLASSES, np.zeros(len(truth), int), truth, normal.argmax(1), normal).overall()
    expected = roc_auc_score(truth, normal[:, 1] if classes == 2 else normal, multi_class="ovr")
    assert whole["roc_auc"] == pytest.approx(expected, abs=1e-12)


def test_a_class_is_ranked_among_the_nodes_for_which_it_competed() -> None:
    out = np.array([[0.2, 0.8, np.nan], [0.6, 0.4, np.nan], [np.nan, 0.9, 0.1], [np.nan, 0.3, 0.7]])
    truth = np.array([0, 1, 1, 2])
    found = HeldOut([], CLASSES, np.array([0, 0, 1, 1]), truth, np.nanargmax(out, 1), out).overall()
    areas = [0.0, roc_auc_score([0, 1, 1, 0], out[:, 1]), 1.0]
    assert found["roc_auc"] == pytest.approx(np.mean(areas))


def test_one_class_has_no_area_and_no_node_has_no_scores() -> None:
    found = held_out([1, 1], [1, 0]).overall()
    assert (found["majority"], found["roc_auc"]) == (1.0, None)
    assert held_out([], []).overall() is None
    assert held_out([], []).warnings() == []


@pytest.mark.parametrize(
    ("truth", "predicted", "warnings"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], []),
        ([0, 0, 0, 1], [0, 0, 0, 0], ["the model predicts one class only: 'ok'"]),
        ([0, 0, 0], [0, 0, 0], []),  # there is no other class
        (
            [0, 0, 0, 1],
            [1, 1, 0, 1],
            ["accuracy is below the majority class: 50.00 %; always predicting 'ok' gives 75.00 %"],
        ),
        ([0, 0, 1, 2], [0, 0, 1, 1], ["class 'never' is never predicted (1 node)"]),
        ([0, 0, 1, 2, 3], [0, 0, 1, 1, 1], ["classes 'never', 'rare' are never predicted (2 nodes)"]),
        (
            [0, 0, 1],
            [2, 2, 2],
            [
                "accuracy is below the majority class: 0.00 %; always predicting 'ok' gives 66.67 %",
                "the model predicts one class only: 'never'",
            ],
        ),
    ],
)
def test_what_accuracy_hides_is_warned_of(truth: list[int], predicted: list[int], warnings: list[str]) -> None:
    assert held_out(truth, predicted).warnings() == warnings
