"""PackNet and Piggyback: a plain PyTorch loop gives the same weights, and earlier tasks never change."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.models import GCN as BasicGNN

from ergnn.config.errors import InputError
from ergnn.data import Task, TaskStream
from ergnn.learning.learner import Learner
from methods.plain_loop import EPOCHS, LR, PlainGCN, assert_same_parameters, learned, make_learner, make_tasks

NAMES = ["packnet", "piggyback"]


@pytest.mark.parametrize(
    ("name", "backbone", "head"),
    [
        *(("packnet", "gat", "shared"), ("packnet", "gin", "per-task"), ("packnet", "mlp", "shared")),
        *(("tpp", "gcn", head) for head in ("shared", "per-task", "growing")),
        *(("piggyback", "gcn", "per-task"), ("piggyback", "sage", "shared"), ("piggyback", "gat", "per-task")),
    ],
)
def test_outputs_of_earlier_tasks_do_not_change_by_a_bit(name: str, backbone: str, head: str) -> None:
    """With dropout, Adam and weight decay; finetuning changes them."""
    tasks = make_tasks()
    nodes = torch.arange(tasks[0].graph.num_nodes)
    changed = {}
    for method in (name, "finetune"):
        learner, before = Learner(backbone, method, head=head, epochs=5, lr=0.05, weight_decay=1e-3), list[Tensor]()
        for task in tasks:
            learner.observe(task)
            before.append(learner.predict_proba(nodes, task.id))
            state = learner.state_dict()
            learner = Learner(backbone, method, head=head, epochs=5, lr=0.05, weight_decay=1e-3)
            learner.load_state_dict(state, task.graph)
        after = [learner.predict_proba(nodes, task.id) for task in tasks]
        changed[method] = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == {name: [False] * 3, "finetune": [True, True, False]}


def plain_losses(model: PlainGCN, task: Task, params: dict[str, Tensor]) -> Tensor:
    out = torch.func.functional_call(model, params, (task, task.id))
    return F.cross_entropy(out[task.train], model.targets(task, task.train))


def is_shared(name: str, head: str) -> bool:
    return head == "shared" or not name.startswith("heads.")


def packed_plainly(tasks: TaskStream, head: str, prune: float, prune_at: int) -> PlainGCN:
    model = PlainGCN(tasks, head)
    free = {name: torch.ones_like(value, dtype=torch.bool) for name, value in model.named_parameters()}
    for task in tasks:
        trained = dict(free)
        for epoch in range(EPOCHS):
            model.zero_grad()
            F.cross_entropy(model.scores(task, task.id)[task.train], model.targets(task, task.train)).backward()
            with torch.no_grad():
                for name, value in model.named_parameters():
                    if value.grad is not None:
                        value -= LR * value.grad * trained[name]
                    if epoch + 1 == prune_at and is_shared(name, head) and value.dim() == 2:
                        sizes = sorted(value.abs()[free[name]].tolist(), reverse=True)
                        smallest = sizes[math.ceil((1 - prune) * len(sizes)) - 1]
                        trained[name] = free[name] & (value.abs() >= smallest)
                        value[free[name] & ~trained[name]] = 0.0
        for name, value in model.named_parameters():
            if is_shared(name, head):
                free[name] = free[name] & ~trained[name] if value.dim() == 2 else torch.zeros_like(free[name])
    return model


@pytest.mark.parametrize("head", ["shared", "per-task"])
def test_packnet_trains_prunes_retrains_and_freezes(head: str) -> None:
    tasks = make_tasks()
    learner = learned("packnet", head, tasks, prune=0.6, retrain=0.34, weight_decay=0.0)
    assert_same_parameters(learner, packed_plainly(tasks, head, 0.6, prune_at=4))  # 2 of 6 epochs follow
    weights = 8 * 6 + (12 if head == "shared" else 0)
    left, layers = [], [48, 12] if head == "shared" else [48]
    for _ in tasks:
        layers = [size - math.ceil(0.4 * size - 1e-9) for size in layers]
        left.append(sum(layers) / weights)
    assert [entry["selection"]["free"] for entry in learner.history] == pytest.approx(left)


def masked_plainly(
    tasks: TaskStream, head: str, init: float, threshold: float
) -> tuple[PlainGCN, list[dict[str, Tensor]]]:
    """Straight-through gradients by autograd: the mask is 1[m > τ], its derivative that of m."""
    model = PlainGCN(tasks, head)
    masks: list[dict[str, Tensor]] = []
    for task in tasks:
        params = {name: value.detach().clone() for name, value in model.named_parameters()}
        real = {
            k: torch.full_like(v, init) for k, v in params.items() if task.id and is_shared(k, head) and v.dim() == 2
        }
        held = [name for name in params if task.id and is_shared(name, head) and name not in real]
        for _ in range(EPOCHS):
            leaves = {k: real.get(k, params[k]).clone().requires_grad_() for k in params}
            used = dict(leaves)
            for name in real:
                m = leaves[name]
                used[name] = params[name] * ((m > threshold).float() + m - m.detach())
            loss = plain_losses(model, task, used)
            grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
            for name, grad in zip(leaves, grads, strict=True):
                if name in real:
                    real[name] = real[name] - LR * grad
                elif name not in held:
                    params[name] = params[name] - LR * grad
        model.load_state_dict(params)
        masks.append({name: m > threshold for name, m in real.items()})
    return model, masks


@pytest.mark.parametrize("head", ["shared", "per-task"])
def test_piggyback_learns_masks_by_straight_through_gradients(head: str) -> None:
    tasks = make_tasks()
    learner = learned("piggyback", head, tasks, init=0.51, weight_decay=1e-5)
    model, masks = masked_plainly(tasks, head, 0.51, 0.5)
    assert_same_parameters(learner, model)
    found = learner.method.state_dict()["masks"]
    assert [set(part) for part in found] == [{k.replace("conv.", "convs.0.") for k in part} for part in masks]
    for part, expected in zip(found, masks, strict=True):
        for name, mask in part.items():
            assert torch.equal(mask, expected[name.replace("convs.0.", "conv.")])
    off = [1 - entry["selection"]["used"] for entry in learner.history]
    assert off[0] == 0
    assert 0.05 < off[1] < 0.9, "some weights are switched off"


def test_weight_decay_does_not_switch_weights_off() -> None:
    """A feature that is 0 everywhere gives no gradient: its weights stay in use, with Adam and weight decay."""
    tasks = make_tasks()
    x = tasks[0].graph.x.clone()
    x[:, 0] = 0.0
    learner = Learner("gcn", "piggyback", epochs=80, lr=0.05, weight_decay=0.1, backbone_options={"hidden": 6})
    for task in tasks[:2]:
        learner.observe(replace(task, graph=replace(task.graph, x=x)))
    mask = learner.method.state_dict()["masks"][1]["convs.0.lin.weight"]
    assert bool(mask[:, 0].all())
    assert not bool(mask.all())


@pytest.mark.parametrize("own_module", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_a_task_has_its_weights_and_shares_none_that_are_masked(name: str, own_module: bool) -> None:
    tasks = make_tasks()
    backbone = BasicGNN(tasks.num_features, 5, 2, 2) if own_module else "gcn"
    learner = Learner(backbone, name, head="shared", epochs=3)
    for task in tasks:
        learner.observe(task)
    before = {key: value.clone() for key, value in learner.model.state_dict().items()}
    masks = learner.method.mask(1)
    model = learner.method.masked(learner.model, 1)
    assert list(model.state_dict()) == list(before)
    for key, value in model.named_parameters():
        assert torch.equal(value, before[key] * masks[key] if key in masks else before[key])
        assert value.requires_grad
    for key in masks:
        model.get_parameter(key).data.add_(1.0)
    model.eval()
    assert all(torch.equal(value, before[key]) for key, value in learner.model.state_dict().items())
    x, edges = tasks[0].graph.dense_x(), tasks[0].graph.edge_index
    assert not torch.equal(model(x, edges), learner.model.eval()(x, edges)), "the copy computes with its own weights"


@pytest.mark.parametrize("name", NAMES)
def test_unsuitable_heads_and_backbones_are_refused_before_training(name: str) -> None:
    with pytest.raises(
        InputError, match=f"method '{name}' does not support head 'growing', as it must know the task of a node; choose"
    ):
        make_learner(name, "growing")
    with pytest.raises(InputError, match="backbone 'sgc' has no weights that tasks share with head='per-task'"):
        Learner("sgc", name).observe(make_tasks()[0])
    with pytest.raises(InputError, match="backbone 'gcn' has running statistics"):
        Learner("gcn", name, backbone_options={"norm": "batch"}).observe(make_tasks()[0])
    Learner("sgc", name, head="shared", epochs=1).observe(make_tasks()[0])
