"""What the benchmarks rest on: targets point the right way, wrong answers stop a run, a profile adds up, runs are the same."""

from __future__ import annotations

import argparse
import importlib
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dbsp
import dbsp.steps.segment
from benchmarks import micro, parquet, plots, profiling, report
from benchmarks.__main__ import ALL, exists, words
from benchmarks.__main__ import main as run_all
from benchmarks.peers import duck, flink_parquet, install
from dbsp.zset.kernels.kernel import Kernel

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("target", "found", "met", "ratio"), [
    (report.at_least(10), 20.0, True, 2.0), (report.at_least(10), 5.0, False, 0.5),
    (report.at_most(10), 20.0, False, 0.5), (report.at_most(10), 5.0, True, 2.0), (report.at_most(10), -3.0, True, math.inf),
])  # fmt: skip
def test_a_ratio_of_one_or_more_is_met_whichever_way_the_target_points(target, found, met, ratio):
    assert (target.met(found), target.ratio(found)) == (met, ratio)


def test_a_drawing_has_room_for_what_reaches_its_target_without_end():
    found = plots.ratios({"saved": -3.0, "spent": 5.0, report.TARGETS: {"saved": [24, True], "spent": [10, True]}})
    assert found == {"saved": plots.SHOWN_MAX, "spent": 2.0}


def test_drawings_without_their_library_are_refused_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as refused:
        run_all(["--plots"])
    assert refused.value.code == 2
    told = capsys.readouterr()
    assert plots.NEEDED in told.err
    assert not told.out


def test_history_is_kept_with_the_targets_and_told_to_the_summary(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "HISTORY", tmp_path / "history")
    monkeypatch.setenv(report.SUMMARY_SWITCH, str(tmp_path / "summary"))
    for choice, lines in (("never", 0), ("always", 1)):
        monkeypatch.setenv(report.HISTORY_SWITCH, choice)
        report.keep("demo", {"speed": 3.0, "rows": 5}, {"speed": report.at_least(4)})
        file = tmp_path / "history" / "demo.jsonl"
        assert (len(file.read_text().splitlines()) if file.exists() else 0) == lines
    kept = json.loads(file.read_text())
    assert kept["speed"] == 3.0
    assert kept[report.TARGETS] == {"speed": [4, False]}
    told = [json.loads(line) for line in (tmp_path / "summary").read_text().splitlines()]
    assert [(line["figure"], line.get("met")) for line in told] == [("speed", False), ("rows", None)] * 2
    assert "NO" in capsys.readouterr().out


def test_a_busy_machine_leaves_no_history(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "HISTORY", tmp_path)
    monkeypatch.setenv(report.HISTORY_SWITCH, "quiet")
    for share, lines in ((0.5, 0), (0.01, 1)):
        monkeypatch.setattr(report, "others_share", lambda share=share: share)
        report.keep("demo", {"speed": 3.0})
        assert len(list(tmp_path.iterdir())) == lines


def test_a_wrong_answer_stops_a_benchmark():
    right = pa.table({"k": [1, 2, 2]})
    duck.check("same", right, pa.table({"k": [2, 1, 2]}))
    with pytest.raises(SystemExit, match="differ"):
        duck.check("one row more", right, pa.table({"k": [1, 2]}))


def test_duckdb_is_asked_after_every_step():
    steps = [{"t": pa.table({"k": [1, 1]})}, {"t": pa.table({"k": [2]})}]
    seconds, answer = duck.recomputed(steps, "select k, count(*) as n from t group by k", 1)
    assert len(seconds) == 2
    last, same = duck.recomputed(steps, "select k, count(*) as n from t group by k", 1, asked_steps=1)
    assert len(last) == 1
    duck.check("after the last step only", same, answer)
    upserts, counts = duck.upserted([step["t"] for step in steps], 1)
    assert len(upserts) == 2
    duck.check("upsert", counts, answer)


def test_the_changes_that_flink_writes_are_folded_to_what_is_left():
    changes = pa.table({"op": ["INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "INSERT", "DELETE"], "k": [1, 1, 1, 2, 2]})
    changes = changes.append_column("n", pa.array([5, 5, 6, 7, 7]))
    assert parquet.folded(changes, flink_parquet.WEIGHT, ("op",)).to_pylist() == [{"k": 1, "n": 6}]


def test_flink_is_asked_for_queries_that_ours_is_asked_for():
    assert set(flink_parquet.TEXTS) == set(parquet.ALL)
    for name, query in parquet.ALL.items():
        assert bool(query.keys) <= flink_parquet.TEXTS[name].changes


def test_a_peer_without_its_jars_is_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "HOME", tmp_path)
    lib = tmp_path / "apache-flink" / "lib" / "python3.11" / "site-packages" / "pyflink" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "apache-flink" / "made").touch()
    assert isinstance(install.command("flink"), list)
    assert "benchmarks.peers.install flink" in install.with_jars("flink")
    for jar in install.PACKAGES["flink"].jars:
        (lib / "{1}-{2}.jar".format(*jar.split(":"))).touch()
    assert install.with_jars("flink") == install.command("flink")


@pytest.mark.parametrize("name", list(micro.CASES))
def test_the_single_operators_give_duckdbs_answer_after_deletions(name):
    steps = micro.steps_of(4_000, 500)
    assert sum(step.gone.num_rows for step in steps) > 0
    _, found = micro.ours(micro.CASES[name], steps)
    _, expected = duck.asked(micro.states(steps), micro.CASES[name].sql, 1)
    duck.check(name, found, expected)


def play(rows: int) -> list[tuple[tuple[object, ...], int]]:
    table = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    view = table.group_by("k").aggregate(n=dbsp.count(), most=dbsp.max("x"))
    with dbsp.open(dbsp.circuit("profiled", {"v": view}), workers=2) as run:
        for step in range(3):
            keys = np.random.default_rng(step).integers(0, 50, rows)
            run.push("t", pa.table({"k": keys, "x": keys * step}))
            run.step()
        run.delete("t", pa.table({"k": keys[:100], "x": keys[:100] * 2}))
        return run.step()["v"].to_rows()


def test_a_profile_changes_nothing_and_adds_up(tmp_path):
    before = dbsp.steps.segment._run_node, Kernel.__call__, dbsp.zset.batch.arrange
    expected = play(2_000)
    profile = profiling.Profile()
    with profile.recording("demo") as made:
        assert dbsp.steps.segment._run_node is not before[0]
        assert play(2_000) == expected
    assert (dbsp.steps.segment._run_node, Kernel.__call__, dbsp.zset.batch.arrange) == before

    assert not made.stack
    assert all(cell.seconds >= 0 for cell in made.cells.values())
    assert sum(cell.seconds for cell in made.cells.values()) <= made.ended - made.started
    assert {"sort", "look-up", "hash", "store"} <= {phase for _, phase in made.cells}
    assert any(node.endswith("GroupByOperator") for node, _ in made.cells)
    assert "GroupByOperator" in profile.table()

    profile.write(tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    (flame,) = document["profiles"]
    open_: list[int] = []
    last = 0.0
    for event in flame["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            open_.append(event["frame"])
        else:
            assert open_.pop() == event["frame"]
    assert not open_
    assert last <= flame["endValue"]
    assert max(event["frame"] for event in flame["events"]) < len(document["shared"]["frames"])


def test_a_profile_of_a_function_that_is_gone_says_so(monkeypatch):
    monkeypatch.setitem(profiling.PLACES, "hash", ("dbsp.zset.hashing:no_such_function",))
    before = dbsp.steps.segment._run_node
    with pytest.raises(AttributeError, match="no_such_function"), profiling.Profile().recording("demo"):
        pass
    assert dbsp.steps.segment._run_node is before


class AskedError(Exception):
    """A benchmark wants to know its arguments."""


@pytest.mark.parametrize("suite", [suite for suite in ALL if exists(suite.name)], ids=lambda suite: suite.name)
def test_every_suite_understands_the_arguments_that_the_list_gives_it(suite, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def ask(parser, arguments=None, namespace=None):
        raise AskedError(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", ask)
    try:
        module = importlib.import_module(f"benchmarks.{suite.name}.__main__")
    except ModuleNotFoundError:
        module = importlib.import_module(f"benchmarks.{suite.name}")
    with pytest.raises(AskedError) as asked:
        module.main()
    (parser,) = asked.value.args
    for size in ((False, False), (True, False), (False, True)):
        assert parse(parser, words(suite, *size)) is not None
    assert f"benchmarks.{suite.name}" in parser.description


def test_the_list_has_every_benchmark():
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "def main(" in path.read_text()}
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert (files | folders) - {"__main__", "plots"} == {suite.name for suite in ALL if exists(suite.name)}
