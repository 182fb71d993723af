"""The MLflow flavor, with a local file store."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ergnn
from ergnn.config.errors import InputError
from ergnn.folder import LearnerFolder
from folder.growing import FEATURES, make_updates, quick

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    folder = LearnerFolder.create(tmp_path_factory.mktemp("mlflow") / "f", quick())
    for nodes, edges in make_updates(2):
        folder.observe(nodes, edges)
    return folder


def graph(nodes: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.random((nodes, FEATURES), np.float32), "edge_index": rng.integers(0, nodes, (2, 90))}


def test_a_saved_model_predicts_what_the_folder_predicts(folder: LearnerFolder, tmp_path: Path) -> None:
    import mlflow.pyfunc

    from ergnn.folder.mlflow import save_model

    save_model(folder.root, tmp_path / "model")
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(graph())
    module, inputs = ergnn.load(folder.root), {name: torch.from_numpy(value) for name, value in graph().items()}
    with torch.no_grad():
        own = torch.softmax(module(**inputs), 1)
    assert list(found.columns) == module.classes
    np.testing.assert_allclose(found.to_numpy(), own, atol=1e-6)


def test_a_logged_model_is_found_in_its_run(
    folder: LearnerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    from ergnn.folder.mlflow import log_model

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # databases need more than mlflow-skinny
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            info = log_model(folder.root, version=1)
        model = mlflow.pyfunc.load_model(info.model_uri)
        assert list(model.predict(graph(40)).columns) == ergnn.load(folder.root, version=1).classes
        names = [spec.name for spec in model.metadata.signature.inputs]
        assert names == ["x", "edge_index"]
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((5, FEATURES + 1), np.float32)}, rf"x has shape \[5, {FEATURES + 1}\]"),
        ({"x": np.full((5, FEATURES), np.nan, np.float32)}, "all finite"),
        ({"edge_index": np.zeros((3, 4), np.int64)}, r"edge_index has shape \[3, 4\]"),
        ({"edge_index": np.full((2, 4), 30)}, "names nodes 30 to 30; x has 30 nodes"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(folder: LearnerFolder, change: dict[str, np.ndarray], message: str) -> None:
    from ergnn.folder.mlflow import PyfuncModel

    model = PyfuncModel(ergnn.load(folder.root))
    with pytest.raises(InputError, match=message):
        model.predict({**graph(), **change})
    with pytest.raises(InputError, match="a mapping with the arrays"):
        model.predict({"x": graph()["x"]})
