"""A circuit that is changed between two steps goes on as if it had been the new one from the beginning."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.errors import CircuitError, DbspError
from dbsp.operators.apply import Apply
from dbsp.operators.joins.unique_join import UniqueJoin
from dbsp.plan.backfill import depends_on_time
from dbsp.plan.changes import CircuitChange
from dbsp.plan.planner import plan
from dbsp.plan.signatures import meanings
from dbsp.runtime import session
from dbsp.runtime.backfill import BackfillSegment, Emptied
from dbsp.trace import relabel as relabelling
from dbsp.trace.relabel import relabel
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import each_on_top, relations
from tests.laws.relation import Relation, canonical, p, t, u
from tests.laws.test_equalities import FULL_HASH, World, act, actions, storm
from tests.pace import examples, some

pytestmark = pytest.mark.timeout(900)

Rows = Counter[tuple[Any, ...]]
WHOLE = {"t": t, "u": u, "p": p}
"""Views of the whole tables: with them kept, the past of everything can be told."""


@dataclass
class Pair:
    """A pipeline that is changed, and one that has the new circuit from the beginning; both are fed the same."""

    changed: Any
    whole: Any
    outputs: dict[str, Rows] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    """The names under which the two have different views for now."""

    def act(self, action: tuple[Any, ...]) -> None:
        if action == ("step",):
            self.step()
            return
        for world in (World(self.changed), World(self.whole)):
            act(world, action)

    def step(self) -> None:
        """Outputs of views that both have are the same in every step."""
        ours, theirs = self.changed.step(), self.whole.step()
        for name in (ours.keys() & theirs.keys()) - self.others:
            assert weighed(ours[name].batch) == weighed(theirs[name].batch), name
        for name, rows in ours.items():
            self.add(name, weighed(rows.batch))

    def add(self, name: str, rows: Rows) -> None:
        total = self.outputs.setdefault(name, Counter())
        for row, weight in rows.items():
            total[row] += weight
        self.outputs[name] = Counter({row: weight for row, weight in total.items() if weight})

    def evolve(self, circuit: Any, *, logged: bool = True) -> CircuitChange:
        """Change the first; its step puts out the new views as a whole, and nothing of those that stay."""
        if not logged:
            self.changed.checkpoint()
            self.changed.forget_outputs()
        step = self.changed.step_number
        found: CircuitChange = self.changed.evolve(circuit)
        for name in (*found.views_edited, *found.views_dropped):
            self.outputs.pop(name, None)
        for view in self.changed.plan.views:
            rows = weighed(self.changed.output(step, view.name))
            assert not (rows and view.name in found.views_kept), f"{view.name} was put out twice"
            self.add(view.name, rows)
        self.others -= {view.name for view in self.changed.plan.views}
        return found

    def compare(self) -> None:
        """State that says the same whatever its history is the same on every worker; outputs add up to the views."""
        for trace in sums(self.whole.plan):
            for worker in self.whole.layout.workers:
                ours, theirs = (kept(run, worker, trace) for run in (self.changed, self.whole))
                assert ours == theirs, f"trace {trace.id} of worker {worker}"
        for view in self.whole.plan.views:
            expected = weighed(self.whole.view(view.name).batch)
            assert weighed(self.changed.view(view.name).batch) == expected, view.name
            assert self.outputs.get(view.name, Counter()) == expected, f"outputs of {view.name}"


def weighed(batch: Any) -> Rows:
    """The rows with their weights; one with several is as many rows."""
    found: Rows = Counter()
    for row, weights in batch.to_rows():
        plain = tuple(repr(value) if isinstance(value, list | dict) else value for value in canonical(row))
        for number, weight in enumerate(weights if isinstance(weights, tuple) else (weights,)):
            found[(*plain, number)] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


def sums(made: Any) -> list[Any]:
    """The traces that are the sum of a stream."""
    found = {view.trace.id: view.trace for view in made.views if view.integrates}
    for node in made.nodes:
        for trace, integral in zip(node.traces, node.operator.integrals(), strict=False):
            if integral is not None:
                found[trace.id] = trace
    return list(found.values())


def kept(run: Any, worker: int, trace: Any) -> Rows:
    found: Rows = Counter()
    with run._resources.database(worker).read_trace(trace) as spine:
        for part in spine.parts():
            found.update(weighed(part))
    return Counter({row: weight for row, weight in found.items() if weight})


def circuit(views: dict[str, Any]) -> Any:
    return dbsp.circuit("generated", views)


def follow(
    old: dict[str, Any],
    new: dict[str, Any],
    history: list[tuple[Any, ...]],
    at: int,
    workers: int,
    tables: dict[str, Any] = WHOLE,
    *,
    logged: bool = True,
) -> None:
    """Play the history, with the change behind its step `at`; the rows that were read are still there, or not (`logged`)."""
    old, new = tables | old, tables | new
    with (
        dbsp.open(circuit(old), workers=workers, partitions=2) as changed,
        dbsp.open(circuit(new), workers=workers, partitions=2) as whole,
    ):
        pair, steps, done = Pair(changed, whole), 0, False
        for action in [("step",), *history, ("step",)]:
            pair.act(action)
            steps += action == ("step",)
            if not done and steps > at:
                pair.evolve(circuit(new), logged=logged)
                done = True
        if not done:
            pair.evolve(circuit(new), logged=logged)
        pair.compare()


def is_timed(relation: Relation) -> bool:
    """Whether its answer depends on when rows came."""
    return any(depends_on_time(node) for node in plan(circuit({"w": relation.stream})).nodes)


def change(first: Relation, second: Relation, kept: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Views before and after: one is dropped, one added, one perhaps stays."""
    stays = {"s": first.stream} if kept else {}
    return {"v": first.stream, **stays}, {"w": second.stream, **stays}


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    relations(), relations().filter(lambda r: not is_timed(r)), st.lists(actions, max_size=25), st.integers(0, 6),
    st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_a_changed_circuit_goes_on_as_the_new_one(
    first: Relation, second: Relation, history: list[tuple[Any, ...]], at: int, workers: int, kept: bool
) -> None:
    old, new = change(first, second, kept)
    follow(old, new, history, at, workers)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    relations(), relations().filter(lambda r: not is_timed(r)), st.lists(actions, max_size=25), st.integers(0, 6),
    st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_an_edited_view_goes_on_under_its_name(
    first: Relation, second: Relation, history: list[tuple[Any, ...]], at: int, workers: int, dropped: bool
) -> None:
    """Edited in one change, or dropped by one and made again by a later one: as the new circuit from the beginning."""
    edited(first.stream, second.stream, history, at, workers, dropped)


def edited(first: Any, second: Any, history: list[tuple[Any, ...]], at: int, workers: int, dropped: bool) -> None:
    """Play the history; behind its step `at` the view `v` gets another definition, behind a step without it if `dropped`."""
    old, between, new = (circuit({**WHOLE, **views}) for views in ({"v": first}, {}, {"v": second}))
    changes = [between, new] if dropped else [new]
    with (
        dbsp.open(old, workers=workers, partitions=2) as changed,
        dbsp.open(new, workers=workers, partitions=2) as whole,
    ):
        pair, steps = Pair(changed, whole, others={"v"}), 0
        for action in [("step",), *history, *[("step",)] * len(changes)]:
            pair.act(action)
            steps += action == ("step",)
            if changes and action == ("step",) and steps > at:
                pair.evolve(changes.pop(0))
        for left in changes:
            pair.evolve(left)
        pair.compare()


@pytest.mark.parametrize("number", some(range(len(each_on_top())), 5))
def test_every_operator_is_filled(number: int) -> None:
    """Each operator is new on top of what was there, after a storm and before another one."""

    @settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))
    @given(each_on_top()[number], st.integers(0, 2**32), st.integers(2, 6),
           st.integers(0, 5), st.integers(1, 3), st.sampled_from([FULL_HASH, FULL_HASH, 2]))  # fmt: skip
    def filled(relation: Relation, seed: int, steps: int, at: int, workers: int, bits: int) -> None:
        if is_timed(relation):
            return
        with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
            follow({}, {"w": relation.stream}, storm(seed, steps), at, workers)

    filled()


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.tuples(relations(), relations(), relations()), st.sampled_from(["", "u", "tu", "tp"]), st.lists(actions, max_size=25),
    st.integers(0, 6), st.integers(1, 3), st.booleans(), st.booleans(),
)  # fmt: skip
def test_what_is_accepted_without_whole_tables_is_right(
    made: tuple[Relation, ...],
    whole: str,
    history: list[tuple[Any, ...]],
    at: int,
    workers: int,
    added: bool,
    logged: bool,
) -> None:
    """Of some tables nothing is kept but what views need; a refusal changes nothing, anything else is as if from the start.

    Where the input log has all rows nothing is refused but what depends on when they came.
    """
    first, second, third = (relation.stream for relation in made)
    kept = {name: view for name, view in WHOLE.items() if name in whole}
    always = {
        f"{name}0": table.filter(dbsp.col("a") > 0) for name, table in WHOLE.items()
    }  # the actions need all tables
    old = {"a": first, "b": second, **always, **kept}
    new = {"a": first, **({"c": third} if added else {}), **always, **kept}
    try:
        follow(old, new, history, at, workers, {}, logged=logged)
    except CircuitError:
        # What a view over `now()` keeps depends on who shares it: a filter moves below it when another view is dropped.
        assert added or is_timed(made[0]), "nothing new was asked for"
        assert not logged or is_timed(made[0]) or is_timed(made[2]), "the rows that steps have read can be read again"


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), relations(), relations(), st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 3))
def test_traces_of_one_signature_hold_the_same(
    first: Relation, second: Relation, third: Relation, seed: int, steps: int, workers: int
) -> None:
    """In any two circuits, wherever they stand there."""
    some = {"a": first.stream, "v": second.stream, "t0": t.distinct(), "u0": u}
    others = {"c": third.stream, "u0": u, "v": second.stream, "t": t}
    with (
        dbsp.open(circuit(some), workers=workers, partitions=2) as one,
        dbsp.open(circuit(others), workers=workers, partitions=2) as two,
    ):
        worlds = World(one), World(two)
        for action in storm(seed, steps):
            for world in worlds:
                act(world, action)
        ours, theirs = (
            {signature: number for number, signature in meanings(run.plan).traces.items()} for run in (one, two)
        )
        assert ours.keys() & theirs.keys()
        for signature in ours.keys() & theirs.keys():
            for worker in one.layout.workers:
                left = kept(one, worker, specs(one)[ours[signature]])
                assert left == kept(two, worker, specs(two)[theirs[signature]])


def specs(run: Any) -> dict[int, Any]:
    return {trace.id: trace for trace in run.plan.all_traces()}


def test_only_what_is_refused_by_name_is_refused() -> None:
    """A run goes on after a refusal as if nobody had asked."""
    with dbsp.open(circuit({"n": t.group_by("b").aggregate(n=dbsp.count())})) as run:
        run.push("t", [{"b": "x", "a": 1}])
        run.step()
        run.forget_outputs()
        with pytest.raises(CircuitError, match="a new view needs all earlier rows of a table"):
            run.evolve(circuit({"n": t.group_by("b").aggregate(n=dbsp.count()), "t": t}))
        run.push("t", [{"b": "x", "a": 2}])
        assert run.step()["n"].to_rows() == [(("x", 1), -1), (("x", 2), 1)]


@pytest.mark.parametrize("workers", [1, 3])
def test_constants_ask_for_no_past(workers: int) -> None:
    """They hang on a table of which no row is kept, and which they do not read."""
    counted = t.group_by("b").aggregate(n=dbsp.count())
    names = dbsp.sql("select * from (values ('x', 1), ('y', 2)) as v(b, m)", t=t)
    with dbsp.open(circuit({"n": counted}), workers=workers) as run:
        run.push("t", [{"b": "x", "a": 1}])
        run.step()
        run.forget_outputs()
        run.evolve(circuit({"n": counted, "names": names, "both": counted.join(names, on="b")}))
        assert sorted(run.view("names").to_rows()) == [(("x", 1), 1), (("y", 2), 1)]
        run.push("t", [{"b": "y", "a": 2}])
        assert run.step()["both"].to_rows() == [(("y", 1, 2), 1)]
        assert sorted(run.view("both").to_rows()) == [(("x", 1, 1), 1), (("y", 1, 2), 1)]


KEYED = {"k": dbsp.INT64, "b": dbsp.STRING, "at": dbsp.TIMESTAMP}
events = dbsp.table("events", KEYED)
firsts = dbsp.table("firsts", {"k": dbsp.INT64, "name": dbsp.STRING}, primary_key="k", append_only=True)


def event(k: int, at: int) -> dict[str, Any]:
    return {"k": k, "b": "xyz"[k % 3], "at": f"2024-05-31T10:00:{at:02}"}


def windows() -> Any:
    late = events.with_watermark("at", dbsp.seconds(5)).tumble("at", dbsp.seconds(10))
    return late.group_by("b", "window_end").aggregate(n=dbsp.count()).final("window_end")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_waterlines_go_on_under_other_numbers(workers: int) -> None:
    """What a waterline has closed stays closed, what waits for one comes out when it would have."""
    added = {"a": events.group_by("b").aggregate(k=dbsp.max("k")), "e": events, "w": windows()}
    old, new = circuit({"w": windows(), "e": events}), circuit(added)
    with dbsp.open(old, workers=workers) as changed, dbsp.open(new, workers=workers) as whole:
        pair = Pair(changed, whole)
        for number in range(12):
            for run in (changed, whole):
                run.push("events", [event(number, 4 * number), event(number + 1, max(0, 4 * number - 9))])
            pair.step()
            if number == 6:
                assert pair.evolve(new).watermarks
        pair.compare()
        assert letters(changed) == letters(whole)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_clock_goes_on(workers: int) -> None:
    """A view of the last minute stays as it is, with what leaves it next."""
    recent = events.filter(dbsp.col("at") > dbsp.now() - dbsp.minutes(1))
    old, new = circuit({"r": recent, "e": events}), circuit({"a": events.distinct(), "r": recent, "e": events})
    start = datetime.datetime(2024, 5, 31, 10, tzinfo=datetime.UTC)
    with dbsp.open(old, workers=workers) as changed, dbsp.open(new, workers=workers) as whole:
        for number in range(8):
            for run in (changed, whole):
                run.push("events", [event(number, 5 * number)])
            ours, theirs = (run.step(clock=start + datetime.timedelta(seconds=20 * number)) for run in (changed, whole))
            assert weighed(ours["r"].batch) == weighed(theirs["r"].batch)
            if number == 3:
                due = changed.due
                changed.evolve(new)
                assert changed.due == due
            assert changed.due == whole.due


@pytest.mark.parametrize("workers", [1, 3])
def test_joins_on_declared_keys_are_filled(workers: int) -> None:
    """Rows that wait for the row of their key wait in the filled join, too."""
    joined = events.join(firsts, on="k").select("k", "b", "name")
    old, new = circuit({"e": events, "f": firsts}), circuit({"e": events, "f": firsts, "j": joined})
    with dbsp.open(old, workers=workers) as changed, dbsp.open(new, workers=workers) as whole:
        assert any(isinstance(node.operator, UniqueJoin) for node in whole.plan.nodes)
        pair = Pair(changed, whole)
        for number in range(8):
            for run in (changed, whole):
                run.push("events", [event(k, number) for k in (number, number + 2)])
                run.push("firsts", [{"k": number, "name": f"n{number}"}, {"k": 0, "name": "again"}])
            pair.step()
            if number == 3:
                pair.evolve(new)
        pair.compare()
        assert letters(changed) == letters(whole)


def test_rows_that_failed_before_are_told_once() -> None:
    """A node that was there has told them; a new one tells them when it is filled."""
    share, other = u.select("id", x=100 // dbsp.col("a")), u.select("id", y=50 // dbsp.col("a"))
    old, new = (
        circuit({"v": share, "u": u}),
        circuit({"v": share, "w": other, "m": share.group_by("x").aggregate(n=dbsp.count()), "u": u}),
    )
    with dbsp.open(old, workers=2) as changed, dbsp.open(new, workers=2) as whole:
        pair = Pair(changed, whole)
        for at in range(4):
            for run in (changed, whole):
                run.push("u", [{"id": at, "b": "x", "a": at % 2, "f": 0.5}])
            pair.step()
            if at == 1:
                pair.evolve(new)
        pair.compare()
        assert letters(changed) == letters(whole)


def letters(run: Any) -> Counter[tuple[str, str]]:
    """Rows that failed and why, whenever and wherever that was told."""
    found: Counter[tuple[str, str]] = Counter()
    for letter in run.dead_letters():
        found[letter.payload, letter.reason] += letter.weight
    return found


PLAIN = {"k": dbsp.INT64, "b": dbsp.STRING, "a": dbsp.INT64}


def columned(key: str | None, *, added: bool, default: int | None = None) -> Any:
    """A table without and with a column, and views over it: of all columns, of some, and of the new one."""
    more = {"columns": {**PLAIN, "extra": dbsp.INT64}, "defaults": {"extra": default}} if added else {"columns": PLAIN}
    table = dbsp.table("w", primary_key=key, **more)
    views = {
        "whole": table, "n": table.group_by("b").aggregate(n=dbsp.count()), "some": table.select("k", "a").distinct(),
        "up": table.filter(dbsp.col("a") > 1), "least": table.group_by("b").aggregate(least=dbsp.min("a")),
    }  # fmt: skip
    if added:
        views["extra"] = table.group_by("extra").aggregate(n=dbsp.count())
        views["both"] = table.filter(dbsp.col("extra").is_null()).select("k", "b")
    return circuit(views)


def widen(key: str | None, seed: int, at: int, workers: int, default: int | None = None) -> CircuitChange:
    """Rows are pushed with the new column after step `at`, or a step before or after; to the whole run without it before."""
    chance, found = random.Random(seed), None
    with (
        dbsp.open(columned(key, added=False), workers=workers, partitions=2) as changed,
        dbsp.open(columned(key, added=True, default=default), workers=workers, partitions=2) as whole,
    ):
        pair = Pair(changed, whole, others={"whole", "up"})
        for number in range(8):
            rows = [{"k": chance.randrange(6), "b": chance.choice("xyz"), "a": chance.randrange(4)} for _ in range(4)]
            if number > at:
                rows = [{**row, "extra": chance.choice([None, 1, 2])} for row in rows]
            for run in (changed, whole):
                run.push("w", rows)
                if number % 3 == 2:
                    run.delete("w", rows[:1])
            pair.step()
            if chance.random() < 0.3:
                changed.restart()
            if number == at:
                found = pair.evolve(columned(key, added=True, default=default))
            if chance.random() < 0.3:
                changed.checkpoint()
        pair.compare()
    assert found is not None
    return found


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from(["k", None]),
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.integers(1, 3),
    st.sampled_from([None, 1]),
)
def test_a_column_is_added_to_a_table(key: str | None, seed: int, at: int, workers: int, default: int | None) -> None:
    """Old rows have the default there, or null, in state and in the log; views that do not read it go on."""
    found = widen(key, seed, at, workers, default)
    assert (found.columns_added, found.columns_filled)[default is not None] == ("w.extra",)
    assert set(found.views_kept) == {"n", "some", "least"}


@pytest.mark.parametrize(("default", "planted"), [(None, 1), (1, None)])
def test_old_rows_with_another_value_are_seen(
    default: int | None, planted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of old rows is not filled with the default but with another value."""
    widen("k", 1, 3, 2, default)
    absent = SimpleNamespace(absent=lambda column, rows: pa.array([planted] * rows, column.type))
    monkeypatch.setattr(
        relabelling, "_narrow", lambda view, each, chunks: narrow(view, replace(each, table=absent), chunks)
    )
    with pytest.raises(AssertionError):
        widen("k", 1, 3, 2, default)


def test_the_default_of_a_column_stays() -> None:
    """Its rows were filled with it, so a backfill from the log would have others."""
    with dbsp.open(columned("k", added=True, default=1)) as run:
        run.push("w", [{"k": 1}])
        run.step()
        for default in (None, 2):
            with pytest.raises(CircuitError, match="the declaration of a table does not fit its kept rows") as raised:
                run.evolve(columned("k", added=True, default=default))
            assert "the default of a column stays" in str(raised.value.hint)


narrow = relabelling._narrow


@pytest.mark.parametrize("columns", [{"a": dbsp.STRING}, {"z": dbsp.INT64}])
def test_other_declarations_are_refused(columns: dict[str, Any]) -> None:
    """Another type; a new column before the others."""
    with dbsp.open(columned("k", added=False)) as run:
        run.push("w", [{"k": 1}])
        run.step()
        table = dbsp.table("w", {**columns, **PLAIN, **columns}, primary_key="k")
        with pytest.raises(
            CircuitError, match=r"the declaration of a table does not fit its kept rows.*table=w"
        ) as raised:
            run.evolve(circuit({"whole": table}))
        assert "only columns that may be null or have a default may be added, after the others" in str(
            raised.value.hint
        )


# --- planted bugs ---------------------------------------------------------------------------------------------------


def by_number(database: Any, version: int, checkpoint: Any, kept: Any, narrowed: Any = ()) -> Any:
    return relabel(database, version, checkpoint, {number: number for number in kept}, narrowed)


def without_some(self: Any, begun: Any, told: Any) -> Any:
    """Every second worker's rows are left out."""
    without_some.calls += 1  # type: ignore[attr-defined]
    found = past(self, begun, told)
    return found if without_some.calls % 2 else found.slice(0, 0)  # type: ignore[attr-defined]


without_some.calls = 0  # type: ignore[attr-defined]
past = BackfillSegment._past


def by_name(*given: Any) -> CircuitChange:
    """A view is taken for the one that had its name."""
    found = real_change(*given)
    return replace(found, backfill=replace(found.backfill, views=frozenset(found.views_added)))


real_change = session.change

PLANTS: dict[str, tuple[Any, str, Any]] = {
    "traces are matched by number": (session, "relabel", by_number),
    "one worker's rows are left out": (BackfillSegment, "_past", without_some),
    "kept traces are not empty for nodes that run": (Emptied, "spine", lambda self, trace: self.begun.spine(trace)),
    "what is kept is added again": (Emptied, "append", lambda self, *added: self.begun.append(*added)),
    "kept views are put out again": (BackfillSegment, "result", lambda _self, made: made),
    "signatures leave filters out": (Apply, "signature", lambda _self, given: given.inputs[0]),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_bugs_are_seen(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = t.join(u.select("b", "f"), on="b")
    positive, more = (u.filter(dbsp.col("a") > least).group_by("b").aggregate(n=dbsp.count()) for least in (0, 1))
    old = {"v": joined.select("b", "a"), "n": u.group_by("b").aggregate(n=dbsp.count()), "f": positive}
    new = {
        "g": more,
        "m": joined.group_by("a").aggregate(m=dbsp.max("f")), "n": old["n"], "d": u.select("b", "a").distinct(),
        "v": joined.select("b", "a"), "o": t.join(u.select("b", "f"), on="b", how="left").select("b", "a", "f"),
    }  # fmt: skip
    row = {"f": 0.25, "a": 1}
    history = [("insert", {**row, "b": name}) for name in "xyz"] + [
        ("upsert", key, {**row, "b": "xyx"[key]}) for key in (0, 1, 2)
    ]
    history += [("step",), *storm(5, 6)]
    follow(old, new, history, 1, 2)
    monkeypatch.setattr(*PLANTS[plant])
    with pytest.raises((AssertionError, DbspError)):
        follow(old, new, history, 1, 2)


def test_a_view_that_is_known_by_its_name_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    story = (u.filter(dbsp.col("a") > 0), u.select("id", b=dbsp.col("a") + 1), [*storm(5, 6)], 1, 2, False)
    edited(*story)
    monkeypatch.setattr(session, "change", by_name)
    with pytest.raises(AssertionError):
        edited(*story)
