"""A GCN behind a plain FastAPI handler, as one writes it by hand: PyG on the whole graph for each request.

    python -m benchmarks.plain_server EXPORTED_FOLDER PORT

The folder holds ``model.safetensors``, ``model.json`` and ``graph.npz`` of ``ergnn export --graph``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch_geometric.nn import GCNConv


class GCN(torch.nn.Module):
    """Two layers; the output layers of all updates side by side."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        names = sorted(name for name in weights if name.startswith("heads.") and name.endswith("lin.weight"))
        last = {"lin.weight": torch.cat([weights[name] for name in names])}
        last["bias"] = torch.cat([weights[name.replace("lin.weight", "bias")] for name in names])
        first = {name.removeprefix("convs.0."): value for name, value in weights.items() if name.startswith("convs.0.")}
        self.first = GCNConv(first["lin.weight"].shape[1], first["lin.weight"].shape[0])
        self.last = GCNConv(last["lin.weight"].shape[1], last["lin.weight"].shape[0])
        self.first.load_state_dict(first)
        self.last.load_state_dict(last)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x, edge_index).relu(), edge_index)
        return out


def make_app(folder: Path) -> Any:
    from fastapi import FastAPI

    about = json.loads((folder / "model.json").read_text())
    columns = {label: place for place, label in about["outputs"]}
    classes = list(columns)
    model = GCN(load_file(folder / "model.safetensors")).eval()
    graph = np.load(folder / "graph.npz")
    names = ("attr_data", "attr_indices", "attr_indptr")
    x = torch.from_numpy(scipy.sparse.csr_matrix(tuple(graph[n] for n in names), graph["attr_shape"]).toarray()).float()
    matrix = scipy.sparse.csr_matrix(tuple(graph[n.replace("attr", "adj")] for n in names), graph["adj_shape"]).tocoo()
    edge_index = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
    number = {name: i for i, name in enumerate(graph["node_names"].tolist())}
    app = FastAPI()

    @app.post("/predict")
    def predict(body: dict[str, Any]) -> dict[str, Any]:
        place, features, edges = dict(number), x, edge_index
        if body.get("nodes"):
            new = torch.zeros(len(body["nodes"]), x.shape[1])
            for i, node in enumerate(body["nodes"]):
                place[node["id"]] = len(x) + i
                for column, value in node["features"].items():
                    new[i, int(column)] = value
            pairs = torch.tensor([[place[e["source"]], place[e["target"]]] for e in body["edges"]]).T
            features, edges = torch.cat([x, new]), torch.cat([edge_index, pairs, pairs.flip(0)], 1)
        ids = body.get("ids") or [node["id"] for node in body["nodes"]]
        with torch.no_grad():
            scores = model(features, edges)[[place[name] for name in ids]]
        rows = scores[:, [columns[label] for label in classes]].softmax(1)
        found = [
            {"id": name, "label": classes[int(row.argmax())], "probabilities": row.tolist()}
            for name, row in zip(ids, rows, strict=True)
        ]
        return {"classes": classes, "predictions": found}

    return app


if __name__ == "__main__":
    import uvicorn

    torch.set_num_threads(1)
    uvicorn.run(make_app(Path(sys.argv[1])), port=int(sys.argv[2]), access_log=False, log_level="warning")
