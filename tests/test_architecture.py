"""Imports go one way (docs/architecture.md): to the left in the library, from the applications to the library."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "ergnn"
LIBRARY = ("config", "data", "nn", "engine", "replay", "analytic", "methods", "pages", "learning", "testing")
"""Packages of the library; each imports only from those to its left."""
APPLICATIONS = {"lab": (), "folder": (), "serve": ("folder",), "cli": ("lab", "folder", "serve"), "__main__": ("cli",)}
"""Applications of the library, and the applications that each imports from."""
PACKAGES = (*LIBRARY, *APPLICATIONS)


def imports(file: Path) -> set[str]:
    """The modules of the package that a file imports; those that only a type checker reads count too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "ergnn" else {f"ergnn.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("ergnn.") and name != "ergnn.__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_from_the_packages_that_it_may_use(package: str) -> None:
    path = PACKAGE / package
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    assert files
    allowed = {*LIBRARY[: PACKAGES.index(package) + 1], package, *APPLICATIONS.get(package, ())}
    for file in files:
        wrong = {name for name in imports(file) if name.split(".")[1] not in allowed}
        assert not wrong, f"{file.relative_to(PACKAGE)} imports {', '.join(sorted(wrong))}"


def test_every_package_is_listed() -> None:
    packages = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - {"__init__"} == set(PACKAGES)


UNIX_ONLY = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


def test_modules_can_be_imported_on_windows() -> None:
    """Modules that only Unix has are imported where they are used."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong = UNIX_ONLY.intersection(name.partition(".")[0] for name in names)
            assert not wrong, f"{file.relative_to(PACKAGE)} imports {', '.join(wrong)}"


def test_the_page_names_files_that_exist() -> None:
    """The table "Which file to change" of docs/architecture.md."""
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Which file to change")[2].partition("## Packages")[0]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", table))
    assert len(named) > 20
    for path in named:
        root = PACKAGE.parents[1] if path.startswith("benchmarks") else PACKAGE
        assert (root / path).exists(), f"docs/architecture.md names {path}"
    for symbol, path in re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", table):
        assert re.search(rf"\b{symbol}\b", (PACKAGE / path).read_text(encoding="utf-8")), f"{path} has no {symbol}"


def test_the_tour_stops_at_files_and_functions_that_exist() -> None:
    """Every stop of docs/tour.md: "`file`, `function`" and "`Class` (`file`)"."""
    page = (PACKAGE.parents[1] / "docs" / "tour.md").read_text(encoding="utf-8")
    for command in page.split("\n## ")[1:]:
        assert len(re.findall(r"^ ?\d+\. `", command, re.MULTILINE)) == 10
    for path in re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`", page):
        assert (PACKAGE / path).exists(), f"docs/tour.md names {path}"
    stops = re.findall(r"`([\w/]+\.py)`,\s+`(\w+)`", page)
    classes = re.findall(r"`(\w+)`\s+\(`([\w/]+\.py)`\)", page)
    assert len(stops) > 25
    assert len(classes) > 5
    for path, name in [*stops, *((path, name) for name, path in classes)]:
        source = (PACKAGE / path).read_text(encoding="utf-8")
        assert re.search(rf"(?:def|class) {name}\b", source), f"docs/tour.md: {path} has no {name}"
