"""`stream["x"]` is that stream's x behind a join too, or is refused; it is never the other side's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dbsp
from dbsp import col
from dbsp.errors import CircuitError

t = dbsp.table("t", {"id": dbsp.INT64, "at": dbsp.INT64, "x": dbsp.INT64})
u = dbsp.table("u", {"id": dbsp.INT64, "at": dbsp.INT64, "y": dbsp.INT64})
j = t.join(u, on="id")


@pytest.mark.parametrize(
    ("owned", "named"),
    [
        (lambda: t.join(u, on="id", where=t["at"] > u["at"]), lambda: j.filter(col("at") > col("at_right"))),
        (
            lambda: t.join(u, on="id", where=t["at"] > u["at"], how="left"),
            lambda: t.join(u, on="id", where=col("at") > col("at_right"), how="left"),
        ),
        (
            lambda: t.cross_join(u, where=t["id"] == u["id"]),
            lambda: t.cross_join(u, where=col("id") == col("id_right")),
        ),
        (
            lambda: t.interval_join(u, on="at", by="id", within=5, where=t["x"] > u["at"]),
            lambda: t.interval_join(u, on="at", by="id", within=5, where=col("x") > col("at_right")),
        ),
        (lambda: j.filter(t["at"] > u["at"]), lambda: j.filter(col("at") > col("at_right"))),
        (lambda: j.filter(u["id"] == 2), lambda: j.filter(col("id") == 2)),
        (lambda: j.filter(j["at"] == 2), lambda: j.filter(col("at") == 2)),
        (lambda: j.select(u["at"], b=t["at"] + 1), lambda: j.select(at="at_right", b=col("at") + 1)),
        (
            lambda: j.group_by(u["at"]).aggregate(n=dbsp.sum(u["at"]).where(t["at"] > 1)),
            lambda: j.group_by("at_right").aggregate(n=dbsp.sum("at_right").where(col("at") > 1)),
        ),
        (lambda: j.limit(1, "x", partition_by=u["at"]), lambda: j.limit(1, "x", partition_by="at_right")),
        (
            lambda: t.asof_join(u, on="at", by="id").filter(t["at"] > u["at"]),
            lambda: t.asof_join(u, on="at", by="id").filter(col("at") > col("at_right")),
        ),
        (
            lambda: t.filter(t["x"] > 1).join(u, on="id").filter(t["at"] > u["at"]),
            lambda: t.filter(col("x") > 1).join(u, on="id").filter(col("at") > col("at_right")),
        ),
        (
            lambda: j.group_by(u["at"], u["y"]).aggregate(n=dbsp.count()).distinct().filter(u["at"] > 1, u["y"] > 1),
            lambda: (
                j.group_by("at_right", "y")
                .aggregate(n=dbsp.count())
                .distinct()
                .filter(col("at_right") > 1, col("y") > 1)
            ),
        ),
        (
            lambda: j.window(partition_by=u["at"], order_by=u["y"]).with_columns(n=dbsp.lag(u["at"])),
            lambda: j.window(partition_by="at_right", order_by="y").with_columns(n=dbsp.lag("at_right")),
        ),
        (
            lambda: j.window(order_by=u["at"]).select(n=dbsp.rolling(dbsp.sum(u["at"]), rows=1)),
            lambda: j.window(order_by="at_right").select(n=dbsp.rolling(dbsp.sum("at_right"), rows=1)),
        ),
        (
            lambda: j.window(order_by=[dbsp.desc(u["at"]), t["at"]]).select(n=dbsp.row_number()),
            lambda: j.window(order_by=[dbsp.desc("at_right"), "at"]).select(n=dbsp.row_number()),
        ),
        (lambda: j.limit(1, dbsp.asc(u["at"])), lambda: j.limit(1, dbsp.asc("at_right"))),
        (
            lambda: j.group_by("x").aggregate(a=dbsp.first(t["at"], order_by=dbsp.desc(u["at"]))),
            lambda: j.group_by("x").aggregate(a=dbsp.first("at", order_by=dbsp.desc("at_right"))),
        ),
        (
            lambda: j.group_by("x").aggregate(a=dbsp.array_agg("y", order_by=[u["at"], t["at"]])),
            lambda: j.group_by("x").aggregate(a=dbsp.array_agg("y", order_by=["at_right", "at"])),
        ),
        (
            lambda: j.group_by("x").pivot(u["at"], [1, 2], n=dbsp.count()),
            lambda: j.group_by("x").pivot("at_right", [1, 2], n=dbsp.count()),
        ),
        (
            lambda: t.with_columns(at=t["at"] + 1).filter(t["at"] > 1),
            lambda: t.with_columns(at=col("at") + 1).filter(col("at") > 1),
        ),
    ],
)
def test_an_owned_column_is_the_owners(owned: Callable[[], dbsp.Stream], named: Callable[[], dbsp.Stream]) -> None:
    assert owned().node == named().node


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: t.join(t, on="id").filter(t["at"] > 1), 'write dbsp.col("at") or dbsp.col("at_right")'),
        (lambda: t.join(t, on="id", where=t["at"] < t["at"]), 'write dbsp.col("at") or dbsp.col("at_right")'),
        (lambda: t.join(u, on="id", how="left").filter(u["id"].is_null()), ".with_columns(found=dbsp.lit(True))"),
        (lambda: t.join(u, on="id", how="full").filter(t["id"].is_null()), ".with_columns(found=dbsp.lit(True))"),
        (lambda: t.asof_join(u, on="at", by="id").filter(u["id"].is_null()), ".with_columns(found=dbsp.lit(True))"),
        (lambda: j.with_columns(at_right=u["at"] + 1).filter(u["at"] > 1), 'such as dbsp.col("at_right")'),
        (lambda: t.asof_join(u, on="at", by="id", direction="nearest").filter(u["at"] > 1), 'dbsp.col("at_right")'),
        (lambda: t.join(t, on="id").limit(1, dbsp.desc(t["at"])), 'write dbsp.col("at") or dbsp.col("at_right")'),
        (
            lambda: t.join(t, on="id").aggregate(a=dbsp.last("x", order_by=t["at"])),
            'write dbsp.col("at") or dbsp.col("at_right")',
        ),
        (lambda: t.rename({"at": "then"}).filter(t["at"] > 1), 'no such column: column="at"'),
    ],
)
def test_a_column_that_may_be_either_is_refused(make: Callable[[], dbsp.Stream], hint: str) -> None:
    with pytest.raises(CircuitError) as caught:
        make()
    assert hint in str(caught.value)
    assert f"at={__file__}" in str(caught.value)


def test_a_semi_join_has_the_left_columns() -> None:
    both = t.join(u, on="id", how="semi", where=t["at"] > u["at"])
    with dbsp.open(dbsp.circuit("c", {"v": both}), workers=2) as run:
        run.push("t", [{"id": 1, "at": 5, "x": 0}])
        run.push("u", [{"id": 1, "at": 4, "y": 0}, {"id": 1, "at": 6, "y": 0}])
        assert run.step()["v"].to_rows() == [((1, 5, 0), 1)]
        run.delete("u", [{"id": 1, "at": 4, "y": 0}])
        assert run.step()["v"].to_rows() == [((1, 5, 0), -1)]


def test_a_field_of_a_joined_streams_struct_is_followed() -> None:
    place = dbsp.struct_of({"zip": dbsp.INT64})
    a = dbsp.table("a", {"id": dbsp.INT64, "place": place})
    b = dbsp.table("b", {"id": dbsp.INT64, "place": place})
    moved = a.join(b, on="id").filter(a["place.zip"] != b["place.zip"]).select("id")
    with dbsp.open(dbsp.circuit("moves", {"moved": moved})) as run:
        for table, zips in (("a", (1, 2)), ("b", (1, 3))):
            run.push(table, [{"id": number, "place": {"zip": zip_}} for number, zip_ in enumerate(zips)])
        assert run.step()["moved"].to_rows() == [((1,), 1)]
