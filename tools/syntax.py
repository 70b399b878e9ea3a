"""Parse files of the tree once, and walk their statements without the expressions, which are most of a tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    """Return the text and the tree of a file, which nobody may change: several checks of one process read them."""
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or a statement, and all statements in it: definitions, imports and docstrings are among them.

    >>> [type(each).__name__ for each in statements(ast.parse("if x:\\n    import y\\nelse:\\n    pass"))]
    ['Module', 'If', 'Import', 'Pass']
    """
    yield node
    for block in _BLOCKS:
        for inner in getattr(node, block, ()):
            yield from statements(inner)
