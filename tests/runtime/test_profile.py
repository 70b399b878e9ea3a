"""The figures beside the plan: rows, state and the busiest worker are those of the run."""

from __future__ import annotations

import dbsp


def test_rows_and_state_of_every_node() -> None:
    """Sums over steps and workers; state as the last step found it."""
    t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    u = dbsp.table("u", {"k": dbsp.INT64, "y": dbsp.INT64})
    circuit = dbsp.circuit("demo", {"v": t.join(u, on="k")})
    with dbsp.open(circuit, workers=3) as run:
        run.push("t", {"k": list(range(100)), "x": [1] * 100})
        run.push("u", {"k": list(range(50)), "y": [1] * 50})
        run.step()
        run.delete("t", {"k": [0], "x": [1]})
        run.step()
        text = run.explain()
        join = next(node for node in run.plan.nodes if node.name.startswith("join"))
        totals = run.totals.of(join.id)
    assert sum(total.rows_in for total in totals) == 151
    assert sum(total.rows_out for total in totals) == 51
    assert sum(total.state_rows for total in totals) >= 150
    assert sum(total.state_bytes for total in totals) > 150 * 24
    assert "measured over 2 steps" in text
    line = text.splitlines()[next(at for at, line in enumerate(text.splitlines()) if "join on k" in line) + 1].strip()
    assert line.startswith("rows 151 -> 51  time")


def test_a_hot_key_is_seen() -> None:
    """One worker has nearly all rows of a node."""
    t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    circuit = dbsp.circuit("demo", {"v": t.distinct().group_by("k").aggregate(m=dbsp.max("x"))})
    with dbsp.open(circuit, workers=4) as run:
        run.push("t", {"k": [7] * 1000, "x": list(range(1000))})
        run.step()
        node = next(node for node in run.plan.nodes if node.name.startswith("group_by"))
        shares = [total.rows_in for total in run.totals.of(node.id)]
        text = run.explain()
    assert max(shares) == sum(shares) > 0
    assert "busiest worker 100 % of rows" in text
    line = text.splitlines()[next(at for at, line in enumerate(text.splitlines()) if " group by (k)" in line) + 2]
    assert f"by worker: in {' / '.join(f'{share:,}' for share in shares)}  time" in line


def test_before_any_step_there_are_no_figures() -> None:
    """The plan alone."""
    t = dbsp.table("t", {"k": dbsp.INT64})
    with dbsp.open(dbsp.circuit("demo", {"v": t.distinct()})) as run:
        text = run.explain()
    assert "measured over 0 steps" in text
    assert "rows" not in text
