"""The reference names everything that users can call."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dbsp
import dbsp.core
from dbsp.aggregates import Aggregate
from dbsp.stream.groups import GroupSets
from dbsp.stream.window import Window
from dbsp.stream.window_functions import WindowFunction

DOCS = Path(__file__).parents[2] / "docs"


def test_every_method_of_an_expression_is_documented() -> None:
    """In docs/expressions.md, as `.name(`."""
    text = (DOCS / "expressions.md").read_text()
    names = [name for name in dir(dbsp.Expr) if not name.startswith("_")]
    missing = [name for name in names if f".{name}(" not in text]
    assert not missing
    assert len(names) > 70


def test_every_method_of_a_stream_is_documented() -> None:
    """In docs/streams.md."""
    text = (DOCS / "streams.md").read_text()
    internal = {"node", "schema", "columns"}
    names = [name for name in dir(dbsp.Stream) if not name.startswith("_") and name not in internal]
    assert not [name for name in names if f".{name}(" not in text]


def test_every_function_is_documented() -> None:
    """Aggregates, window functions and all others, somewhere in the two pages."""
    text = (DOCS / "streams.md").read_text() + (DOCS / "expressions.md").read_text()
    functions = [name for name in dbsp.__all__ if name.islower() and not name.startswith("_")]
    elsewhere = {"asc", "decimal", "drawing", "load_circuit", "open"}
    assert not [name for name in functions if name not in elsewhere and name not in text]


def operators() -> dict[str, Callable[..., Any]]:
    """Everything that makes a stream, an aggregate or a window function, by the name that users call."""
    makes = ("Stream", "Aggregate", "WindowFunction", "Group", "GroupSets", "Window", "Any")
    owners: dict[str, Any] = {
        "Stream": dbsp.Stream, "Group": dbsp.Group, "GroupSets": GroupSets, "Window": Window, "dbsp": dbsp,
        "core": dbsp.core, "Aggregate": Aggregate, "WindowFunction": WindowFunction,
    }  # fmt: skip
    return {
        f"{owner}.{name}": value
        for owner, space in owners.items()
        for name in dir(space)
        if not name.startswith("_")
        and isinstance(value := getattr(space, name), types.FunctionType)
        and value.__annotations__.get("return") in makes
    }


ELSEWHERE = {"GroupSets.aggregate", "Aggregate.resolved"}
"""What `rollup` and its like show, and what users do not call."""


@pytest.mark.parametrize("name", sorted(operators().keys() - ELSEWHERE))
def test_every_operator_shows_a_retraction(name: str) -> None:
    """Its docstring has an example, which runs as a doctest, in which rows are taken back."""
    example = (inspect.getdoc(operators()[name]) or "").partition("**Example**")[2]
    assert ">>> " in example
    assert "-1" in example or "run.delete(" in example
