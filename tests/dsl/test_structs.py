"""Columns of structs: pushed, read by field, unnested, kept whole, refused with what to write instead."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbsp
from dbsp import col
from dbsp.errors import CircuitError
from tests import duck

GEO = dbsp.struct_of({"lat": dbsp.FLOAT64, "lon": dbsp.FLOAT64})
ADDRESS = dbsp.struct_of({"street": dbsp.STRING, "zip": dbsp.INT64, "geo": GEO})
LINES = dbsp.list_of(dbsp.struct_of({"sku": dbsp.STRING, "n": dbsp.INT32}))
T = dbsp.table("t", {"id": dbsp.INT64, "address": ADDRESS, "lines": LINES}, primary_key="id")
ELM = {"street": "Elm", "zip": 7, "geo": {"lat": 1.5, "lon": None}}
NOWHERE = {"street": None, "zip": None, "geo": None}


def seen(run: dbsp.Run, view: str) -> list[Any]:
    """The rows of a view, as tuples in an order."""
    return sorted((tuple(row.values()) for row in run.view(view).to_pylist()), key=repr)


@pytest.mark.parametrize("workers", [1, 3])
def test_upserts_reads_and_unnests(workers: int) -> None:
    """A field however it is written, the struct whole, its fields as columns, elements of lists; a row replaced and deleted."""
    views = {
        "whole": T.select("id", "address"),
        "read": T.select("id", "address.street", z=col("address")["zip"], lat=col("address").field("geo").field("lat")),
        "near": T.filter(col("address.zip") < 10).select("id"),
        "flat": T.drop("lines").unnest("address").unnest("geo", prefix="at_"),
        "sold": T.explode("lines", "line", position="place").select("id", "place", "line").unnest("line"),
        "first": T.select("id", sku=col("lines").element(1).field("sku")),
    }
    with dbsp.open(dbsp.circuit("c", views), workers=workers) as run:
        run.push("t", [{"id": 1, "address": ELM, "lines": [{"sku": "a", "n": 2}, None, {"sku": "b"}]}])
        run.push("t", [{"id": 2, "address": {}, "lines": []}, {"id": 3}])
        run.step()
        assert seen(run, "whole") == [(1, ELM), (2, NOWHERE), (3, None)]
        assert seen(run, "read") == [(1, "Elm", 7, 1.5), (2, None, None, None), (3, None, None, None)]
        assert run.view("read").to_arrow().column_names == ["id", "street", "z", "lat"]
        assert seen(run, "near") == [(1,)]
        assert seen(run, "flat") == [(1, "Elm", 7, 1.5, None), *((i, None, None, None, None) for i in (2, 3))]
        assert run.view("flat").to_arrow().column_names == ["id", "street", "zip", "at_lat", "at_lon"]
        assert seen(run, "sold") == [(1, 1, "a", 2), (1, 2, None, None), (1, 3, "b", None)]
        assert seen(run, "first") == [(1, "a"), (2, None), (3, None)]
        run.push("t", [{"id": 1, "address": {"street": "Oak", "zip": 12}}])
        run.delete("t", [{"id": 3}])
        run.step()
        assert seen(run, "whole") == [(1, {"street": "Oak", "zip": 12, "geo": None}), (2, NOWHERE)]
        assert seen(run, "near") == seen(run, "sold") == []


@pytest.mark.parametrize("workers", [1, 3])
def test_whole_structs_are_keys_and_values(workers: int) -> None:
    """Of groups, joins, aggregates, choices; a null struct is no struct of nulls, and as a key equal to nothing."""
    known = dbsp.coalesce(col("address"), dbsp.lit(None, ADDRESS))
    views = {
        "by": T.group_by("address").aggregate(n=dbsp.count()),
        "pairs": T.select("id", "address").join(T.select("address", other="id"), on="address").select("id", "other"),
        "kinds": T.aggregate(n=dbsp.count_distinct("address"), high=dbsp.max("address"), zips=dbsp.sum("address.zip")),
        "lists": T.aggregate(all=dbsp.array_agg(dbsp.struct("id", s="address.street"), order_by="id")),
        "chosen": T.select("id", a=dbsp.when(col("id") > 1, known).otherwise(None), none=col("address").is_null()),
        "top": T.limit(1, by="address").select("id"),
    }
    with dbsp.open(dbsp.circuit("c", views), workers=workers) as run:
        run.push("t", [{"id": 1, "address": ELM}, {"id": 2, "address": ELM}, {"id": 3, "address": {}}, {"id": 4}])
        run.step()
        assert seen(run, "by") == [(None, 1), (ELM, 2), (NOWHERE, 1)]
        assert seen(run, "pairs") == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]
        assert seen(run, "kinds") == [(2, NOWHERE, 14)]
        streets = [(1, "Elm"), (2, "Elm"), (3, None), (4, None)]
        assert seen(run, "lists") == [([{"id": i, "s": street} for i, street in streets],)]
        assert seen(run, "chosen") == [(1, None, False), (2, ELM, False), (3, NOWHERE, False), (4, None, True)]
        assert seen(run, "top") == [(1,)]
        run.delete("t", [{"id": 1}, {"id": 3}])
        run.step()
        assert seen(run, "by") == [(None, 1), (ELM, 1)]
        assert seen(run, "pairs") == [(2, 2)]
        assert seen(run, "kinds") == [(1, ELM, 7)]
        assert seen(run, "top") == [(2,)]


def test_arrow_structs_are_taken_by_name() -> None:
    """Fields in another order, wide and encoded texts, fewer fields; a schema with promises inside."""
    inner = pa.struct([pa.field("zip", pa.int32(), nullable=False), ("street", pa.large_string())])
    rows = pa.table({"id": [1], "address": pa.array([{"zip": 7, "street": "Elm"}], inner)})
    with dbsp.open(dbsp.circuit("c", {"v": T.select("address")})) as run:
        run.push("t", rows)
        run.step()
        assert run.view("v").to_pylist() == [{"address": {"street": "Elm", "zip": 7, "geo": None}}]
        assert run.view("v").to_arrow().schema.field("address").type == ADDRESS
    declared = dbsp.table("d", pa.schema([("id", pa.int64()), ("x", pa.struct([inner.field(0)]))]))
    assert str(declared.schema["x"].type) == "struct<zip: int32>"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": 1, "address": {"city": "x"}}], "no such field: field=city"),
        ([{"id": 1, "address": {"geo": {"alt": 1.0}}}], "no such field: field=alt"),
        ([{"id": 1, "lines": [{"qty": 1}]}], "no such field: field=qty"),
        ([{"id": 1, "address": {"zip": "x"}}], 'dbsp.struct_of({"street": dbsp.STRING, "zip": dbsp.INT64, "geo": dbsp'),
        ([{"id": 1, "address": 5}], "column=address"),
        (pa.table({"id": [1], "address": [{"city": "x"}]}), "no such field: field=city"),
    ],
)
def test_rows_that_do_not_fit(rows: Any, message: str) -> None:
    """Nothing is dropped, at no depth; the table goes on."""
    with dbsp.open(dbsp.circuit("c", {"v": T.select("id")})) as run:
        with pytest.raises(CircuitError) as caught:
            run.push("t", rows)
        assert message in str(caught.value)
        run.push("t", [{"id": 1}])
        run.step()
        assert run.view("v").to_pylist() == [{"id": 1}]


def test_user_functions_take_and_make_structs() -> None:
    """As dicts; one with a field too many fails its row."""

    def moved(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "to": {"zip": row["address"]["zip"] + 1} | ({"x": 1} if row["id"] == 2 else {})}

    stream = T.map(moved, schema={"id": dbsp.INT64, "to": dbsp.struct_of({"zip": dbsp.INT64})})
    with dbsp.open(dbsp.circuit("c", {"v": stream})) as run:
        run.push("t", [{"id": 1, "address": ELM}, {"id": 2, "address": ELM}])
        run.step()
        assert run.view("v").to_pylist() == [{"id": 1, "to": {"zip": 8}}]
        assert len(run.dead_letters()) == 1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: T.select(x=col("address.stret")), "no such field: struct=address field='stret'"),
        (lambda: T.select("address.stret"), 'did you mean "street"?'),
        (lambda: T.select("id", "address.*"), 'write stream.unnest("address") for all fields'),
        (lambda: T.select(x=col("id").field("a")), "it is for structs: a column of type dbsp.struct_of"),
        (lambda: T.select(x=col("lines").field("sku")), 'write .element(1).field("sku")'),
        (lambda: T.select(x=col("address.street").field("a")), 'of JSON text write .json_value("$.a")'),
        (lambda: T.select(x=col("address").field(1)), "a field is named by a text"),
        (lambda: T.select(x=col("address")[1]), "write .element(1) for the first of a list"),
        (lambda: T.unnest("lines"), 'write .explode("lines") for the elements of a list, then .unnest("lines")'),
        (lambda: T.unnest("id"), "unnest takes a struct"),
        (lambda: T.unnest("adress"), 'did you mean "address"?'),
        (lambda: T.explode("address"), 'write .unnest("address") for the fields of a struct'),
        (lambda: T.with_columns(zip=col("id")).unnest("address"), "columns=['zip']"),
        (lambda: T.filter(col("address") < col("address")), "structs can be compared only by == and !="),
        (
            lambda: T.filter(col("address") == col("address.geo")),
            "structs can be compared only by == and !=, with a struct of the same type",
        ),
        (lambda: T.select(x=dbsp.greatest(col("address"), col("address"))), "structs can be compared only by =="),
        (lambda: T.select(x=col("address").nullif(col("address"))), "structs can be compared only by =="),
        (lambda: T.select(x=col("address").cast(dbsp.STRING)), "there is no cast from struct"),
        (lambda: T.select(x=col("address").try_cast(dbsp.struct_of({"zip": dbsp.STRING}))), "there is no cast"),
        (lambda: T.with_columns(zip=col("id")).group_by("address.zip"), '.with_columns(zip_2=dbsp.col("address.zip"))'),
        (
            lambda: T.with_columns(zip=col("id")).join(T, on="address.zip"),
            '.with_columns(zip_2=dbsp.col("address.zip"))',
        ),
        (
            lambda: T.rename({"address.zip": "code"}),
            "take it out as a column: .with_columns(code=dbsp.col('address.zip'))",
        ),
        (
            lambda: T.unpivot(["id", "address.street"]),
            '.with_columns(street=dbsp.col("address.street").cast(dbsp.INT64))',
        ),
        (lambda: T.with_columns(zip=col("id")).unpivot(["zip", "address.zip"]), "unpivot names two columns alike"),
        (lambda: T.unpivot(["address.zap"]), 'did you mean "zip"?'),
        (lambda: T.aggregate(x=dbsp.first("id", order_by="address.zap")), 'did you mean "zip"?'),
        (lambda: T.asof_join(Z, on={"address.zap": "n"}), 'did you mean "zip"?'),
        (
            lambda: T.asof_join(Z, on={"address.street": "n"}),
            "join keys have different types: __address.street=string n=int64",
        ),
        (lambda: T.drop("address.zip"), "make the struct anew: .with_columns(address=dbsp.struct(…))"),
        (lambda: T.filter(col("address") == {"zip": 1}), 'write dbsp.struct(a=1, b=dbsp.lit("x")) for a struct'),
        (lambda: T.group_by("address.zap"), 'did you mean "zip"?'),
        (lambda: T.limit(1, by="address.zap"), 'did you mean "zip"?'),
        (lambda: T.flatten(), '.unnest("struct") for columns'),  # noqa: PLW0108 (its name alone is refused)
        (lambda: dbsp.struct({"zip": dbsp.INT64}), "write dbsp.struct_of({…}) for the type"),
        (dbsp.struct, "fields of different names"),
        (lambda: dbsp.struct("id", id=col("id")), "fields of different names"),
        (lambda: dbsp.table("x", {"a": {"b": dbsp.INT64}}), "write dbsp.struct_of({…}) for a struct"),
        (lambda: dbsp.table("x", {"a": pa.map_(pa.string(), pa.int64())}), "make a map a list of its entries"),
        (lambda: dbsp.table("x", {"a": pa.struct([])}), "unsupported column type: column=a"),
    ],
)
def test_what_is_refused(made: Callable[[], Any], message: str) -> None:
    """With what to write."""
    with pytest.raises((CircuitError, AttributeError)) as caught:
        made()
    assert message in str(caught.value)


Z = dbsp.table("z", {"zip": dbsp.INT64, "town": dbsp.STRING, "n": dbsp.INT64})
PATHS: dict[str, tuple[Any, Any]] = {
    "group_by": (
        T.group_by("address.zip", col("address")["street"]).aggregate(n=dbsp.count()),
        T.group_by(zip=col("address.zip"), street=col("address.street")).aggregate(n=dbsp.count()),
    ),
    "rollup": (
        T.rollup("address.zip").aggregate(n=dbsp.count()), T.rollup(zip=col("address.zip")).aggregate(n=dbsp.count()),
    ),
    "grouping_sets": (
        T.grouping_sets([["address.zip"], ["id"], []]).aggregate(n=dbsp.count()),
        T.with_columns(zip=col("address.zip")).grouping_sets([["zip"], ["id"], []]).aggregate(n=dbsp.count()),
    ),
    "pivot": (
        T.group_by("id").pivot("address.zip", [7, None], n=dbsp.count()),
        T.with_columns(zip=col("address.zip")).group_by("id").pivot("zip", [7, None], n=dbsp.count()),
    ),
    "pivot of an expression": (
        T.group_by("address.street").pivot(col("address.zip") % 2, {"even": 0, "odd": 1}, n=dbsp.count()),
        T.with_columns(k=col("address.zip") % 2, street=col("address.street"))
        .group_by("street").aggregate(even=dbsp.count().where(col("k") == 0), odd=dbsp.count().where(col("k") == 1)),
    ),
    "explode of an expression": (
        T.explode(dbsp.sequence(1, col("address.zip") - 5), "n", position="at", outer=True).drop("address", "lines"),
        T.with_columns(n=dbsp.sequence(1, col("address.zip") - 5)).drop("address", "lines")
        .explode("n", position="at", outer=True),
    ),
    "window without an order": (
        T.window("address.zip").select("id", s=dbsp.rolling(dbsp.sum("id"), range=(None, None))),
        T.with_columns(zip=col("address.zip")).window("zip", "id")
        .select("id", s=dbsp.rolling(dbsp.sum("id"), rows=(None, None))),
    ),
    "limit": (
        T.limit(1, by=[dbsp.desc("address.geo.lat"), "id"], partition_by="address.zip"),
        T.with_columns(zip=col("address.zip"), lat=col("address.geo.lat"))
        .limit(1, by=[dbsp.desc("lat"), "id"], partition_by="zip").drop("zip", "lat"),
    ),
    "top_k": (
        T.top_k(2, by=[-col("id") % 3, dbsp.desc(col("id") * 2)], partition_by=col("address")["zip"], rank="place"),
        T.with_columns(zip=col("address.zip"), by=-col("id") % 3)
        .top_k(2, by=["by", dbsp.desc("id")], partition_by="zip", rank="place").drop("zip", "by"),
    ),
    "window": (
        T.window(col("id") % 2, ["address.geo.lat", "id"]).select("id", n=dbsp.row_number(), low=dbsp.first_value("address.zip")),
        T.with_columns(odd=col("id") % 2, lat=col("address.geo.lat"))
        .window("odd", ["lat", "id"]).select("id", n=dbsp.row_number(), low=dbsp.first_value("address.zip")),
    ),
    "join": (
        T.join(Z, on={"address.zip": "zip"}, how="full"),
        T.with_columns(zip=col("address.zip")).join(Z, on="zip", how="full"),
    ),
    "join to a field": (
        Z.join(T, left_on="zip", right_on="address.zip", where=col("town") != "x"),
        Z.join(T.with_columns(key=col("address.zip")), on={"zip": "key"}, where=col("town") != "x"),
    ),
    "semi": (
        T.join(Z, on={"address.zip": "zip"}, how="semi"),
        T.with_columns(zip=col("address.zip")).join(Z, on="zip", how="semi").drop("zip"),
    ),
    "as of": (
        T.asof_join(Z, on={"id": "n"}, by={"address.zip": "zip"}),
        T.with_columns(zip=col("address.zip")).asof_join(Z, on={"id": "n"}, by="zip"),
    ),
    "nearest": (
        Z.asof_join(T, on={"n": "id"}, by={"zip": "address.zip"}, direction="nearest", how="inner"),
        Z.asof_join(T.with_columns(key=col("address.zip")), on={"n": "id"}, by={"zip": "key"}, direction="nearest", how="inner"),
    ),
    "interval": (
        T.interval_join(Z, on={"id": "n"}, by={"address.zip": "zip"}, within=4),
        T.with_columns(zip=col("address.zip")).interval_join(Z, on={"id": "n"}, by="zip", within=4),
    ),
    "not near": (
        T.interval_join(Z, on={"id": "n"}, by={"address.zip": "zip"}, within=2, how="anti"),
        T.with_columns(zip=col("address.zip")).interval_join(Z, on={"id": "n"}, by="zip", within=2, how="anti").drop("zip"),
    ),
    "as of a field": (
        T.asof_join(Z, on={"address.zip": "n"}, tolerance=3),
        T.with_columns(zip_2=col("address.zip")).asof_join(Z, on={"zip_2": "n"}, tolerance=3).drop("zip_2"),
    ),
    "nearest to a field": (
        Z.asof_join(T, on={"n": "address.zip"}, direction="nearest", by={"zip": "address.zip"}, how="inner", suffix=None),
        Z.asof_join(
            T.with_columns(zip=col("address.zip"), at=col("address.zip")), on={"n": "at"}, direction="nearest", by="zip",
            how="inner",
        ).drop("at"),
    ),
    "fields near each other": (
        T.interval_join(T, on="address.zip", by="address.street", within=1, where=col("id") < col("id_right"), how="left"),
        T.with_columns(street=col("address.street"), zip=col("address.zip"))
        .interval_join(
            T.with_columns(street=col("address.street"), zip=col("address.zip")), on="zip", by="street", within=1,
            where=col("id") < col("id_right"), how="left",
        ).drop("zip", "zip_right"),
    ),
    "fields not near": (
        T.interval_join(Z, on={"address.zip": "n"}, within=0, how="anti"),
        T.with_columns(zip=col("address.zip")).interval_join(Z, on={"zip": "n"}, within=0, how="anti").drop("zip"),
    ),
    "order of an aggregate": (
        T.group_by("address.street").aggregate(
            low=dbsp.first("id", order_by=["address.geo.lat", dbsp.desc(col("id") % 3), "id"]),
            high=dbsp.last("address.zip", order_by=dbsp.desc(col("address")["geo"]["lat"]), ignore_nulls=True),
            all=dbsp.array_agg("id", order_by=dbsp.desc("address.zip")),
        ),
        T.with_columns(street=col("address.street"), zip=col("address.zip"), lat=col("address.geo.lat"), odd=col("id") % 3)
        .group_by("street").aggregate(
            low=dbsp.first("id", order_by=["lat", dbsp.desc("odd"), "id"]),
            high=dbsp.last("zip", order_by=dbsp.desc("lat"), ignore_nulls=True),
            all=dbsp.array_agg("id", order_by=dbsp.desc("zip")),
        ),
    ),
    "unpivot": (
        T.unpivot(["id", "address.zip"]).drop("address", "lines"),
        T.with_columns(zip=col("address.zip")).unpivot(["id", "zip"]).drop("address", "lines"),
    ),
    "session": (
        T.with_columns(at=dbsp.from_epoch(col("id"), "second")).session("at", dbsp.seconds(2), partition_by="address.zip"),
        T.with_columns(at=dbsp.from_epoch(col("id"), "second"), zip=col("address.zip"))
        .session("at", dbsp.seconds(2), partition_by="zip").drop("zip"),
    ),
    "itself": (
        T.join(T, on="address.zip").select("zip", "id", "id_right", "address_right.street"),
        T.with_columns(zip=col("address.zip")).join(T.with_columns(zip=col("address.zip")), on="zip")
        .select("zip", "id", "id_right", "address_right.street"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_a_field_stands_where_a_column_may(name: str) -> None:
    """As if it had been added as a column before; in partitions and orders expressions too."""
    with dbsp.open(
        dbsp.circuit("c", dict(zip(("v", "w"), PATHS[name], strict=True)) | {"t": T, "z": Z}), workers=2
    ) as run:
        assert run.view("v").to_arrow().column_names == run.view("w").to_arrow().column_names
        chance = random.Random(name)
        run.push("z", [{"zip": zip_, "town": "y", "n": zip_} for zip_ in (7, 8)])
        run.push("t", [{"id": key, "address": {"street": "a", "zip": 7 + key % 2}} for key in range(12)])
        for _ in range(6):
            for key in chance.sample(range(12), 4):
                zip_, lat = chance.choice([7, 8, None]), chance.choice([1.5, 2.5, None])
                address = {"street": chance.choice("ab"), "zip": zip_, "geo": {"lat": lat}}
                run.push("t", [{"id": key, "address": chance.choice([address, address, None])}])
            run.delete("t", [{"id": chance.randrange(12)}])
            run.push(
                "z", [{"zip": chance.choice([7, 8, 9, None]), "town": chance.choice("xy"), "n": chance.randrange(12)}]
            )
            run.step()
            assert seen(run, "v") == seen(run, "w") != []


def test_structs_and_lists_are_equal_or_not() -> None:
    """As DuckDB compares them: nulls inside are equal, a null struct or list gives null."""
    pair = dbsp.struct_of({"a": dbsp.INT64, "b": dbsp.struct_of({"c": dbsp.FLOAT64})})
    table = dbsp.table("p", {"id": dbsp.INT64, "x": pair, "y": pair, "l": LINES, "m": LINES}, primary_key="id")
    built = dbsp.struct(a=dbsp.lit(1), b=dbsp.struct(c=dbsp.lit(0.5)))
    view = table.select(
        "id", same=col("x") == col("y"), other=col("x") != col("y"), apart=col("x").is_distinct_from(col("y")),
        one=col("x") == built, lists=col("l") == col("m"),
    )  # fmt: skip
    chance = random.Random(5)
    structs = [
        None,
        *({"a": a, "b": b} for a in (1, None) for b in (None, {"c": None}, {"c": 0.5}, {"c": -0.0}, {"c": 0.0})),
    ]
    lists = [None, [], [None], [{"sku": "a", "n": None}], [{"sku": "a", "n": 1}]]
    with dbsp.open(dbsp.circuit("c", {"v": view}), workers=2) as run, duck.connect() as connection:
        held: dict[int, dict[str, Any]] = {}
        for _ in range(5):
            for _ in range(60):
                row = {"id": chance.randrange(99), "x": chance.choice(structs), "y": chance.choice(structs)}
                row |= {"l": chance.choice(lists), "m": chance.choice(lists)}
                held[row["id"]] = row
                run.push("p", [row], partition=0)
            run.step()
            connection.register("p", pa.Table.from_pylist(list(held.values()), schema=table.schema.to_arrow()))
            wanted = connection.sql(
                "select id, x = y, x <> y, x is distinct from y, x = {'a': 1, 'b': {'c': 0.5::double}}, l = m from p"
            ).fetchall()
            assert seen(run, "v") == sorted(wanted, key=repr)


def test_a_column_with_a_dot_in_its_name_is_that_column() -> None:
    """Before it is a path."""
    both = dbsp.table("x", {"a.b": dbsp.INT64, "a": dbsp.struct_of({"b": dbsp.STRING, "c.d": dbsp.INT64})})
    assert str(both.select("a.b", s=col("a")["b"], d=col("a")["c.d"]).schema) == "(a.b: int64, s: string, d: int64)"


def test_parquet_out_and_in(tmp_path: Path) -> None:
    """The struct is whole on both sides."""
    circuit = dbsp.circuit("c", {"v": T.select("id", "address", "lines")})
    with dbsp.open(circuit) as run:
        run.push("t", [{"id": 1, "address": ELM, "lines": [{"sku": "a"}, None]}, {"id": 2}])
        run.step()
        table = run.view("v").to_arrow()
        pq.write_table(table, tmp_path / "v.parquet")
    declared = dbsp.table("t", pq.read_schema(tmp_path / "v.parquet"), primary_key="id")
    assert declared.schema == T.schema
    with dbsp.open(dbsp.circuit("c", {"v": declared})) as run:
        run.push("t", pq.read_table(tmp_path / "v.parquet"))
        run.step()
        assert run.view("v").to_arrow().equals(table)


def test_a_table_declared_by_an_arrow_schema() -> None:
    """Wide and encoded texts are texts, wherever they stand; a type without a near one is refused."""
    text = pa.dictionary(pa.int32(), pa.string())
    inner = pa.struct([pa.field("a", pa.large_string(), nullable=False), ("b", pa.large_list(text))])
    table = dbsp.table("x", pa.schema([("s", inner), pa.field("t", pa.large_string(), nullable=False)]))
    assert str(table.schema) == "(s: struct<a: string, b: list<item: string>>, t: string not null)"
    rows = pa.table({"s": pa.array([{"a": "x", "b": ["y"]}], inner), "t": pa.array(["z"], pa.large_string())})
    with dbsp.open(dbsp.circuit("c", {"v": table})) as run:
        run.push("x", rows)
        run.step()
        assert run.view("v").to_pylist() == [{"s": {"a": "x", "b": ["y"]}, "t": "z"}]
    with pytest.raises(CircuitError, match="unsupported column type: column=h"):
        dbsp.table("x", pa.schema([("h", pa.list_(pa.float16()))]))


def rows_of(seed: int) -> list[dict[str, Any]]:
    """Ten rows under six keys: null structs, structs of nulls, lists of both."""
    pick = random.Random(seed)
    geos = [None, {}, {"lat": 0.0}, {"lat": -0.0}, {"lat": float("nan"), "lon": 1.0}]
    addresses = [None, *({"geo": geo, "zip": number} for geo in geos for number in (None, 1))]
    lines = [None, [], [None], [{}], [{"sku": "a", "n": 1}, None]]
    return [
        {"id": pick.randrange(6), "address": pick.choice(addresses), "lines": pick.choice(lines)} for _ in range(10)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_state_of_structs_survives(seed: int) -> None:
    """Restarts and rescales between upserts and deletes: the answers are those of a run without, and of the last rows."""
    geo = T.select("id", "lines", geo="address.geo")
    circuit = dbsp.circuit("c", {"by": geo.group_by("geo", "lines").aggregate(ids=dbsp.array_agg("id")), "all": T})
    last: dict[int, Any] = {}
    with dbsp.open(circuit, workers=2) as run, dbsp.open(circuit) as plain:
        for step in range(8):
            rows, gone = rows_of(10 * seed + step), {"id": step % 6}
            for each in (run, plain):
                each.push("t", rows)
                each.delete("t", [gone])
                each.step()
            last |= {row["id"]: row for row in rows}
            last.pop(gone["id"], None)
            assert repr(seen(run, "by")) == repr(seen(plain, "by"))
            assert repr(seen(run, "all")) == repr(seen(plain, "all"))
            assert sorted(row["id"] for row in run.view("all").to_pylist()) == sorted(last)
            if step % 3 == 0:
                run.checkpoint()
            if step % 2:
                run.restart()
            if step in {2, 5}:
                run.rescale(step // 2)
        want = {row["id"]: pa.scalar(row["address"], ADDRESS).as_py() for row in last.values()}
        assert repr(sorted((row["id"], row["address"]) for row in run.view("all").to_pylist())) == repr(
            sorted((key, canonical(address)) for key, address in want.items())
        )


def canonical(value: Any) -> Any:
    """-0.0 is kept as 0.0."""
    if isinstance(value, dict):
        return {name: canonical(part) for name, part in value.items()}
    return value + 0.0 if isinstance(value, float) else value
