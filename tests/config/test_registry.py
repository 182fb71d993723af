"""Names: how they are taken, found, listed and turned into instances."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import pytest

import ergnn.config.registry
from ergnn.config.errors import InputError, UnknownNameError
from ergnn.config.registry import REQUIRED, Option, Registry, inherit_options


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[type]:
    """A registry over an empty package of its own."""
    (tmp_path / "empty_shelf").mkdir()
    (tmp_path / "empty_shelf" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for module in [name for name in sys.modules if name.partition(".")[0] == "empty_shelf"]:
        monkeypatch.delitem(sys.modules, module)
    return Registry("gadget", "empty_shelf")


def offer(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def found(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr(ergnn.config.registry, "entry_points", found)


def test_a_name_and_its_aliases_find_the_entry_in_any_case(registry: Registry[type]) -> None:
    @registry.register("one*", aliases=("one-star",))
    class One:
        """The first.

        And more about it.
        """

    registry.register("a", help="another")(int)
    assert registry.get("one*") is registry.get("ONE-STAR") is One
    assert registry.resolve("One-Star") == "one*"
    assert registry.aliases("one*") == ("one-star",)
    assert (registry.help("one-star"), registry.help("a")) == ("The first.", "another")
    assert "one-star" in registry
    assert list(registry) == registry.names() == ["a", "one*"], "in alphabetical order, without aliases"
    with pytest.raises(UnknownNameError, match=r"unknown gadget 'c'; choose one of: a, one\*"):
        registry.get("c")


@pytest.mark.parametrize(
    ("name", "aliases", "message"),
    [
        *(
            (name, aliases, "already registered")
            for name, aliases in [("a", ()), ("b", ()), ("c", ("a",)), ("c", ("b",))]
        ),
        *((name, (), "lower-case word") for name in ("Upper", "two words", "")),
        ("fine", ("Not",), "lower-case word"),
    ],
)
def test_a_name_that_is_taken_or_invalid_is_refused(
    registry: Registry[type], name: str, aliases: tuple[str, ...], message: str
) -> None:
    registry.register("a", aliases=("b",))(int)
    with pytest.raises(InputError, match=message):
        registry.register(name, aliases=aliases)(float)
    assert registry.get("a") is int


def test_options_go_to_the_constructor_and_unknown_ones_are_named_with_the_allowed(registry: Registry[type]) -> None:
    @registry.register("one")
    class One:
        def __init__(self, size: int = 1, color: str = "red") -> None:
            self.size, self.color = size, color

    assert registry.create("one", size=3).size == 3
    with pytest.raises(InputError, match=r"gadget 'one' has no option 'weight'; its options: color, size"):
        registry.create("one", weight=2)
    registry.register("bare")(type("Bare", (), {}))
    with pytest.raises(InputError, match="its options: none"):
        registry.create("bare", size=2)


def test_a_value_of_the_wrong_type_is_named_with_the_right_one(registry: Registry[type]) -> None:
    @registry.register("one")
    class One:
        def __init__(
            self,
            size: float | None = None,
            shiny: bool = False,
            color: Literal["red", "blue"] | None = None,
            any_other: list[int] = (),
        ) -> None:
            self.size, self.any_other = size, any_other

    for size in (None, 2, 0.5):
        assert registry.create("one", size=size).size == size
    assert registry.create("one", color="blue", any_other="left to the entry itself").any_other
    for options, message in (
        ({"size": "big"}, r"gadget 'one': size is 'big'; it must be of type float \| None"),
        ({"size": True}, "size is True"),
        ({"shiny": "maybe"}, "shiny is 'maybe'; it must be of type bool"),
        ({"shiny": 1}, "shiny is 1"),
        ({"color": 3}, r"gadget 'one': color is 3; it must be of type str \| None"),
        ({"color": "green"}, "unknown color 'green'; choose one of: blue, red"),
    ):
        with pytest.raises(InputError, match=message):
            registry.create("one", **options)


def test_one_name_imports_its_own_module_only(
    registry: Registry[type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("new_one", "other", "both"):
        names = ("first", "second") if module == "both" else (module.replace("_", "-"),)
        lines = [f"REGISTRY.register({name!r}, aliases=({name + '-2'!r},))(int)" for name in names]
        text = "\n".join(["from builtins import REGISTRY", *lines])
        (tmp_path / "empty_shelf" / f"{module}.py").write_text(text)
    monkeypatch.setattr("builtins.REGISTRY", registry, raising=False)
    assert registry.resolve("New-One") == "new-one"
    assert "new-one-2" in registry
    assert "empty_shelf.other" not in sys.modules
    assert registry.resolve("second-2") == "second", "its module has another name, so all are imported"
    assert registry.names() == ["first", "new-one", "other", "second"]


def test_a_plug_in_does_not_replace_an_entry_of_the_package(
    registry: Registry[type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty_shelf" / "one.py").write_text("from builtins import REGISTRY\nREGISTRY.register('one')(int)")
    monkeypatch.setattr("builtins.REGISTRY", registry, raising=False)
    registry.register("one")(float)
    with pytest.raises(InputError, match="gadget 'one' is already registered"):
        registry.get("one")


def test_entry_points_of_the_kind_are_loaded_and_broken_ones_warned_of(
    registry: Registry[type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_gadget.py").write_text("from builtins import REGISTRY\nREGISTRY.register('acme')(int)")
    monkeypatch.setattr("builtins.REGISTRY", registry, raising=False)
    offer(
        monkeypatch,
        EntryPoint("acme", "acme_gadget", "ergnn.gadgets"),
        EntryPoint("other", "module_that_is_not_there", "ergnn.widgets"),
        EntryPoint("broken", "module_that_is_not_there", "ergnn.gadgets"),
    )
    with pytest.warns(UserWarning, match=r"gadget 'broken' of another package \(module_that_is_not_there\)") as lines:
        assert registry.names() == ["acme"]
    assert len(lines) == 1


def test_options_follow_from_the_signature_and_the_docstring(registry: Registry[type]) -> None:
    class Base:
        """A base.

        Args:
            size, weight: how large, ``0`` or more,
                and how heavy.
            color: overridden below.
        """

    @registry.register("one")
    class One(Base):
        """A thing.

        Args:
            color: of the :class:`Thing`.

        Raises:
            ValueError: never.
        """

        def __init__(
            self,
            size: int,
            weight: float | None = None,
            color: Literal["red", "blue"] = "red",
            part: "str | Unknown" = "",  # type: ignore[name-defined]  # noqa: F821
            **rest: int,
        ) -> None: ...

    size, weight, color, part = registry.options("one")
    text = "how large, 0 or more, and how heavy."
    assert size == Option("size", "int", REQUIRED, text, None, (int,))
    assert weight == Option("weight", "float | None", None, text, None, (float, type(None)))
    assert color == Option("color", "str", "red", "of the Thing.", ("red", "blue"), (str,))
    assert (part.type, part.kinds, part.help) == ("str | Unknown", (), "")


def test_options_of_a_base_class_are_inherited_except_those_that_are_fixed(registry: Registry[type]) -> None:
    class Memory:
        """A memory.

        Args:
            size: number of rows.
            mode: a mode.
        """

        def __init__(self, size: int = 1, mode: str = "live") -> None:
            self.size, self.mode = size, mode

    @registry.register("stored")
    class Stored(Memory):
        """A method.

        Args:
            weight: a weight.
        """

        @inherit_options(Memory, "mode")
        def __init__(self, *, weight: float = 0.5, **memory: object) -> None:
            super().__init__(mode="stored", **memory)  # type: ignore[arg-type]
            self.weight = weight

    assert [(o.name, o.default, o.help) for o in registry.options("stored")] == [
        ("size", 1, "number of rows."),
        ("weight", 0.5, "a weight."),
    ]
    made = registry.create("stored", size=3, weight=2.0)
    assert (made.size, made.mode, made.weight) == (3, "stored", 2.0)
    with pytest.raises(InputError, match="has no option 'mode'; its options: size, weight"):
        registry.create("stored", mode="live")
    with pytest.raises(TypeError, match="mode"):
        Stored(mode="live")
