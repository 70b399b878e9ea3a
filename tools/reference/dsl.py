"""The reference page of the DSL: each public name with its signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import dbsp
from dbsp import testing
from dbsp.coordinator.client.client import AsyncClient, Client
from dbsp.stream.groups import GroupSets
from dbsp.stream.window import Window

CLASSES: dict[str, type[Any]] = {
    "Stream": dbsp.Stream,
    "Group": dbsp.Group,
    "GroupSets": GroupSets,
    "Window": Window,
    "Expr": dbsp.Expr,
    "Circuit": dbsp.Circuit,
    "Run": dbsp.Run,
    "Rowset": dbsp.Rowset,
    "Client": Client,
    "AsyncClient": AsyncClient,
}
"""Classes whose methods users call, by the name that the page shows."""
EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)


def page() -> str:
    """Return the page: functions first, then classes with their methods, then the testing kit."""
    parts = ["Names are those of `import dbsp`. Each example runs as a test.\n"]
    functions = {name: value for name in dbsp.__all__ if callable(value := getattr(dbsp, name)) and name.islower()}
    functions["open"] = dbsp.open
    parts.append("## Functions\n")
    parts += [_entry(f"dbsp.{name}", value) for name, value in sorted(functions.items())]
    for name, kind in CLASSES.items():
        parts.append(f"## {name}\n\n{described(kind)}\n")
        parts += [_entry(f"{name}.{each}", value) for each, value in _methods(kind)]
    parts.append("## dbsp.testing\n")
    parts += [_entry(f"dbsp.testing.{name}", getattr(testing, name)) for name in testing.__all__]
    return "\n".join(parts)


def _methods(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, in the order of their names."""
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_") and isinstance(value, types.FunctionType | property) and inspect.getdoc(value):
            yield name, value


def _entry(name: str, value: Any) -> str:
    anchor = name.lower().replace(".", "-")
    return f"### {name} {{ #{anchor} }}\n\n{_call(name, value)}{described(value)}\n"


def _call(name: str, value: Any) -> str:
    """Return the signature as a code block; nothing for a property."""
    if isinstance(value, property):
        return ""
    try:
        found = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    short = re.sub(r"'([^']*)'", r"\1", found).replace("(self, ", "(").replace("(self)", "()")
    return f"```python\n{name.rpartition('.')[2]}{short}\n```\n\n"


def described(value: Any) -> str:
    """Return a docstring as Markdown: examples become blocks of code."""
    text = inspect.getdoc(value) or ""
    return EXAMPLE.sub(lambda found: f"```python\n{found[0].rstrip()}\n```\n", text).replace("``\n```", "``\n\n```")
