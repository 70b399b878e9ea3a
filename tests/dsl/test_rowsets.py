"""What goes in and out of a run in a notebook: data frames, Arrow streams, weights that are not lost, runs that are closed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dbsp
from dbsp.circuit.graph import nodes_of

TABLE = dbsp.table("t", {"a": dbsp.INT64, "s": dbsp.STRING, "x": dbsp.FLOAT64})
CIRCUIT = dbsp.circuit("frames", {"v": TABLE})


@pytest.fixture
def run() -> Iterator[dbsp.Run]:
    with dbsp.open(CIRCUIT) as opened:
        yield opened


class Streamed:
    """What offers an Arrow stream, and nothing else, as Polars' frames do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"a": [1], "s": ["x"], "x": [1.5]}).__arrow_c_stream__(requested_schema)


ROWS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"a": [1], "s": ["x"], "x": [1.5]}),
    "pandas with an index": lambda: pd.DataFrame({"a": [1], "s": ["x"], "x": [1.5]}, index=["i"]),
    "columns of pandas": lambda: {"a": pd.Series([1]), "s": pd.Series(["x"], dtype=object), "x": pd.Series([1.5])},
    "DuckDB": lambda: duckdb.connect().sql("select 1::bigint as a, 'x' as s, 1.5::double as x"),
    "batches": lambda: pa.table({"a": [1], "s": ["x"], "x": [1.5]}).to_reader(),
    "a stream": Streamed,
    "an array of structs": lambda: pa.RecordBatch.from_pylist([{"a": 1, "s": "x", "x": 1.5}]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_whatever_becomes_an_arrow_table_is_pushed(run: dbsp.Run, rows: Callable[[], Any]) -> None:
    run.push("t", rows())
    assert run.step()["v"].to_rows() == [((1, "x", 1.5), 1)]


@pytest.mark.parametrize("kind", [object, "str"])
def test_nan_of_pandas_is_null(run: dbsp.Run, kind: Any) -> None:
    frame = pd.DataFrame({"a": [1, 2], "s": pd.Series(["x", np.nan], dtype=kind), "x": [np.nan, 0.5]})
    run.push("t", frame)
    assert run.step()["v"].to_rows() == [((1, "x", None), 1), ((2, None, 0.5), 1)]


def test_a_frame_with_a_column_too_many_is_refused(run: dbsp.Run) -> None:
    with pytest.raises(dbsp.CircuitError, match=r"no such column: table=t columns=\['b'\]"):
        run.push("t", pd.DataFrame({"b": [1]}))


PLAIN: dict[str, Callable[[dbsp.Rowset], Any]] = {
    "to_arrow": lambda rows: rows.to_arrow(),
    "to_pylist": lambda rows: rows.to_pylist(),
    "to_pandas": lambda rows: rows.to_pandas(),
    "iteration": list,
    "a stream": pa.table,
}


@pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN)
def test_a_change_that_takes_rows_away_has_no_plain_rows(run: dbsp.Run, plain: Callable[[Any], Any]) -> None:
    run.push("t", [{"a": 1}, {"a": 1}])
    assert len(plain(run.step()["v"])) == 2
    run.delete("t", [{"a": 1}])
    change = run.step()["v"]
    with pytest.raises(dbsp.CircuitError, match=r"negative weights.* rows=1 at=.*weight=True"):
        plain(change)
    assert change.to_pylist(weight=True) == [{"a": 1, "s": None, "x": None, "weight": -1}]
    assert len(plain(run.view("v"))) == 1


def test_frames_of_views(run: dbsp.Run) -> None:
    run.push("t", [{"a": 1, "s": "<b>", "x": 0.5}])
    run.step()
    view = run.view("v")
    pd.testing.assert_frame_equal(view.to_pandas(), pd.DataFrame({"a": [1], "s": ["<b>"], "x": [0.5]}))
    assert duckdb.connect().sql("select a, s from view").fetchall() == [(1, "<b>")]
    assert "<td>+1</td><td>1</td><td>&lt;b&gt;</td>" in view._repr_html_()
    assert view == [{"a": 1, "s": "<b>", "x": 0.5}] == view
    assert view != [{"a": 1, "s": "<b>", "x": 0.25}]


def test_a_library_that_is_not_installed_is_named(run: dbsp.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(dbsp.ConfigError, match="polars is not installed"):
        run.view("v").to_polars()


CLOSED: dict[str, Callable[[dbsp.Run], Any]] = {
    "push": lambda run: run.push("t", [{"a": 1}]), "delete": lambda run: run.delete("t", [{"a": 1}]),
    "step": lambda run: run.step(),
    "view": lambda run: run.view("v"), "checkpoint": lambda run: run.checkpoint(), "restart": lambda run: run.restart(),
    "rescale": lambda run: run.rescale(2), "begin_rescale": lambda run: run.begin_rescale(2, "icadd"),
    "evolve": lambda run: run.evolve(CIRCUIT),
}  # fmt: skip


@pytest.mark.parametrize("use", CLOSED.values(), ids=CLOSED)
def test_a_closed_run_refuses(use: Callable[[dbsp.Run], Any]) -> None:
    with dbsp.open(CIRCUIT) as run:
        run.step()
    run.close()
    with pytest.raises(dbsp.CircuitError, match=r"the run is closed at=.*test_rowsets"):
        use(run)


def test_what_is_shown_is_short(run: dbsp.Run) -> None:
    assert repr(CIRCUIT) == "<dbsp.Circuit 'frames': tables t; views v>"
    assert repr(run) == "<dbsp.Run: step 0, workers 1, views v>"
    run.push("t", [{"a": at} for at in range(30)])
    assert repr(run.step()["v"]).endswith("\n… 30 rows")
    run.close()
    assert "closed" in repr(run)


def test_a_star_leaves_the_functions_of_python_alone() -> None:
    names: dict[str, Any] = {}
    exec("from dbsp import *", names)
    assert names["col"] is dbsp.col
    assert not {"sum", "min", "max", "open"} & names.keys()


def test_notebooks_show_circuits_and_runs() -> None:
    t, u = (dbsp.table(name, {"k": dbsp.INT64, "x": dbsp.INT64}) for name in "tu")
    joined = t.join(u, on="k", where=t["x"] < u["x"])
    views = {"both": joined, "n": joined.aggregate(n=dbsp.count()), "plain": t}
    circuit = dbsp.circuit("demo", views)
    root = ElementTree.fromstring(circuit._repr_html_())
    boxes = root.findall("{*}g")
    texts = [box.findtext("{*}title") for box in boxes]
    assert {"table t", "table u", "both", "n", "plain"} < set(texts)
    corners = {(box.find("{*}rect").attrib["x"], box.find("{*}rect").attrib["y"]) for box in boxes}  # type: ignore[union-attr]
    assert len(corners) == len(boxes) == len(nodes_of(circuit)) + len(views)
    arrows = [re.findall(r"-?\d+", path.attrib["d"]) for path in root.findall("{*}path")]
    assert len(arrows) == sum(len(node.children()) for node in nodes_of(circuit)) + len(views)
    assert all(int(places[0]) < int(places[-2]) for places in arrows)
    with dbsp.open(circuit, workers=2) as run:
        run.push("t", [{"k": 1, "x": 1}])
        run.step()
        assert "<caption>step 1, 2 workers</caption>" in run._repr_html_()
        assert "<td>plain</td><td>(k: int64, x: int64)</td>" in run._repr_html_()
    assert "closed" in run._repr_html_()
