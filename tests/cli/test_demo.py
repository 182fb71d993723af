"""The example tables and ``ergnn demo``."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ergnn.cli.main import main
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.example import write_files


def test_a_folder_reads_files_and_frames(tmp_path: Path) -> None:
    write_files(tmp_path, 120, new=5)
    folders = [LearnerFolder.create(tmp_path / name, Settings()) for name in ("frames", "files")]
    for week in (1, 2):
        nodes, edges = tmp_path / f"nodes_{week}.csv", tmp_path / f"edges_{week}.csv"
        folders[0].observe(pd.read_csv(nodes), pd.read_csv(edges))
        folders[1].observe(nodes, str(edges))
    new = tmp_path / "new.csv"
    (first,) = folders[0].predict(nodes=pd.read_csv(new))
    (second,) = folders[1].predict(nodes=new)
    assert first[:2] == second[:2]
    np.testing.assert_allclose(first[2], second[2], atol=1e-9)


def test_demo_runs_every_command_and_names_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a demo"  # a space, so that the printed commands have to be quoted
    assert main(["demo", str(folder), "--customers", "160"]) == 0
    text = capsys.readouterr().out
    for command in ("init", "observe", "predict", "evaluate", "forget", "inspect"):
        assert f"$ ergnn {command} '{folder / 'learner'}'" in text
    assert text.count("new nodes") == 4
    assert "c159" in text  # a predicted customer
    assert str(folder / "learner.html") in text
    assert "<html" in (folder / "learner.html").read_text(encoding="utf-8")
    with LearnerFolder(folder / "learner").snapshot() as snapshot:
        assert snapshot.graph.num_nodes == 154
    assert b"c0\n" not in (folder / "learner" / "learner.sqlite").read_bytes()
    assert main(["demo", str(folder)]) == 2
    assert "exists already; name another folder" in capsys.readouterr().err
