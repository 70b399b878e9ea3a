"""A leased read equals the view at its step, whatever runs beside it: steps, merges, checkpoints, rollbacks, rescales."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.errors import UnavailableError
from dbsp.runtime import far_views
from dbsp.runtime.leases import ALL, Leased, Wanted
from dbsp.runtime.ranges import ColumnRange
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import relations
from tests.laws.far_hosts import FarHosts
from tests.laws.relation import Relation, canonical, p, t, u
from tests.laws.test_equalities import World, act, actions
from tests.pace import examples

Rows = Counter[tuple[Any, ...]]
FULL_HASH = 64


def rows_of(leased: Leased, view: str, wanted: Wanted = ALL) -> Rows:
    """The rows of a lease, each of which comes once."""
    found: Rows = Counter()
    for table in leased.read(view, wanted):
        columns = table.columns[:-1]
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        for row, weight in zip(values, table.column(table.num_columns - 1).to_pylist(), strict=True):
            assert canonical(row) not in found, "a row came twice"
            found[canonical(row)] = weight
    return found


def of_view(run: Any, view: str) -> Rows:
    return Counter({canonical(row): weight for row, weight in run.view(view).batch.to_rows()})


def a_condition(leased: Leased, view: str, schema: Any, random: Random) -> tuple[Batch, list[int]] | None:
    """The values of some columns of one to three rows."""
    table = pa.concat_tables(leased.read(view))
    if not len(table):
        return None
    rows = [random.randrange(len(table)) for _ in range(random.randint(1, 3))]
    some = sorted(random.sample(range(len(schema.names)), random.randint(1, len(schema.names))))
    columns = [table.column(place).combine_chunks().take(pa.array(rows)) for place in some]
    return Batch.of(schema.select([schema.names[place] for place in some]), columns), some


def a_range(leased: Leased, view: str, schema: Any, random: Random) -> tuple[ColumnRange, int] | None:
    """The values of a column between those of two rows, or on one side of a row's."""
    table = pa.concat_tables(leased.read(view))
    place = random.randrange(len(schema.names))
    values = [each for each in table.column(place).to_pylist() if each is not None and each == each]  # noqa: PLR0124 - NaN
    if not values or pa.types.is_nested(schema.columns[place].type):
        return None
    low, high = sorted((random.choice(values), random.choice(values)))
    kind, sides = schema.columns[place].type, random.choice(["low", "high", "both"])
    return ColumnRange(
        column=schema.names[place],
        low=pa.scalar(low, kind) if sides != "high" else None,
        high=pa.scalar(high, kind) if sides != "low" else None,
        low_in=random.random() < 0.5,
        high_in=random.random() < 0.5,
    ), place


def in_range(some: ColumnRange, value: Any) -> bool:
    """Whether a value is in a range, in Python's own order but for NaN, which is above every number."""
    if value is None:
        return False
    low, high = (None if end is None else end.as_py() for end in (some.low, some.high))
    if value == "nan" and any(end is not None and pa.types.is_floating(end.type) for end in (some.low, some.high)):
        return high is None  # as `canonical` writes it
    if isinstance(value, str):
        value, low, high = (each if each is None else each.encode() for each in (value, low, high))
    above = low is None or value > low or (some.low_in and value == low)
    return above and (high is None or value < high or (some.high_in and value == high))


def some_columns(schema: Any, random: Random) -> Wanted:
    """All rows, and often not all columns, in another order."""
    return Wanted(columns=tuple(random.sample(schema.names, random.randint(1, len(schema.names)))))


def in_order(leased: Leased, view: str, wanted: Wanted) -> tuple[Any, list[Any]]:
    """The columns and the rows of a lease, in the order in which they come."""
    tables = list(leased.read(view, wanted))
    return tables[0].schema, [canonical(tuple(row.values())) for table in tables for row in table.to_pylist()]


def same_from_afar(far: Leased, here: Leased, view: str, wanted: Wanted) -> None:
    """A read in tasks on other hosts gives the rows of the read here, in the same order; the first ones with a limit."""
    for each in (wanted, ALL):
        schema, rows = in_order(here, view, each)
        assert in_order(far, view, each) == (schema, rows)
        for first in (1, len(rows) // 2):
            found = in_order(far, view, replace(each, first=first))[1]
            enough = next((n for n in range(len(rows)) if sum(max(0, r[-1]) for r in rows[:n]) >= first), len(rows))
            assert found[:enough] == rows[:enough]


def a_sorting(schema: Any, random: Random) -> tuple[str, ...] | None:
    """One or two columns of a view, by which it is sorted; often none."""
    names = [each.name for each in schema.columns if not pa.types.is_nested(each.type)]
    if not names or random.random() < 0.4:
        return None
    return tuple(random.sample(names, min(len(names), random.choice([1, 2, 2]))))


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far reads send a piece in each page."""
    monkeypatch.setattr(far_views, "PAGE_BYTES_MAX", 1)
    monkeypatch.setattr(far_views, "PAGE_BYTES_FIRST", 1)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    relations(),
    st.lists(st.one_of(actions, st.tuples(st.just("lease"))), min_size=4, max_size=30),
    st.integers(1, 4),
    st.sampled_from([FULL_HASH, 2]),
    st.integers(0, 1000),
)
def test_a_leased_read_is_the_view_at_its_step(
    relation: Relation, history: list[tuple[Any, ...]], workers: int, bits: int, seed: int
) -> None:
    random = Random(seed)
    views = {"v": relation.stream, "t": t, "u": u, "p": p}
    sorted_by = {name: some for name, each in views.items() if (some := a_sorting(each.node.schema, random))}
    circuit = dbsp.circuit("generated", views, sorted_by=sorted_by)
    with narrow_hash(bits), dbsp.open(circuit, workers=workers, partitions=2) as run:
        world, leases, hosts = World(run), [], None
        schemas = {view.name: view.schema for view in run.plan.views}
        for action in [*history, ("step",), ("lease",), ("step",)]:
            if action != ("lease",):
                act(world, action)
                continue
            if hosts is None or hosts.epoch != run._epoch:
                hosts = FarHosts(
                    run.plan, {one: run._resources.database(one) for one in run.layout.workers}, run._epoch
                )
            leased = run._runtime.lease_views(tuple(schemas), run.step_number, run.layout)
            far = hosts.lease(run.step_number)
            leases.append((run._epoch, leased, far, {view: of_view(run, view) for view in schemas}))
        for epoch, leased, far, views in leases:
            for view, rows in views.items():
                if epoch == run._epoch:
                    same_from_afar(far, leased, view, some_columns(schemas[view], random))
                    assert rows_of(leased, view) == rows, relation.operators
                    part = a_condition(leased, view, schemas[view], random)
                    if part is not None:
                        condition, places = part
                        keys = {tuple(canonical(row)) for row, _ in condition.to_rows()}
                        same = {row: n for row, n in rows.items() if tuple(row[place] for place in places) in keys}
                        assert rows_of(leased, view, Wanted(equal=condition)) == same, (relation.operators, keys)
                        same_from_afar(far, leased, view, Wanted(equal=condition))
                    found = a_range(leased, view, schemas[view], random)
                    if found is not None:
                        some, place = found
                        same = {row: n for row, n in rows.items() if in_range(some, row[place])}
                        assert rows_of(leased, view, Wanted(ranges=(some,))) == same, (relation.operators, str(some))
                        same_from_afar(far, leased, view, Wanted(ranges=(some,)))
                    if part is not None and found is not None:
                        both = {row: n for row, n in same.items() if tuple(row[each] for each in places) in keys}
                        assert rows_of(leased, view, Wanted(equal=condition, ranges=(some,))) == both, (
                            relation.operators
                        )
                elif rows:
                    for each in (leased, far):
                        with pytest.raises(UnavailableError):
                            rows_of(each, view)
            leased.end()
            far.end()
