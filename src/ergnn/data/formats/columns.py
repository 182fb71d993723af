"""Which column of a file means what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ergnn.data.formats.limits import Limits, shown
from ergnn.errors import FormatError

NODE_COLUMNS = ("id", "label", "time", "split", "domain")
EDGE_COLUMNS = ("source", "target", "weight", "time")
FEATURES = "features"
PREFIX = "feature_"
LOOK_LIKE_LABELS = ("class", "classes", "labels", "target", "y")


@dataclass(frozen=True)
class NodeColumns:
    """Places of a file's columns.

    Args:
        id, label, time, split, domain: places, ``None`` for a column that is not there.
        single: the place of the one column ``features`` with a list or sparse text a node.
        many: places of the columns with one feature each.
        names: names of the columns in ``many``.
    """

    id: int
    label: int | None
    time: int | None
    split: int | None
    domain: int | None
    single: int | None
    many: tuple[int, ...]
    names: tuple[str, ...]


def node_columns(names: Sequence[str], where: object, limits: Limits) -> NodeColumns:
    """Find the columns of a table of nodes.

    Features are the one column ``features`` (a list, or sparse text), or all columns that begin with ``feature_``;
    others are then the user's own and not read. Where there is neither, every column without a meaning is a feature.
    """
    keys = _keys(names, where, (*NODE_COLUMNS, FEATURES))
    place = {key: keys.index(key) if key in keys else None for key in (*NODE_COLUMNS, FEATURES)}
    if place["id"] is None:
        raise FormatError(f"{where}: no column 'id'; {_present(names)}")
    many = [i for i, key in enumerate(keys) if key.startswith(PREFIX)]
    if many and place[FEATURES] is not None:
        raise FormatError(
            f"{where}: both a column {FEATURES!r} and a column {names[many[0]]!r}; features must stand in one way"
        )
    if not many and place[FEATURES] is None:
        many = [i for i, key in enumerate(keys) if key not in NODE_COLUMNS]
        for i in many:
            if keys[i] in LOOK_LIKE_LABELS:
                raise FormatError(
                    f"{where}: column {shown(names[i])} would be read as a feature, but looks like a label; "
                    f"call it 'label', or '{PREFIX}{keys[i]}' if it is a feature"
                )
    limits.check("features", len(many), where)
    return NodeColumns(
        id=place["id"],
        label=place["label"],
        time=place["time"],
        split=place["split"],
        domain=place["domain"],
        single=place[FEATURES],
        many=tuple(many),
        names=tuple(names[i].strip() for i in many),
    )


@dataclass(frozen=True)
class EdgeColumns:
    """Places of a file's columns; ``None`` for a column that is not there."""

    source: int
    target: int
    weight: int | None
    time: int | None


def edge_columns(names: Sequence[str], where: object) -> EdgeColumns:
    """Find the columns of a table of edges; others are the user's own and not read."""
    keys = _keys(names, where, EDGE_COLUMNS)
    for needed in ("source", "target"):
        if needed not in keys:
            raise FormatError(f"{where}: no column {needed!r}; {_present(names)}")
    place = {key: keys.index(key) if key in keys else None for key in ("weight", "time")}
    return EdgeColumns(keys.index("source"), keys.index("target"), place["weight"], place["time"])


def _keys(names: Sequence[str], where: object, known: Sequence[str]) -> list[str]:
    """Names without outer blanks; those that have a meaning are found in capitals too."""
    keys = []
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        key = name.strip()
        folded = key.lower()
        key = folded if folded in known or folded in LOOK_LIKE_LABELS or folded.startswith(PREFIX) else key
        if not key:
            raise FormatError(f"{where}: column {i + 1} has no name")
        if key in first:
            raise FormatError(
                f"{where}: column {shown(name)} stands there twice, as column {first[key] + 1} and {i + 1}"
            )
        first[key] = i
        keys.append(key)
    return keys


def _present(names: Sequence[str]) -> str:
    text = f"columns are {', '.join(shown(name, 20) for name in names[:8])}" + (", …" if len(names) > 8 else "")
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        text += ": values are separated by commas in .csv files and by tabs in .tsv files"
    return text
