"""Registries of data sets, backbones, selectors and methods by name.

An entry is one file with one decorator::

    @SELECTORS.register("mine", aliases=("my-selector",), help="what it does")
    class Mine(Selector): ...

Third-party packages register by entry point (group ``ergnn.selectors``, ``ergnn.backbones``, ``ergnn.methods`` or
``ergnn.datasets``): the entry point names a module, or an object in one, whose import runs the decorator.

The options of an entry are the arguments of its constructor. Their types, defaults and choices come from the signature
(``Literal[…]`` for a fixed set of choices), their help texts from ``Args:`` in the docstring of the class or of a base
class: see :meth:`Registry.options`.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

from ergnn.config.errors import InputError, UnknownNameError

T = TypeVar("T")

REQUIRED: Final = inspect.Parameter.empty
"""Default of a required option."""

FROM_TASKS = ("in_channels", "out_channels")
"""Constructor arguments that are not options, because the tasks determine them."""


@dataclass(frozen=True)
class Option:
    """One argument of an entry's constructor.

    Args:
        name: name of the argument.
        type: annotation as text, e.g. ``int | None``; ``str`` for a fixed set of strings.
        default: default value; :data:`REQUIRED` if there is none.
        help: help text from the docstring.
        choices: allowed strings, if they are fixed.
        kinds: allowed types of a value; empty, to accept any value, if the annotation contains types other than
            ``bool``, ``int``, ``float``, ``str``, ``dict`` and ``None``.
    """

    name: str
    type: str
    default: Any
    help: str = ""
    choices: tuple[str, ...] | None = None
    kinds: tuple[Any, ...] = ()

    def check(self, value: Any, owner: str = "") -> None:
        """Raise an error if a value has the wrong type or is not among the choices; the message names ``owner``."""
        if self.choices is not None and isinstance(value, str):
            if value not in self.choices:
                raise UnknownNameError(self.name, value, self.choices)
            return
        kinds = (*self.kinds, int) if float in self.kinds else self.kinds
        if self.kinds and ((type(value) is bool and bool not in kinds) or not isinstance(value, kinds)):
            raise InputError(f"{owner}{self.name} is {value!r}; it must be of type {self.type}")


def name_of(part: Any) -> str | None:
    """Return the name of a backbone, method or selector; for an object, the name of its class."""
    return part if part is None or isinstance(part, str) else type(part).__name__


@cache  # an entry may be created very often, e.g. one selector per seed and row of a table
def options_of(factory: Any) -> tuple[Option, ...]:
    """Return the options of a class or function, from its signature and docstring."""
    parameters = inspect.signature(factory).parameters.values()
    texts = _texts(factory)
    kept = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in FROM_TASKS]
    return tuple(_option(p, _evaluated(factory, p.annotation), texts.get(p.name, "")) for p in kept)


def argument_texts(doc: str) -> dict[str, str]:
    """Map arguments to their texts in the ``Args:`` section of a docstring; ``a, b: text`` documents both."""
    section = re.split(r"\n(?=\S)", inspect.cleandoc(doc).partition("Args:\n")[2])[0]
    found = re.findall(r"^ {4}([\w, ]+): (.+(?:\n {8,}.+)*)", section, flags=re.MULTILINE)
    return {
        name.strip(): " ".join(re.sub(r":\w+:`~?([^`]+)`", r"\1", text).replace("``", "").split())
        for names, text in found
        for name in names.split(",")
    }


def merged_texts(docs: Iterable[str]) -> dict[str, str]:
    """Merge the texts of several docstrings, base classes first; ``see …`` does not replace an earlier text."""
    found: dict[str, str] = {}
    for doc in docs:
        own = argument_texts(doc)
        found |= {name: text for name, text in own.items() if name not in found or not text.startswith("see ")}
    return found


class Registry(Generic[T]):
    """Entries of one kind by name.

    Args:
        kind: kind of the entries in messages, e.g. ``"selector"``.
        package: package whose modules are imported on first use and register their entries.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}
        self._help: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str, *, aliases: tuple[str, ...] = (), help: str = "") -> Callable[[T], T]:
        """Return a class decorator that adds an entry; names must be unique."""

        def decorate(entry: T) -> T:
            wrong = [key for key in (name, *aliases) if key != key.lower() or key.split() != [key]]
            if wrong:
                raise InputError(f"{self.kind} {wrong[0]!r} is not a valid name: use one lower-case word")
            taken = [key for key in (name, *aliases) if key in self._entries or key in self._aliases]
            if taken:
                raise InputError(f"{self.kind} {taken[0]!r} is already registered")
            self._entries[name] = entry
            self._help[name] = help or (inspect.getdoc(entry) or "").partition("\n")[0]
            self._aliases.update(dict.fromkeys(aliases, name))
            return entry

        return decorate

    def resolve(self, name: str) -> str:
        """Return the full name for a name or alias (case-insensitive)."""
        self._load()
        key = str(name).lower()
        key = self._aliases.get(key, key)
        if key not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return key

    def get(self, name: str) -> T:
        return self._entries[self.resolve(name)]

    def create(self, name: str, **options: Any) -> Any:
        """Instantiate an entry; errors list the allowed options, or the expected type of a value."""
        factory: Any = self.get(name)
        variadic = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())
        allowed = {option.name: option for option in options_of(factory)}
        unknown = sorted(set(options) - set(allowed) - set(FROM_TASKS))
        if unknown and not variadic:
            choices = ", ".join(sorted(allowed)) or "none"
            raise InputError(f"{self.kind} {name!r} has no option {unknown[0]!r}; its options: {choices}")
        for key in sorted(set(options) & set(allowed)):
            allowed[key].check(options[key], f"{self.kind} {name!r}: ")
        return factory(**options)

    def options(self, name: str) -> tuple[Option, ...]:
        """Return the options of an entry, in the order of its constructor's arguments."""
        return options_of(self.get(name))

    def help(self, name: str) -> str:
        return self._help[self.resolve(name)]

    def aliases(self, name: str) -> tuple[str, ...]:
        key = self.resolve(name)
        return tuple(alias for alias, target in self._aliases.items() if target == key)

    def names(self) -> list[str]:
        self._load()
        return sorted(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        self._load()
        return str(name).lower() in self._entries or str(name).lower() in self._aliases

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # set before loading, since an entry may look up another
        try:
            package = import_module(self.package)
            for module in iter_modules(package.__path__):
                import_module(f"{self.package}.{module.name}")
        except BaseException:
            self._loaded = False
            raise
        for point in entry_points(group=f"ergnn.{self.kind.replace(' ', '')}s"):
            try:
                point.load()
            except Exception as error:  # in a third-party package; other entries must remain usable
                warnings.warn(
                    f"the {self.kind} {point.name!r} of another package ({point.value}) cannot be loaded: "
                    f"{type(error).__name__}: {error}",
                    stacklevel=2,
                )


def _texts(factory: Any) -> dict[str, str]:
    """Return the help texts of a class's arguments, from its docstring and those of its bases."""
    parts = (
        [part for part in reversed(inspect.getmro(factory)) if part is not object]
        if inspect.isclass(factory)
        else [factory]
    )
    docs = [
        doc
        for part in parts
        for doc in (part.__dict__.get("__doc__"), getattr(part.__dict__.get("__init__"), "__doc__", None))
    ]
    return merged_texts(doc for doc in docs if isinstance(doc, str))


def _evaluated(factory: Any, annotation: Any) -> Any:
    """Evaluate the text of an annotation in the constructor's module."""
    if not isinstance(annotation, str):
        return annotation
    for part in inspect.getmro(factory) if inspect.isclass(factory) else (factory,):
        try:
            return eval(annotation, vars(sys.modules[part.__module__]))  # as typing.get_type_hints does
        except (NameError, AttributeError, TypeError, KeyError):  # a name imported under TYPE_CHECKING only
            continue
    return annotation


def _option(parameter: inspect.Parameter, kind: Any, text: str) -> Option:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    literals = [get_args(part) for part in parts if get_origin(part) is Literal]
    choices = tuple(str(value) for values in literals for value in values) or None
    plain = [str if get_origin(part) is Literal else get_origin(part) or part for part in parts]
    plain = [NoneType if part is None else part for part in plain]
    simple = all(part in (bool, int, float, str, dict, NoneType) for part in plain)
    written = (
        kind
        if isinstance(kind, str)
        else " | ".join(
            "str"
            if get_origin(part) is Literal
            else "None"
            if part in (None, NoneType)
            else inspect.formatannotation(part)
            for part in parts
        )
    )
    default = parameter.default
    if kind is REQUIRED:
        written, simple = "", False
    return Option(parameter.name, written, default, text, choices, tuple(plain) if simple else ())
