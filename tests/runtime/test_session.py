"""`dbsp.open`: what a notebook does, and what it is told when it does it wrong."""

import pyarrow as pa
import pytest

import dbsp

ITEMS = dbsp.table(
    "items",
    [dbsp.Column("id", dbsp.INT64), dbsp.Column("name", dbsp.STRING, nullable=False), dbsp.Column("x", dbsp.INT64)],
    primary_key="id",
)
CIRCUIT = dbsp.circuit("c", {"by_name": ITEMS.group_by("name").aggregate(n=dbsp.count(), x=dbsp.sum("x"))})


def test_rows_come_as_dicts_columns_or_arrow() -> None:
    with dbsp.open(CIRCUIT, workers=2) as run:
        run.push("items", [{"id": 1, "name": "a", "x": 5}])
        run.push("items", {"id": [2], "name": ["a"]})
        run.push("items", pa.table({"id": [3], "name": ["b"], "x": [None]}, schema=ITEMS.schema.to_arrow()))
        assert run.step()["by_name"].to_rows() == [(("a", 2, 5), 1), (("b", 1, None), 1)]


def test_a_delete_needs_only_the_key_even_where_other_columns_are_never_null() -> None:
    with dbsp.open(CIRCUIT) as run:
        run.push("items", [{"id": 1, "name": "a", "x": 5}])
        run.step()
        run.delete("items", [{"id": 1}])
        assert run.step()["by_name"].to_rows() == [(("a", 1, 5), -1)]
        assert run.view("by_name").to_pylist() == []


def test_an_insert_replaces_the_row_of_its_key() -> None:
    with dbsp.open(CIRCUIT) as run:
        run.push("items", [{"id": 1, "name": "a", "x": 5}, {"id": 1, "name": "b", "x": 6}])
        assert run.step()["by_name"].to_rows() == [(("b", 1, 6), 1)]
        run.push("items", [{"id": 1, "name": "b", "x": 6}])
        assert len(run.step()["by_name"]) == 0


def test_refusals_name_table_column_and_view() -> None:
    with dbsp.open(CIRCUIT) as run:
        with pytest.raises(dbsp.CircuitError, match=r"no such table: table=nothing tables=\['items'\]"):
            run.push("nothing", [])
        with pytest.raises(dbsp.CircuitError, match=r"no such column: table=items columns=\['y'\]"):
            run.push("items", [{"id": 1, "y": 2}])
        with pytest.raises(dbsp.CircuitError, match="a null where none is allowed: table=items column=name"):
            run.push("items", [{"id": 1}])
        with pytest.raises(dbsp.ConfigError, match=r"no such view: view=v views=\['by_name'\]"):
            run.view("v")


def test_outputs_do_not_depend_on_the_worker_count() -> None:
    rows = [{"id": number, "name": f"name {number % 37}", "x": number} for number in range(500)]
    outputs = []
    for workers in (1, 2, 3, 5):
        with dbsp.open(CIRCUIT, workers=workers, partitions=3) as run:
            run.push("items", rows, partition=1)
            outputs.append(run.step()["by_name"].to_rows())
    assert all(output == outputs[0] for output in outputs)
