"""The model of a folder for use elsewhere: a plain PyG module, and files, of which two run without ergnn."""

from __future__ import annotations

import io
import json
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ergnn import __version__
from ergnn.analytic import FEATURE_MAPS
from ergnn.analytic.features import added_length, join_blocks
from ergnn.analytic.inputs import Sketch
from ergnn.config.errors import ErgnnError, InputError, check_choice
from ergnn.config.files import wrap_errors, write_file
from ergnn.config.imports import extra
from ergnn.data.scale import CLIP
from ergnn.data.structure import features_of
from ergnn.data.tables.columns import Columns
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import encode_values
from ergnn.data.tables.named_graph import features_tensor, to_graph
from ergnn.data.tables.read import read_edges, read_nodes
from ergnn.folder import database
from ergnn.folder.database import get_tensors, to_json
from ergnn.folder.graph import StoredGraph
from ergnn.folder.snapshot import Snapshot, open_snapshot
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.layers import PlainAdjacency

SUFFIXES = {"safetensors": ".safetensors", "onnx": ".onnx", "torch": ".pt2"}
DESCRIBED = ("num_features", "feature_names", "encoder", "structure", "weighted")
"""Entries of a version's state that describe the inputs of its model."""
METADATA = "ergnn"
"""The entry of a file's metadata that describes the model, as JSON."""
OPSET = 18
"""The first ONNX opset whose scatter operations can sum."""
TOLERANCE = 1e-5
"""Largest difference between ONNX's logits and the module's, relative to the largest logit if that is above 1."""


class NodeClassifier(nn.Module):
    """Logits of nodes, in evaluation mode.

    Attributes:
        classes: the name of each column of the logits.
        metadata: what else is known of the model: backbone and its options or the feature map, feature names, version.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__()
        self.metadata = dict(metadata)
        self.encoder = Encoder.from_json(metadata["encoder"]) if metadata.get("encoder") else None
        self.classes, self.num_features = class_names(metadata), int(metadata["num_features"])

    def encode(self, table: Any, edges: Any = None) -> Tensor:
        """Features of a table of nodes (a file, a data frame or an Arrow table), by the columns that were learned.

        The edges matter only if the nodes have no columns: then features follow from them.
        """
        columns = Columns().recall(self.metadata.get("names", {}))
        nodes = read_nodes(table, columns=columns)
        if self.metadata.get("structure"):
            table = None if edges is None else read_edges(edges, columns=columns)
            return to_graph(nodes, table, undirected=not self.metadata["directed"]).graph.x.to_dense()
        if self.encoder is None:
            return features_tensor(nodes).to_dense()
        codes = encode_values(self.encoder.columns, nodes.columns or {}, "the table")
        if "map" in self.metadata and self.encoder.number_scales:  # `forward` standardizes numbers
            return torch.from_numpy(codes.numbers.astype(np.float32))
        features = self.encoder.features(codes)
        return torch.from_numpy(features.toarray() if self.encoder.is_sparse else features)

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits ``[nodes, classes]``, whose softmax are the probabilities.

        Args:
            x: features, ``[nodes, num_features]``, dense.
            edge_index: ``[2, edges]``, source and target of each edge; both directions of an undirected one. As in
                a folder, an edge that is given twice counts once.
        """


class NetworkClassifier(NodeClassifier):
    """PyG layers, and the output layers of all tasks side by side."""

    def __init__(self, metadata: Mapping[str, Any], model: Backbone) -> None:
        super().__init__(metadata)
        self.model = model.eval()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = _distinct(edge_index, x.size(0))
        h = self.model.embed(x, edge_index)
        parts = [last(h) if isinstance(last, nn.Linear) else last(h, edge_index) for last in self.model.heads]
        return torch.cat(parts, 1)


class AnalyticClassifier(NodeClassifier):
    """``τ k(φ, anchors) W`` of the closed form, with φ of :class:`ergnn.analytic.Features`; computed in float64.

    Without anchors, the kernel is the inner product and scores are ``τ φ W``.
    """

    def __init__(self, metadata: Mapping[str, Any], weight: Tensor, anchors: Tensor | None = None) -> None:
        super().__init__(metadata)
        self.feature_map = FEATURE_MAPS.create(metadata["map"], **metadata["map_options"])
        self.register_buffer("weight", weight.double() * metadata["temperature"])
        self.kernel_scale = float(metadata.get("s", 0.0))
        self.added = added_length(self.feature_map, float(metadata.get("square", 0.0)))
        if anchors is not None:
            self.register_buffer("anchors", anchors.double())
        for name, values in ({} if self.encoder is None else self.encoder.number_scales).items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        self.sketch_size: int | None = metadata["sketch"]
        if self.sketch_size is not None:
            sketch = Sketch(self.num_features, self.sketch_size)
            self.register_buffer("sketch_column", sketch.column)
            self.register_buffer("sketch_sign", sketch.sign)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = self._scaled(x.double())
        if self.sketch_size is not None:
            sketched = rows.new_zeros(rows.size(0), self.sketch_size)
            for column, sign in zip(self.get_buffer("sketch_column").T, self.get_buffer("sketch_sign").T, strict=True):
                sketched = sketched.scatter_add(1, column.expand(rows.size(0), -1), rows * sign)
            rows = sketched
        operator = PlainAdjacency(_distinct(edge_index, x.size(0)), x.size(0), rows.dtype)
        phi = join_blocks(self.feature_map.blocks(operator, rows), self.added)
        if self.kernel_scale:
            anchors = self.get_buffer("anchors")
            square = phi.square().sum(1, keepdim=True) + anchors.square().sum(1) - 2 * phi @ anchors.T
            phi = torch.exp(-0.5 * self.kernel_scale**2 * square.clamp(min=0))
        return (phi @ self.get_buffer("weight")).float()

    def _scaled(self, x: Tensor) -> Tensor:
        """Rows divided by their sums, numbers standardized, or the features of :meth:`NodeClassifier.encode`."""
        if self.metadata.get("structure"):
            return x
        if self.encoder is None:
            total = x.abs().sum(1, keepdim=True)
            return x / torch.where(total > 0, total, 1.0)
        if not self.encoder.number_scales:
            return x
        unit = self.get_buffer("unit")
        moved = torch.where(unit > 0, x.sign() * torch.log1p(x.abs() / torch.where(unit > 0, unit, 1.0)), x)
        standardized = ((moved - self.get_buffer("center")) / self.get_buffer("scale")).clamp(-CLIP, CLIP)
        return standardized.float().double()  # as stored features


def _distinct(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The edges sorted by target, each once, as a folder stores them."""
    keys, order = torch.sort(edge_index[1] * num_nodes + edge_index[0])
    every = torch.arange(keys.size(0), device=keys.device)  # a slice would constrain the number of edges
    previous = torch.cat([keys.new_full((1,), -1), keys]).index_select(0, every)
    return edge_index[:, order[keys != previous]]


def class_names(metadata: Mapping[str, Any]) -> list[str]:
    """The class of each column of the logits: output layers side by side, in their order."""
    return [name for _, name in sorted(metadata["outputs"])]


def build_module(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> NodeClassifier:
    """The module of exported weights."""
    if metadata.get("weighted"):
        raise InputError("the model reads weights of edges, which an exported module does not; use `ergnn predict`")
    try:
        if "map" in metadata:
            return AnalyticClassifier(metadata, tensors["weight"], tensors.get("anchors")).eval()
        options = metadata["backbone_options"]
        model = BACKBONES.create(metadata["backbone"], in_channels=metadata["num_features"], **options)
        for width in metadata["heads"]:
            model.add_head(width)
        model.load_state_dict(dict(tensors))
        return NetworkClassifier(metadata, model).eval()
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"the weights do not fit their description ({type(error).__name__}: {error})") from None


def traced(module: NodeClassifier) -> torch.export.ExportedProgram:
    """The module as a graph of operations, for any number of nodes and edges."""
    nodes, edges = torch.export.Dim("nodes", min=1), torch.export.Dim("edges", min=0)
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
    return torch.export.export(module, _random_graph(module, 7, 19), dynamic_shapes=shapes, strict=False)


def torch_bytes(module: NodeClassifier) -> bytes:
    """A program of ``torch.export`` (``.pt2``) with the metadata as an extra file; reading it needs torch only."""
    data = io.BytesIO()
    torch.export.save(traced(module), data, extra_files={METADATA: json.dumps(module.metadata)})
    return data.getvalue()


def onnx_bytes(module: NodeClassifier) -> bytes:
    """An ONNX model of inputs ``x`` and ``edge_index`` and output ``logits``, compared with the module before.

    Needs the extra ``onnx``.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        extra(package, "onnx", "ONNX export")
    names: dict[str, Any] = {"input_names": ["x", "edge_index"], "output_names": ["logits"], "verbose": False}
    program = torch.onnx.export(traced(module), dynamo=True, opset_version=OPSET, external_data=False, **names)
    assert program is not None
    for node in program.model.graph.all_nodes():
        kind = node.attributes.get("reduction")
        if node.op_type == "ScatterND" and kind is not None and kind.value != "none":
            raise ErgnnError(
                "the model sums by index_add or index_put; ONNX Runtime does so with a data race; use scatter_add"
            )
    program.model.metadata_props[METADATA] = json.dumps(module.metadata)
    data: bytes = program.model_proto.SerializeToString()
    _check_onnx(module, data)
    return data


def _check_onnx(module: NodeClassifier, data: bytes) -> None:
    """Refuse a model whose logits differ from the module's on random graphs of several sizes, one without edges."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for nodes, edges in ((50, 400), (211, 97), (1, 0)):
        x, edge_index = _random_graph(module, nodes, edges)
        loops = edge_index[:1, :5].expand(2, -1)
        edge_index = torch.cat([edge_index, edge_index[:, :10], loops], 1)
        with torch.no_grad():
            expected = module(x, edge_index)
        (logits,) = session.run(["logits"], {"x": x.numpy(), "edge_index": edge_index.numpy()})
        error = float((torch.from_numpy(logits) - expected).abs().max()) / max(1.0, float(expected.abs().max()))
        if not error <= TOLERANCE:
            raise ErgnnError(f"logits by ONNX differ by {error:.1g} on a graph of {nodes} nodes")


def _random_graph(module: NodeClassifier, nodes: int, edges: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    x = torch.rand(nodes, module.num_features, generator=generator)
    x[::5] = 0.0
    return x, torch.randint(nodes, (2, edges), generator=generator)


EXPORTERS: dict[str, Callable[[NodeClassifier], bytes]] = {"onnx": onnx_bytes, "torch": torch_bytes}
"""Formats of files that run without ergnn, and their writers."""


def export_snapshot(
    snapshot: Snapshot, out: str | Path, graph: bool = False, format: str = "safetensors"
) -> list[Path]:
    """Write the model of a version, and ``graph.npz`` beside it if wanted; returns the files.

    ``safetensors`` are the weights with their description as JSON, in the file's metadata and in a file beside it:
    backbone and its options or feature map, class of each output, class and feature names. For ``onnx`` and ``torch``
    see :data:`EXPORTERS`. ``out`` is a file with the suffix of the format, or a folder, for a file ``model``.
    """
    check_choice("format", format, SUFFIXES)
    path, suffix = Path(out), SUFFIXES[format]
    if path.suffix in SUFFIXES.values() and path.suffix != suffix:
        raise InputError(f"{path}: format {format!r} needs a file that ends with {suffix}, or a folder")
    path = path if path.suffix == suffix else path / f"model{suffix}"
    metadata, tensors = _model(snapshot)
    if format in EXPORTERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own code
            contents = {path: EXPORTERS[format](build_module(metadata, tensors))}
    else:
        text = to_json(metadata)
        data = save(tensors, {"format": "pt", METADATA: text})
        contents = {path: data, path.with_suffix(".json"): f"{text}\n".encode()}
    if graph:
        contents[path.with_name("graph.npz")] = graph_npz(snapshot.graph, snapshot.classes)
    for file, data in contents.items():
        write_file(file, data)
    return list(contents)


def load(path: str | Path, version: int | None = None) -> nn.Module:
    """The plain PyG module of a learner's folder or of an exported file: ``module(x, edge_index)`` returns logits.

    Args:
        path: a folder, or a ``.safetensors`` or ``.pt2`` file of ``ergnn export``.
        version: stored version of a folder; by default the current one.

    Returns:
        A module with ``classes``, the name of each column of the logits, and ``metadata``: a
        :class:`~ergnn.folder.export.NodeClassifier`, or for a ``.pt2`` file a ``torch.fx.GraphModule``.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        raise InputError(f"{path}: to read an ONNX file, use onnxruntime.InferenceSession")
    if path.is_file():
        with wrap_errors(path, "a model of ergnn export"):
            if path.suffix == ".pt2":
                files = {METADATA: ""}
                program: Any = torch.export.load(path, extra_files=files).module()
                program.metadata = json.loads(files[METADATA])
                program.classes = class_names(program.metadata)
                return cast(nn.Module, program)
            with safe_open(path, "pt") as file:
                metadata = json.loads((file.metadata() or {})[METADATA])
                return build_module(metadata, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    with database.wrap_errors(path), open_snapshot(path, version) as snapshot:
        return build_module(*_model(snapshot))


def _model(snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of the weights, and the weights."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is no model")
    version, (described, more) = snapshot.version, snapshot.learner.describe(snapshot.classes)
    metadata = {
        "ergnn": __version__,
        **described,
        **{name: version.state.get(name) for name in DESCRIBED},
        **({"names": names} if (names := version.columns.told()) else {}),
        "classes": snapshot.classes,
        "version": version.number,
        "directed": snapshot.settings.directed,
    }
    return metadata, {**get_tensors(snapshot.connection, version.number, "weights"), **more}


def graph_npz(graph: StoredGraph, class_names: list[str]) -> bytes:
    """A graph in the layout of gnn-benchmark (CSR of adjacency and features, labels), with ids and class names."""
    nodes = graph.nodes()
    target, source, weight = graph.neighbors(nodes)
    edges = (np.ones(len(source), np.float32) if weight is None else weight, (np.searchsorted(nodes, source), target))
    adjacency = scipy.sparse.csr_matrix(edges, (len(nodes), len(nodes)))
    features = scipy.sparse.csr_matrix(features_of(graph, nodes))
    arrays: dict[str, Any] = {
        f"{name}_{field}": np.asarray(getattr(matrix, field))
        for name, matrix in (("adj", adjacency), ("attr", features))
        for field in ("data", "indices", "indptr", "shape")
    }
    arrays |= {"node_names": np.array(graph.names(nodes), str), "class_names": np.array(class_names, str)}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays, labels=graph.labels(nodes)[0])
    return data.getvalue()
