"""`dbsp.open`: what a notebook does, and what it is told when it does it wrong."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import dbsp

ITEMS = dbsp.table(
    "items",
    [dbsp.Column("id", dbsp.INT64), dbsp.Column("name", dbsp.STRING, nullable=False), dbsp.Column("x", dbsp.INT64)],
    primary_key="id",
)
SOLD = dbsp.table("sold", {"id": dbsp.INT64, "g": dbsp.INT64, "v": dbsp.INT64}, primary_key=["id"])
CIRCUIT = dbsp.circuit("c", {"by_name": ITEMS.group_by("name").aggregate(n=dbsp.count(), x=dbsp.sum("x"))})


def test_rows_come_as_dicts_columns_or_arrow() -> None:
    with dbsp.open(CIRCUIT, workers=2) as run:
        run.push("items", [{"id": 1, "name": "a", "x": 5}])
        run.push("items", {"id": [2], "name": ["a"]})
        run.push("items", pa.table({"id": [3], "name": ["b"], "x": [None]}, schema=ITEMS.schema.to_arrow()))
        assert run.step()["by_name"].to_rows() == [(("a", 2, 5), 1), (("b", 1, None), 1)]


def test_numpy_columns_may_be_written_to_again_after_a_push() -> None:
    """Arrow tables are not copied, columns of a dict are."""
    ids = np.arange(3)
    with dbsp.open(CIRCUIT) as run:
        run.push("items", {"id": ids, "name": ["a", "b", "c"], "x": ids})
        ids[:] = 9
        assert [row for row, _ in run.step()["by_name"].to_rows()] == [("a", 1, 0), ("b", 1, 1), ("c", 1, 2)]


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


@pytest.mark.parametrize("workers", [1, 3])
def test_the_changes_of_a_key_keep_their_order_in_any_number_of_partitions(workers: int) -> None:
    """As in one partition: the last push or delete of a step decides, however many came before it."""
    table = dbsp.table("t", {"k": dbsp.INT64, "name": dbsp.STRING, "x": dbsp.INT64}, primary_key=["k", "name"])
    chance, rows = random.Random(workers), dict[tuple[object, ...], int]()
    with dbsp.open(dbsp.circuit("order", {"v": table}), workers=workers, partitions=3) as run:
        for step in range(5):
            for number in range(40):
                key = {"k": chance.randrange(6), "name": chance.choice("ab")}
                if chance.random() < 0.3:
                    run.delete("t", [key])
                    rows.pop(tuple(key.values()), None)
                else:
                    run.push("t", [{**key, "x": 100 * step + number}])
                    rows[tuple(key.values())] = 100 * step + number
            run.step()
            assert Counter((*key, x) for key, x in rows.items()) == Counter(row for row, _ in run.view("v").to_rows())


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


SUMS = SOLD.group_by("g").aggregate(n=dbsp.count(), s=dbsp.sum("v"))
QUOTIENTS = dbsp.circuit(
    "q", {"sums": SUMS, "quotients": SUMS.select("g", q=dbsp.lit(100) // dbsp.col("s"))}, error_policy="stop"
)


def sell(run: dbsp.Run, *rows: tuple[int, int, int]) -> None:
    run.push("sold", [{"id": number, "g": group, "v": value} for number, group, value in rows])


@pytest.mark.parametrize("strategy", [None, "cold", "icadd", "redistribute"])
def test_a_step_that_failed_leaves_nothing_and_may_be_taken_again_with_more_rows(strategy: str | None) -> None:
    """Rows fail in the last segment, when those before it have written their traces of the step."""
    with dbsp.open(QUOTIENTS, workers=2) as run:
        sell(run, (1, 1, 5), (3, 3, 7))
        run.step()
        if strategy in ("icadd", "redistribute"):
            run.begin_rescale(3, strategy, keys_per_step=1)
        sell(run, (2, 2, 0), (3, 4, 7))
        with pytest.raises(dbsp.DbspError, match="divide by zero"):
            run.step()
        with pytest.raises(dbsp.DbspError, match="divide by zero"):
            run.step()
        assert run.step_number == 1
        assert run.view("sums").to_rows() == [((1, 1, 5), 1), ((3, 1, 7), 1)]
        if strategy == "cold":
            run.rescale(3)
        sell(run, (2, 2, 10))
        assert run.step()["quotients"].to_rows() == [((2, 10), 1), ((3, 14), -1), ((4, 14), 1)]
        while run.rescaling:
            run.step()
        sell(run, (2, 3, 20), (5, 2, 1))
        assert run.step()["sums"].to_rows() == [((2, 1, 1), 1), ((2, 1, 10), -1), ((3, 1, 20), 1)]
        expected = [((1, 1, 5), 1), ((2, 1, 1), 1), ((3, 1, 20), 1), ((4, 1, 7), 1)]
        assert run.view("sums").to_rows() == expected
        run.restart()
        assert run.view("sums").to_rows() == expected


def test_a_view_that_is_not_materialized_is_told_from_none() -> None:
    told = ITEMS.group_by("name").aggregate(n=dbsp.count())
    with dbsp.open(dbsp.circuit("c", {"by_name": ITEMS.select("name"), "told": told}, materialize=["by_name"])) as run:
        with pytest.raises(
            dbsp.ConfigError, match=r"not materialized: view=told views=\['by_name'\]; look at what the steps"
        ):
            run.view("told")
        with pytest.raises(dbsp.ConfigError, match=r"no such view: view=tell views=\['by_name'\]"):
            run.view("tell")
