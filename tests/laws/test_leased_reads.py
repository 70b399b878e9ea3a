"""A leased read equals the view at its step, whatever runs beside it: steps, merges, checkpoints, rollbacks, rescales."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.errors import UnavailableError
from dbsp.runtime.leases import ALL, Leased, Wanted
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import relations
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
    circuit = dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p})
    random = Random(seed)
    with narrow_hash(bits), dbsp.open(circuit, workers=workers, partitions=2) as run:
        world, leases = World(run), []
        schemas = {view.name: view.schema for view in run.plan.views}
        for action in [*history, ("step",), ("lease",), ("step",)]:
            if action != ("lease",):
                act(world, action)
                continue
            leased = run._runtime.lease_views(tuple(schemas), run.step_number, run.layout)
            leases.append((run._epoch, leased, {view: of_view(run, view) for view in schemas}))
        for epoch, leased, views in leases:
            for view, rows in views.items():
                if epoch == run._epoch:
                    assert rows_of(leased, view) == rows, relation.operators
                    part = a_condition(leased, view, schemas[view], random)
                    if part is not None:
                        condition, places = part
                        keys = {tuple(canonical(row)) for row, _ in condition.to_rows()}
                        same = {row: n for row, n in rows.items() if tuple(row[place] for place in places) in keys}
                        assert rows_of(leased, view, Wanted(equal=condition)) == same, (relation.operators, keys)
                elif rows:
                    with pytest.raises(UnavailableError):
                        rows_of(leased, view)
            leased.end()
