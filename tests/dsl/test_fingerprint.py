"""The fingerprint: fixed for ever for one meaning, different for another, and a mismatch names the node."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dbsp
from dbsp import col
from dbsp.circuit.fingerprint import explain_difference, fingerprint, node_tokens
from dbsp.circuit.graph import nodes_of
from dbsp.circuit.load import load_circuit

CODE = """
import datetime
import decimal
import dbsp
from dbsp import col

flights = dbsp.table("flights", {"id": dbsp.INT64, "carrier": dbsp.STRING, "delay": dbsp.INT32, "at": dbsp.TIMESTAMP,
                                 "fare": dbsp.decimal(8, 2)}, primary_key="id")
airlines = dbsp.table("airlines", {"code": dbsp.STRING, "name": dbsp.STRING}, primary_key="code")

def words(row):
    for word in (row["name"] or "").split():
        yield {"word": word}

late = flights.filter((col("delay") > 15) & col("carrier").is_in(["UA", None]) & (col("at") > datetime.datetime(2013, 1, 1)))
shares = late.with_columns(
    share=col("delay") / 60.0,
    band=dbsp.when(col("delay") < 30, "short").otherwise("long"),
    net=col("fare") * decimal.Decimal("0.81"),
)
joined = shares.join(airlines, on={"carrier": "code"})
by_name = joined.group_by("name", hour=col("at").truncate("hour")).aggregate(n=dbsp.count(), m=dbsp.avg(col("share") + 1))
circuit = dbsp.circuit("demo", {
    "by_name": by_name,
    "worst": by_name.top_k(3, by=[dbsp.desc("m", nulls_first=True), "name"], partition_by="hour", rank="place"),
    "words": airlines.flat_map(words, schema={"word": dbsp.STRING}).distinct(),
    "idle": airlines.select("code").difference(flights.select(code="carrier")).union(airlines.select("code")),
}, materialize=["worst", "words"])
"""
GOLDEN = "9a92d9c077dd6cd1f6cfd90f97d37c9011b8d2e481eeddff1328afe0e42d4230"


def load(code: str, folder: Path) -> dbsp.Circuit:
    """A circuit from text, in a file of its own."""
    file = folder / f"c{len(list(folder.iterdir()))}.py"
    file.write_text(code)
    return load_circuit(f"{file}:circuit")


def test_golden(tmp_path):
    assert fingerprint(load(CODE, tmp_path)) == GOLDEN


def test_the_same_in_another_process_with_other_hash_seeds(tmp_path):
    (tmp_path / "c.py").write_text(CODE)
    program = f"import dbsp; print(dbsp.load_circuit({str(tmp_path / 'c.py')!r} + ':circuit').fingerprint)"
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
        assert done.stdout.strip() == GOLDEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nflights =", "\n\n\n# flights\nflights ="),
        ('"demo"', '"another"'),
        ("late", "delayed"),
        ("def words(row):", 'def words(row):\n    "Splits."'),
        ('["UA", None]', '("UA", None)'),
        ("15)", "15 )"),
        ('fare": dbsp.decimal(8, 2)}', 'fare": dbsp.decimal(8, 2)} | {}'),
    ],
)
def test_appearance_does_not_matter(old, new, tmp_path):
    assert old in CODE
    assert fingerprint(load(CODE.replace(old, new), tmp_path)) == GOLDEN


CHANGES = {
    ("> 15", "> 16"): "changed: filter (((delay > 15) & ",
    ('["UA", None]', '["UA"]'): "changed: filter (((delay > 15) & ",
    ("split()", "split(',')"): "changed: flat_map words -> (word: string)",
    ("top_k(3", "top_k(4"): "changed: top 3 by m desc nulls first, name per (hour) rank place",
    ("nulls_first=True", "nulls_first=False"): "changed: top 3 by m desc nulls first, name per (hour) rank place",
    ("dbsp.count()", "dbsp.count('share')"): "changed: aggregate by (name, hour) n = count(*), m = avg(__m)",
    ('"worst", "words"', '"worst"'): "changed: view words",
    (").distinct()", ")"): "removed: distinct (it was at ",
    ('primary_key="code")', ")"): "changed: table airlines",
    ("/ 60.0", "/ 61.0"): "changed: select id, carrier, delay, at, fare, share",
    ('"words"])', '"words"], error_policy="stop")'): "changed: error policy",
}


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_meaning_matters_and_the_first_line_names_the_node(old, new, tmp_path):
    assert old in CODE
    before, after = load(CODE, tmp_path), load(CODE.replace(old, new), tmp_path)
    assert fingerprint(before) != fingerprint(after)
    difference = explain_difference(node_tokens(before), node_tokens(after))
    expected = CHANGES[old, new]
    assert any(line.startswith(expected) for line in difference.splitlines()), difference


def test_no_difference_is_no_text(tmp_path):
    tokens = node_tokens(load(CODE, tmp_path))
    assert explain_difference(tokens, tokens) == ""


def test_other_wiring_alone_is_named():
    t = dbsp.table("t", {"x": dbsp.INT64})
    a, b = t.filter(col("x") > 1), t.filter(col("x") > 2)
    one = dbsp.circuit("c", {"a": a, "b": b, "d": a.difference(b)})
    two = dbsp.circuit("c", {"a": a, "b": b, "d": b.difference(a)})
    assert "reads other inputs: difference" in explain_difference(node_tokens(one), node_tokens(two))


def test_equal_nodes_become_one():
    t = dbsp.table("t", {"x": dbsp.INT64})
    u = dbsp.table("t", {"x": dbsp.INT64})
    circuit = dbsp.circuit("c", {"a": t.filter(col("x") > 1).distinct(), "b": u.filter(col("x") > 1)})
    assert [type(node).__name__ for node in nodes_of(circuit)] == ["Table", "Filter", "Distinct"]
    assert circuit.tables == (t.node,)


def test_a_circuit_that_shares_deeply_is_built_quickly():
    stream = dbsp.table("t", {"x": dbsp.INT64})
    for _ in range(60):
        stream = stream.union(stream)
    circuit = dbsp.circuit("c", {"v": stream})
    assert len(nodes_of(circuit)) == 61
    assert len(circuit.fingerprint) == 64
    assert len(pickle.loads(pickle.dumps(circuit)).fingerprint) == 64


def test_explain_and_drawing_are_as_written_down(tmp_path):
    circuit = load(CODE, tmp_path)
    assert circuit.explain() == textwrap.dedent(EXPLAINED).strip()
    assert circuit.drawing().startswith('flowchart LR\n  n0[("table flights")]\n')
    assert circuit._repr_markdown_() == f"```mermaid\n{circuit.drawing()}\n```"


EXPLAINED = """
circuit demo
view by_name (name: string, hour: timestamp[us], n: int64 not null, m: double)
  aggregate by (name, hour) n = count(*), m = avg(__m) #1
    select name, hour, __m = (share + 1.0)
      select id, carrier, delay, at, fare, share, band, net, name, hour = at.truncate("hour")
        join on carrier = code
          select id, carrier, delay, at, fare, share = (delay.cast(float64) / 60.0), band = case((delay < 30), "short", "long"), net = (fare * 0.81)
            filter (((delay > 15) & carrier.is_in(["UA", None])) & (at > 2013-01-01T00:00:00))
              table flights (id: int64 not null, carrier: string, delay: int32, at: timestamp[us], fare: decimal128(8, 2)) primary key (id)
          table airlines (code: string not null, name: string) primary key (code)
view worst (materialized) (name: string, hour: timestamp[us], n: int64 not null, m: double, place: int64 not null)
  top 3 by m desc nulls first, name per (hour) rank place
    #1 again
view words (materialized) (word: string)
  distinct
    flat_map words -> (word: string)
      table airlines
view idle (code: string)
  union all
    difference
      select code #2
        select code
          table airlines
      select code = carrier
        table flights
    #2 again
"""  # noqa: E501
