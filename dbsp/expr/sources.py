"""The source of a Python function as canonical text: its syntax tree without positions, comments and docstrings.

The text also contains, in order of name:
- The plain constants that the function closes over or reads from its module.
- The functions of its own module that it calls, each in the same way.
- The values that it declares to depend on.

The text is the same in every version of Python, and after moving the code.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from dbsp.errors import CircuitError
from dbsp.expr.constants import canonical

_SKIPPED = frozenset(["type_comment", "type_ignores", "kind", "ctx", "annotation", "returns"])
_HINT = "write the function in a file, and name values it needs with depends_on=(…)"


def source_text(function: Callable[..., Any], depends_on: tuple[Any, ...] = ()) -> str:
    """Return the canonical text of a function and of all that it refers to."""
    seen: set[int] = set()
    parts = [_describe(function, seen), *(_value(value, seen, declared=True) or "" for value in depends_on)]
    return "\n".join(parts)


def _describe(function: Any, seen: set[int]) -> str:
    """Return the text of one function: its tree, then the values it names."""
    if isinstance(function, functools.partial):
        values = [_value(value, seen, declared=True) for value in (*function.args, *function.keywords.items())]
        return f"partial {_describe(function.func, seen)} {values}"
    if inspect.ismethod(function):
        return f"method {_describe(function.__func__, seen)}{_attributes(function.__self__, seen)}"
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        method = type(function).__call__
        if isinstance(method, FunctionType):
            return f"object {_describe(method, seen)}{_attributes(function, seen)}"
        return f"named {getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(type(function)))}"
    if id(function) in seen:
        return f"again {function.__name__}"
    seen.add(id(function))
    tree = _tree(function)
    lines = ["".join(normalised(tree))]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    lines += [f"default {_value(value, seen)}" for value in defaults]
    for name, value in sorted(_references(function, tree)):
        text = _reference(value, function, seen)
        if text is not None:
            lines.append(f"{name} = {text}")
    return "\n".join(lines)


def _attributes(instance: Any, seen: set[int]) -> str:
    """Return the text of the plain attributes of a callable object."""
    found = sorted(getattr(instance, "__dict__", {}).items()) if not isinstance(instance, type) else []
    return "".join(f"\n{name} = {text}" for name, value in found if (text := _value(value, seen)) is not None)


def _references(function: FunctionType, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the closed-over variables and the globals that the code names."""
    closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in closed:
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    free = frozenset(function.__code__.co_freevars)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - free
    for name in names & function.__globals__.keys():
        yield name, function.__globals__[name]


def _reference(value: Any, within: FunctionType, seen: set[int]) -> str | None:
    """Return the text of a named value if it is part of the function's meaning, else None.

    Constants are part of it, and so are functions of the same module.
    """
    if isinstance(value, FunctionType):
        return _describe(value, seen) if value.__module__ == within.__module__ else None
    return _value(value, seen)


def _value(value: Any, seen: set[int], declared: bool = False) -> str | None:
    """Return the text of a constant or a container of constants.

    Return None for any other value; raise a `CircuitError` if the user declared it.
    """
    if isinstance(value, dict):
        return _sequence("dict", [_sequence("pair", [_value(k, seen), _value(v, seen)]) for k, v in value.items()])
    if isinstance(value, set | frozenset):
        items = [_value(item, seen) for item in value]
        return None if None in items else _sequence("set", [*sorted(item for item in items if item is not None)])
    if isinstance(value, list | tuple):
        return _sequence("list", [_value(item, seen, declared) for item in value])
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__} {canonical(value)}"
    if type(value).__module__ in ("datetime", "decimal", "fractions"):
        return f"{type(value).__name__} {canonical(value)}"
    if declared and isinstance(value, FunctionType | functools.partial | type):
        return (
            _describe(value, seen) if not isinstance(value, type) else f"type {value.__module__}.{value.__qualname__}"
        )
    if declared:
        hint = "depends_on takes constants, containers of constants, and functions"
        raise CircuitError(f"cannot tell whether this value changed: type={type(value).__name__}", hint)
    return None


def _sequence(kind: str, items: Sequence[str | None]) -> str | None:
    return None if None in items else f"{kind}[{' '.join(item or '' for item in items)}]"


def normalised(node: Any) -> Iterator[str]:
    """Yield a syntax tree as text that no Python version changes: kinds and filled fields only."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name in sorted(node._fields):
            value = getattr(node, name, None)
            if name == "body" and isinstance(value, list):
                value = _without_docstring(value)
            if name not in _SKIPPED and value is not None and value != []:
                yield f" {name}="
                yield from normalised(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from normalised(item)
        yield "]"
    elif isinstance(node, str | bytes | int | float | complex | bool) or node is None:
        yield f"<{type(node).__name__} {canonical(node)}>"
    else:
        yield f"<{type(node).__name__}>"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    documented = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if documented else body


def _tree(function: FunctionType) -> ast.AST:
    """Return the node of the syntax tree that made this function."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise CircuitError(f"the source of a user function cannot be read: function={function.__name__}", _HINT)
    try:
        whole = ast.parse("".join(lines))
    except SyntaxError as error:
        raise CircuitError(
            f"the source file has changed: function={function.__name__} file={code.co_filename}", _HINT
        ) from error
    found = [node for node in ast.walk(whole) if _could_be(node, function.__name__, code)]
    if len(found) > 1:
        found = [node for node in found if _covers(node, code)] or found
    if len(found) != 1:
        raise CircuitError(
            f"cannot tell which source belongs to a user function: function={function.__name__} line={code.co_firstlineno}",
            "put one function on a line, in a file that has not changed since it was imported",
        )
    return found[0]


def _could_be(node: ast.AST, name: str, code: CodeType) -> bool:
    """Return whether a node starts where the code object says that it starts."""
    if isinstance(node, ast.Lambda):
        return name == "<lambda>" and node.lineno == code.co_firstlineno
    if isinstance(node, ast.FunctionDef):
        first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        return node.name == code.co_name and first == code.co_firstlineno
    return False


def _covers(node: ast.AST, code: CodeType) -> bool:
    """Return whether the compiled instructions' columns are within this lambda's body."""
    if not isinstance(node, ast.Lambda):
        return True
    body = node.body
    spans = [(line, column, end) for line, _, column, end in code.co_positions() if line and column is not None and end]
    on_line = [(column, end) for line, column, end in spans if line == body.lineno and end > column]
    start, stop = body.col_offset, body.end_col_offset or 0
    single = body.end_lineno == body.lineno
    return bool(on_line) and all(start <= column and (end <= stop or not single) for column, end in on_line)
