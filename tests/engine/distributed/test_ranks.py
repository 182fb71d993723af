"""Several ranks learn like one process, have the same state after every task, and stop together."""

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.distributed.launch import on_ranks
from engine.distributed.learning import BASE, Learnt, disagree, learn, propagate, second_comes_late
from ergnn.config.errors import ErgnnError, InputError
from ergnn.engine.distributed import digest, joined

CASES: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 16},
    "drawn neighbors": {"batch_size": 16, "fanout": "2,1"},
    "full batch": {"backbone": "gat", "edges": "own"},
    "nothing for rank 1": {"batch_size": 1, "epochs": 1, "method": "finetune"},
    "rows": {"backbone": "mlp", "batch_size": 7, "optimizer": "sgd", "lr": 0.1},
    "step hook": {"method": "gem", "batch_size": 16},
    "one head": {"protocol": "paper", "method": "ewc"},
}


def close(one: Learnt, other: Learnt) -> None:
    assert one.state["model"].keys() == other.state["model"].keys()
    for name, value in one.state["model"].items():
        torch.testing.assert_close(other.state["model"][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_what_one_process_learns(case: str) -> None:
    config = replace(BASE, **CASES[case]).resolved()
    alone = learn(config)
    first, second = on_ranks(learn, config)
    close(alone, first)
    assert first.parameters == second.parameters
    assert first.remembered == second.remembered
    assert len(set(first.parameters)) == 3  # something was learned in each task
    assert digest(first.state) == digest(second.state)
    assert first.matrix == second.matrix
    assert first.state["method"].keys() == alone.state["method"].keys()


@pytest.mark.parametrize("name", ["ppr", "hops"])
def test_each_rank_propagates_its_share_of_the_columns(name: str) -> None:
    alone, ranks = propagate(name), on_ranks(propagate, name, size=3)
    assert alone[0] == list(range(8))
    assert [each[0] for each in ranks] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    for _, rows, norms in ranks:
        torch.testing.assert_close(rows, alone[1], rtol=0, atol=1e-12)
        torch.testing.assert_close(norms, alone[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{"sketch": 16}, {}])
def test_ranks_solve_the_head_that_one_process_solves(options: dict[str, Any]) -> None:
    """With a sketch there are fewer columns than training nodes, and columns are shared; else each works alone."""
    settings: dict[str, Any] = {"backbone": "auto", "backbone_options": {}, "method": "analytic", "head": "growing"}
    config = replace(BASE, **settings, method_options=options).resolved()
    alone, ranks = learn(config), on_ranks(learn, config)
    expected, found = (each.state["method"]["solution"] for each in (alone, ranks[0]))
    torch.testing.assert_close(found["weight"], expected["weight"], rtol=0, atol=1e-9)
    assert digest(ranks[0].state) == digest(ranks[1].state)
    assert ranks[0].remembered == ranks[1].remembered
    assert ranks[0].matrix == ranks[1].matrix == alone.matrix


def test_three_ranks_with_a_custom_module() -> None:
    config = BASE.resolved()
    alone = learn(config, plain=True)
    ranks = on_ranks(learn, config, None, None, True, size=3)
    close(alone, ranks[0])
    assert ranks[0].parameters == ranks[1].parameters == ranks[2].parameters
    assert digest(ranks[0].state) == digest(ranks[2].state)


def test_with_dropout_ranks_draw_their_own_masks_and_agree() -> None:
    config = replace(BASE, backbone="gat", backbone_options={}, batch_size=16).resolved()
    first, second = on_ranks(learn, config)
    assert first.parameters == second.parameters
    assert first.remembered == second.remembered
    with pytest.raises(AssertionError):
        close(learn(config), first)


def test_ranks_that_disagree_are_an_error_on_both() -> None:
    given = on_ranks(disagree, BASE.resolved())
    for error in given:
        assert isinstance(error, ErgnnError)
        assert re.fullmatch(
            r"the ranks disagree on what was learned in task 2 .*\(rank 0: \w+, rank 1: \w+\)", str(error)
        )


def test_a_killed_rank_ends_the_run_which_resumes_after_the_last_task(tmp_path: Path) -> None:
    config = replace(BASE, batch_size=16).resolved()
    error, code = on_ranks(learn, config, str(tmp_path), 6)  # in the middle of the second task
    assert isinstance(error, ErgnnError)
    assert "rank 0 of 2: another rank is lost or does not respond" in str(error)
    assert code == -signal.SIGKILL
    (kept,) = tmp_path.iterdir()
    assert len(torch.load(kept, weights_only=True)["rows"]) == 1
    whole, again = on_ranks(learn, config), on_ranks(learn, config, str(tmp_path))
    assert again[0].said == ["seed 0, class order 0: 1 of 3 tasks are already done"]
    assert again[1].said == []
    assert again[0].parameters == again[1].parameters == whole[0].parameters[1:]
    assert again[0].matrix == whole[0].matrix
    alone = learn(config, str(tmp_path))  # all is done: nothing is learned again
    assert alone.parameters == []
    assert alone.matrix == whole[0].matrix


@pytest.mark.slow
def test_an_unresponsive_rank_is_detected() -> None:
    assert on_ranks(second_comes_late, 0.1) == ["no error", "no error"]
    error, _ = on_ranks(second_comes_late, 8.0)
    assert "rank 0 of 2: another rank is lost or does not respond" in str(error)


def test_one_process_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    config = replace(BASE, selector="im").resolved()
    learn(config, str(tmp_path))
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"half of a")
    with pytest.raises(InputError, match=r"\.pt: cannot be read .*; remove it to start this run again"):
        learn(config, str(tmp_path))
    torch.save({"schema": 7}, kept)
    with pytest.raises(InputError, match=r"cannot be read as a checkpoint of this version.*its schema is 7"):
        learn(config, str(tmp_path))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two' in the environment; torchrun sets it to a number"),
        ({"WORLD_SIZE": "2"}, "RANK is '' in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not in the environment; start with torchrun"),
    ],
)
def test_an_incomplete_environment_is_named(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message), joined():
        pass


def test_a_gpu_by_number_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="assigned to its ranks in turn: use cuda"), joined("cuda:0"):
        pass


def test_hashes_depend_on_every_bit() -> None:
    sparse = torch.eye(3).to_sparse_csr()
    values = [
        torch.zeros(2),
        torch.zeros(2, 1),
        torch.zeros(2, dtype=torch.int32),
        sparse,
        sparse * 2,
        [1, 2],
        [[1], 2],
    ]
    values += [{"a": 1, "b": 2}, {"a": 2, "b": 1}, None, "None", 1, 1.0, [1, 12], [11, 2], torch.tensor([0.0, -0.0])]
    assert len({digest(value) for value in values}) == len(values)
