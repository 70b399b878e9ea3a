"""Append-only tables: a delete is refused to its sender, or is a dead letter where it comes out of a stream of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dbsp
from dbsp.algebra.table import Table
from dbsp.io.formats import decode_arrow, decode_json
from dbsp.io.formats.arrow_rows import OPERATION
from dbsp.logs import INSERT

t = dbsp.table("t", {"x": dbsp.INT64}, append_only=True)


def node() -> Table:
    assert isinstance(t.node, Table)
    return t.node


def test_a_run_refuses_a_delete() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": t})) as run:
        run.push("t", [{"x": 1}])
        with pytest.raises(dbsp.CircuitError, match="a delete in an append-only table: table=t"):
            run.delete("t", [{"x": 1}])
        assert run.step()["v"].to_rows() == [((1,), 1)]


@pytest.mark.parametrize("line", [b'{"delete": {"x": 2}}\n', b'{"insert": null, "delete": {"x": 2}}\n'])
def test_a_delete_among_rows_is_a_bad_row(line: bytes) -> None:
    push = decode_json(b'{"insert": {"x": 1}}\n' + line, node())
    assert push.batch.to_rows() == [((1,), 1)]
    assert [(bad.index, bad.reason) for bad in push.bad] == [(1, "a delete in an append-only table")]


def test_a_delete_in_an_arrow_stream_is_a_bad_row() -> None:
    rows = pa.table({"x": [1, 2], OPERATION: pa.array([0, 1], pa.int8())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    push = decode_arrow(sink.getvalue().to_pybytes(), node())
    assert push.operations.tolist() == [INSERT]
    assert [(bad.index, bad.reason) for bad in push.bad] == [(1, "a delete in an append-only table")]


KEYED = dbsp.table("u", {"x": dbsp.INT64, "y": dbsp.INT64}, primary_key="x", append_only=True)


def test_the_first_row_of_a_key_stays() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": KEYED})) as run:
        run.push("u", [{"x": 1, "y": 1}, {"x": 1, "y": 2}])
        assert run.step()["v"].to_rows() == [((1, 1), 1)]
        run.push("u", [{"x": 1, "y": 1}, {"x": 2, "y": 1}])
        assert run.step()["v"].to_rows() == [((2, 1), 1)]
        assert [(letter.payload, letter.weight) for letter in run.dead_letters()] == [
            ('{"x": 1, "y": 2}', 1),
            ('{"x": 1, "y": 1}', 1),
        ]
        with pytest.raises(dbsp.CircuitError, match="a delete in an append-only table: table=u"):
            run.delete("u", [{"x": 1}])


def test_under_stop_a_second_row_ends_the_step() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": KEYED}, error_policy="stop")) as run:
        run.push("u", [{"x": 1, "y": 1}])
        run.step()
        run.push("u", [{"x": 1, "y": 2}])
        with pytest.raises(dbsp.DbspError, match="a second row of its primary key"):
            run.step()
