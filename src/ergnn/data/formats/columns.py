"""Which column of a table means what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ergnn.data.formats.limits import Limits, truncate
from ergnn.data.formats.tables import listed
from ergnn.errors import FormatError

NODE_TEXTS = ("id", "label", "split", "domain")
NODE_ROLES = (*NODE_TEXTS, "time")
EDGE_TEXTS = ("source", "target")
EDGE_ROLES = (*EDGE_TEXTS, "weight", "time")
FEATURES = "features"
PREFIX = "feature_"
LOOK_LIKE_LABELS = ("class", "classes", "labels", "target", "y")
UNNAMED = ("", "Unnamed: 0")
"""How the index of a pandas frame is called in a CSV file, and after that file was read and written again."""


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns, where they differ from the default names.

    Args:
        id: node ids; default: ``id``.
        label: labels; default: ``label``.
        features: feature columns, as names or patterns such as ``x_*``; default: ``features`` or ``feature_*``, or else
            all columns without another meaning.
        ignore: columns to leave out.
        split: ``train``, ``val`` or ``test`` per node; default: ``split``.
        time: times of nodes or edges; default: ``time``.
        domain: domains of nodes; default: ``domain``.
        source: ids of the nodes that edges leave; default: ``source``.
        target: ids of the nodes that edges enter; default: ``target``.
        weight: weights of edges; default: ``weight``.
        keep_na_labels: keep ``NaN``, ``nan``, ``NA``, ``null`` and ``None`` as labels instead of as "no label".
    """

    id: str | None = None
    label: str | None = None
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    split: str | None = None
    time: str | None = None
    domain: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    keep_na_labels: bool = False


@dataclass(frozen=True)
class Found:
    """The columns of a table by their names in it.

    Args:
        roles: the column of each role that is present.
        features: feature columns.
        single: whether the one feature column may hold a list or sparse text per node.
    """

    roles: dict[str, str]
    features: tuple[str, ...] = ()
    single: bool = False

    @property
    def wanted(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.features]))

    @property
    def texts(self) -> list[str]:
        """Columns of ids, labels and the like, whose values are text whatever they look like."""
        return [self.roles[role] for role in (*NODE_TEXTS, *EDGE_TEXTS) if role in self.roles]


def find_node_columns(
    names: Sequence[str], index: Sequence[str], columns: Columns, limits: Limits, where: object
) -> Found:
    """Find the columns of a table of nodes; ``index`` are those that were the index of a pandas frame."""
    roles = _roles(names, index, NODE_ROLES, ("id",), columns, where)
    taken = {*roles.values(), *index, *columns.ignore}
    free = [name for name in names if name not in taken and name.strip() not in taken]
    if columns.features is not None:
        chosen = [name for want in columns.features for name in _matching(want, names, where)]
        for name in chosen:
            if name in roles.values():
                raise FormatError(f"{where}: column {truncate(name)} cannot be a feature and have another meaning too")
        single = len(chosen) == 1
    else:
        chosen = [name for name in free if name.strip().lower().startswith(PREFIX)]
        lists = [name for name in free if name.strip().lower() == FEATURES]
        if chosen and lists:
            raise FormatError(
                f"{where}: features both in {truncate(lists[0])} and in {truncate(chosen[0])}; choose with "
                "--feature-columns or --ignore-column"
            )
        single = bool(lists)
        chosen = chosen or lists or [_feature(name, names, where) for name in free]
    limits.check("features", len(chosen), where)
    return Found(roles, tuple(dict.fromkeys(chosen)), single)


def find_edge_columns(names: Sequence[str], columns: Columns, where: object) -> Found:
    """Find the columns of a table of edges; others are not read."""
    return Found(_roles(names, (), EDGE_ROLES, EDGE_TEXTS, columns, where))


def _roles(
    names: Sequence[str],
    index: Sequence[str],
    roles: Sequence[str],
    required: Sequence[str],
    columns: Columns,
    where: object,
) -> dict[str, str]:
    stripped = [name.strip() for name in names]
    first: dict[str, int] = {}
    for i, name in enumerate(stripped):
        if first.setdefault(name, i) != i:
            raise FormatError(f"{where}: column {truncate(name)} occurs twice, as column {first[name] + 1} and {i + 1}")
    out: dict[str, str] = {}
    ignored = {name for name in names if name.strip() in columns.ignore}
    for role in roles:
        given = getattr(columns, role)
        found = [n for n, s in zip(names, stripped, strict=True) if s == (given or "").strip()] if given else [
            n for n, s in zip(names, stripped, strict=True) if s.lower() == role and n not in ignored
        ]
        if len(found) > 1:
            raise FormatError(f"{where}: columns {listed(found)} could all be the {role}; name one with --{role}-column")
        if found:
            out[role] = found[0]
        elif given or role in required:
            raise FormatError(f"{where}: no column {given or role!r}; {_present(names)}; name it with --{role}-column")
    return out


def _matching(want: str, names: Sequence[str], where: object) -> list[str]:
    found = [n for n in names if n.strip() == want.strip()] or [n for n in names if fnmatchcase(n.strip(), want)]
    if not found:
        raise FormatError(f"{where}: no feature column {truncate(want)}; {_present(names)}")
    return found


def _feature(name: str, names: Sequence[str], where: object) -> str:
    """A column that has no other meaning, if it can be a feature."""
    if name.strip() in UNNAMED:
        raise FormatError(
            f"{where}: column {list(names).index(name) + 1} has no name; if it is the index of a pandas frame, write "
            f"the file with index=False, or leave it out with --ignore-column {truncate(name)}"
        )
    if name.strip().lower() in LOOK_LIKE_LABELS:
        raise FormatError(
            f"{where}: column {truncate(name)} would be read as a feature, but looks like a label; name it with "
            "--label-column, leave it out with --ignore-column, or name the features with --feature-columns"
        )
    return name


def _present(names: Sequence[str]) -> str:
    text = f"columns are {listed(names)}"
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        text += ": values are separated by commas in .csv files and by tabs in .tsv files"
    return text
