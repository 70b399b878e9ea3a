"""The reference names everything that users can call."""

from __future__ import annotations

from pathlib import Path

import dbsp

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
