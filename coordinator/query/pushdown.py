"""Find which rows and columns of a view a statement needs, so that a query for one key reads only that key.

**Law** DuckDB gives the same result over the part as over the whole view. It applies the statement's WHERE and LIMIT itself.

1. Conditions. A condition counts only if nothing else can reach the view's rows. So the statement must read the view once, as
   the one table of a SELECT without sampling. The condition must be a part of the AND chain of that SELECT.
2. Columns. Those whose name is anywhere in the statement, in whatever meaning. A statement with `*`, with the number of a
   column, or with a table as a value needs all columns.
3. Limit. One SELECT of columns from one view needs no more rows than its LIMIT and OFFSET. It must be without WHERE,
   ORDER BY and grouping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Condition: TypeAlias = tuple[str, str, Sequence[str]]
"""`column in (constants)`: the column's name in lower case, "STRING" or "INTEGER", and the constants as texts."""
Tree: TypeAlias = Mapping[str, Any]

KINDS = ("STRING", "INTEGER")
PLAIN = frozenset({"COLUMN_REF", "VALUE_CONSTANT", "STAR"})
WHOLE_ROW_TYPES = frozenset({"STAR", "POSITIONAL_REFERENCE", "PIVOT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The part of a view that a statement needs.

    `columns` are all names of columns in the statement, in lower case, also those of other views; None means all columns.
    `own` are names that the statement makes itself. `limit` bounds the rows.
    """

    conditions: Sequence[Condition] = ()
    columns: Sequence[str] | None = None
    own: Sequence[str] = ()
    limit: int | None = None


def needed_parts(statement: Tree, nodes: Sequence[Tree], views: Sequence[str]) -> dict[str, Needed]:
    """Return the part of each view that a statement needs; `nodes` are all objects of its parse tree."""
    conditions = _conditions(nodes, views)
    columns, own = _columns(nodes), _own_names(nodes)
    limit = _limit(statement)
    return {
        view: Needed(conditions=conditions.get(view, ()), columns=columns, own=own, limit=limit if len(views) == 1 else None)
        for view in views
    }  # fmt: skip


# --- conditions -----------------------------------------------------------------------------------------------------


def _conditions(nodes: Sequence[Tree], views: Sequence[str]) -> dict[str, Sequence[Condition]]:
    reads = [_lower(node, "table_name") for node in nodes if node.get("type") == "BASE_TABLE"]
    found: dict[str, Sequence[Condition]] = {}
    for node in nodes:
        table = _only_table(node)
        if table is None:
            continue
        name = _lower(table, "table_name")
        if reads.count(name) == 1:
            called = str(table.get("alias") or name).lower()
            aliases = {_lower(each, "alias") for each in node.get("select_list", [])}
            chain = [each for each in _chain(node.get("where_clause"), called) if each[0] not in aliases]
            found |= {view: chain for view in views if view.lower() == name and chain}
    return found


def _only_table(node: Tree) -> Tree | None:
    """Return the table of a SELECT that reads one under its own columns, without sampling; None for all else."""
    table = node.get("from_table")
    if node.get("type") != "SELECT_NODE" or not isinstance(table, Mapping) or table.get("type") != "BASE_TABLE":
        return None
    other = any((node.get("sample"), table.get("sample"), table.get("column_name_alias"), table.get("at_clause")))
    return None if other else table


def _chain(where: Any, called: str) -> Iterator[Condition]:
    """Yield the conditions `column = constant` and `column in (constants)` of an AND chain over the table of this name."""
    if not isinstance(where, Mapping):
        return
    sides: list[Any] = []
    match where.get("type"):
        case "CONJUNCTION_AND":
            for child in where.get("children", []):
                yield from _chain(child, called)
        case "COMPARE_EQUAL":
            sides = [where.get("left"), where.get("right")]
            sides.sort(key=lambda side: not (isinstance(side, Mapping) and side.get("type") == "COLUMN_REF"))
        case "COMPARE_IN":
            sides = list(where.get("children", []))
    if sides and all(isinstance(side, Mapping) for side in sides):
        yield from _membership(sides[0], sides[1:], called)


def _membership(column: Tree, constants: Sequence[Tree], called: str) -> Iterator[Condition]:
    """Yield the condition, if it is one of a column of this table and constants of one kind."""
    literals = [each.get("literal") or {} for each in constants if each.get("type") == "VALUE_CONSTANT"]
    kinds = {str(each.get("kind")) for each in literals}
    if column.get("type") != "COLUMN_REF" or len(literals) != len(constants) or len(kinds) != 1:
        return
    *table, name = [str(part).lower() for part in column.get("column_names", [""])]
    (kind,) = kinds
    if table in ([], [called]) and kind in KINDS:
        yield name, kind, [str(each.get("text")) for each in literals]


# --- columns --------------------------------------------------------------------------------------------------------


def _columns(nodes: Sequence[Tree]) -> Sequence[str] | None:
    """Return every name that a column may have in the statement; None where all columns are needed."""
    found: set[str] = set()
    tables = {
        _lower(node, name) for node in nodes if node.get("type") == "BASE_TABLE" for name in ("table_name", "alias")
    }
    for node in nodes:
        if (
            node.get("type") in WHOLE_ROW_TYPES
            or node.get("ref_type") == "NATURAL"
            or (node.get("type") == "BASE_TABLE" and node.get("column_name_alias"))
        ):
            return None
        parts = [str(part).lower() for part in node.get("column_names") or ()]
        found.update(parts[1:] if len(parts) > 1 and parts[0] in tables else parts)
        found.update(str(name).lower() for name in node.get("using_columns") or ())
    return None if found & tables else sorted(found)


def _own_names(nodes: Sequence[Tree]) -> Sequence[str]:
    """Return the names that the statement gives to tables and columns."""
    found: set[str] = set()
    for node in nodes:
        found.add(_lower(node, "alias"))
        found.add(_lower(node, "table_name"))
        for names in ("column_name_alias", "aliases"):
            found.update(str(name).lower() for name in node.get(names) or ())
    return sorted(found - {"", "none"})


# --- limit ----------------------------------------------------------------------------------------------------------


def _limit(statement: Tree) -> int | None:
    """Return how many rows of its one view a statement needs at most; None: it may need all."""
    groups = [statement.get(name) for name in ("where_clause", "group_expressions", "group_sets", "having", "qualify")]
    with_names = (statement.get("cte_map") or {}).get("map")
    columns = statement.get("select_list") or []
    modifiers = statement.get("modifiers") or []
    if (
        _only_table(statement) is None
        or any((*groups, with_names))
        or len(modifiers) != 1
        or any(each.get("type") not in PLAIN or each.get("replace_list") for each in columns)
    ):
        return None
    (modifier,) = modifiers
    if modifier.get("type") != "LIMIT_MODIFIER" or modifier.get("limit_type", "ROW_COUNT") != "ROW_COUNT":
        return None
    numbers = [_number(modifier.get(name)) for name in ("limit", "offset") if modifier.get(name) is not None]
    if modifier.get("limit") is None or None in numbers:
        return None
    return sum(number for number in numbers if number is not None)


def _number(node: Any) -> int | None:
    literal = node.get("literal") if isinstance(node, Mapping) and node.get("type") == "VALUE_CONSTANT" else None
    text = str((literal or {}).get("text"))
    return int(text) if (literal or {}).get("kind") == "INTEGER" and text.isdecimal() else None


def _lower(node: Tree, name: str) -> str:
    return str(node.get(name) or "").lower()
