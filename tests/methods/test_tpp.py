"""TPP: prompts against a plain loop, guesses for each node alone, and earlier tasks that never change."""

import torch
import torch.nn.functional as F

from ergnn.data import TaskStream
from ergnn.learning.learner import Learner
from ergnn.methods.propagated import TPP
from graphs import dense_powers, random_graph

GRAPH = random_graph(n=90, f=8, classes=6, seed=4)
TASKS = TaskStream.from_classes(GRAPH)


def make_learner(head: str, **options: int) -> Learner:
    return Learner("gcn", "tpp", head=head, epochs=15, lr=0.05, seed=5, width=16, **options)


def test_prompts_and_classifier_are_those_of_a_plain_loop() -> None:
    learner = make_learner("per-task")
    for task in TASKS:
        learner.observe(task)
    method, task = learner.method, TASKS[1]
    assert isinstance(method, TPP)
    h = F.normalize(dense_powers(GRAPH, 2).float(), dim=1)
    frozen = method.encoder(learner.seed, h)
    fresh = Learner("gcn", "tpp", head="per-task", epochs=1, lr=1e-30, seed=5, width=16)  # initial parameters
    for each in TASKS:
        fresh.observe(each)
    start = fresh.method.tasks[1]  # type: ignore[attr-defined]
    query, tokens, weight, bias = (value.clone().requires_grad_() for value in start.values())
    optimizer = torch.optim.Adam([query, tokens, weight, bias], lr=0.05, weight_decay=learner.training.weight_decay)
    for _ in range(15):
        rows = []
        for v in task.train.tolist():
            alpha = torch.exp(query.T @ h[v]) / torch.exp(query.T @ h[v]).sum()
            prompted = h[v] + sum(alpha[j] * tokens[j] for j in range(3))
            rows.append(weight.T @ torch.relu(frozen.T @ prompted) + bias)
        optimizer.zero_grad()
        F.cross_entropy(torch.stack(rows), task.targets(task.train)).backward()
        optimizer.step()
    for value, name in zip((query, tokens, weight, bias), method.tasks[1], strict=True):
        torch.testing.assert_close(method.tasks[1][name], value.detach(), rtol=1e-3, atol=1e-4)
    assert not torch.equal(start["tokens"], method.tasks[1]["tokens"])


def test_the_task_is_guessed_for_each_node_alone() -> None:
    learner = make_learner("growing")
    for task in TASKS:
        learner.observe(task)
    h = F.normalize(dense_powers(GRAPH, 2).float(), dim=1)
    profiles = [h[task.train].mean(0) for task in TASKS]
    together = learner.predict(torch.arange(90))
    guesses = set()
    for v in range(90):
        assert int(learner.predict(torch.tensor([v]))) == int(together[v])
        guess = min(range(3), key=lambda t: float((h[v] - profiles[t]).norm()))
        assert int(together[v]) == int(learner.predict(torch.tensor([v]), guess))
        guesses.add(guess)
    assert guesses == {0, 1, 2}
    only = learner.predict(TASKS[0].test)  # a batch from one task reveals nothing
    assert only.tolist() == together[TASKS[0].test].tolist()
    assert not set(only.tolist()) <= set(TASKS[0].classes)


def test_it_stores_a_profile_prompts_and_a_classifier_per_task() -> None:
    learner = make_learner("growing", prompts=2)
    for count, task in enumerate(TASKS, 1):
        learner.observe(task)
        assert learner.method.nbytes == count * 4 * (8 + 2 * 2 * 8 + 16 * 2 + 2)
