"""Keys that are no columns, but fields of structs or expressions: they are added as columns below the operator that
needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.expression import Call, ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import missing_column
from dbsp.expr.struct_functions import FIELD, path_of
from dbsp.stream.handle import Handle
from dbsp.stream.owners import placed
from dbsp.zset.schema import Schema

S = TypeVar("S", bound=Handle)


def key_of(value: str | Expr, stream: Handle) -> str | Expression:
    """Return the name of a key's column, or the expression of a computed key; raise `CircuitError` for an unknown column."""
    if not isinstance(value, str | Expr):
        raise CircuitError(f"not a column: got={value!r}", "give column names, or expressions")
    expression = ColumnRef(value) if isinstance(value, str) else placed(unwrap(value), stream.node)
    if not isinstance(expression, ColumnRef):
        return expression
    if expression.name in stream.schema:
        return expression.name
    path = path_of(expression.name, stream.schema)
    if path is None:
        raise missing_column(expression.name, stream.schema)
    return path


def field_of(value: str | Expr, stream: Handle) -> tuple[str, Expression] | None:
    """Return the name of a struct's field and the expression that reads it, or None for any other value."""
    if not isinstance(value, str | Expr):
        return None
    expression = ColumnRef(value) if isinstance(value, str) else placed(unwrap(value), stream.node)
    path = path_of(expression.name, stream.schema) if isinstance(expression, ColumnRef) else expression
    if isinstance(path, Call) and path.function == FIELD:
        return str(path.options[0]), path
    return None


def with_fields(
    stream: S, keys: Sequence[Any], source: SourceLine | None, taken: Sequence[str] = ()
) -> tuple[S, tuple[Any, ...]]:
    """Return the stream with every struct field among the keys added as a column of the field's name, and the keys' names.

    **Errors** `CircuitError` where a column, or another key, already has that name.
    """
    added: dict[str, Expression] = {}
    named: list[Any] = []
    for key in keys:
        field = None if isinstance(key, str) and key in stream.schema else field_of(key, stream)
        if field is None:
            named.append(key)
            continue
        name, value = field
        if name in stream.schema or name in taken or added.get(name, value) != value:
            hint = f"name it before: .with_columns({name}_2=dbsp.col({str(value)!r})), and take that column"
            hint = hint.replace(repr(str(value)), f'"{key}"') if isinstance(key, str) else hint
            raise CircuitError(f"a field has the name of another column: column={name} field={value}", hint)
        added[name] = value
        named.append(name)
    return _and(stream, added, source), tuple(named)


def with_keys(stream: S, keys: Sequence[Any], source: SourceLine | None) -> tuple[S, tuple[str, ...]]:
    """Return the stream with every computed key added as a column of a new name, and the names of all keys."""
    added: dict[str, Expression] = {}
    names: list[str] = []
    for key in keys:
        value = key_of(key, stream)
        if isinstance(value, str):
            names.append(value)
            continue
        name = next((name for name, other in added.items() if other == value), None) or _free(stream.schema, added)
        added[name] = value
        names.append(name)
    return _and(stream, added, source), tuple(names)


def with_hidden_fields(stream: S, keys: Sequence[str], source: SourceLine | None) -> tuple[S, tuple[str, ...]]:
    """Return the stream with struct fields among the keys added under new names, and the names of all keys.

    It serves the side of a join whose keys are not part of the result.
    """
    paths = [key for key in keys if key not in stream.schema and path_of(key, stream.schema) is not None]
    made, names = with_keys(stream, paths, source)
    called = dict(zip(paths, names, strict=True))
    return made, tuple(called.get(key, key) for key in keys)


def with_hidden(stream: S, key: str, taken: Sequence[str], source: SourceLine | None) -> tuple[S, str]:
    """Return the stream and the column of a key; a struct field becomes a new column, whose name is in neither stream."""
    path = path_of(key, stream.schema)
    if path is None:
        return stream, key
    name = f"__{key}"
    while name in stream.schema or name in taken:
        name = f"_{name}"
    return _and(stream, {name: path}, source), name


def _free(schema: Schema, added: Mapping[str, Expression]) -> str:
    """Return a column name that the schema does not have."""
    name = f"__key_{len(added)}"
    while name in schema:
        name = f"_{name}"
    return name


def _and(stream: S, added: Mapping[str, Expression], source: SourceLine | None) -> S:
    """Return the stream with these columns added, or unchanged if there are none."""
    if not added:
        return stream
    kept = [(name, name) for name in stream.columns]
    return stream._selected([*kept, *((name, Expr(value)) for name, value in added.items())], source)


def only(stream: S, names: Sequence[str], source: SourceLine | None) -> S:
    """Return the stream without any columns but the named ones."""
    return stream if stream.columns == tuple(names) else stream._selected([(name, name) for name in names], source)
