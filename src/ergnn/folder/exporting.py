"""A model that leaves the folder: weights, what they mean, and the graph if it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ergnn import __version__
from ergnn.errors import InputError
from ergnn.folder import files
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.state import pack_learner
from ergnn.folder.tensors import to_bytes


def export_snapshot(snapshot: Snapshot, out: str | Path, graph: bool = False) -> list[Path]:
    """Write ``model.safetensors`` and ``model.json`` (and ``graph.npz``) into a folder, or beside a named file.

    The JSON holds the backbone with its options, the class of each output, class names and accuracy; the npz is in the
    layout of gnn-benchmark (CSR of adjacency and attributes, labels), with the ids.
    """
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.version.root}: nothing has been learnt yet; there is nothing to export")
    path = Path(out)
    weights = path if path.suffix == ".safetensors" else path / "model.safetensors"
    meaning = describe(snapshot)
    written = [weights, weights.with_suffix(".json")]
    try:
        weights.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(weights, to_bytes(pack_learner(snapshot.learner)[1], {"format": "pt"}))
        files.replace_file(written[1], files.to_json(meaning))
        if graph:
            written.append(weights.with_name("graph.npz"))
            _write_graph(snapshot, written[-1])
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return written


def describe(snapshot: Snapshot) -> dict[str, Any]:
    settings, learner = snapshot.settings, snapshot.learner
    place, label = learner.heads.columns(None, learner.device)
    return {
        "ergnn": __version__,
        "backbone": settings.backbone,
        "backbone_options": settings.backbone_options,
        "num_features": snapshot.version.state["num_features"],
        "heads": list(getattr(learner.model, "head_widths", [])),
        "classes": snapshot.classes,
        "outputs": [[int(p), snapshot.classes[int(c)]] for p, c in zip(place, label, strict=True)],
        "version": snapshot.version.number,
        "directed": settings.directed,
    }


def _write_graph(snapshot: Snapshot, path: Path) -> None:
    store = snapshot.store
    nodes = np.flatnonzero(store.alive(np.arange(store.num_nodes)))
    row, source = store.incoming(nodes)
    target, origin = row, np.searchsorted(nodes, source)
    order = np.lexsort((target, origin))
    count = np.bincount(origin, minlength=len(nodes))
    pointers, col, value = store.rows(nodes)
    names = store.names(nodes)
    arrays = {
        "adj_data": np.ones(len(order), np.float32),
        "adj_indices": target[order],
        "adj_indptr": np.concatenate([[0], np.cumsum(count)]),
        "adj_shape": np.array([len(nodes), len(nodes)]),
        "attr_data": value,
        "attr_indices": col,
        "attr_indptr": pointers,
        "attr_shape": np.array([len(nodes), store.num_features]),
        "labels": store.labels(nodes)[0],
        "node_names": np.array(names, dtype=str),
        "class_names": np.array(snapshot.classes, dtype=str),
    }
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    beside.replace(path)
