"""A struct goes through an operator as its fields do: op(packed) unnested is op(flat), for values, keys and orders."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import dbsp
from dbsp import Stream, col
from tests.laws.relation import canonical

T = dbsp.table("t", {"k": dbsp.INT64, "at": dbsp.INT64, "x": dbsp.INT64, "y": dbsp.STRING})
U = dbsp.table("u", {"k": dbsp.INT64, "at": dbsp.INT64, "x": dbsp.INT64, "y": dbsp.STRING}, primary_key=["k", "at"])
Make = Callable[[Stream, Stream], Stream]


def packed(stream: Stream) -> Stream:
    return stream.select("k", "at", p=dbsp.struct("x", "y"))


def flat(stream: Stream) -> Stream:
    return stream.unnest("p") if "p" in stream.columns else stream


def window(stream: Stream) -> Any:
    return stream.window(partition_by="k", order_by=["at", "x", "y"] if "x" in stream.columns else ["at", "p"])


def values(stream: Stream) -> list[str]:
    return ["p"] if "p" in stream.columns else ["x", "y"]


def rows_of(run: dbsp.Run, view: str) -> Counter[Any]:
    return Counter(canonical(tuple(row.values())) for row in run.view(view).to_pylist())


def y_of(stream: Stream) -> dbsp.Expr:
    return col("p.y" if "p" in stream.columns else "y")


MAKERS: dict[str, Make] = {
    "distinct": lambda a, b: a.distinct(),
    "union": lambda a, b: a.union(b, distinct=True),
    "except all": lambda a, b: a.except_(b, all=True),
    "except": lambda a, b: a.except_(b),
    "intersect all": lambda a, b: a.intersect(b, all=True),
    "weight": lambda a, b: a.with_weight("n"),
    "null-safe join": lambda a, b: a.join(b.select("k", *values(b)), on=["k", *values(a)], null_safe=True),
    "semi join": lambda a, b: a.join(b, on=values(a), how="semi", null_safe=True),
    "anti join": lambda a, b: a.join(b, on=values(a), how="anti", null_safe=True),
    "full join": lambda a, b: a.join(b.select("k", other="at"), on="k", how="full"),
    "right join": lambda a, b: b.select("k", other="at").join(a, on="k", how="right"),
    "as-of join": lambda a, b: b.select("k", "at").asof_join(a.distinct(), on="at", by="k"),
    "cross join": lambda a, b: a.cross_join(b.select(other="at").limit(2, by="other")),
    "group by": lambda a, b: a.group_by(*values(a)).aggregate(n=dbsp.count(), s=dbsp.sum("at")),
    "min": lambda a, b: a.group_by("k").aggregate(n=dbsp.count_distinct("at")).join(a, on="k"),
    "limit": lambda a, b: a.limit(2, by=["at", *values(a)], partition_by="k"),
    "row number": lambda a, b: window(a).with_columns(n=dbsp.row_number()),
    "filter": lambda a, b: a.filter(y_of(a) > "a"),
    "when": lambda a, b: a.with_columns(
        **{name: dbsp.when(col("at") > 1, col(name)).otherwise(None) for name in values(a)}
    ),
    "explode": lambda a, b: a.with_columns(word=y_of(a).split(" ")).explode("word", outer=True),
    "recursive": lambda a, b: dbsp.recursive(a, lambda r: r.with_columns(at=col("at") + 1).filter(col("at") < 3)),
    "map": lambda a, b: a.map(dict, schema=a.schema),
}


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("workers", [1, 3])
def test_a_struct_is_carried_like_its_fields(name: str, workers: int) -> None:
    make, pick = MAKERS[name], random.Random(f"{name} {workers}")
    whole = flat(make(packed(T), packed(U)))
    views = {"whole": whole, "parts": make(T, U).select(*whole.columns), "read": T.union(U)}
    held: dict[str, list[dict[str, Any]]] = {"t": [], "u": []}

    def row() -> dict[str, Any]:
        x, y = pick.choice([(None, None), (0, "a"), (0, None), (1, "b a"), (None, "a"), (2, "")])
        return {"k": pick.randrange(3), "at": pick.randrange(4), "x": x, "y": y}

    with dbsp.open(dbsp.circuit("c", views), workers=workers) as run:
        for step in range(10):
            for table, rows in held.items():
                pick.shuffle(rows)
                gone = [rows.pop() for _ in range(min(len(rows), pick.randrange(5)))]
                run.delete(table, gone)
                new = [row() for _ in range(pick.randrange(6))]
                run.push(table, new)
                rows.extend(new)
            run.step(clock=dt.datetime(2026, 1, 1, 0, 0, step))
            one, other = (rows_of(run, view) for view in ("whole", "parts"))
            assert one == other
            if step == 4:
                run.checkpoint()
                run.restart()
            if step == 6:
                run.rescale(4 - workers)
