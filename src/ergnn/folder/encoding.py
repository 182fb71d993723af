"""Columns of tables in a folder: what each becomes is decided at the first update, and its scale by the data there are.

A folder stores the values of a node as numbers that depend on no other node (:class:`~ergnn.data.tables.kinds.Codes`).
The scale of a number and the columns of a category are functions of all nodes of a version. They are fitted again in
every version, so that the features do not depend on the order of updates, and nothing is left of forgotten nodes.
Networks keep those of their first update, since their weights belong to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ergnn.analytic.inputs import FEW_COLUMNS
from ergnn.config.errors import FormatError, listed, truncate
from ergnn.data.structure import DESCRIPTION, WIDTH, identity_features
from ergnn.data.tables.columns import check_known
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import CODED, Codes, ColumnKind, decide_kinds, encode_values
from ergnn.data.tables.node_tables import NodeTable

if TYPE_CHECKING:
    from ergnn.folder.graph import StoredGraph
    from ergnn.folder.snapshot import Snapshot

MIN_ROWS = 10
"""Updates of fewer nodes may have columns without values."""


def coded_nodes(snapshot: Snapshot, nodes: NodeTable) -> tuple[NodeTable, dict[str, Any]]:
    """Return nodes with codes as their features, and what the version's state gains; unchanged without columns."""
    import pyarrow as pa

    state = snapshot.version.state
    kinds = [ColumnKind(*kind) for kind in state.get("kinds") or ()]
    bare = not nodes.columns and not nodes.num_features
    if state.get("structure") or (state["num_features"] is None and bare and len(nodes)):
        if not bare:
            raise FormatError(f"{nodes.where}: the nodes have columns, and earlier nodes had none")
        structure = {"structure": True, "num_features": WIDTH}
        return replace(nodes, features=identity_features(nodes.ids)), structure
    if not kinds and state["num_features"] is None:
        kinds = list(_first_kinds(snapshot, nodes))
    if not kinds or not (nodes.columns or nodes.num_features):
        return nodes, {}
    columns = _columns(nodes, [kind.name for kind in kinds])
    needed = [kind.name for kind in kinds if kind.kind != "ignore"]
    if nodes.partial_columns:
        columns = {**{name: pa.nulls(len(nodes)) for name in needed}, **columns}
    check_known(columns, [kind.name for kind in kinds], needed, nodes.where)
    codes, known = encode_values(kinds, columns, nodes.where), state.get("values") or {}
    values = {name: sorted({**dict(known.get(name, ())), **new}.items()) for name, new in codes.values.items()}
    table = replace(nodes, features=codes.to_matrix(), feature_names=None, columns=None)
    notes = tuple(_odd_columns(kinds, codes, known)) if "encoder" in state and len(nodes) >= MIN_ROWS else ()
    return table, {"notes": notes, "kinds": [[kind.name, kind.kind, kind.why] for kind in kinds], "values": values}


def _odd_columns(kinds: list[ColumnKind], codes: Codes, known: Mapping[str, Any]) -> Iterator[str]:
    """Say which columns have lost their values, or have none in common with earlier nodes."""
    for kind, column in zip((kind for kind in kinds if kind.kind in CODED), codes.numbers.T, strict=True):
        new, old = codes.values.get(kind.name, {}), dict(known.get(kind.name, ()))
        if np.isnan(column).all():
            yield f"column {truncate(kind.name)} has no values in this update"
        elif old and not new.keys() & old.keys():
            yield f"column {truncate(kind.name)} has only values that no earlier node has"


def _first_kinds(snapshot: Snapshot, nodes: NodeTable) -> tuple[ColumnKind, ...]:
    """Return the kinds of the columns of a first update; none for bags of words and embeddings."""
    told = snapshot.settings.columns
    if nodes.columns:
        kinds = decide_kinds(nodes.columns, told, nodes.where)
        words_only = all(kind.kind in ("word", "ignore") for kind in kinds)
        if all(kind.kind == "ignore" for kind in kinds):
            reasons = ", ".join(f"{kind.name} ({kind.why})" for kind in kinds)[:300]
            raise FormatError(
                f"{nodes.where}: no column tells nodes apart: {reasons}; leave them out with --ignore-column to learn "
                "from the edges alone, or create the folder with --columns NAME=KIND"
            )
        return () if words_only and nodes.num_features and not told else kinds
    if not (0 < nodes.num_features <= FEW_COLUMNS and snapshot.learner.scales_columns):
        return ()
    names = nodes.feature_names or [f"feature_{i}" for i in range(nodes.num_features)]
    return tuple(ColumnKind(name, "number", "few columns") for name in names)


def _columns(nodes: NodeTable, names: list[str]) -> Mapping[str, Any]:
    """Return the columns of nodes; features without names have those of the folder."""
    import pyarrow as pa

    if nodes.columns:
        return nodes.columns
    given, dense = nodes.feature_names or names, nodes.features
    if nodes.is_sparse and nodes.num_features < len(given):  # rows may end before the last feature
        dense = dense.copy()
        dense.resize(len(nodes), len(given))
    if len(given) != dense.shape[1]:
        raise FormatError(
            f"{nodes.where}: {nodes.num_features} features without names; the columns are {listed(names)}"
        )
    dense = dense.toarray() if nodes.is_sparse else dense
    return {name: pa.array(dense[:, i].astype(np.float64)) for i, name in enumerate(given)}


def fitted_state(graph: StoredGraph, state: Mapping[str, Any], refit: bool) -> dict[str, Any]:
    """Return what the state of a version gains from the nodes of its graph: the encoder, and the values of categories.

    With ``refit``, scales follow the data; otherwise those of the state are kept.
    """
    if not state.get("kinds"):
        return {}
    kinds = [ColumnKind(*kind) for kind in state["kinds"]]
    coded = [kind for kind in kinds if kind.kind in CODED]
    numbers, present = Codes.from_matrix(graph.stored_features(graph.nodes()), len(coded)).numbers, {}
    for kind, column in zip(coded, numbers.T, strict=True):
        if kind.kind == "category":
            codes = set(np.unique(column).tolist())
            present[kind.name] = {code: text for code, text in state["values"][kind.name] if code in codes}
    encoder = Encoder.fit(kinds, numbers, present) if refit or graph.encoder is None else graph.encoder
    return {
        "values": {name: sorted(pairs.items()) for name, pairs in present.items()},
        "encoder": encoder.to_json(),
        "num_features": len(encoder.names),
        "feature_names": None,
    }


def describe_columns(state: Mapping[str, Any]) -> list[list[str]]:
    """Return name, kind, reason and result of each column of a version; empty for bags of words and embeddings."""
    if state.get("structure"):
        return [["(none)", "structure", "no columns", DESCRIPTION]]
    return Encoder.from_json(state["encoder"]).describe() if state.get("encoder") else []
