"""Columns reach the Rust crate as they are, a process of it that fails says so, and its answers are DuckDB's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.nexmark import crate as programs
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.tables import COLUMNS
from benchmarks.peers import crate, install

ECHO = """
import json, shutil, sys
folder = sys.argv[2]
for line in sys.stdin:
    if line.strip():
        for kind in ("i64", "text", "ends.i64"):
            for number, column in enumerate("ab"):
                try:
                    shutil.copy(f"{folder}/t.{column}.{kind}", f"{line.strip()}/answer.{number}.{kind}")
                except FileNotFoundError:
                    pass
    print(json.dumps({"seconds": 1.5, "cpu_seconds": 2.5}), flush=True)
"""


def test_columns_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Parts of larger tables, empty texts and texts of several bytes a letter included."""
    whole = pa.table({"a": [1, -2, 3, 4], "b": ["left out", "", "é€", "four"]})
    crate.write({"t": [whole.slice(1, 2), whole.slice(3)]}, tmp_path)
    with crate.Crate([sys.executable, "-c", ECHO], "echo", tmp_path) as there:
        assert there.play() == crate.Taken(1.5, 2.5)
        assert there.answer(["a", "b"]).equals(whole.slice(1).combine_chunks())


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with (
        crate.Crate([sys.executable, "-c", "raise SystemExit('no such workload: q99')"], "q99", tmp_path) as there,
        pytest.raises(crate.CrateError, match="workload=q99 no such workload: q99"),
    ):
        there.play()


PROFILED = """
import json
def node(name, label): return {"Simple": {"id": name, "label": label}}
def took(micros): return [{"metric_id": "nonblocking_percent", "value": {"value": {"numerator": micros, "denominator": micros}}}]
join = {"Cluster": {"label": "join", "nodes": [{"Cluster": {"label": "trace", "nodes": [node("c", "Z1")]}}, node("b", "Merge")]}}
graph = {"nodes": {"nodes": [node("a", "Input"), join, node("d", "Output")]}}
spent = {"a": took(500_000), "b": took(250_000), "c": took(1_000_000), "d": [], "": took(0)}
input()
print(json.dumps({"seconds": 1, "cpu_seconds": 2,
                  "profile": {"worker_profiles": [{"metadata": spent}], "graph": graph}}))
"""


def test_a_profile_adds_up_by_the_calls_in_the_program(tmp_path: Path) -> None:
    """The dearest operator first, with the call that made it; what no operator took is the last line."""
    with crate.Crate([sys.executable, "-c", PROFILED], "q4", tmp_path) as there:
        assert [line.split() for line in there.profile()] == [
            ["1.000", "s", "50%", "join:", "Z1", "c"],
            ["0.500", "s", "25%", "Input", "a"],
            ["0.250", "s", "12%", "join:", "Merge", "b"],
            ["0.250", "s", "12%", "the", "rest:", "merging", "in", "threads,", "input,", "the", "step"],
        ]


def test_every_program_has_its_columns() -> None:
    """The list here and the one in Rust name the same queries, and only columns that there are."""
    text = (install.CRATE / "src" / "queries.rs").read_text()
    assert set(re.findall(r'"(q\d+)" =>', text)) == set(programs.NEEDED) <= set(QUERIES)
    for tables in programs.NEEDED.values():
        assert all(set(columns) <= set(COLUMNS[table]) for table, columns in tables.items())


@pytest.mark.parametrize("name", programs.NEEDED)
def test_the_crates_answer_is_duckdbs(name: str, tmp_path: Path) -> None:
    command = install.command("crate")
    if isinstance(command, str):
        pytest.skip(f"the crate's programs are not here: {command}")
    steps = list(Generator(seed=7).batches(20_000, 5_000))
    whole = {table: pa.concat_tables([step[table] for step in steps]) for table in COLUMNS}
    programs.compare(name, steps, whole, command, tmp_path)
    less = {table: rows.slice(0, rows.num_rows // 2) for table, rows in whole.items()}
    with pytest.raises(SystemExit, match="differ"):
        programs.compare(name, steps, less, command, tmp_path)
