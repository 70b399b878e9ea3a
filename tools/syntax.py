"""Walk the statements of parsed Python without its expressions, which are most of a tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or a statement, and all statements in it: definitions, imports and docstrings are among them.

    >>> [type(each).__name__ for each in statements(ast.parse("if x:\\n    import y\\nelse:\\n    pass"))]
    ['Module', 'If', 'Import', 'Pass']
    """
    yield node
    for block in _BLOCKS:
        for inner in getattr(node, block, ()):
            yield from statements(inner)
