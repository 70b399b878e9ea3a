"""Schemas of every method: names, types and nulls of what comes out."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest

import dbsp
from dbsp import col
from dbsp.aggregates.counts import Count
from dbsp.aggregates.kind import AggregateCall
from dbsp.aggregates.sums import Sum
from dbsp.algebra.group_by import GroupBy
from dbsp.algebra.select import Select
from dbsp.errors import CircuitError

T = dbsp.table(
    "t",
    {
        "id": dbsp.INT64,
        "k": dbsp.STRING,
        "i": dbsp.INT32,
        "f": dbsp.FLOAT32,
        "d": dbsp.decimal(8, 2),
        "at": dbsp.TIMESTAMP,
        "u": dbsp.UINT8,
    },
    primary_key="id",
)
U = dbsp.table("u", [dbsp.Column("k", dbsp.STRING, nullable=False), dbsp.Column("i", dbsp.INT64, nullable=False)])

SCHEMAS = {
    "table": (T.select("id", "k"), "(id: int64 not null, k: string)"),
    "select": (T.select("k", x=col("i") + 1, y="f"), "(k: string, x: int32, y: float)"),
    "with_columns": (
        U.with_columns(i=col("i") * 2, n=dbsp.lit(1)),
        "(k: string not null, i: int64 not null, n: int64 not null)",
    ),
    "rename": (U.rename({"k": "i", "i": "k"}), "(i: string not null, k: int64 not null)"),
    "drop": (U.drop("i"), "(k: string not null)"),
    "filter": (U.filter(U["i"] > 1), "(k: string not null, i: int64 not null)"),
    "division": (U.select(x=col("i") / 2, y=col("i") // 2), "(x: double not null, y: int64 not null)"),
    "widths": (
        T.select(x=col("u") + col("i"), y=col("u") + col("u"), z=col("f") + col("i")),
        "(x: int32, y: uint8, z: double)",
    ),
    "decimals": (
        T.select(x=col("d") + 1, y=col("d") * col("d"), z=col("d") / 3, w=col("d") + col("u")),
        "(x: decimal128(9, 2), y: decimal128(16, 4), z: decimal128(38, 6), w: decimal128(9, 2))",
    ),
    "fill_null": (T.select(x=col("i").fill_null(0)), "(x: int32 not null)"),
    "lenient cast": (U.select(x=col("k").cast(dbsp.INT64, strict=False)), "(x: int64)"),
    "times": (
        T.select(
            x=col("at") - col("at"), y=col("at").truncate("day"), z=col("at").month(), d=col("at").cast(dbsp.DATE)
        ),
        "(x: duration[us], y: timestamp[us], z: int64, d: date32[day])",
    ),
    "map": (T.map(lambda row: row, schema={"x": dbsp.INT8}), "(x: int8)"),
    "join": (
        T.select("id", "k", "i").join(U, on="k"),
        "(id: int64 not null, k: string not null, i: int32, i_right: int64 not null)",
    ),
    "join of widths": (
        T.select("i", "f").join(U, on="i"),
        "(i: int64 not null, f: float, k: string not null)",
    ),
    "join on two": (
        T.select("k", "i").join(U, left_on=["k", "i"], right_on=["k", "i"]),
        "(k: string not null, i: int64 not null)",
    ),
    "aggregates": (
        T.group_by("k").aggregate(
            n=dbsp.count(),
            m=dbsp.count("f"),
            c=dbsp.count_distinct("f"),
            si=dbsp.sum("u"),
            sf=dbsp.sum("f"),
            sd=dbsp.sum("d"),
            a=dbsp.avg("i"),
            lo=dbsp.min("k"),
            hi=dbsp.max("at"),
        ),
        "(k: string, n: int64 not null, m: int64 not null, c: int64 not null, si: int64, sf: double,"
        " sd: decimal128(38, 2), a: double, lo: string, hi: timestamp[us])",
    ),
    "no keys": (U.aggregate(n=dbsp.count()), "(n: int64 not null)"),
    "union": (U.union(T.select("i", "k").with_columns(i=col("i").cast(dbsp.INT64))), "(k: string, i: int64)"),
    "difference": (U.difference(U), "(k: string not null, i: int64 not null)"),
    "distinct": (U.distinct(), "(k: string not null, i: int64 not null)"),
    "top": (
        U.top_k(3, by="i", partition_by="k", rank="r"),
        "(k: string not null, i: int64 not null, r: int64 not null)",
    ),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_schema(case):
    stream, expected = SCHEMAS[case]
    assert str(stream.schema) == expected
    assert stream.columns == stream.schema.names
    if case != "map":
        assert pickle.loads(pickle.dumps(stream)) == stream


def test_arrow_schemas_are_taken():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    assert str(dbsp.table("t", schema).schema) == "(a: int64 not null, b: string)"


def test_an_expression_argument_becomes_one_column_below():
    node = T.group_by("k").aggregate(a=dbsp.sum(col("i") * 2), b=dbsp.avg(col("i") * 2), c=dbsp.max("i")).node
    assert isinstance(node, GroupBy)
    assert isinstance(node.input, Select)
    assert node.input.schema.names == ("k", "i", "__a")
    assert [call.column for call in node.aggregates] == ["__a", "__a", "i"]


def test_plain_arguments_need_no_column_below():
    node = T.group_by("k").aggregate(n=dbsp.count(), s=dbsp.sum("i")).node
    assert isinstance(node, GroupBy)
    assert node.input == T.node
    assert node.aggregates == (
        AggregateCall(name="n", kind=Count()),
        AggregateCall(name="s", kind=Sum(), columns=("i",)),
    )


def test_an_expression_has_no_truth_and_no_hash():
    with pytest.raises(CircuitError, match="not true or false"):
        bool(col("a") == 1)
    with pytest.raises(TypeError):
        {col("a")}


def test_a_column_is_no_attribute():
    with pytest.raises(AttributeError, match=r'no attribute \'k\'; write stream\["k"\]'):
        T.k  # noqa: B018 (the access is the test)
    assert not hasattr(T, "nothing")
    assert copy.deepcopy(T) == T


def test_streams_built_alike_are_equal():
    def build() -> dbsp.Stream:
        return T.filter(col("i") > 1).group_by("k").aggregate(n=dbsp.count())

    assert build() == build()
    assert hash(build().node) == hash(build().node)


def test_computed_keys_of_rollup_and_cube_are_named_as_those_of_group_by() -> None:
    table = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    rolled = table.rollup("k", odd=dbsp.col("x") % 2, grouping="level").aggregate(n=dbsp.count())
    cubed = table.cube(odd=dbsp.col("x") % 2).aggregate(n=dbsp.count())
    with dbsp.open(dbsp.circuit("c", {"rolled": rolled, "cubed": cubed})) as run:
        run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}])
        run.step()
        run.delete("t", [{"k": "a", "x": 2}])
        run.step()
        assert {row for row, _ in run.view("rolled").to_rows()} == {
            ("a", 1, 0, 1),
            ("a", None, 1, 1),
            (None, None, 3, 1),
        }
        assert dict(row for row, _ in run.view("cubed").to_rows()) == {1: 1, None: 1}


def test_several_conditions_of_a_filter_are_met_at_once() -> None:
    table = dbsp.table("t", {"x": dbsp.INT64})
    some = table.filter(dbsp.col("x") > 1, dbsp.col("x") < 5, dbsp.col("x") != 3)
    with dbsp.open(dbsp.circuit("c", {"some": some})) as run:
        run.push("t", {"x": [1, 2, 3, 4, 5, None]})
        run.step()
        assert [row for row, _ in run.view("some").to_rows()] == [(2,), (4,)]
