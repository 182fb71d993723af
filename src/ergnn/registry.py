"""One registry for what can be named on the command line: data sets, backbones, heads, selectors, methods.

An entry is one file with one decorator::

    @SELECTORS.register("mine", aliases=("my-selector",), help="what it does")
    class Mine(Selector): ...

Third-party packages join by entry point (group ``ergnn.selectors``, ``ergnn.backbones``, ``ergnn.methods`` or
``ergnn.datasets``): the entry point names a module, or an object in one, whose import runs the decorator.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from ergnn.errors import InputError, UnknownNameError

T = TypeVar("T")

SIMPLE_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}


class Registry(Generic[T]):
    """Names for things of one kind.

    Args:
        kind: what an entry is called in messages, e.g. ``"selector"``.
        package: the package whose modules are imported on first use; each registers itself.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}
        self._help: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str, *, aliases: tuple[str, ...] = (), help: str = "") -> Callable[[T], T]:
        """Class decorator that adds an entry; a name can be taken only once."""

        def decorate(entry: T) -> T:
            wrong = [key for key in (name, *aliases) if key != key.lower() or key.split() != [key]]
            if wrong:
                raise InputError(f"{self.kind} {wrong[0]!r} cannot be found by that name: use one lower-case word")
            taken = [key for key in (name, *aliases) if key in self._entries or key in self._aliases]
            if taken:
                raise InputError(f"{self.kind} {taken[0]!r} is already registered")
            self._entries[name] = entry
            self._help[name] = help or (inspect.getdoc(entry) or "").partition("\n")[0]
            self._aliases.update(dict.fromkeys(aliases, name))
            return entry

        return decorate

    def resolve(self, name: str) -> str:
        """The full name behind a name or alias (case does not matter)."""
        self._load()
        key = str(name).lower()
        key = self._aliases.get(key, key)
        if key not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return key

    def get(self, name: str) -> T:
        return self._entries[self.resolve(name)]

    def create(self, name: str, **options: Any) -> Any:
        """Instantiate an entry; an unknown option is named with the allowed ones, a wrong type with the right one."""
        factory: Any = self.get(name)
        parameters = inspect.signature(factory).parameters
        allowed = {p.name for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        unknown = sorted(set(options) - allowed)
        if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            choices = ", ".join(sorted(allowed)) or "none"
            raise InputError(f"{self.kind} {name!r} has no option {unknown[0]!r}; its options: {choices}")
        for key in sorted(set(options) & allowed):
            wanted = inspect.formatannotation(parameters[key].annotation).strip("'")
            if not _fits(options[key], wanted):
                raise InputError(f"{self.kind} {name!r}: {key} is {options[key]!r}; it must be of type {wanted}")
        return factory(**options)

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
        self._loaded = True  # while loading, too: an entry may look up another
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
            except Exception as error:  # somebody else's package; the rest must stay usable
                warnings.warn(
                    f"the {self.kind} {point.name!r} of another package ({point.value}) cannot be loaded: "
                    f"{type(error).__name__}: {error}",
                    stacklevel=2,
                )


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value is of an annotated type, as far as that is made of simple ones; a bool is no number."""
    kinds = annotation.split(" | ")
    if any(kind not in SIMPLE_TYPES for kind in kinds):
        return True
    if isinstance(value, bool):
        return "bool" in kinds
    return isinstance(value, tuple(kind for name in kinds for kind in SIMPLE_TYPES[name]))
