"""The style that a tool can judge: sizes, dead modules, the map in ARCHITECTURE.md, docstrings, loose ends.

Ruff, mypy and import-linter judge the rest. An exemption stands in a table below with its reason; a stale one fails.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tailrace.catalogue import CATALOGUE
from tailrace.model.config import SETTINGS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tailrace"

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDER_FILES_MAX = 12
RING_MODULES_MAX = 3
DECISION_LINES_MAX = 60
# From the socket to the acknowledgement of an acks=all Produce.
WALK_FILES_MAX = 10

# Folders and files whose length is the length of a list, not of a thought.
LONG_FILES = {
    "src/tailrace/wire/apis": "the declarations of Kafka's messages, one after the other",
    "src/tailrace/model/config.py": "the table of every setting",
    "src/tailrace/catalogue.py": "the table of every API",
}

# Where execution starts: the command, `python -m`, what users import in their tests, and what pytest and Spark load.
ENTRY_POINTS = (
    "tailrace.__main__",
    "tailrace.cli",
    "tailrace.kit",
    "tailrace.kit.app",
    "tailrace.kit.claims",
    "tailrace.kit.delays",
    "tailrace.kit.kombu",
    "tailrace.kit.outbox",
    "tailrace.kit.serdes.registry",
    "tailrace.kit.sync",
    "tailrace.schemas",
    "tailrace.testing",
    "tailrace.testing.plugin",
    "tailrace.spark.datasource",
)


def test_no_file_is_too_long():
    long = {name: lines for name, lines in _line_counts() if lines > FILE_LINES_MAX and not _exempt(name)}
    assert not long, f"split these files (over {FILE_LINES_MAX} lines): {long}"


def test_every_exemption_is_needed():
    counts = dict(_line_counts())
    stale = [
        entry
        for entry in LONG_FILES
        if not any(lines > FILE_LINES_MAX for name, lines in counts.items() if name.startswith(entry))
    ]
    assert not stale, f"take these exemptions away: {stale}"


def test_no_function_is_too_long():
    long = {
        f"{_name(path)}:{node.lineno} {node.name}": _length(node)
        for path in _python_files("src", "bench", "docs", "examples")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > FUNCTION_LINES_MAX
    }
    assert not long, f"split these functions (over {FUNCTION_LINES_MAX} lines): {long}"


def test_no_folder_holds_too_many_files():
    crowded = {
        _name(folder): count
        for folder in _folders()
        if (count := sum(path.name != "__init__.py" for path in folder.glob("*.py"))) > FOLDER_FILES_MAX
    }
    assert not crowded, f"split these folders (over {FOLDER_FILES_MAX} files): {crowded}"


def test_every_module_opens_with_its_contract():
    silent = [
        _name(path)
        for path in _python_files("src", "tests", "bench", "docs", "examples")
        if path.stat().st_size and not ast.get_docstring(_tree(path))
    ]
    assert not silent, f"say what these modules own and never do, in a docstring: {silent}"


def test_every_module_is_reachable_from_an_entry_point():
    modules = {_module(path): path for path in _python_files("src") if PACKAGE in path.parents}
    reached: set[str] = set()
    waiting = [*ENTRY_POINTS, *_simulator_modules_under_test(modules), *_named_in_the_catalogue()]
    while waiting:
        module = waiting.pop()
        if module in reached or module not in modules:
            continue
        reached.add(module)
        waiting += [module.rpartition(".")[0], *_mentions(module, modules[module])]
    dead = sorted(set(modules) - reached)
    assert not dead, f"nothing leads to these modules: {dead}"


def test_no_ring_of_modules_in_the_broker():
    """Imports for types count too: who needs a ring of modules to understand one of them has to read them all."""
    modules = {name: path for path in _python_files("src") if (name := _module(path)).startswith("tailrace.broker")}
    imports = {name: {each for each in _imports(path) if each in modules} - {name} for name, path in modules.items()}
    reach = {name: _reachable(name, imports) for name in modules}
    rings = {frozenset(other for other in reach[name] if name in reach[other]) for name in modules}
    large = [sorted(ring) for ring in rings if len(ring) > RING_MODULES_MAX]
    assert not large, f"break these rings (over {RING_MODULES_MAX} modules): {large}"


def test_the_map_names_every_folder():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [name for folder in _folders() if f"`{(name := _name(folder, PACKAGE))}/`" not in text and name != "."]
    assert not missing, f"give each a line in ARCHITECTURE.md: {missing}"


def test_architecture_names_what_there_is():
    """`package.module`, `package.module.name` and `Class.name`."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    wrong = [name for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)`", text) if not _exists(name)]
    assert not wrong, f"ARCHITECTURE.md names what is not there: {wrong}"


def test_a_produce_is_told_in_few_files():
    walk = (ROOT / "ARCHITECTURE.md").read_text().partition("## A Produce")[2].partition("\nAn answer")[0]
    files = {file for name in re.findall(r"`([\w.]+)`", walk) if (file := _find_module(name)[0]) is not None}
    assert 5 < len(files) <= WALK_FILES_MAX, f"the walk of a Produce goes through {len(files)} files: {files}"


def test_no_loose_ends():
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        f"{_name(path)}:{number}"
        for path in _python_files("src", "tests", "bench", "docs", "examples")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not found, f"do it, or write it where work is planned: {found}"


def test_decisions_are_short():
    long = [
        path.name
        for path in (ROOT / "docs" / "decisions").glob("*.md")
        if len(path.read_text().splitlines()) > DECISION_LINES_MAX
    ]
    assert not long, f"cut these decisions to {DECISION_LINES_MAX} lines: {long}"


def test_decisions_have_the_numbers_of_their_files():
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [path.name.split("-", 1)[0] for path in pages]
    assert len(set(numbers)) == len(numbers)
    assert [path.read_text().split(":", 1)[0] for path in pages] == [f"# {number}" for number in numbers]


def test_links_of_the_docs_lead_somewhere():
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    broken = [
        f"{_name(page)}: {target}"
        for folder in (ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md"), (ROOT / "examples").rglob("*.md"))
        for page in folder
        for target in link.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken, f"these links lead nowhere: {broken}"


def _python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _folders() -> list[Path]:
    return sorted({path.parent for path in PACKAGE.rglob("*.py")})


def _line_counts() -> list[tuple[str, int]]:
    return [
        (_name(path), len(path.read_text().splitlines()))
        for path in _python_files("src", "tests", "bench", "docs", "examples")
    ]


def _exempt(name: str) -> bool:
    return any(name.startswith(entry) for entry in LONG_FILES)


def _name(path: Path, base: Path = ROOT) -> str:
    return path.relative_to(base).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _mentions(module: str, path: Path) -> Iterator[str]:
    """What a module imports, by statement or by a string: lazily imported modules stand as names in a table."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in (node.value, node.value.rpartition(".")[0]):  # A module, or a function in one.
                yield name
                yield f"{package}.{name}"


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for each in imports[waiting.pop()] - reached:
            reached.add(each)
            waiting.append(each)
    return reached


def _find_module(name: str) -> tuple[Path | None, list[str]]:
    """The file of the module that a name begins with, and the rest of the name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = PACKAGE.joinpath(*parts[:count])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path, parts[count:]
    return None, parts


def _exists(name: str) -> bool:
    """Settings and files have names with dots, too: only what begins as one of ours does is judged."""
    if name in SETTINGS:
        return True
    path, rest = _find_module(name)
    if path is not None:
        return not rest or _defines(path, rest)
    if not name[0].isupper():
        return True
    return any(_defines(each, rest) for each in _python_files("src"))


def _defines(path: Path, names: list[str]) -> bool:
    scope: ast.AST = _tree(path)
    for name in names:
        found = next((node for node in ast.walk(scope) if getattr(node, "name", None) == name), None)
        if found is None:
            return False
        scope = found
    return True


def _named_in_the_catalogue() -> Iterator[str]:
    for api in CATALOGUE.values():
        for served in (api.for_clients, api.for_controllers):
            if served is not None:
                yield f"tailrace.broker.handlers.{served.handler.rpartition('.')[0]}"
                yield from (
                    f"tailrace.broker.access.{each.rpartition('.')[0]}" for each in served.asks if isinstance(each, str)
                )
        for layer in ("controller", "coordinator"):
            yield f"tailrace.{layer}.{api.op.rpartition('.')[0]}"


def _simulator_modules_under_test(modules: dict[str, Path]) -> set[str]:
    """The simulated ports are what unit tests run on: a module there is alive if a test uses it."""
    return {
        name
        for path in _python_files("tests")
        for name in _mentions("", path)
        if name.startswith("tailrace.sim") and name in modules
    }
