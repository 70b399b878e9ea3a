"""Where SQL says what methods say, both are one circuit; what is named once is made once."""

from __future__ import annotations

import pytest

import dbsp
from dbsp import col, desc

T = dbsp.table("t", {"id": dbsp.INT64, "k": dbsp.STRING, "x": dbsp.INT64, "at": dbsp.TIMESTAMP}, primary_key="id")
U = dbsp.table("u", {"name": dbsp.STRING, "y": dbsp.INT64}, primary_key="name")
JOINED = T.join(U, on={"k": "name"})

SAME = {
    "select id, x + 1 as y from t": T.select("id", y=col("x") + 1),
    "select * from t where x > 1": T.filter(col("x") > 1),
    "select * from t where x > 1 and k = 'a'": T.filter(col("x") > 1, col("k") == "a"),
    "select k, count(*) as n, sum(x) as total from t group by k": T.group_by("k").aggregate(
        n=dbsp.count(), total=dbsp.sum("x")
    ),
    "select sum(x) as total from t": T.aggregate(total=dbsp.sum("x")),
    "select k, sum(x) as total from t group by k having total > 3": T.group_by("k")
    .aggregate(total=dbsp.sum("x"))
    .filter(col("total") > 3),
    "select k, count(*) as n from t group by k having k in (select name from u)": T.group_by("k")
    .aggregate(n=dbsp.count())
    .join(U.select("name"), on={"k": "name"}, how="semi"),
    "select t.k, y from t join u on k = name": JOINED.select("k", "y"),
    "select t.k, y from t, u where k = name and y > 2": T.join(U.filter(col("y") > 2), on={"k": "name"}).select(
        "k", "y"
    ),
    "select * from t where k in (select name from u)": T.join(U.select("name"), on={"k": "name"}, how="semi"),
    "select * from t where not exists (select 1 from u where name = k)": T.join(U, on={"k": "name"}, how="anti"),
    "select distinct k from t": T.select("k").distinct(),
    "select k, x from t order by x desc limit 3": T.select("k", "x").limit(3, by=desc("x")),
    "select k from t union all select name from u": T.select("k").union(U.select("name").rename({"name": "k"})),
    "select *, row_number() over (partition by k order by x) as n from t": T.window("k", "x").with_columns(
        n=dbsp.row_number()
    ),
    "select date_trunc('day', \"at\") as day, count(*) as n from t group by day": T.group_by(
        day=col("at").truncate("day")
    ).aggregate(n=dbsp.count()),
}


@pytest.mark.parametrize("text", SAME)
def test_the_same_circuit(text: str) -> None:
    ours = dbsp.circuit("v", {"v": dbsp.sql(text, t=T, u=U)})
    by_hand = dbsp.circuit("v", {"v": SAME[text]})
    assert ours.explain() == by_hand.explain()
    assert ours.fingerprint == by_hand.fingerprint


def test_a_query_of_with_is_made_once() -> None:
    text = "with g as (select k, sum(x) as s from t group by k) select a.k from g a join g b on a.s = b.s"
    assert (
        dbsp.sql(text, t=T).node.children()[0].children()[0]
        == dbsp.sql("select k, sum(x) as s from t group by k", t=T).node
    )


def test_relations_that_equalities_connect_are_never_paired_whole() -> None:
    """In any order of writing."""
    tables = {name: dbsp.table(name, {f"{name}1": dbsp.INT64, f"{name}2": dbsp.INT64}) for name in "abcd"}
    for order in ("a, b, c, d", "d, a, c, b", "b, d, a, c", "c, a, d, b"):
        text = f"select a1, d2 from {order} where a1 = b1 and c2 = b2 and d1 = c1"
        assert "cross" not in dbsp.sql(text, **tables).explain()
    assert "cross" in dbsp.sql("select a1, d2 from a, b, c, d where a1 = b1 and c2 = d2", **tables).explain()


def test_an_equality_in_every_part_of_an_or_is_a_key() -> None:
    text = "select id from t, u where (k = name and x = 1) or (k = name and y = 2)"
    assert "cross" not in dbsp.sql(text, t=T, u=U).explain()
