"""Random SELECTs equal DuckDB's answers after every step; and bugs of the lowering that somebody could write are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

import dbsp.aggregates as agg
from dbsp.sql import grouping, relations, subqueries
from dbsp.sql.joining import filtered
from dbsp.sql.joining import outer as joined
from tests.sql import playing

SEEDS = 150


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 3))
def test_a_random_select_equals_duckdb_at_every_step(seed: int, workers: int) -> None:
    chance = Random(seed)
    text, changes = playing.select(chance), playing.life(chance)
    for ours, theirs in playing.differences(text, changes, workers):
        assert ours == theirs, text


def not_in_as_anti_join(patch: pytest.MonkeyPatch) -> None:
    """NOT IN that forgets the nulls."""
    right = subqueries._members
    patch.setattr(subqueries, "_members", lambda *given: replace(right(*given), nulls=False))


def on_as_where(patch: pytest.MonkeyPatch) -> None:
    """What ON says of a left join, said after it."""

    def wrong(left: Any, right: Any, pairs: Any, how: str, rest: Any = ()) -> Any:
        made = joined(left, right, pairs, how)
        filtered(made, rest)
        return made

    patch.setattr(relations, "outer", wrong)


def counts_of_columns_as_of_rows(patch: pytest.MonkeyPatch) -> None:
    """COUNT(x) that counts nulls."""
    patch.setitem(grouping._AGGREGATES, exp.Count, lambda _node, _scope: agg.count())


def remainders_of_python(patch: pytest.MonkeyPatch) -> None:
    """`%` with the sign of the divisor."""
    from dbsp.sql import expressions  # noqa: PLC0415 (for this alone)

    patch.setitem(expressions._OPERATORS, exp.Mod, expressions._binary(lambda a, b: a % b))


def count_of_nothing_as_null(patch: pytest.MonkeyPatch) -> None:
    """A correlated count of no rows that is null."""
    patch.setattr(subqueries, "coalesce", lambda value, _zero: value)


BUGS = [not_in_as_anti_join, on_as_where, counts_of_columns_as_of_rows, remainders_of_python, count_of_nothing_as_null]


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert any(differs(seed) for seed in range(SEEDS)), "no query of the sample tells"


def differs(seed: int) -> bool:
    chance = Random(seed)
    text, changes = playing.select(chance), playing.life(chance)
    return bool(playing.differences(text, changes, 1))
