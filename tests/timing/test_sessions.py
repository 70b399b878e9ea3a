"""Session windows against plain Python: long chains, merges, splits, colliding partitions; freed and final behind a watermark."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.pace import some

START = dt.datetime(2024, 1, 1)
GAP = 3
SCHEMA = {"k": dbsp.STRING, "at": dbsp.TIMESTAMP, "x": dbsp.INT64}
t = dbsp.table("t", SCHEMA)
visits = t.session("at", dbsp.seconds(GAP), partition_by="k")
Row = tuple[str, int, int]


def as_dict(row: Row) -> dict[str, Any]:
    return {"k": row[0], "at": START + dt.timedelta(seconds=row[1]), "x": row[2]}


def sessions(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """Every row with the first and last time of its session."""
    found: Counter[tuple[Any, ...]] = Counter()
    for key in {row[0] for row in rows}:
        mine = sorted((row for row in rows if row[0] == key), key=lambda row: row[1])
        session: list[Row] = []
        for row in [*mine, None]:
            if row is None or (session and row[1] - session[-1][1] > GAP):
                found.update((*each, session[0][1], session[-1][1] + GAP) for each in session)
                session = []
            if row is not None:
                session.append(row)
    return found


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    at, first, last = (int((moment - START).total_seconds()) for moment in (row[1], row[3], row[4]))
    return (row[0], at, row[2], first, last)


@pytest.mark.parametrize("bits", [None, 1])
@pytest.mark.parametrize("seed", some(range(12), 2))
def test_sessions_merge_and_split(seed: int, bits: int | None) -> None:
    rng = random.Random(seed)
    span = rng.choice([20, 60, 400])
    circuit = dbsp.circuit("c", {"v": visits})
    hashes = narrow_hash(bits) if bits else nullcontext()
    with hashes, dbsp.open(circuit, workers=1 + seed % 3, partitions=2) as run:
        table, seen = list[Row](), Counter[Any]()
        for step in range(25):
            for _ in range(rng.choice([1, 3, 40])):
                row = (rng.choice("abc"), rng.randrange(span), rng.randrange(2))
                table.append(row)
                run.push("t", [as_dict(row)])
            for _ in range(rng.choice([0, 1, 30])):
                if table:
                    run.delete("t", [as_dict(table.pop(rng.randrange(len(table))))])
            for row_, weight in run.step()["v"].to_rows():
                seen[plain(row_)] += weight
            assert {row: w for row, w in seen.items() if w} == sessions(table)
            if step % 7 == 3:
                run.checkpoint()
            if step % 7 == 5:
                run.restart()
            if step % 10 == 9:
                run.rescale(rng.randrange(1, 5))
        assert {plain(row): w for row, w in run.view("v").to_rows()} == sessions(table)


def test_a_session_of_many_gaps_is_found_whole() -> None:
    """One chain of a thousand gaps; its first row goes, a row joins it to another chain, a row in the middle goes."""
    with dbsp.open(dbsp.circuit("c", {"v": visits})) as run:
        table: list[Row] = [("a", 3 * n, 0) for n in range(1000)] + [("a", 3 * n + 5, 0) for n in range(1000, 1100)]
        run.push("t", [as_dict(row) for row in table])
        run.step()
        for change, weight in ((("a", 0, 0), -1), (("a", 3001, 0), 1), (("a", 1500, 0), -1), (("b", 7, 0), 1)):
            if weight > 0:
                table.append(change)
                run.push("t", [as_dict(change)])
            else:
                table.remove(change)
                run.delete("t", [as_dict(change)])
            changed = run.step()["v"].to_rows()
            assert {plain(row): w for row, w in run.view("v").to_rows()} == sessions(table)
        assert len(changed) == 1


def test_a_deletion_may_come_before_its_row() -> None:
    row = ("a", 5, 1)
    with dbsp.open(dbsp.circuit("c", {"v": visits})) as run:
        run.push("t", [as_dict(("a", 4, 0))])
        run.delete("t", [as_dict(row)])
        assert [plain(r) for r, _ in run.step()["v"].to_rows()] == [("a", 4, 0, 4, 7)]
        run.push("t", [as_dict(row)])
        assert run.step()["v"].to_rows() == []
        run.push("t", [as_dict(row)])
        run.step()
        assert {plain(r) for r, _ in run.view("v").to_rows()} == {("a", 4, 0, 4, 8), ("a", 5, 1, 4, 8)}


class Beside:
    """The same rows in a run whose keys move hot, and in one that stays as it is."""

    def __init__(self, run: Any, still: Any, rng: random.Random) -> None:
        self.run, self.still, self.rng, self.now = run, still, rng, 0

    def step(self, rows: int, least: int = 0, most: int = 0) -> None:
        """Rows in time, by twelve keys, then some seconds pass; both runs give the same."""
        for _ in range(rows):
            row = {"k": f"k{self.rng.randrange(12)}", "at": START + dt.timedelta(seconds=self.time()), "x": 1}
            for each in (self.run, self.still):
                each.push("timed", [row])
        self.now += self.rng.randint(least, most) if most else 0
        assert self.run.step()["v"].to_rows() == self.still.step()["v"].to_rows()

    def time(self) -> int:
        return max(0, self.now - self.rng.randint(0, 4))


@pytest.mark.parametrize("seed", [27, 30, 49, 53, 55, 61])
def test_sessions_behind_a_waterline_while_keys_move_and_turn_round(seed: int) -> None:
    """Rows with ends that their session had once lie below the waterline, and merges drop one but not what retracts it."""
    timed = dbsp.table("timed", SCHEMA, watermark={"at": dbsp.seconds(4)})
    circuit = dbsp.circuit("c", {"v": timed.session("at", dbsp.seconds(5), partition_by=["k"])}, materialize=False)
    rng = random.Random(seed)
    strategy = rng.choice(["icadd", "redistribute"])
    with dbsp.open(circuit) as run, dbsp.open(circuit) as still:
        both = Beside(run, still, rng)
        for _ in range(6):
            both.step(20, 1, 6)
        for _ in range(3):
            run.begin_rescale(2, strategy, keys_per_step=rng.choice((1, 3, 100)))
            while run.rescaling:
                both.step(rng.choice((0, 0, 3)), 0, 3)
            run.begin_rescale(1, strategy, keys_per_step=1)
            for _ in range(rng.randint(2, 4)):
                if run.rescaling:
                    both.step(rng.choice((0, 0, 2)), 0, 2)
            if run.rescaling:
                run.cancel_rescale()
                while run.rescaling:
                    both.step(6)
            both.step(5)
            if len(run.layout.workers) > 1:
                run.begin_rescale(1, strategy, keys_per_step=100)
                while run.rescaling:
                    both.step(0)


def test_sessions_behind_the_waterline_are_freed_and_final() -> None:
    bounded = t.with_watermark("at", dbsp.seconds(5)).session("at", dbsp.seconds(GAP), partition_by="k")
    final = bounded.group_by("k", "window_start", "window_end").aggregate(emit="final", n=dbsp.count())
    with dbsp.open(dbsp.circuit("c", {"v": final}, materialize=False), workers=2) as run:
        came, sizes = Counter[Any](), list[int]()
        for step in range(300):
            if step % 10 < 4:
                run.push("t", [as_dict((f"k{n}", step, 0)) for n in range(20)])
            for (key, first, last, n), weight in run.step()["v"].to_rows():
                assert weight == 1
                assert n == 4
                assert (last - first).total_seconds() == 3 + GAP
                came[key] += 1
            sizes.append(sum(worker.state_bytes for worker in run.reports[-1].workers))
        assert set(came.values()) == {29}
        assert max(sizes[200:]) < 1.5 * max(sizes[50:100])
