"""Columns that nobody needs are left unread in Parquet files, and nothing tells: equal rows, bad rows, answers, dead letters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.algebra.table import Table
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources
from dbsp.errors import DbspError
from dbsp.io.connectors.files import FilesInput, FilesOutput
from dbsp.io.file_input import FileInputLog
from dbsp.io.parquet import few_texts
from dbsp.layout import initial
from dbsp.logs import Range, StepRecord
from dbsp.plan.planner import plan
from dbsp.plan.reading import columns_read
from dbsp.runtime import tasks
from dbsp.runtime.background import BackgroundThreads
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from dbsp.zset.schema import FLOAT64, INT32, INT64, STRING, Column, Schema

SCHEMA = Schema((Column("a", INT32), Column("b", STRING), Column("c", INT64, nullable=False), Column("d", FLOAT64)))
PLAIN: dict[str, pa.DataType] = {"a": pa.int32(), "b": pa.string(), "c": pa.int64(), "d": pa.float64()}
OTHERS: dict[str, Sequence[pa.DataType]] = {
    "a": [pa.int64()], "b": [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], "c": [pa.int64()],
    "d": [pa.float64()],
}  # fmt: skip
row = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 9) | st.just(1 << 40),  # no int32, where the file's column is wider
        "b": st.none() | st.sampled_from(["", "x", "long enough"]),
        "c": st.none() | st.integers(-3, 3),  # a null is ruled out
        "d": st.none() | st.sampled_from([0.5, -0.0]),
    }
)


@st.composite
def files(draw: st.DrawFn) -> pa.Table:
    """A file whose columns may have other types, in another order, and operations."""
    types = {name: draw(st.sampled_from([type_, *OTHERS[name]])) for name, type_ in PLAIN.items()}
    rows = draw(st.lists(row, max_size=12))
    if types["a"] == pa.int32():
        rows = [each | {"a": None if each["a"] == 1 << 40 else each["a"]} for each in rows]
    arrays = {name: pa.array([each[name] for each in rows], types[name]) for name in draw(st.permutations(list(PLAIN)))}
    if draw(st.booleans()):
        arrays["__op"] = pa.array([draw(st.sampled_from([0, 0, 1, 7])) for _ in rows], pa.int8())
    return pa.table(arrays)


@pytest.fixture(autouse=True)
def texts_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in large files, texts that repeat are read as numbers of a dictionary."""
    monkeypatch.setattr(few_texts, "ROWS_MIN", 0)
    monkeypatch.setattr(few_texts, "ROW_BYTES_MAX", 1 << 20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(files(), min_size=1, max_size=3), st.sets(st.sampled_from(SCHEMA.names)), st.booleans())
def test_some_columns_are_those_of_all(
    tmp_path_factory: pytest.TempPathFactory, imported: list[pa.Table], columns: set[str], with_lines: bool
) -> None:
    home = tmp_path_factory.mktemp("files")
    log = FileInputLog(home / "data", [Table(name="t", schema=SCHEMA)], folder=home / "in", create=True, look_every_s=0)
    for number, table in enumerate(imported):
        pq.write_table(table, home / "in" / "t" / f"{number}.parquet", row_group_size=5)
    if with_lines:
        (home / "in" / "t" / "9.jsonl").write_text('{"a": 1, "b": "x", "c": 2, "d": null}\nnothing\n')
        (home / "in" / "t" / "9.csv").write_text("")
    end = log.ends()["t", 0]
    if end:
        range_ = Range(table="t", partition=0, first=end // 3, last=end)
        (whole,), (some,) = log.read(range_, 4), log.read_columns(range_, 4, frozenset(columns))
        names = [name for name in SCHEMA.names if name in columns]
        assert some.batch.to_rows() == whole.batch.project(names).to_rows()
        assert (some.dead, some.partition) == (whole.dead, whole.partition)
        np.testing.assert_array_equal(some.operations, whole.operations)
        np.testing.assert_array_equal(some.offsets, whole.offsets)
        assert some.whole is not None
        assert some.whole().to_rows() == whole.batch.to_rows()
    log.close()


COLUMNS = {"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64, "note": dbsp.STRING, "more": dbsp.list_of(dbsp.INT64)}
t = dbsp.table("t", COLUMNS)
QUOTIENTS = t.select("k", q=dbsp.col("x") // dbsp.col("y"))
ROWS = [{"k": "a", "x": 7, "y": y, "note": f"n{y}", "more": [y, None]} for y in (2, 0, 7, None)]


class FromFiles:
    """A pipeline of two workers from files to files, in this process; a step per file, read ahead if there are
    background workers."""

    def __init__(self, home: Path, circuit: dbsp.Circuit, background: BackgroundThreads | None = None) -> None:
        self.home, self.plan, self.layout = home, plan(circuit), initial(2)
        self.resources = ConfiguredResources(
            data_dir=home / "data", pipeline="p", tables=self.plan.tables,
            input=FilesInput(directory=str(home / "in"), partitions=2, look_every_s=0),
            output=FilesOutput(format="parquet", directory=str(home / "out")),
        )  # fmt: skip
        (home / "data").mkdir(parents=True)
        self.inputs = self.resources.open_input(create=True)
        self.runtime = InProcessRuntime(Work(resources=self.resources, plan=self.plan, run="r", background=background))
        start = CheckpointId(run="r", epoch=1, step=0, layout_version=self.layout.version, fingerprint="f")
        self.runtime.create(self.layout.workers, start)
        self.runtime.fence(1, self.layout.workers)
        self.runtime.open(0, 1, self.layout)
        self.done: dict[tuple[str, int], int] = {}

    def step(self, number: int, rows: list[dict[str, Any]]) -> None:
        record = self.imported(number, rows)
        self.runtime.read_ahead(record, self.layout)
        self.runtime.run_step(record, self.layout)

    def imported(self, number: int, rows: list[dict[str, Any]]) -> StepRecord:
        """The step that reads a new file of these rows."""
        schema = pa.schema([(column.name, column.type) for column in self.plan.tables[0].schema])
        pq.write_table(pa.Table.from_pylist(rows, schema), self.home / "in" / "t" / f"{number}.parquet")
        ends = dict(self.inputs.ends())
        ranges = tuple(
            Range(table=table, partition=partition, first=self.done.get((table, partition), 0), last=end)
            for (table, partition), end in sorted(ends.items())
        )
        version = self.layout.version
        self.done = ends
        return StepRecord(epoch=1, step=number, layout_version=version, ranges=ranges, clock_us=0, engine="")

    def out(self, view: str) -> list[dict[str, Any]]:
        files = sorted((self.home / "out" / view).glob("*.parquet"))
        return [line for file in files for line in pq.read_table(file).to_pylist()]

    def close(self) -> None:
        self.runtime.close()
        self.inputs.close()
        close_resources(self.home / "data")


@pytest.mark.parametrize("ahead", [False, True])
def test_a_row_that_fails_is_shown_with_the_columns_that_nobody_reads(tmp_path: Path, ahead: bool) -> None:
    background = BackgroundThreads() if ahead else None
    pipeline = FromFiles(tmp_path, dbsp.circuit("c", {"v": QUOTIENTS}, materialize=False), background)
    assert columns_read(pipeline.plan, "t") == {"k", "x", "y"}
    pipeline.step(0, ROWS)
    pipeline.step(1, ROWS[:1])
    pipeline.close()
    (letter,) = pipeline.out(DEAD_LETTERS)
    assert json.loads(letter["payload"]) == ROWS[1]
    found = [(line["k"], line["q"], line["weight"]) for line in pipeline.out("v")]
    assert sorted(found, key=str) == [("a", 1, 1), ("a", 3, 1), ("a", 3, 1), ("a", None, 1)]


def test_columns_that_nobody_reads_are_not_read_ahead_either(tmp_path: Path) -> None:
    background = BackgroundThreads()
    pipeline = FromFiles(tmp_path, dbsp.circuit("c", {"v": QUOTIENTS}, materialize=False), background)
    record = pipeline.imported(0, ROWS)
    pipeline.runtime.read_ahead(record, pipeline.layout)
    for worker in pipeline.layout.workers:
        ranges = tasks.ahead.ranges_of(record.ranges, pipeline.layout, worker)
        (change,) = tasks.ahead.taken(background, worker, ranges, 0, 1) or ()
        assert change.batch.schema.names == ("k", "x", "y")
    pipeline.close()


def test_a_refused_row_is_named_with_all_columns(tmp_path: Path) -> None:
    circuit = dbsp.circuit("c", {"v": QUOTIENTS}, materialize=False, error_policy="stop")
    pipeline = FromFiles(tmp_path, circuit)
    with pytest.raises(DbspError, match='"note": "n0", "more": '):
        pipeline.step(0, ROWS)
    pipeline.close()


UNKNOWN = {
    "a view of the table": t,
    "rows that travel as they are": t.join(t.select("k", z="x"), on="k"),
    "only filters": t.filter(dbsp.col("x") > 1),
    "a key": dbsp.table("t", COLUMNS, primary_key="k").select("x"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_all_columns_are_read_where_some_node_may_show_them(name: str) -> None:
    assert columns_read(plan(dbsp.circuit("c", {"v": UNKNOWN[name]}, materialize=False)), "t") is None


def test_a_count_reads_one_column_to_know_how_many_rows_there_are(tmp_path: Path) -> None:
    circuit = dbsp.circuit("c", {"v": t.group_by().aggregate(n=dbsp.count())}, materialize=False)
    pipeline = FromFiles(tmp_path, circuit)
    assert columns_read(pipeline.plan, "t") == frozenset()
    pipeline.step(0, ROWS)
    pipeline.close()
    assert [(line["n"], line["weight"]) for line in pipeline.out("v")] == [(4, 1)]


def test_columns_of_an_append_only_table_with_a_key_are_left_unread(tmp_path: Path) -> None:
    keyed = dbsp.table("t", COLUMNS, primary_key="k", append_only=True).select("k", q=dbsp.col("x") // 2)
    pipeline = FromFiles(tmp_path, dbsp.circuit("c", {"v": keyed}, materialize=False))
    assert columns_read(pipeline.plan, "t") == {"k", "x"}
    pipeline.step(0, [ROWS[0] | {"k": key} for key in "abb"])
    pipeline.step(1, [ROWS[0] | {"k": key} for key in "ca"])
    pipeline.close()
    assert sorted((line["k"], line["q"], line["weight"]) for line in pipeline.out("v")) == [(k, 3, 1) for k in "abc"]
    assert sorted(letter["payload"] for letter in pipeline.out(DEAD_LETTERS)) == [
        '{"k": "a", "x": 7}',
        '{"k": "b", "x": 7}',
    ]
