"""Roles of a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ergnn.config.errors import FormatError, did_you_mean, listed, truncate
from ergnn.config.limits import Limits

TEXTS = ("id", "label", "split", "domain", "source", "target")
NODE_ROLES = ("id", "label", "split", "domain", "time")
EDGE_ROLES = ("source", "target", "weight")
REQUIRED = ("id", "source", "target")
FEATURES = "features"
PREFIX = "feature_"
LOOK_LIKE_LABELS = (
    *("category", "categories", "churn", "churned", "class", "classes", "fraud", "group", "is_fraud"),
    *("labels", "outcome", "segment", "status", "target", "y"),
)
"""Names of columns, in lower case, that may hold the labels where no column is called ``label``."""
INDEX = ("", "index", "level_0")
"""Names of the index of a pandas frame in a CSV file, and after ``reset_index``."""
UNNAMED = "Unnamed: "
"""How its name begins after that CSV file was read by pandas and written again."""
CHOOSE = "name the feature columns with --feature-columns, or leave this one out with --ignore-column"


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
        time: times of nodes; default: ``time``.
        domain: domains of nodes; default: ``domain``.
        source: ids of the nodes that edges leave; default: ``source``.
        target: ids of the nodes that edges enter; default: ``target``.
        weight: weights of edges, 0 or more; default: ``weight``, ``weights`` or ``edge_weight``.
        keep_na_labels: keep ``NaN``, ``nan``, ``NA``, ``<NA>``, ``null`` and ``None`` as labels, not as "no label".
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
class ColumnRoles:
    """The column of each role, and feature columns; a ``single`` one may hold a list or sparse text per node."""

    names: dict[str, str]
    features: tuple[str, ...] = ()
    single: bool = False

    @property
    def columns(self) -> list[str]:
        """All columns with a role."""
        return [*self.names.values(), *self.features]

    @property
    def text_columns(self) -> list[str]:
        """Columns whose values are text even if they look like numbers."""
        return [self.names[role] for role in TEXTS if role in self.names]


def find_columns(names: Sequence[str], roles: Sequence[str], columns: Columns, where: object) -> ColumnRoles:
    """Find the column of each role; default names are matched in any case."""
    keys = [name.strip() for name in names]
    first: dict[str, int] = {}
    for i, key in enumerate(keys):
        if first.setdefault(key, i) != i:
            if key:
                raise FormatError(
                    f"{where}: column {truncate(key)} occurs twice, as column {first[key] + 1} and {i + 1}"
                )
            raise _index(key, first[key], where)
    out: dict[str, str] = {}
    for role in roles:
        given = getattr(columns, role)
        allowed = ("weight", "weights", "edge_weight") if role == "weight" else (role,)
        fits = [key == given if given else key.lower() in allowed and key not in columns.ignore for key in keys]
        matches = [name for name, fit in zip(names, fits, strict=True) if fit and (given or name not in out.values())]
        if len(matches) > 1:
            raise FormatError(f"{where}: columns {listed(matches)} could all be the {role}; {_hint(role)}")
        if matches:
            out[role] = matches[0]
        elif given or role in REQUIRED:
            raise FormatError(f"{where}: no column {given or role!r}{_present(names, given or role)}; {_hint(role)}")
    return ColumnRoles(out)


def find_node_columns(
    names: Sequence[str], index: Sequence[str], columns: Columns, limits: Limits, where: object
) -> ColumnRoles:
    """Find the columns of a node table; ``index`` columns, from the index of a pandas frame, are no features."""
    roles = find_columns(names, NODE_ROLES, columns, where).names
    free = [n for n in names if n not in {*roles.values(), *index} and n.strip() not in columns.ignore]
    single = [n for n in free if n.strip().lower() == FEATURES]
    if columns.features is not None:
        chosen, free = [], list(dict.fromkeys([*single, *free]))
        for want in columns.features:
            matches = [n for n in free if n.strip() == want.strip()] or [
                n for n in free if fnmatchcase(n.strip(), want)
            ]
            if not matches:
                raise FormatError(f"{where}: no column {truncate(want)} that could be a feature{_present(names, want)}")
            chosen += matches
        single = chosen if len(chosen) == 1 else []
    else:
        chosen = [n for n in free if n.strip().lower().startswith(PREFIX)]
        if chosen and single:
            raise FormatError(f"{where}: features both in {truncate(single[0])} and in {truncate(chosen[0])}; {CHOOSE}")
        chosen = chosen or single or free
        for name in (n for n in chosen if n.strip() in INDEX or n.startswith(UNNAMED)):
            raise _index(name, list(names).index(name), where)
    limits.check("features", len(chosen), where)
    return ColumnRoles(roles, tuple(dict.fromkeys(chosen)), bool(single))


def _hint(role: str) -> str:
    option = f"--{role}-column, or in Python " if role in TEXTS and role != "domain" else ""
    return f"name it with {option}Columns({role}=…)"


def check_known(names: Iterable[str], known: Sequence[str], needed: Sequence[str], where: object) -> None:
    """Refuse feature columns that are not those of earlier nodes."""
    unknown = sorted(set(names) - set(known))
    wrong = {"missing": [name for name in needed if name not in set(names)], "unknown": unknown}
    if any(wrong.values()):
        problem = "; ".join(f"{what}: {listed(columns)}" for what, columns in wrong.items() if columns)
        hint = ("; leave out what is unknown with --ignore-column" if unknown else "") + label_hint(unknown)
        raise FormatError(f"{where}: feature columns differ from those of earlier nodes; {problem}{hint}")


def label_hint(names: Iterable[str]) -> str:
    """Return the end of a message that asks about a column whose name looks like that of labels, if there is one."""
    name = next((name for name in names if name.strip().lower() in LOOK_LIKE_LABELS), None)
    return "" if name is None else f"; if column {truncate(name)} holds the labels, use --label-column {name}"


def _index(name: str, at: int, where: object) -> FormatError:
    problem = f"is called {truncate(name)}" if name in INDEX[1:] else "has no name"
    return FormatError(
        f"{where}: column {at + 1} {problem}; if it is the index of a pandas frame, write the file with index=False, "
        f"or leave it out with --ignore-column {truncate(name)}; if it is a feature, name it with --feature-columns"
    )


def _present(names: Sequence[str], missing: str) -> str:
    text = f"{did_you_mean(missing, names)}; columns are {listed(names)}"
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        text += ": values are separated by commas in .csv files and by tabs in .tsv files"
    elif any(name.strip().replace(".", "", 1).isdecimal() for name in names):
        text += " (is the header missing? the first line must name the columns)"
    return text
