"""Structs: read a field, or make a struct of columns.

A field of a null struct is null; a struct made of nulls is not null.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Call, ColumnRef, Expression, Function, Literal, Operands
from dbsp.expr.names import nearest
from dbsp.expr.types import typed
from dbsp.zset.schema import STRING, Schema, is_list, is_struct, struct_of


def _fit_field(operands: Operands) -> tuple[Expression, ...]:
    (arg,), (type_,), (name,) = operands.args, operands.types, operands.options
    if isinstance(arg, Literal) or type_ is None or not is_struct(type_):
        raise operands.refuse(_other_than_struct(type_, name))
    if name not in [field.name for field in type_]:
        all_of_them = f'write stream.unnest("{arg}") for all fields as columns'
        hint = all_of_them if name == "*" else nearest(name, [field.name for field in type_])
        raise CircuitError(f"no such field: struct={arg} field={name!r}", hint)
    return (arg,)


def _other_than_struct(type_: pa.DataType | None, name: Any) -> str:
    """Return what to write for a field of a value that is no struct."""
    if type_ is not None and is_list(type_):
        return f'of a list write .element(1).field("{name}"), or one row per element: stream.explode("…").unnest("…")'
    if type_ == STRING:
        return f'of JSON text write .json_value("$.{name}")'
    return 'it is for structs: a column of type dbsp.struct_of({"name": dbsp.STRING}), or dbsp.struct(…)'


def _field(values: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(values, [values.type.get_field_index(name)])


def _made(*data: Any) -> pa.Array:
    *values, names = data
    return pc.make_struct(*values, field_names=list(names))


def _made_type(*types: Any) -> pa.DataType:
    *fields, names = types
    return struct_of(dict(zip(names, fields, strict=True)))


FIELD = Function(
    name="field",
    fit=_fit_field,
    result=lambda type_, name: type_.field(type_.get_field_index(name)).type,
    compute=_field,
    nulls="always",
    text="{0}.field({1})",
)
STRUCT = Function(name="struct", fit=typed, result=_made_type, compute=_made, nulls="never")

FUNCTIONS = (FIELD, STRUCT)


def path_of(name: str, schema: Schema) -> Expression | None:
    """Return the struct field that a name such as `address.street` means, perhaps of a struct inside another.

    The shortest part before a dot that is a struct column counts. The result is None if there is none, or if the
    schema has a column of this name.
    """
    if name in schema:
        return None
    parts = name.split(".")
    for taken in range(1, len(parts)):
        head = ".".join(parts[:taken])
        if head in schema and is_struct(schema[head].type):
            found: Expression = ColumnRef(head)
            for field in parts[taken:]:
                found = Call(FIELD, (found,), (field,))
            return found
    return None
