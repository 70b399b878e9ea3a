"""Resolving an expression against a schema: literals get types, conversions become casts, paths become fields of structs."""

from __future__ import annotations

from dbsp.errors import CircuitError
from dbsp.expr.expression import Call, ColumnRef, Expression, Literal, Operands, natural_type
from dbsp.expr.struct_functions import path_of
from dbsp.expr.walking import fold
from dbsp.zset.schema import Schema


def resolve(expression: Expression, schema: Schema) -> Expression:
    """Return the expression with every literal typed and every implicit conversion made a cast (invariant 1)."""
    found = _found_before(expression, schema)
    if found is not None:
        return found
    resolved = _resolve(expression, schema)
    if isinstance(resolved, Literal) and resolved.dtype is None:
        return Literal(resolved.value, natural_type(resolved.value))
    return resolved


def _found_before(expression: Expression, schema: Schema) -> Expression | None:
    """Return the resolved expression if it is known without work, else None."""
    if isinstance(expression, Call):
        found = expression._resolved
        return found[1] if found is not None and found[0] is schema else None
    if isinstance(expression, Literal):
        return expression if expression.dtype is not None else None
    return expression if type(expression) is ColumnRef and expression.name in schema else None


def _resolve(expression: Expression, schema: Schema) -> Expression:
    """Resolve an expression as `resolve` does, except that a constant by itself stays untyped."""
    if isinstance(expression, Call):
        found = [
            arg if isinstance(arg, Literal) and arg.dtype is None else _found_before(arg, schema)
            for arg in expression.args
        ]
        args = tuple(arg for arg in found if arg is not None)
        if len(args) == len(found):  # the usual case, without a walk
            fitted = _fitted(expression, args, schema)
            object.__setattr__(expression, "_resolved", (schema, fitted))
            return fitted

    def known(node: Expression) -> Expression | None:
        return _found_before(node, schema)

    def made(node: Expression, args: list[Expression]) -> Expression:
        if not isinstance(node, Call):
            return _resolved_leaf(node, schema)
        fitted = _fitted(node, tuple(args), schema)
        object.__setattr__(node, "_resolved", (schema, fitted))
        return fitted

    return fold(expression, made, known)


def _resolved_leaf(leaf: ColumnRef | Literal, schema: Schema) -> Expression:
    """Return a constant as it is, a column by its name, and a path into a struct as the fields that it names."""
    if isinstance(leaf, Literal):
        return leaf
    if leaf.name in schema:
        return ColumnRef(leaf.name)
    path = path_of(leaf.name, schema)
    if path is not None:
        return _resolve(path, schema)
    leaf.type(schema)
    return ColumnRef(leaf.name)


def _fitted(call: Call, args: tuple[Expression, ...], schema: Schema) -> Call:
    """Return the call over resolved arguments, each in the type that the function takes."""
    types = tuple(arg.dtype if isinstance(arg, Literal) else arg.type(schema) for arg in args)
    operands = Operands(call.function.name, args, types, call.options)
    try:
        fitted = Call(call.function, call.function.fit(operands), call.options)
    except CircuitError as error:
        named = [a.value for a in args if isinstance(a, Literal) and isinstance(a.value, str) and a.value in schema]
        if not named:
            raise
        hint = f'a text is itself here: write dbsp.col("{named[0]}") for the column'
        raise CircuitError(error.message, hint) from error
    fitted.type(schema)
    return fitted
