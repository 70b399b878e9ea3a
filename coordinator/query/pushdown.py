"""Find which rows and columns of a view a statement needs, so that a query for one key reads only that key.

**Law** DuckDB gives the same result over the part as over the whole view. It applies the statement's WHERE and LIMIT itself.

1. Conditions. A condition counts only if nothing else can reach the view's rows. So the statement must read the view once, as
   the one table of a SELECT without sampling. The condition must be a part of the AND chain of that SELECT.
2. Columns. Those whose name is anywhere in the statement, in whatever meaning. A statement with `*`, with the number of a
   column, or with a table as a value needs all columns.
3. Bounds. `column < constant`, `between` and the other comparisons count as conditions do. A bound says what may be left
   out, and no more: DuckDB compares again, perhaps in another type.
4. Limit. One SELECT of columns from one view needs no more rows than its LIMIT and OFFSET. It must be without WHERE,
   ORDER BY and grouping.
5. All else of WHERE, and LIMIT after WHERE and ORDER BY, is applied to the view piece by piece: see `sieve`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dbsp.coordinator.query.sieve import Sieve, rows_needed

Condition: TypeAlias = tuple[str, str, Sequence[str]]
"""`column in (constants)`: the column's name in lower case, "STRING" or "INTEGER", and the constants as texts."""
Bound: TypeAlias = tuple[str, str, str, str]
"""`column < constant`: the column's name in lower case, "<", "<=", ">" or ">=", the constant's kind or the type of its cast, and
the constant as text."""
Tree: TypeAlias = Mapping[str, Any]

COMPARED = {
    "COMPARE_EQUAL": (">=", "<="),
    "COMPARE_LESSTHAN": ("<",),
    "COMPARE_LESSTHANOREQUALTO": ("<=",),
    "COMPARE_GREATERTHAN": (">",),
    "COMPARE_GREATERTHANOREQUALTO": (">=",),
}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
CAST_TYPES = ("DATE", "TIMESTAMP")
BOUND_KINDS = ("STRING", "INTEGER", "NUMERIC")
KINDS = ("STRING", "INTEGER")
PLAIN = frozenset({"COLUMN_REF", "VALUE_CONSTANT", "STAR"})
WHOLE_ROW_TYPES = frozenset({"STAR", "POSITIONAL_REFERENCE", "PIVOT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The part of a view that a statement needs.

    `columns` are all names of columns in the statement, in lower case, also those of other views; None means all columns.
    `own` are names that the statement makes itself. `limit` bounds the rows. `sieve` keeps rows of each piece.
    """

    conditions: Sequence[Condition] = ()
    bounds: Sequence[Bound] = ()
    columns: Sequence[str] | None = None
    own: Sequence[str] = ()
    limit: int | None = None
    sieve: Sieve | None = None


def needed_parts(statement: Tree, nodes: Sequence[Tree], views: Sequence[str]) -> dict[str, Needed]:
    """Return the part of each view that a statement needs; `nodes` are all objects of its parse tree."""
    chains = _chains(nodes, views)
    columns, own = _columns(nodes), _own_names(nodes)
    limit = _limit(statement)
    return {
        view: Needed(
            conditions=[each for part in chains.get(view, ()) for each in _condition(part)],
            bounds=[each for part in chains.get(view, ()) for each in _bounds(part)],
            columns=columns, own=own, limit=limit if len(views) == 1 else None,
        )
        for view in views
    }  # fmt: skip


# --- conditions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compared:
    """A column of a view, compared with constants: the type of the comparison and its constants' trees.

    `turned` says that the constant is on the left.
    """

    column: str
    type: str
    constants: Sequence[Tree]
    turned: bool = False


def _chains(nodes: Sequence[Tree], views: Sequence[str]) -> dict[str, Sequence[_Compared]]:
    """Return the comparisons that every row of a view must meet to have a part in the result."""
    found: dict[str, Sequence[_Compared]] = {}
    for view, node in only_selects(nodes, views).items():
        table = node["from_table"]
        called = str(table.get("alias") or table.get("table_name")).lower()
        aliases = {_lower(each, "alias") for each in node.get("select_list", [])}
        chain = [each for each in _chain(node.get("where_clause"), called) if each.column not in aliases]
        if chain:
            found[view] = chain
    return found


def only_selects(nodes: Sequence[Tree], views: Sequence[str]) -> dict[str, Tree]:
    """Return the SELECT of each view that is read once, as the one table of a SELECT without sampling."""
    reads = [_lower(node, "table_name") for node in nodes if node.get("type") == "BASE_TABLE"]
    found: dict[str, Tree] = {}
    for node in nodes:
        table = _only_table(node)
        if table is not None and reads.count(_lower(table, "table_name")) == 1:
            found |= {view: node for view in views if view.lower() == _lower(table, "table_name")}
    return found


def _only_table(node: Tree) -> Tree | None:
    """Return the table of a SELECT that reads one under its own columns, without sampling; None for all else."""
    table = node.get("from_table")
    if node.get("type") != "SELECT_NODE" or not isinstance(table, Mapping) or table.get("type") != "BASE_TABLE":
        return None
    other = any((node.get("sample"), table.get("sample"), table.get("column_name_alias"), table.get("at_clause")))
    return None if other else table


def _chain(where: Any, called: str) -> Iterator[_Compared]:
    """Yield the comparisons of a column with constants in an AND chain over the table of this name."""
    if not isinstance(where, Mapping):
        return
    kind, sides = str(where.get("type")), list[Any]()
    if kind == "CONJUNCTION_AND":
        for child in where.get("children", []):
            yield from _chain(child, called)
    elif kind in COMPARED:
        sides = [where.get("left"), where.get("right")]
    elif kind == "COMPARE_IN":
        sides = list(where.get("children", []))
    elif kind == "COMPARE_BETWEEN":
        sides = [where.get(name) for name in ("input", "lower", "upper")]
    if not sides or not all(isinstance(side, Mapping) for side in sides):
        return
    turned = kind in COMPARED and sides[0].get("type") != "COLUMN_REF"
    column, *constants = reversed(sides) if turned else sides
    if column.get("type") == "COLUMN_REF":
        *table, name = [str(part).lower() for part in column.get("column_names", [""])]
        if table in ([], [called]):
            yield _Compared(name, kind, constants, turned)


def _condition(part: _Compared) -> Iterator[Condition]:
    """Yield the condition, if it is one of constants of one kind."""
    literals = [each.get("literal") or {} for each in part.constants if each.get("type") == "VALUE_CONSTANT"]
    kinds = {str(each.get("kind")) for each in literals}
    if part.type in ("COMPARE_EQUAL", "COMPARE_IN") and len(literals) == len(part.constants) and len(kinds) == 1:
        (kind,) = kinds
        if kind in KINDS:
            yield part.column, kind, [str(each.get("text")) for each in literals]


def _bounds(part: _Compared) -> Iterator[Bound]:
    """Yield the bounds that a comparison sets."""
    if part.type == "COMPARE_BETWEEN":
        bounds = list(zip((">=", "<="), part.constants, strict=True))
    else:
        bounds = [(sign, part.constants[0]) for sign in COMPARED.get(part.type, ())]
    for sign, constant in bounds:
        kind, text = _constant(constant)
        if kind in (*BOUND_KINDS, *CAST_TYPES):
            yield part.column, TURNED[sign] if part.turned else sign, kind, text


def _constant(tree: Tree) -> tuple[str, str]:
    """Return the kind of a literal and its text; of a literal under a cast, the type of the cast instead of the kind."""
    cast = None
    if tree.get("type") == "OPERATOR_CAST" and not tree.get("try_cast"):
        cast = str((tree.get("type_expr") or {}).get("type_name")).upper()
        if cast not in CAST_TYPES:
            return "", ""
        tree = tree.get("child") or {}
    literal = (tree.get("literal") or {}) if tree.get("type") == "VALUE_CONSTANT" else {}
    kind = str(literal.get("kind"))
    if cast is not None and kind != "STRING":
        return "", ""
    return cast or kind, str(literal.get("text"))


# --- columns --------------------------------------------------------------------------------------------------------


def _columns(nodes: Sequence[Tree]) -> Sequence[str] | None:
    """Return every name that a column may have in the statement; None where all columns are needed."""
    found: set[str] = set()
    tables = {
        _lower(node, name) for node in nodes if node.get("type") == "BASE_TABLE" for name in ("table_name", "alias")
    }
    for node in nodes:
        if (
            str(node.get("type")) in WHOLE_ROW_TYPES  # an object in a sample
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
    if modifier.get("type") != "LIMIT_MODIFIER":
        return None
    return rows_needed(modifier)


def _lower(node: Tree, name: str) -> str:
    return str(node.get(name) or "").lower()
