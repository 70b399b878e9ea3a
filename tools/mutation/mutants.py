"""Mutants: all small changes of the code inside functions, a seeded sample of them, and the text with one of them made.

Code that runs at import (tables, constants, defaults) is left out: that a test imports a module says nothing about its tables.
The sample is stable: each mutant gets a hash of the seed and of its own text, and those with the least hashes are taken. An edit
of other code leaves a mutant in the sample, and so does a renamed or moved file.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

FOLDERS = ("dbsp", "storage", "coordinator/decisions")
MAPPED = {"storage": "dbsp.storage", "coordinator": "dbsp.coordinator"}
"""Folders that `pyproject.toml` maps to packages of `dbsp`."""
REACHED = "__reached__"
KERNEL_REACHED = "__kernel_reached__"
KERNELS = ("kernel", "helper")
"""Decorators of functions that numba compiles."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
Kind = str


@dataclass(slots=True)
class WorkerResources:
    """A possible change: the node it replaces, the text it puts there, and the statement and function around it."""

    kind: Kind
    node: ast.AST
    after: str
    statement: ast.stmt
    function: str
    kernel: ast.FunctionDef | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change of one file, under a key that other edits do not change."""

    key: str
    file: str
    line: int
    function: str
    kind: Kind
    before: str
    after: str
    at: tuple[int, int] = field(repr=False)
    """The span of bytes that the mutant replaces in the file."""

    def text(self, root: Path) -> bytes:
        """Return the file's text with this change."""
        source = (root / self.file).read_bytes()
        return source[: self.at[0]] + self.after.encode() + source[self.at[1] :]

    def described(self) -> dict[str, Any]:
        """Return what a reader needs to find the change."""
        names = ("key", "file", "line", "function", "kind", "before", "after")
        return {name: getattr(self, name) for name in names}


def module_name(file: str) -> str:
    """Return the name under which a file is imported."""
    parts = list(Path(file).with_suffix("").parts)
    parts[0] = MAPPED.get(parts[0], parts[0])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files(root: Path, folders: tuple[str, ...] = FOLDERS) -> list[str]:
    """Return the files of the folders, in order."""
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return [path.relative_to(root).as_posix() for path in paths]


def sample(root: Path, seed: int, count: int, folders: tuple[str, ...] = FOLDERS) -> list[Mutant]:
    """Return the mutants with the `count` least hashes; fewer where there are not so many."""
    alike = Counter[tuple[str, ...]]()
    found = []
    for file in files(root, folders):
        source = (root / file).read_bytes()
        starts = line_starts(source)
        for resources in sites(ast.parse(source)):
            at = span(resources.node, starts)
            before = source[at[0] : at[1]].decode()
            first = source[starts[resources.statement.lineno - 1] : starts[resources.statement.lineno]].strip().decode()
            text = (resources.function, first, resources.kind, before, resources.after)
            alike[text] += 1
            key = hashlib.sha256(repr((seed, *text, alike[text])).encode()).hexdigest()[:16]
            line: int = resources.node.lineno  # type: ignore[attr-defined]
            mutant = Mutant(
                key=key,
                file=file,
                line=line,
                function=resources.function,
                kind=resources.kind,
                before=before,
                after=resources.after,
                at=at,
            )
            found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.key)[:count]


def line_starts(source: bytes) -> list[int]:
    """Return where each line begins, in bytes."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def span(node: Any, starts: list[int]) -> tuple[int, int]:
    """Return the first byte of a node and the one after its last."""
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def sites(tree: ast.Module) -> Iterator[WorkerResources]:
    """Yield every change of the code inside functions."""
    yield from _inside(tree.body, (), None)


def _inside(body: list[ast.stmt], names: tuple[str, ...], kernel: ast.FunctionDef | None) -> Iterator[WorkerResources]:
    """Yield the changes in functions of a module or a class."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield from _inside(each.body, (*names, each.name), kernel)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = kernel or (each if _has(each, *KERNELS) else None)
            yield from _statements(_without_docstring(each.body), (*names, each.name), inner)


def _has(node: ast.AST, *decorators: str) -> TypeGuard[ast.FunctionDef]:
    """Return whether a node is a function with one of the decorators."""
    return isinstance(node, ast.FunctionDef) and any(_decorator(each) in decorators for each in node.decorator_list)


def _decorator(node: ast.expr) -> str:
    """Return the last name of a decorator."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements after the docstring."""
    first = body[0]
    has = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if has else body


def _statements(
    body: list[ast.stmt], names: tuple[str, ...], kernel: ast.FunctionDef | None
) -> Iterator[WorkerResources]:
    """Yield the changes of some statements of a function, and of all below them."""
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _inside([each], names, kernel)
            continue

        def resources(kind: Kind, node: ast.AST, after: str, statement: ast.stmt = each) -> WorkerResources:
            return WorkerResources(kind, node, after, statement, ".".join(names), kernel)

        yield from (resources(*change) for change in _of_statement(each))
        for part in ast.iter_child_nodes(each):
            if isinstance(part, ast.expr) and not _is_exempt(each, part):
                yield from (resources(*change) for change in _of_expressions(part))
        for inner in _bodies(each):
            yield from _statements(inner, names, kernel)
        for with_item in getattr(each, "items", ()):
            yield from (resources(*change) for change in _of_expressions(with_item.context_expr))


def _is_exempt(statement: ast.stmt, part: ast.expr) -> bool:
    """Return whether a part of a statement is left alone: an annotation, or the text of an error."""
    return isinstance(statement, ast.Raise) or part is getattr(statement, "annotation", None)


def _bodies(statement: Any) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that a statement contains."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(statement, name, [])
        if isinstance(body, list):  # that of a lambda is an expression
            yield body
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


Change = tuple[Kind, ast.AST, str]


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    """Yield what can be done to a whole statement."""
    match node:
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return", node, "return None"
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield "statement", node, "pass"
        case ast.Break() | ast.Continue():
            yield "statement", node, "pass"
        case ast.Assign(targets=targets) if all(isinstance(each, ast.Attribute | ast.Subscript) for each in targets):
            yield "statement", node, "pass"
        case _:
            pass
    if isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
        yield _swapped("arithmetic", node, op=SWAPS[type(node.op)]())


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _of_expressions(node: ast.AST) -> Iterator[Change]:
    """Yield what can be done to an expression and to all below it; texts with fields and annotations are left alone."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _decorator(node) == "cast"):
        return
    yield from _of_expression(node)
    for part in ast.iter_child_nodes(node):
        yield from _of_expressions(part)


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                swapped = [*ops[:place], SWAPS[type(op)](), *ops[place + 1 :]]
                yield _swapped("comparison", node, ops=swapped)
        case ast.BinOp(op=op) if type(op) in SWAPS:
            yield _swapped("arithmetic", node, op=SWAPS[type(op)]())
        case ast.BoolOp(op=op):
            yield _swapped("and/or", node, op=SWAPS[type(op)]())
        case ast.Constant(value=bool() as value):
            yield "constant", node, repr(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, str(value + 1)
        case ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.comprehension(ifs=ifs):
            yield from (("condition", test, f"(not ({ast.unparse(test)}))") for test in ifs)
        case _:
            pass


def _swapped(kind: Kind, node: ast.AST, **fields: Any) -> Change:
    """Return a change of some fields of a node."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    text = ast.unparse(other)
    return kind, node, text if isinstance(node, ast.stmt) else f"({text})"


def probed(source: bytes, mutants: dict[tuple[int, int, str], int]) -> str:
    """Return the text with a call before each statement that has mutants: `mutants` has their numbers by place and new text.

    Numba cannot compile such a call. A kernel reports when Python calls it, a helper when any kernel of its module is called.
    The lines that see to it stand at the end, so that lines keep their numbers, which are in the keys of numba's cache.
    """
    tree = ast.parse(source)
    starts = line_starts(source)
    plain: dict[int, set[int]] = {}
    compiled = {each.name: set[int]() for each in tree.body if _has(each, "kernel")}
    for resources in sites(tree):
        number = mutants.get((*span(resources.node, starts), resources.after))
        if number is None:
            continue
        if resources.kernel is None:
            plain.setdefault(id(resources.statement), set()).add(number)
        else:
            for name in (resources.kernel.name,) if resources.kernel.name in compiled else compiled:
                compiled[name].add(number)
    last = [f"{name} = {_call(numbers, KERNEL_REACHED)}({name})\n" for name, numbers in compiled.items() if numbers]
    if not plain:
        return "".join((source.decode(), *last))
    for node in ast.walk(tree):
        for body in _bodies(node):
            body[:] = [each for old in body for each in (*_before(plain.get(id(old))), old)]
    return "\n".join((ast.unparse(ast.fix_missing_locations(tree)), *last))


def _before(numbers: set[int] | None) -> list[ast.stmt]:
    """Return the statement that reports the numbers; none for no number."""
    return ast.parse(_call(numbers, REACHED)).body if numbers else []


def _call(numbers: set[int], name: str) -> str:
    return f"{name}({', '.join(map(str, sorted(numbers)))})"
