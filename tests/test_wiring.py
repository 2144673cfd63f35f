"""Parts are joined where they are made: what a part needs is an argument, and nobody knows the part that makes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
PACKAGES = (
    "proto/dejamq_proto", "namesrv/dejamq_namesrv", "broker/dejamq_broker", "client/dejamq",
    "analytics/dejamq_analytics", "lab/dejamq_lab", "cli/dejamq_cli",
)  # fmt: skip
EMPTY = frozenset({"dict", "list", "tuple", "set", "frozenset", "str", "bytes", "int", "float", "bool"})
"""Called without an argument these give what is empty."""

# Class and attribute -> why a function that does nothing may stand there.
SEAMS = {
    "Signal.tell": "the one place where nobody has to listen",
    "Framed.received": "asyncio makes the protocol; who dials or accepts sets it in the same turn, the end lets it go",
    "Framed.lost": "as received",
    "Framed.room": "as received",
    "AnswerStream.on_push": "set with each heartbeat, before the stream is opened; its close lets it go",
    "AnswerStream.on_break": "as on_push",
    "Producer._take": "a producer that is not started takes nothing the quick way, and the other way says so",
}


@dataclass(frozen=True)
class Seam:
    """An attribute, or an argument of a constructor, that does nothing until somebody sets it."""

    owner: str
    name: str
    place: str

    @property
    def key(self) -> str:
        return f"{self.owner}.{self.name}"

    def __str__(self) -> str:
        return f"{self.place}: {self.key} does nothing until somebody sets it"


def files(house: Path, packages: tuple[str, ...] = PACKAGES) -> Iterator[Path]:
    for folder in packages:
        yield from (path for path in sorted((house / folder).rglob("*.py")) if "_pb2" not in path.name)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_constant(node: ast.expr | None) -> bool:
    """A literal, an empty one of a container, or nothing."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    return node is None or isinstance(node, ast.Constant)


def does_nothing(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether its body only gives a constant."""
    return all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.Return) and is_constant(line.value))
        for line in function.body
    )


def idle_functions(house: Path) -> frozenset[str]:
    """Functions of modules that do nothing, by their names."""
    return frozenset(
        node.name
        for path in files(house)
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and does_nothing(node)
    )


@dataclass(frozen=True)
class Known:
    """Functions of the house that do nothing, and the names that one file has of its own or imports."""

    idle: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, path: Path, idle: frozenset[str]) -> Known:
        names = set[str]()
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name for alias in node.names}
        return cls(idle, frozenset(names))

    def is_idle(self, value: ast.expr, annotation: ast.expr | None) -> bool:
        """Whether the value is a function that does nothing."""
        if isinstance(value, ast.Lambda):
            return is_constant(value.body)
        if isinstance(value, ast.Attribute):
            return value.attr in self.idle and isinstance(value.value, ast.Name) and value.value.id in self.names
        if not isinstance(value, ast.Name):
            return False
        empty = value.id in EMPTY and annotation is not None and "Callable" in ast.unparse(annotation)
        return empty or value.id in self.idle & self.names


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, ast.expr | None]]:
    """Target, value and annotation of each assignment in a statement."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value, node.annotation
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from ((one, value, None) for one, value in zip(target.elts, node.value.elts, strict=False))
            else:
                yield target, node.value, None


def idle_defaults(made: ast.FunctionDef, known: Known) -> Iterator[str]:
    """Arguments of a constructor that do nothing where they are not given."""
    arguments = [*made.args.posonlyargs, *made.args.args]
    given = list(zip(reversed(arguments), reversed(made.args.defaults), strict=False))
    given += [(one, value) for one, value in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True) if value]
    yield from (one.arg for one, value in given if known.is_idle(value, one.annotation))


def idle_in(node: ast.stmt, owner: ast.ClassDef, known: Known) -> Iterator[str]:
    """Attributes of the class, or of its objects, that a statement sets to what does nothing; defaults that do."""
    for target, value, annotation in assigned(node):
        named = isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and node in owner.body)
        if named and known.is_idle(value, annotation):
            yield ast.unparse(target).removeprefix("self.")
    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
        yield from idle_defaults(node, known)


def seams(house: Path) -> Iterator[Seam]:
    """Every one in the tree at ``house``."""
    everywhere = idle_functions(house)
    for path in files(house):
        known = Known.of(path, everywhere)
        for owner in ast.walk(tree(path)):
            if not isinstance(owner, ast.ClassDef):
                continue
            for node in ast.walk(owner):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.FunctionDef):
                    place = f"{path.relative_to(house)}:{node.lineno}"
                    yield from (Seam(owner.name, name, place) for name in idle_in(node, owner, known))


def test_no_part_does_nothing_because_a_wire_was_forgotten() -> None:
    assert [str(seam) for seam in seams(HOUSE) if seam.key not in SEAMS] == []


def one_file(directory: Path, source: str) -> Path:
    path = directory / "broker/dejamq_broker/part.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    return directory


@pytest.mark.parametrize(
    "line",
    [
        "self.wire: Callable[[], None] = lambda: None",
        "self.wire = lambda topic: True",
        "self.wire = lambda: 0",
        "self.wire = lambda queue: ()",
        "self.wire: Callable[[], dict[str, str]] = dict",
        "self.wire = _nothing",
        "self.wire: Callable[[], Awaitable[None]] = json_file._later",
        "self.other, self.wire = 1, lambda: ''",
        "other.wire = lambda: None",
    ],
)
def test_an_attribute_that_does_nothing_is_found(tmp_path: Path, line: str) -> None:
    source = f"""from dejamq_broker import json_file
def _nothing(): pass
async def _later():
    "Waits for nothing."
class Part:
    def __init__(self):
        {line}
"""
    (found,) = seams(one_file(tmp_path, source))
    assert (found.owner, found.name.split(".")[-1], found.place) == ("Part", "wire", "broker/dejamq_broker/part.py:7")


@pytest.mark.parametrize("line", ["wire: Callable[[], None] = lambda: None", "def __init__(self, wire=lambda: 0): ..."])
def test_a_default_that_does_nothing_is_found(tmp_path: Path, line: str) -> None:
    (found,) = seams(one_file(tmp_path, f"class Part:\n    {line}\n"))
    assert found.key == "Part.wire"


@pytest.mark.parametrize(
    "line",
    [
        "self.wire = wire",
        "self.wire = lambda: self.other()",
        "self.wire: Callable[[], None] | None = None",
        "self.wire = self._nothing",
        "self.kind = dict",
        "wire = lambda: None",
        "self.wires = {}",
    ],
)
def test_what_does_something_and_what_is_visibly_not_there_are_none(tmp_path: Path, line: str) -> None:
    source = f"def _busy(): return other()\nclass Part:\n    def __init__(self, wire):\n        {line}\n"
    assert list(seams(one_file(tmp_path, source))) == []


# Circles.


@dataclass(frozen=True)
class Import:
    """One module of ours that another one imports; for types alone, or only when a function is called."""

    module: str
    name: str
    for_types: bool
    on_use: bool


def modules(house: Path) -> dict[str, Path]:
    found = {}
    for folder in PACKAGES:
        top = (house / folder).parent
        for path in files(house, (folder,)):
            found[".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """What a file imports of ours by ``from … import …``."""
    for_types, on_use = set[int](), set[int]()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for_types |= set(map(id, ast.walk(node)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            on_use |= set(map(id, ast.walk(node)))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                module = full if full in known else node.module
                yield Import(module, alias.name, id(node) in for_types, id(node) in on_use)


def circles(house: Path) -> Iterator[str]:
    """Modules that know the type of what imports them, and modules that import from the face of their own package."""
    known = modules(house)
    graph = {module: list(imports(path, known)) for module, path in known.items()}
    for module, found in graph.items():
        for one in found:
            back = any(each.module == module and not each.on_use for each in graph.get(one.module, ()))
            if one.for_types and back:
                yield f"{module} knows {one.module}, which imports it"
            if one.module == module.split(".")[0] != module and not module.endswith(".sync"):
                yield f"{module} imports {one.name} from the package that it is in"


def test_nobody_knows_who_imports_it() -> None:
    """``sync`` is a face over the face: it is made of that."""
    assert list(circles(HOUSE)) == []


def test_a_circle_for_types_and_an_import_from_the_own_face_are_found(tmp_path: Path) -> None:
    folder = one_file(tmp_path, "if TYPE_CHECKING:\n    from dejamq_broker.whole import Whole\n") / PACKAGES[2]
    (folder / "whole.py").write_text("from dejamq_broker.part import Part\n")
    (folder / "__init__.py").write_text("class Result: ...\n")
    (folder / "run.py").write_text("from dejamq_broker import Result, part\n")
    assert list(circles(tmp_path)) == [
        "dejamq_broker.part knows dejamq_broker.whole, which imports it",
        "dejamq_broker.run imports Result from the package that it is in",
    ]
