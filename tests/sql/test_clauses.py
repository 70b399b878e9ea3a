"""Clauses that were once passed over in silence: random ones beside DuckDB, while rows come and go."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from dbsp.sql import functions, queries, windows
from tests.pace import examples
from tests.sql.drawing import Draw, drawn, seeded
from tests.sql.lives import life
from tests.sql.test_random_queries import Case, refused, wrong

CASES = 60
PLANTED = 60
KEYS = ("k", "p", "a % 2", "b")
KEYS_OF_JSON = ("a", "a.b", "a b", "$", "é", "0", 'q"q', "a[0]", "*")


def chained(draw: Draw) -> str:
    """Windows of names, each built on the one before it, in any order of their definitions."""
    names = [draw.alias("w") for _ in range(draw.pick(1, 2, 3))]
    said = [f"{names[0]} as ({draw.pick('partition by k', 'partition by a % 2, k', '')})"]
    ordered = False
    for before, name in itertools.pairwise(names):
        order = "" if ordered or draw.now_and_then(0.3) else " order by id, a, b, d, f, day, ts, p, k"
        ordered = ordered or bool(order)
        said.append(f"{name} as ({before}{order})")
    function = draw.pick("count(*)", "sum(a)", "count(b)", "max(day)", "row_number()" if ordered else "min(k)")
    used = draw.of(names)
    frame = draw.pick("", "", " rows between 1 preceding and current row") if ordered and used == names[-1] else ""
    over = f"({used}{frame})" if frame or draw.now_and_then(0.5) else used
    return f"select k, a, {function} over {over} as x from t window {', '.join(said)}"


def sets(draw: Draw) -> str:
    """Several sets of keys side by side: every one of the first with every one of the second."""
    parts = [
        f"{draw.pick('rollup', 'cube')} ({', '.join(draw.some(KEYS[:3], 1, 2))})" if draw.now_and_then(0.6)
        else f"grouping sets (({draw.of(KEYS[:3])}), ())"
        for _ in range(draw.pick(1, 2))
    ]  # fmt: skip
    return f"select count(*) as n, sum(a) as x from t group by {', '.join(parts)}"


def columns(draw: Draw) -> str:
    """Stars that choose, leave out, replace and rename."""
    table, wanted = draw.pick(("t", "d"), ("u", "k"), ("p", "day"), ("e", "c"))
    pattern = draw.pick(f"{wanted}%", "%a%", "_", "k", f"%{wanted.upper()}%")
    return f"select {draw.pick(f'* ilike {pattern!r}', f'* exclude ({wanted})', f'* rename ({wanted} as other)')} from {table}"


def patterns(draw: Draw) -> str:
    """Regular expressions with flags, over texts with lines in them."""
    text = "replace(k || coalesce(chr10, '') || k || '.X', 'y', 'x')"
    pattern = draw.pick(".", "x", "X.", "^x", "x$", "[a-z]+", "x.x", "\\w")
    flags = draw.pick("", "g", "i", "c", "s", "gi", "gs", "l", "gl", "n", "im")
    call = draw.pick(
        f"regexp_replace({text}, '{pattern}', 'Q', '{flags}')",
        f"regexp_matches({text}, '{pattern}', '{flags.replace('g', '')}')",
    )
    return f"select k, {call} as x from (select k, case when a > 1 then '\n' end as chr10 from t) as lines"


def keys_of_json(draw: Draw) -> str:
    """Keys that look like paths, and paths."""
    key = draw.of(KEYS_OF_JSON)
    held = draw.of(KEYS_OF_JSON[1:]).replace('"', '\\"')
    quoted = key.replace("'", "''")
    return f"select k, ('{{\"{held}\": ' || coalesce(a::varchar, 'null') || ', \"a\": {{\"b\": 7}}}}') ->> '{quoted}' as x from t"


def parts_of_lists(draw: Draw) -> str:
    """Slices and elements; steps and bounds below one are refused."""
    first, last = draw.pick("", "1", "2", "9"), draw.pick("", "1", "2", "9")
    return f"select l[{draw.pick(f'{first}:{last}', first or '1')}] as x from t"


def lists(draw: Draw) -> str:
    """Lists of groups, with their filters and orders."""
    inner = draw.pick("a order by id, a", "distinct a order by a", "k order by k desc", "a order by a nulls first")
    where = draw.pick("", " filter (where a is not null)", " filter (where a > 1)")
    return f"select k, array_agg({inner}){where} as x from t group by k"


KINDS = (chained, sets, columns, patterns, keys_of_json, parts_of_lists, lists)


def made_of(kind: Callable[[Draw], str]) -> Callable[[Draw], Case]:
    """A clause of this kind, and a life of the tables."""

    def made(draw: Draw) -> Case:
        text = kind(draw)
        draw.tables.update(re.findall(r"from (\w)\b", text))
        return Case(text, {}, life(draw))

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_clauses_are_duckdbs_at_every_step(kind: Any, oracle: duckdb.DuckDBPyConnection) -> None:
    asked: Counter[bool] = Counter()

    @settings(max_examples=examples(CASES), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(drawn(made_of(kind)))
    def equal(made: Case) -> None:
        asked[refused(made, oracle)] += 1

    equal()
    assert asked[False] > asked.total() / 2, asked


def no_base(patch: pytest.MonkeyPatch) -> None:
    """A window that is built on another one forgets its partition."""
    right = windows._spec

    def wrong(node: Any, named: Any) -> Any:
        by, order, spec = right(node, named)
        return ([] if order is not None else by), order, spec

    patch.setattr(windows, "_spec", wrong)


def no_flags(patch: pytest.MonkeyPatch) -> None:
    """Flags of patterns are passed over."""
    patch.setattr(functions, "_flagged", lambda _node, pattern, _flags: pattern)


def keys_as_paths(patch: pytest.MonkeyPatch) -> None:
    """A key with dots is a path."""
    patch.setattr(functions, "_key_path", lambda key: f"$.{key}")


def all_columns(patch: pytest.MonkeyPatch) -> None:
    """Every column matches."""
    patch.setattr(queries, "_matching", lambda _node: re.compile(".*"))


BUGS = {no_base: chained, no_flags: patterns, keys_as_paths: keys_of_json, all_columns: columns}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: Any, monkeypatch: pytest.MonkeyPatch, oracle: duckdb.DuckDBPyConnection) -> None:
    bug(monkeypatch)
    assert any(wrong(made_of(BUGS[bug])(seeded(seed)), oracle) for seed in range(PLANTED))
