"""Roles of a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from ergnn.config.errors import FormatError, did_you_mean, listed, truncate
from ergnn.config.limits import Limits

TEXTS = ("id", "label", "split", "domain", "source", "target", "type")
NODE_ROLES = ("id", "label", "split", "domain", "time")
EDGE_ROLES = ("source", "target", "weight")
REQUIRED = ("id", "source", "target", "type")
DEFAULT_NAMES = {"weight": ("weight", "weights", "edge_weight"), "type": ("type", "edge_type")}
"""Default names of roles that have several."""
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
        type: types of edges, which are read if they have weights; default: ``type`` or ``edge_type``.
        type_weights: weight of each type of edges; an edge with a weight of its own has their product.
        keep_na_labels: keep ``NaN``, ``nan``, ``NA``, ``<NA>``, ``null`` and ``None`` as labels, not as "no label".
        remembered: which of these a folder remembers from earlier tables: a table may lack such columns.
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
    type: str | None = None
    type_weights: Mapping[str, float] | None = None
    keep_na_labels: bool = False
    remembered: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """Return what differs from the defaults, for JSON."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) not in (f.default, [])}
        told.pop("remembered", None)
        return {name: list(value) if name in ("features", "ignore") else value for name, value in told.items()}

    def recall(self, names: Mapping[str, Any]) -> Columns:
        """Return these columns with what an earlier :meth:`told` has and these do not; all ignored ones are ignored."""
        earlier = {name: value for name, value in names.items() if name not in self.told()}
        ignore = list(dict.fromkeys([*names.get("ignore", ()), *self.ignore]))
        return replace(self, **{**earlier, "ignore": ignore, "remembered": tuple(earlier)})


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
    out, missing = dict[str, str](), dict[str, str]()
    for role in roles:
        given = getattr(columns, role)
        if role in columns.remembered and given not in keys:
            given = None
            if role not in REQUIRED:
                continue
        allowed = DEFAULT_NAMES.get(role, (role,))
        fits = [key == given if given else key.lower() in allowed and key not in columns.ignore for key in keys]
        matches = [name for name, fit in zip(names, fits, strict=True) if fit and (given or name not in out.values())]
        if len(matches) > 1:
            raise FormatError(f"{where}: columns {listed(matches)} could all be the {role}; {_hint(role)}")
        if matches:
            out[role] = matches[0]
        elif given or role in REQUIRED:
            missing[role] = getattr(columns, role) or role
    if missing:
        which = f"column{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing.values()))}"
        hint = label_hint(names) if "label" in roles and "label" not in out else ""
        raise FormatError(f"{where}: no {which}{_present(names, missing)}; {_hint(*missing)}{hint}")
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
            if not matches and "features" not in columns.remembered:
                present = _present(names, {"features": want})
                raise FormatError(f"{where}: no column {truncate(want)} that could be a feature{present}")
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


def _hint(*roles: str) -> str:
    options = " and ".join(f"--{role}-column" for role in roles if role in TEXTS and role != "domain")
    named = f"Columns({', '.join(f'{role}=…' for role in roles)})"
    return f"name {'them' if len(roles) > 1 else 'it'} with {options + ', or in Python ' if options else ''}{named}"


def check_known(names: Iterable[str], known: Sequence[str], needed: Sequence[str], where: object) -> None:
    """Refuse feature columns that are not those of earlier nodes."""
    unknown, missing = sorted(set(names) - set(known)), [name for name in needed if name not in set(names)]
    problems = [f"missing: {listed(missing)}; add what is missing, values may be empty"] if missing else []
    if unknown:
        text = f"unknown: {listed(unknown)}{did_you_mean(unknown[0], known)}; leave out what is unknown with"
        problems.append(f"{text} --ignore-column{label_hint(unknown)}")
    if problems:
        raise FormatError(f"{where}: feature columns differ from those of earlier nodes; {'; '.join(problems)}")


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


def _present(names: Sequence[str], missing: Mapping[str, str]) -> str:
    """Return what a table has instead of the missing columns (by role), and what may have gone wrong."""
    text = f"{''.join(did_you_mean(name, names) for name in missing.values())}; columns are {listed(names)}"
    marks = [mark for mark in ";,\t|" if len(names) == 1 and mark in names[0]]
    other = ("source", "target") if "id" in missing else ("id",)
    if marks:
        text += f" (separated by {marks[0]!r}? values are separated by commas in .csv files and by tabs in .tsv files)"
    elif missing.keys() & set(REQUIRED) and {name.strip().lower() for name in names}.issuperset(other):
        text += " (are the files of nodes and edges swapped?)"
    elif any(name.strip().replace(".", "", 1).isdecimal() for name in names):
        text += " (is the header missing? the first line must name the columns)"
    return text
