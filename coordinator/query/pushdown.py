"""Find which rows of a view a statement needs, so that a query for one key reads only that key.

**Law** Rows that are left out would not pass the statement's own WHERE, which DuckDB applies all the same.

A condition counts only if nothing else can reach the view's rows. So the statement must read the view once, as the one
table of a SELECT without sampling. The condition must be a part of the AND chain of that SELECT. All other views are
read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Equal: TypeAlias = Sequence[tuple[str, str, str]]
"""Conditions `column = constant`: the column's name in lower case, "STRING" or "INTEGER", and the constant as text."""

KINDS = ("STRING", "INTEGER")


def conditions(nodes: Sequence[Mapping[str, Any]], views: Sequence[str]) -> dict[str, Equal]:
    """Return the conditions on each view that the statement reads once; `nodes` are all objects of its parse tree."""
    reads = [str(node.get("table_name")).lower() for node in nodes if node.get("type") == "BASE_TABLE"]
    found: dict[str, Equal] = {}
    for node in nodes:
        table = node.get("from_table")
        if node.get("type") != "SELECT_NODE" or not isinstance(table, Mapping) or table.get("type") != "BASE_TABLE":
            continue
        name = str(table.get("table_name")).lower()
        plain = not any(
            (node.get("sample"), table.get("sample"), table.get("column_name_alias"), table.get("at_clause"))
        )
        if plain and reads.count(name) == 1:
            called = str(table.get("alias") or name).lower()
            aliases = {str(each.get("alias")).lower() for each in node.get("select_list", [])}
            equal = [each for each in _equalities(node.get("where_clause"), called) if each[0] not in aliases]
            found |= {view: equal for view in views if view.lower() == name and equal}
    return found


def _equalities(where: Any, called: str) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions `column = constant` of an AND chain over the table of this name."""
    if not isinstance(where, Mapping):
        return
    if where.get("type") == "CONJUNCTION_AND":
        for child in where.get("children", []):
            yield from _equalities(child, called)
    elif where.get("type") == "COMPARE_EQUAL":
        sides = [where.get("left"), where.get("right")]
        columns = [side for side in sides if isinstance(side, Mapping) and side.get("type") == "COLUMN_REF"]
        constants = [side for side in sides if isinstance(side, Mapping) and side.get("type") == "VALUE_CONSTANT"]
        if len(columns) == 1 and len(constants) == 1:
            *table, column = [str(part).lower() for part in columns[0].get("column_names", [""])]
            literal = constants[0].get("literal") or {}
            if table in ([], [called]) and literal.get("kind") in KINDS:
                yield column, str(literal["kind"]), str(literal.get("text"))
