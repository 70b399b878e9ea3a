"""Finds the user's Python functions in a circuit or a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dbsp.circuit.circuit import Circuit
from dbsp.circuit.nodes import Node
from dbsp.expr.functions import UserFunction
from dbsp.plan.plan import Plan


def labelled_functions(circuit: Circuit) -> list[tuple[str, UserFunction]]:
    """Return every user function with a label that names it and the line where the user wrote it."""
    found: dict[int, tuple[str, UserFunction]] = {}
    seen: set[int] = set()
    waiting = [node for _, node in circuit.views]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += node.children()
        for function in _inside(node):
            found.setdefault(id(function), (label_of(function), function))
    return list(found.values())


def user_functions(plan: Plan) -> list[UserFunction]:
    """Return the user functions of a plan."""
    found = {function.token(): function for node in plan.nodes for function in _inside(node.operator)}
    return list(found.values())


def functions_above(plan: Plan, view: str) -> list[str]:
    """Return the labels of the user functions whose rows a view may hold."""
    spec = next((each for each in plan.views if each.name == view), None)
    if spec is None:
        return sorted({label_of(function) for function in user_functions(plan)})
    senders = {exchange.receiver: exchange.sender for exchange in plan.exchanges}
    waiting, seen, found = [spec.node], set[int](), set[str]()
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        node = plan.nodes[number]
        found |= {label_of(function) for function in _inside(node.operator)}
        waiting += [*node.inputs, *([senders[number]] if number in senders else [])]
    return sorted(found)


def label_of(function: UserFunction) -> str:
    """Return the function's name and the line where it begins, as far as that is known."""
    code = getattr(function.callable, "__code__", None)
    return function.name if code is None else f"{function.name} at {code.co_filename}:{code.co_firstlineno}"


def functions_inside(value: Any) -> bool:
    """Return whether an operator has a function of the user."""
    return next(_inside(value), None) is not None


def _inside(value: Any) -> Iterator[UserFunction]:
    """Find the functions in the fields of a node or an operator, at any depth, but not in other nodes."""
    if isinstance(value, UserFunction):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            part = getattr(value, field.name, None)
            if not isinstance(part, Node):
                yield from _inside(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _inside(part)
    elif (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes)
        and isinstance(value, tuple | list | frozenset | set)
    ):
        for part in value:
            if not isinstance(part, Node):
                yield from _inside(part)
