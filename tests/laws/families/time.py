"""Windows over time; what depends on the clock or on lateness has tests of its own, beside plain Python."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation

SECOND = "(((a % 1000) + 1000) % 1000)"


def timed(r: Relation) -> Any:
    """The rows with a time within a thousand seconds."""
    return r.stream.with_columns(at=dbsp.from_epoch(dbsp.col("a") % 1000))


def tumbled(r: Relation, size: int) -> Relation:
    windows = timed(r).tumble("at", dbsp.seconds(size))
    stream = windows.group_by("b", "window_end").aggregate(n=dbsp.count(), m=dbsp.max("f"))
    return Relation(
        stream.select("b", a=dbsp.col("window_end").epoch() + dbsp.col("n"), f="m"),
        f"select b, ({SECOND} // {size} * {size} + {size} + count(*))::bigint as a, max(f) as f from ({r.sql})"
        f" group by b, {SECOND} // {size}",
        (*r.operators, "tumble"),
    )


def hopped(r: Relation, size: int, slide: int) -> Relation:
    windows = timed(r).hop("at", dbsp.seconds(size), dbsp.seconds(slide))
    start = f"({SECOND} // {slide} - k) * {slide}"
    return Relation(
        windows.select("b", a=dbsp.col("window_start").epoch(), f="f"),
        f"select b, {start} as a, f from ({r.sql}) q, range({size // slide + 1}) k(k)"
        f" where (a is null and k = 0) or {start} + {size} > {SECOND}",
        (*r.operators, "hop"),
    )


def sessions(r: Relation, gap: int) -> Relation:
    stream = timed(r).session("at", dbsp.seconds(gap), partition_by="b")
    lag = f"{SECOND} - lag({SECOND}) over (partition by b order by {SECOND} nulls last)"
    ids = "sum(fresh) over (partition by b order by s nulls last range unbounded preceding)"
    return Relation(
        stream.select("b", a=dbsp.date_diff("second", dbsp.col("window_start"), dbsp.col("window_end")), f="f"),
        f"select b, (max(s) over w - min(s) over w + {gap})::bigint as a, f from (select b, s, f, {ids} as id from"
        f" (select b, f, {SECOND} as s, case when {lag} <= {gap} then 0 else 1 end as fresh from ({r.sql})))"
        " window w as (partition by b, id, s is null)",
        (*r.operators, "session"),
    )


def recent(r: Relation) -> Relation:
    """Times of 1970 have come and will stay for a century: what changes with the clock has tests of its own."""
    at = dbsp.col("at")
    stream = timed(r).filter((at <= dbsp.now()) & (at > dbsp.now() - dbsp.days(36_525)) & (dbsp.col("a") != 1))
    return Relation(stream.select("b", "a", "f"), f"select b, a, f from ({r.sql}) where a != 1", (*r.operators, "now"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(tumbled, inner, st.integers(1, 7)),
        st.builds(recent, inner),
        st.builds(sessions, inner, st.integers(1, 4)),
        st.builds(hopped, inner, st.integers(1, 7), st.integers(1, 7)),
    ]
