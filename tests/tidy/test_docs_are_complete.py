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
