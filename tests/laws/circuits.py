"""Random circuits, each with the SQL that says the same: the material of the equalities."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from tests.laws.families import groups, indexes, joins, order, recursion, rows, sets, structs, time
from tests.laws.relation import Relation, base

FAMILIES = (rows, structs, joins, indexes, sets, groups, order, time, recursion)


def relations() -> st.SearchStrategy[Relation]:
    """Trees of up to a handful of operators over the tables."""
    leaves = st.sampled_from(["t", "u", "p"]).map(base)

    def extend(inner: st.SearchStrategy[Relation]) -> st.SearchStrategy[Relation]:
        return st.one_of([strategy for family in FAMILIES for strategy in family.extend(inner)])

    return st.recursive(leaves, extend, max_leaves=4)


@cache
def each_on_top(tables: tuple[str, ...] = ("t", "u")) -> tuple[st.SearchStrategy[Relation], ...]:
    """For every operator, relations that it makes of a table or of one other operator; made once, as checking them takes long."""
    leaves = st.sampled_from(tables).map(base)
    inner = st.one_of(leaves, leaves, *(strategy for family in FAMILIES for strategy in family.extend(leaves)))
    return tuple(strategy for family in FAMILIES for strategy in family.extend(inner))
