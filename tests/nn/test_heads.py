import pytest
import torch

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.nn.heads import HEADS, HeadPolicy

CPU = torch.device("cpu")
TASKS = [(4, 0), (2, 7, 1), (5, 3)]


class Model:
    """A model that only counts its heads."""

    def __init__(self) -> None:
        self.head_widths: list[int] = []

    def add_head(self, out_channels: int) -> None:
        self.head_widths.append(out_channels)


def policy(kind: str, tasks: list[tuple[int, ...]] = TASKS) -> tuple[HeadPolicy, Model]:
    heads, model = HeadPolicy(kind), Model()
    for i, classes in enumerate(tasks):
        assert heads.add_task(model, classes) == i
    return heads, model


def test_outputs_of_a_shared_head_are_indices_within_the_task() -> None:
    heads, model = policy("shared", [(4, 0, 6), (2, 7, 1), (5, 3)])
    assert model.head_widths == [3]
    assert heads.heads_of(2, 4, CPU).tolist() == [[0]] * 4
    assert heads.targets(0, torch.tensor([0, 4, 6, 0])).tolist() == [1, 0, 2, 1]
    assert heads.targets(1, torch.tensor([1, 2])).tolist() == [2, 0]
    place, label = heads.columns(2, CPU)
    assert (place.tolist(), label.tolist()) == ([0, 1], [5, 3])


def test_a_head_per_task_has_the_outputs_of_its_task() -> None:
    heads, model = policy("per-task")
    assert model.head_widths == [2, 3, 2]
    assert heads.heads_of(1, 2, CPU).tolist() == [[1], [1]]
    assert heads.targets(1, torch.tensor([1, 7, 2])).tolist() == [2, 1, 0]
    place, label = heads.columns(1, CPU)
    assert (place.tolist(), label.tolist()) == ([0, 1, 2], [2, 7, 1])


def test_a_growing_head_has_an_output_for_every_class_so_far() -> None:
    heads, model = policy("growing")
    assert model.head_widths == [2, 3, 2]
    assert heads.heads_of(0, 2, CPU).tolist() == [[0, 1, 2]] * 2
    assert heads.heads_of(0, 0, CPU).shape == (0, 3)
    # the outputs of a head start at a multiple of the largest width, 3
    assert heads.targets(0, torch.tensor([0, 4])).tolist() == [1, 0]
    assert heads.targets(2, torch.tensor([3, 5])).tolist() == [7, 6]
    place, label = heads.columns(None, CPU)
    assert (place.tolist(), label.tolist()) == ([0, 1, 3, 4, 5, 6, 7], [4, 0, 2, 7, 1, 5, 3])
    place, label = heads.columns(1, CPU)
    assert (place.tolist(), label.tolist()) == ([3, 4, 5], [2, 7, 1])


@pytest.mark.parametrize("kind", HEADS)
def test_the_column_of_a_target_has_its_label(kind: str) -> None:
    tasks = [(4, 0), (2, 7), (5, 3)] if kind == "shared" else TASKS
    heads, _ = policy(kind, tasks)
    for task, classes in enumerate(tasks):
        place, label = heads.columns(task, CPU)
        of_place = dict(zip(place.tolist(), label.tolist(), strict=True))
        labels = torch.tensor(classes)
        assert [of_place[target] for target in heads.targets(task, labels).tolist()] == labels.tolist()


def test_an_unknown_kind_is_refused_with_the_choices() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown head 'both'.*growing, per-task, shared"):
        HeadPolicy("both")


def test_a_growing_head_keeps_the_outputs_of_a_repeated_class() -> None:
    heads, model = policy("growing", [(4, 0), (0, 2, 7, 1), (7, 4), (2, 9)])
    assert model.head_widths == [2, 3, 1], "the third task has nothing new, the fourth one class"
    assert heads.heads_of(2, 1, CPU).tolist() == [[0, 1, 2]]
    assert heads.targets(1, torch.tensor([0, 1])).tolist() == [1, 5]
    assert heads.targets(2, torch.tensor([7, 4])).tolist() == [4, 0]
    assert heads.targets(3, torch.tensor([2, 9])).tolist() == [3, 6]
    place, label = heads.columns(None, CPU)
    assert (place.tolist(), label.tolist()) == ([0, 1, 3, 4, 5, 6], [4, 0, 2, 7, 1, 9])
    place, label = heads.columns(2, CPU)
    assert (place.tolist(), label.tolist()) == ([4, 0], [7, 4])
    for kind in ("shared", "per-task"):
        heads, model = policy(kind, [(0, 1)])
        assert heads.add_task(model, (1, 0)) == 1


def test_a_shared_head_refuses_a_task_with_too_many_classes() -> None:
    heads, model = policy("shared", [(0, 1)])
    with pytest.raises(InputError, match="3 classes does not fit the shared head of 2"):
        heads.add_task(model, (2, 3, 4))
    assert len(heads.classes) == 1


@pytest.mark.parametrize("kind", HEADS)
def test_a_label_of_another_task_is_refused(kind: str) -> None:
    heads, _ = policy(kind, [(4, 0), (2, 7)])
    with pytest.raises(InputError, match=r"label 4 is not one of task 2's classes \(2, 7\)"):
        heads.targets(1, torch.tensor([2, 4, 0]))


@pytest.mark.parametrize("kind", ["shared", "per-task"])
def test_only_a_growing_head_supports_unknown_tasks(kind: str) -> None:
    with pytest.raises(InputError, match="needs the task of the nodes"):
        policy(kind, [(0, 1)])[0].columns(None, CPU)
