"""Finds the columns of a table that a plan reads, so that an input which can leave out columns reads no others."""

from __future__ import annotations

from collections.abc import Collection

from dbsp.plan.plan import Plan


def columns_read(plan: Plan, table: str) -> frozenset[str] | None:
    """Return the columns of a table without a primary key that some node reads; None if it may be all of them.

    Only chains of filters and projections show which columns they read. A row that fails there is reported with all columns. So a
    reader that leaves columns out must be able to read them afterwards (`dbsp.logs.Changes.whole`).

    **Example**

    >>> import dbsp
    >>> from dbsp.plan.planner import plan
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64})
    >>> tall = t.filter(dbsp.col("x") > 1).select("k")
    >>> sorted(columns_read(plan(dbsp.circuit("demo", {"v": tall}, materialize=False)), "t"))
    ['k', 'x']
    """
    found: frozenset[str] = frozenset()
    sources = {node.id for node in plan.nodes if node.operator.reads_table() == table}
    sent = {spec.sender for spec in plan.all_exchanges()}
    shown = {view.node for view in plan.views}
    declared = next(each for each in plan.tables if each.name == table)
    if declared.replaces or sources & (sent | shown):
        return None
    for node in plan.nodes:
        if sources.intersection(node.inputs):
            columns = node.operator.columns_read()
            if columns is None:
                return None
            found |= columns
    return found & frozenset(declared.schema.names)


def columns_of(plan: Plan, tables: Collection[str]) -> dict[str, frozenset[str]]:
    """Return `columns_read` of each of these tables, without the tables for which it is None."""
    read = {table: columns_read(plan, table) for table in tables}
    return {table: columns for table, columns in read.items() if columns is not None}
