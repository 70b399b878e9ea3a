"""What signatures depend on, and what they do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import dbsp
from dbsp import col
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan
from dbsp.plan.signatures import Signatures, meanings, signatures

t = dbsp.table("t", {"k": dbsp.INT64, "b": dbsp.STRING, "x": dbsp.INT64}, primary_key="k")
u = dbsp.table("u", {"b": dbsp.STRING, "y": dbsp.INT64})
counts = t.group_by("b").aggregate(n=dbsp.count())
sums = t.group_by("b").aggregate(s=dbsp.sum("x"))
joined = t.join(u, on="b")


def planned(**views: Any) -> Plan:
    return plan(dbsp.circuit("c", views))


def kept(old: Plan, new: Plan) -> set[str]:
    """What each trace of the new plan that the old one has is for."""
    there = signatures(old).traces
    found = {number for number, signature in meanings(new).traces.items() if signature in there}
    names = {trace.id: node.name.split("#")[0] for node in new.nodes for trace in node.own}
    return {names.get(number, "view") for number in found}


def test_the_same_wherever_it_stands() -> None:
    """Another view before it shifts all numbers."""
    alone, behind = planned(counts=counts), planned(a=joined.select("k", "y"), b=u, counts=counts, t=t)
    assert kept(alone, behind) == {"group_by"}
    assert kept(planned(counts=counts, t=t), behind) == {"group_by", "upsert"}


def test_the_rows_of_a_table_do_not_depend_on_who_reads_what() -> None:
    """The upsert has other columns, and is another trace; what is made of it is not."""
    both, one = planned(counts=counts, sums=sums), planned(counts=counts)
    assert kept(both, one) == {"group_by"}
    assert signatures(both).rows["t"][1] == ("k", "b", "x")
    assert signatures(one).rows["t"][1] == ("k", "b")


def test_the_owner_of_a_sum_does_not_matter() -> None:
    """The first join owns the sides' traces; without it the second one does."""
    left, semi = t.join(u, on="b", how="left").select("k", "y"), joined.select("k", "y")
    assert kept(planned(a=left, b=semi), planned(b=semi)) >= {"join"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (t.filter(col("x") > 1).distinct(), t.filter(col("x") > 2).distinct()),
        (t.group_by("b").aggregate(m=dbsp.max("x")), t.group_by("b").aggregate(m=dbsp.min("x"))),
        (t.select("b", z=col("x") + 1).distinct(), t.select("b", z=col("x") + 2).distinct()),
        (u.distinct(), u.filter(col("y") > 0).distinct()),
        (t.group_by("b").aggregate(s=dbsp.sum("x")), t.group_by("b").aggregate(s=dbsp.sum("k"))),
    ],
)  # fmt: skip
def test_another_parameter_is_another_signature(one: Any, other: Any) -> None:
    assert kept(planned(v=one), planned(v=other)) <= {"upsert"}


def test_what_is_kept_counts_and_not_what_is_made_of_it() -> None:
    """A top-k keeps its whole input in order, whatever k is."""
    one, two = (t.top_k(k, by="x", partition_by="b") for k in (1, 2))
    assert kept(planned(v=one), planned(v=two)) == {"upsert", "top_k"}


def test_another_table_is_another_signature() -> None:
    wider = dbsp.table("t", {"k": dbsp.INT64, "b": dbsp.STRING, "x": dbsp.INT32}, primary_key="k")
    assert not kept(planned(v=t), planned(v=wider))
    assert signatures(planned(v=t)).tables != signatures(planned(v=wider)).tables


def test_a_view_is_told_by_what_it_says() -> None:
    """Not by what is beside it, or by whether its rows are kept."""
    one = signatures(planned(a=counts, b=sums)).views
    two = signatures(plan(dbsp.circuit("c", {"c": joined, "b": sums, "a": counts}, materialize=False))).views
    assert (one["a"], one["b"]) == (two["a"], two["b"])
    assert one["a"] != signatures(planned(a=sums)).views["a"]


def test_a_watermark_is_not_told_by_its_number() -> None:
    events = dbsp.table("events", {"b": dbsp.STRING, "at": dbsp.TIMESTAMP})
    late = events.with_watermark("at", dbsp.minutes(1)).tumble("at", dbsp.minutes(5))
    windows = late.group_by("b", "window_end").aggregate(n=dbsp.count()).final("window_end")
    alone, behind = planned(w=windows), planned(a=counts, e=events, w=windows)
    assert alone.watermarks != behind.watermarks
    assert signatures(alone).watermarks.keys() == signatures(behind).watermarks.keys()
    assert signatures(alone).traces.keys() <= signatures(behind).traces.keys()


def test_they_are_stored_as_they_are() -> None:
    found = signatures(planned(a=counts, b=joined, t=t))
    assert Signatures.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert Signatures.from_json(None) is None
    assert Signatures.from_json({**found.to_json(), "format": "another"}) is None


SCRIPT = """
import json
from tests.plan.test_signatures import counts, joined, planned, signatures, sums, t
print(json.dumps(signatures(planned(a=counts, b=joined, c=sums, t=t)).to_json(), sort_keys=True))
"""


def test_the_same_in_every_process() -> None:
    told = {
        subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
                       text=True, check=True).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1
