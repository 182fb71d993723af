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
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

from ergnn.config.errors import InputError, UnknownNameError, did_you_mean

T = TypeVar("T")
Constructor = TypeVar("Constructor", bound=Callable[..., None])

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


def name_of(entry: Any) -> str | None:
    """Return the name of a backbone, method or selector; for an object, the name of its class."""
    return entry if entry is None or isinstance(entry, str) else type(entry).__name__


def inherit_options(base: Any, *fixed: str) -> Callable[[Constructor], Constructor]:
    """Decorate a constructor that passes ``**options`` to that of ``base``, whose options are then options of both."""

    def decorate(constructor: Constructor) -> Constructor:
        first, *added = inspect.signature(constructor).parameters.values()
        taken = {*fixed, *(p.name for p in added)}
        inherited = [p for p in inspect.signature(base).parameters.values() if p.name not in taken]
        options = [p.replace(kind=p.KEYWORD_ONLY) for p in (*inherited, *added) if p.kind is not p.VAR_KEYWORD]
        constructor.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined]
        return constructor

    return decorate


@cache  # an entry may be created very often, e.g. one selector per seed and row of a table
def options_of(factory: Any) -> tuple[Option, ...]:
    """Return the options of a class or function, from its signature and docstring."""
    parameters = inspect.signature(factory).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in parameters if p.kind not in variadic and p.name not in FROM_TASKS]
    return tuple(_option(factory, p.name, p.annotation, p.default) for p in named)


@cache
def field_options(settings: Any) -> tuple[Option, ...]:
    """Return the fields of a dataclass of settings as options."""
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(settings)}
    return tuple(_option(settings, f.name, f.type, defaults[f.name]) for f in fields(settings))


def argument_texts(doc: str) -> dict[str, str]:
    """Map arguments to their texts in the ``Args:`` section of a docstring; ``a, b: text`` documents both."""
    section = re.split(r"\n(?=\S)", inspect.cleandoc(doc).partition("Args:\n")[2])[0]
    entries = re.findall(r"^ {4}([\w, ]+): (.+(?:\n {8,}.+)*)", section, flags=re.MULTILINE)
    return {
        name.strip(): " ".join(re.sub(r":\w+:`~?([^`]+)`", r"\1", text).replace("``", "").split())
        for names, text in entries
        for name in names.split(",")
    }


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
            for key in (name, *aliases):
                if key != key.lower() or key.split() != [key]:
                    raise InputError(f"{self.kind} {key!r} is not a valid name: use one lower-case word")
                if key in self._entries or key in self._aliases:
                    raise InputError(f"{self.kind} {key!r} is already registered")
            self._entries[name] = entry
            self._help[name] = help or (inspect.getdoc(entry) or "").partition("\n")[0]
            self._aliases.update(dict.fromkeys(aliases, name))
            return entry

        return decorate

    def resolve(self, name: str) -> str:
        """Return the full name for a name or alias (case-insensitive)."""
        if name not in self:
            raise UnknownNameError(self.kind, name, self._entries)
        key = str(name).lower()
        return self._aliases.get(key, key)

    def get(self, name: str) -> T:
        return self._entries[self.resolve(name)]

    def create(self, name: str, **options: Any) -> Any:
        """Instantiate an entry; errors list the allowed options, or the expected type of a value."""
        factory: Any = self.get(name)
        allowed = {option.name: option for option in options_of(factory)}
        for key in sorted(options.keys() - set(FROM_TASKS)):
            if key not in allowed:
                raise self.unknown_option(name, key)
            allowed[key].check(options[key], f"{self.kind} {name!r}: ")
        return factory(**options)

    def options(self, name: str) -> tuple[Option, ...]:
        """Return the options of an entry, in the order of its constructor's arguments."""
        return options_of(self.get(name))

    def unknown_option(self, name: str, option: str) -> InputError:
        """Return an error that lists the options of an entry."""
        choices = sorted(o.name for o in self.options(name))
        guess = did_you_mean(option, choices)
        return InputError(
            f"{self.kind} {name!r} has no option {option!r}{guess}; its options: {', '.join(choices) or 'none'}"
        )

    def help(self, name: str) -> str:
        return self._help[self.resolve(name)]

    def aliases(self, name: str) -> tuple[str, ...]:
        key = self.resolve(name)
        return tuple(alias for alias, target in self._aliases.items() if target == key)

    def names(self) -> list[str]:
        self._import_all()
        return sorted(self._entries)

    def option_names(self) -> set[str]:
        """Return the names of the options of all entries."""
        return {option.name for name in self for option in self.options(name)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        key = str(name).lower()
        module = key.replace("-", "_")
        if not self._loaded and module.isidentifier() and find_spec(f"{self.package}.{module}"):
            import_module(f"{self.package}.{module}")
        if key not in self._entries and key not in self._aliases:
            self._import_all()
        return key in self._entries or key in self._aliases

    def _import_all(self) -> None:
        """Import all modules of the package, and those that other packages name as entry points."""
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


@cache
def _help_texts(factory: Any) -> dict[str, str]:
    """Return the help texts of arguments, from the docstrings of a class, its bases and their constructors.

    A text of a base class is replaced by that of a subclass, unless that one only refers to another with ``see …``.
    """
    texts: dict[str, str] = {}
    for owner in reversed(_owners(factory)):
        for doc in (vars(owner).get("__doc__"), getattr(vars(owner).get("__init__"), "__doc__", None)):
            if owner is not object and isinstance(doc, str):
                new = argument_texts(doc).items()
                texts |= {name: text for name, text in new if name not in texts or not text.startswith("see ")}
    return texts


def _owners(factory: Any) -> tuple[Any, ...]:
    return inspect.getmro(factory) if inspect.isclass(factory) else (factory,)


def _evaluated(factory: Any, annotation: Any) -> Any:
    """Evaluate the text of an annotation in the module of the class that has the constructor."""
    for owner in _owners(factory) if isinstance(annotation, str) else ():
        try:
            return eval(annotation, vars(sys.modules[owner.__module__]))  # as typing.get_type_hints does
        except (NameError, AttributeError, TypeError, KeyError):  # a name imported under TYPE_CHECKING only
            continue
    return annotation


def _option(factory: Any, name: str, annotation: Any, default: Any) -> Option:
    text, annotation = _help_texts(factory).get(name, ""), _evaluated(factory, annotation)
    if annotation is REQUIRED or isinstance(annotation, str):
        return Option(name, annotation if isinstance(annotation, str) else "", default, text)
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    choices = tuple(str(value) for m in members if get_origin(m) is Literal for value in get_args(m))
    types = [str if get_origin(m) is Literal else m for m in members]
    kinds = tuple(get_origin(member) or member for member in types)
    simple = all(kind in (bool, int, float, str, dict, NoneType) for kind in kinds)
    written = " | ".join("None" if member is NoneType else inspect.formatannotation(member) for member in types)
    return Option(name, written, default, text, choices or None, kinds if simple else ())
