"""Waterlines of tables follow each input partition: laws under any cut into steps, any workers, restarts and rescales."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.io.step_codec import record_from_json, record_to_json
from dbsp.logs import StepRecord
from dbsp.runtime.idleness import Idleness
from dbsp.steps.timing import (
    WATERLINE,
    Moment,
    Partitions,
    Place,
    Signal,
    Timing,
    Waterline,
    timing_from_json,
    timing_to_json,
)
from tests.pace import examples

START = dt.datetime(2024, 1, 1)
LATENESS, PARTITIONS = 4, 3
COLUMNS = {"id": dbsp.INT64, "ms": dbsp.INT64, "at": dbsp.TIMESTAMP}
WATERMARK = {"at": dbsp.seconds(LATENESS)}


def computed(stream: Any) -> Any:
    """The time is made of another column, behind a filter that fails on some rows and drops others."""
    kept = stream.filter(100 // col("id") >= 0).select("id", then=dbsp.from_epoch(col("ms"), "millisecond"))
    return kept.filter(col("id") > 0).with_watermark("then", dbsp.seconds(LATENESS))


TABLES: dict[str, Any] = {
    "bare": dbsp.table("t", COLUMNS, watermark=WATERMARK),
    "keyed": dbsp.table("t", COLUMNS, primary_key="id", watermark=WATERMARK),
    "first of each key": dbsp.table("t", COLUMNS, primary_key="id", watermark=WATERMARK, append_only=True),
    "computed": computed(dbsp.table("t", COLUMNS)),
    "keyed and computed": computed(dbsp.table("t", COLUMNS, primary_key="id")),
    "behind another": dbsp.table("t", COLUMNS, watermark={"at": dbsp.hours(1)}).with_watermark("at", WATERMARK["at"]),
}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One step: how many rows of each partition it takes, and what happens to the run before it."""

    rows: tuple[int, ...]
    before: tuple[str, int] = ("", 0)


def moves() -> st.SearchStrategy[list[int]]:
    """By how much a row is later than the latest one of its partition; less than zero is earlier."""
    return st.lists(st.sampled_from([0, 1, 3, 20, -1, -LATENESS, -LATENESS - 1, -30]), max_size=12)


cuts = st.lists(
    st.builds(
        Cut,
        rows=st.tuples(*[st.integers(0, 4)] * PARTITIONS),
        before=st.one_of(
            st.just(("", 0)),
            st.tuples(st.sampled_from(["checkpoint", "restart"]), st.just(0)),
            st.tuples(st.sampled_from(["rescale", "icadd", "redistribute"]), st.integers(1, 4)),
        ),
    ),
    max_size=10,
)


def times(steps: list[int]) -> list[int]:
    """The times of a partition's rows, in seconds."""
    found, latest = [], 100
    for step in steps:
        found.append(latest + step)
        latest = max(latest, latest + step)
    return found


def row(number: int, second: int) -> dict[str, Any]:
    at = START + dt.timedelta(seconds=second)
    return {"id": number, "ms": int(at.replace(tzinfo=dt.UTC).timestamp() * 1000), "at": at}


def lived(run: Any, action: tuple[str, int]) -> None:
    """What happens to the run."""
    match action:
        case ("checkpoint", _):
            run.checkpoint()
        case ("restart", _):
            run.restart()
        case ("rescale", workers) if not run.rescaling:
            run.rescale(workers)
        case ("icadd" | "redistribute" as strategy, workers) if not run.rescaling:
            run.begin_rescale(workers, strategy, keys_per_step=2)


def late_rows(run: Any) -> Counter[tuple[int, int]]:
    """(step, row) of the rows that came too late."""
    return Counter(
        (letter.step, json.loads(letter.payload)["id"])
        for letter in run.dead_letters()
        if letter.reason.startswith("late: ")
    )


def run_of(kind: str, given_rows: list[list[int]], steps: list[Cut], workers: int, *, lives: bool) -> Any:
    """A run of the table over these cuts, and what came too late; row 0 fails in a computed time."""
    circuit = dbsp.circuit("c", {"v": TABLES[kind].select("id")})
    numbers = [list(range(1000 * partition, 1000 * partition + 100)) for partition in range(PARTITIONS)]
    with dbsp.open(circuit, workers=workers, partitions=PARTITIONS) as run:
        taken = [0] * PARTITIONS
        for each in [*steps, *[Cut(rows=(4,) * PARTITIONS)] * 4]:
            if lives:
                lived(run, each.before)
            for partition, count in enumerate(each.rows):
                first = taken[partition]
                taken[partition] = min(first + count, len(given_rows[partition]))
                rows = [row(numbers[partition][at], given_rows[partition][at]) for at in range(first, taken[partition])]
                run.push("t", rows, partition=partition)
            run.step(clock=START)
        late = late_rows(run)
        if lives:
            run.restart()
            assert late_rows(run) == late, "equal step records give equal late rows"
        lines = [tuple((line.before_us, line.now_us) for line in record.waterlines) for record in run._records]
    return late, lines


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(TABLES)), st.tuples(*[moves()] * PARTITIONS), cuts, st.integers(1, 3))
@example("bare", ([1] * 8, [20] * 8, [3] * 8), [Cut(rows=(1, 4, 2))] * 3, 2)
@example("keyed and computed", ([0, 1], [20] * 8, [3] * 8), [Cut(rows=(2, 4, 2), before=("icadd", 3))] * 3, 1)
def test_a_row_within_the_lateness_of_its_own_partition_is_never_late(
    kind: str, walks: tuple[list[int], ...], steps: list[Cut], workers: int
) -> None:
    given_rows = [times(walk) for walk in walks]
    late, lines = run_of(kind, given_rows, steps, workers, lives=True)
    for _, number in late:
        partition, at = divmod(number, 1000)
        seen = list(accumulate(given_rows[partition], max))
        assert given_rows[partition][at] < seen[at] - LATENESS, "a row was late that its own partition did not overtake"
    flat = [now for _, now in (line for each in lines for line in each)]
    if len(lines[-1]) == 1:
        assert flat == sorted(flat), "a waterline fell"
    assert run_of(kind, given_rows, steps, 1, lives=False) == (late, lines), "workers or lives made a difference"


def test_rows_read_partition_by_partition_are_never_late() -> None:
    """The worst cut there is: all of one partition comes before any row of another one."""
    whole = [list(range(100, 130)) for _ in range(PARTITIONS)]
    late, _ = run_of("bare", whole, [Cut(rows=(30, 0, 0)), Cut(rows=(0, 30, 0)), Cut(rows=(0, 0, 30))], 2, lives=False)
    assert not late


def test_a_derived_stream_has_one_waterline() -> None:
    """Rows of two tables together: whose partition a row comes from is not known there, so the slower one's rows are late."""
    one, two = (dbsp.table(name, {"id": dbsp.INT64, "at": dbsp.TIMESTAMP}) for name in "ab")
    both = one.union(two).with_watermark("at", dbsp.seconds(LATENESS))
    with dbsp.open(dbsp.circuit("c", {"v": both}), workers=2, partitions=2) as run:
        run.push("a", [{"id": 1, "at": START + dt.timedelta(seconds=50)}], partition=0)
        run.step()
        run.push("b", [{"id": 2, "at": START}], partition=1)
        run.step()
        assert list(late_rows(run)) == [(1, 2)]
    assert "per partition" not in run.explain()


def test_explain_names_the_partitions() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": TABLES["keyed and computed"]})) as run:
        assert "lateness=4000000us per partition of t" in run.explain()


# ---- which partitions are idle ----

PLACES: list[Place] = [("t", 0), ("t", 1), ("u", 0)]
looks = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.lists(
            st.tuples(st.sampled_from(["row", "read", "away", "back", "told"]), st.sampled_from(PLACES)), max_size=3
        ),
    ),
    max_size=20,
)


@settings(max_examples=examples(200), deadline=None)
@given(looks)
@example([(0, []), (60, [])])  # idle at the end of the time, not before
@example([(0, []), (59, []), (1, [("away", ("t", 0))]), (1, [("back", ("t", 0))]), (60, [])])
def test_a_partition_is_idle_after_a_time_at_its_end_while_its_source_answers(history: list[Any]) -> None:
    """Against a model: seconds in which all was read and the source answered, without a break between looks."""
    idleness = Idleness(lambda table: {"t": 60, "u": 1}[table])
    now, ends, read = 0.0, dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 0)
    away: set[Place] = set()
    settled_s: dict[Place, float | None] = {}
    rests: dict[Place, float] = {}
    idle: frozenset[Place] = frozenset()
    for seconds, events in history:
        now += seconds
        for what, place in events:
            match what:
                case "row":
                    ends[place] += 1
                case "read":
                    read[place] = ends[place]
                case "away":
                    away.add(place)
                case "back":
                    away.discard(place)
                case "told":  # from now on this source says itself when it has no more
                    settled_s[place] = now
        told = {place: end for place, end in ends.items() if place not in away}
        found = idleness.look({"t", "u"}, told, read, now, before=idle, settled_s=settled_s)
        rests = {p: rests.get(p, now) for p in PLACES if p not in away and read[p] == ends[p]}
        wanted = {p for p, since in rests.items() if p[0] == "t" and (p in idle or settled_s.get(p, now) - since >= 60)}
        if history[0][1] == [] or not away:  # else a table may not have been seen whole yet
            assert found.present["u"] == [0] or ("u", 0) in away
        assert found.idle <= wanted
        if set(PLACES) <= set(told) or found.present["t"] == [0, 1]:
            assert found.idle == wanted
        idle = found.idle


def test_a_source_that_does_not_answer_is_not_idle() -> None:
    idleness, ends = Idleness(lambda _table: 60), {("t", 0): 5, ("t", 1): 5}
    assert not idleness.look({"t"}, ends, ends, 0).idle
    assert not idleness.look({"t"}, ends, ends, 100, settled_s={("t", 0): None, ("t", 1): 59}).idle
    assert idleness.look({"t"}, ends, ends, 110, settled_s={("t", 1): 109}).idle == {("t", 1)}
    away = idleness.look({"t"}, {("t", 0): 5}, ends, 120, before=[("t", 1)])
    assert not away.idle, "its broker is away"
    assert away.present == {"t": [0, 1]}


# ---- the arithmetic, and what is stored ----


def test_a_new_partition_holds_the_waterline_back_and_never_lowers_it() -> None:
    timing = Timing(reached={3: {0: 40, 1: 50}}).over({3: "t"}, Partitions(present={"t": [0, 1]}))
    assert timing.agreed == {3: 40}
    timing = timing.recorded(timing.moment(0)).finished([Signal(node=3, kind=WATERLINE, at_us=60, partition=0)])
    assert timing.over({3: "t"}, Partitions(present={"t": [0, 1, 2]})).agreed == {3: 40}, "2 has no rows yet"
    timing = timing.finished([Signal(node=3, kind=WATERLINE, at_us=10, partition=2)])
    assert timing.over({3: "t"}, Partitions(present={"t": [0, 1, 2]})).agreed == {3: 40}, "it never falls"
    assert timing.over({3: "t"}, Partitions(present={"t": [0, 1, 2]}, idle=frozenset([("t", 2)]))).agreed == {3: 50}


def test_when_all_partitions_are_idle_the_waterline_is_the_greatest() -> None:
    """As it would be if they had become idle one after the other, the latest one last."""
    idle = frozenset([("t", 0), ("t", 1)])
    timing = Timing(reached={3: {0: 40, 1: 50}}).over({3: "t"}, Partitions(present={"t": [0, 1]}, idle=idle))
    assert (timing.agreed, timing.idle) == ({3: 50}, (("t", 0), ("t", 1)))


def test_one_waterline_of_0_1_0_stands_until_the_partitions_pass_it() -> None:
    timing = timing_from_json({"clock": 5, "used": [[3, 40]], "agreed": [[3, 45]], "due": None})
    both = Partitions(present={"t": [0, 1]})
    timing = timing.over({3: "t"}, both)
    assert timing.moment(6).waterlines == (Waterline(node=3, before_us=40, now_us=45),)
    for partition, at_us in ((0, 30), (1, 90), (0, 50)):
        timing = timing.finished([Signal(node=3, kind=WATERLINE, at_us=at_us, partition=partition)])
    assert timing.over({3: "t"}, both).agreed == {3: 50}


@pytest.mark.parametrize("idle", [(), (("t", 1), ("u", 0))])
def test_0_1_0_reads_what_is_stored_and_passes_over_what_is_new(idle: tuple[Place, ...]) -> None:
    timing = Timing(clock_us=1, used={3: 4}, agreed={3: 5}, due_us=6, reached={3: {0: 7, 1: 5}}, idle=idle)
    stored = json.loads(json.dumps(timing_to_json(timing)))
    assert timing_from_json(stored) == timing
    assert {name: stored[name] for name in ("clock", "used", "agreed", "due")} == {
        "clock": 1, "used": [[3, 4]], "agreed": [[3, 5]], "due": 6,
    }  # fmt: skip
    record = StepRecord(
        epoch=1, step=2, layout_version=0, ranges=(), clock_us=7, engine="0.1.0", idle=idle,
        waterlines=(Waterline(node=3, before_us=None, now_us=4),),
    )  # fmt: skip
    stored = json.loads(json.dumps(record_to_json(record)))
    assert record_from_json(stored) == record
    assert stored.pop("idle", None) == ([list(place) for place in idle] or None)
    assert stored.keys() == record_to_json(StepRecord(**{**_fields(record), "idle": ()})).keys()
    assert record.moment == Moment(clock_us=7, waterlines=record.waterlines, idle=idle)


def _fields(record: StepRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
