"""The traps that docs/concepts names: each is a rule, and a test that fails when the rule is taken out.

Sections: 4 circuits, 5 steps, 6 storage, 7 logs, 8 coordinator, 9 rescale.

| section | trap | rule taken out by | found by |
| --- | --- | --- | --- |
| 5 | a parcel of another step, epoch, layout or run | a wrong address | `tests/exchange/test_exchange.py::test_a_parcel_of_another_place_is_refused_by_name` |
| 5 | parcels that arrive in another order | any order | `tests/exchange/test_exchange.py::test_what_is_gathered_is_the_sum_whatever_the_order_of_arrival` |
| 6 | s-1 kept per segment, so that a task may run again | `forget_the_step_before` | `test_a_task_may_run_again` |
| 6 | the cut is pinned before its copy | `pin-late` | the simulator |
| 6 | at most one checkpoint in flight | `two-in-flight` | the simulator |
| 6 | nothing that a pinned cut refers to is deleted | a pin that is forgotten | `tests/crash/test_commit_killed.py::test_the_sweep_finds_a_deleted_pin` |
| 6 | a version is its checkpoint id, not its number | `any_checkpoint_id` | `tests/coordinator/test_recovery.py::test_one_number_under_two_ids_is_no_version` |
| 6 | an older epoch is refused wherever it writes, and deletes | `no-fence`, `discard-without-epoch` | the simulator |
| 6 | scratch of another boot is never opened | `trust-the-scratch-of-another-boot` | the simulator |
| 6 | the manifest is the last transaction of a commit | `land-before-the-chunks` | the simulator |
| 7 | progress is written with its part, in one transaction | `note-a-part-before-its-rows` | the simulator |
| 7 | a record and the count of records are one write | `count-a-record-before-it-is-there` | the simulator |
| 7 | the record of a step is durable before the step runs | `run-before-the-record`, `forget-a-record` | the simulator |
| 7 | logs are trimmed below the oldest openable version | `trim-too-much` | the simulator |
| 7 | positions are noted before the first worker commits | `intend-late`, `positions-of-the-cut` | the simulator |
| 7 | a worker that joins begins its outputs at its first step | no such step | `tests/coordinator/test_service.py::test_a_worker_that_joins_begins_its_outputs_there` |
| 8 | recovery asks the workers of the version's own layout, all of them | `all-workers-vote`, `some-workers-vote` | the simulator |
| 8 | the layout is that of the opened version | `old-layout-goes-on` | the simulator |
| 8 | a new epoch at each rollback | `same-epoch` | the simulator |
| 8 | who was replaced takes nothing back | `take-back` | the simulator |
| 8 | published when all workers have committed | `publish-early` | the simulator |
| 8 | a version is published when its copy is whole | `publish-before-the-copy` | the simulator |
| 8 | a chunk that a manifest names is not collected | `collect-what-a-manifest-names` | the simulator |
| 8 | a manifest stays while a checkpoint names it | `keep-no-root` | the simulator |
| 8 | a copy that lags counts when it was read back, and logs stay until then | `trust-what-was-put`, `keep-logs-from-a-copy-under-way` | the simulator |
| 9 | a worker is asked at its host | `ask-anywhere` | the simulator |
| 9 | every shard has one owner through a rescale | `move-a-shard-twice`, `forget-a-shard` | the simulator |
| 9 | one worker reads each input partition, as the step's layout says | `forget-the-table-of-partitions` | the simulator |
| 9 | a leaver stays until no openable version names it | `discard-leavers-early` | the simulator |
| 9 | warm slices lie outside the manifest | `slices-in-the-manifest` | the simulator |
| 9 | what a warm-up lacks is copied at the switch | `take-over-early` | the simulator |
| 9 | the switch slices what all steps have made | `slice-the-version-before` | the simulator |
| 9 | what workers left on a lost host is deleted, and they move in all layouts | `leave-strays`, `move-in-the-first-layout-alone` | the simulator |
| 9 | the worker of a disk that is lost while its host answers goes on where its state is | `ask-only-what-is-silent` | the simulator |
| 9 | a standby on another host that lags does not take over | `promote-a-standby-that-lags` | the simulator |
| 9 | a worker of a published layout is never made anew | `make-published-workers-anew` | the simulator |
| 9 | the deviations of the two hot strategies | the rules as first written | `tests/distribute/test_deviations.py` |

"The simulator" is `tests/sim/test_coordinator_sim.py::test_a_planted_bug_is_found`, which states the number of seeds.
"""

# ruff: noqa: E501 - the lines of a table

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dbsp.errors import UnavailableError
from dbsp.store import TraceSpec
from dbsp.trace.memory import Appended, MemoryDatabase, States
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, Arrangement, Schema
from tests.sim.plants import PLANTS

ROOT = Path(__file__).parents[2]
SCHEMA = Schema.of({"k": INT64})
TRACE = TraceSpec(id=0, arrangement=Arrangement(schema=SCHEMA, key=("k",)))
OTHER = TraceSpec(id=1, arrangement=Arrangement(schema=SCHEMA, key=("k",)))


def run_segment(database: MemoryDatabase, step: int, segment: int) -> int:
    """One row more in the segment's trace; how many there were before."""
    trace = (TRACE, OTHER)[segment]
    with database.begin(1, step, segment, [trace]) as transaction:
        before = sum(len(part) for part in transaction.spine(trace).parts())
        transaction.append(trace, arrange(Batch.from_rows(SCHEMA, [((step,), 1)]), trace.arrangement))
        transaction.finish()
    return before


def run_again() -> list[int]:
    """Segment 0 of a step runs again after segment 1 has gone on, as after a lost executor."""
    from dbsp.store import CheckpointId  # noqa: PLC0415 - only here

    database = MemoryDatabase(CheckpointId(run="r", epoch=1, step=0, layout_version=0, fingerprint="f"))
    database.open(0, epoch=1)
    for step in range(2):
        for segment in (0, 1):
            run_segment(database, step, segment)
    return [run_segment(database, 1, 0), run_segment(database, 1, 1), run_segment(database, 2, 0)]


def test_a_task_may_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_again() == [1, 1, 2], "it sees the step before, and what it writes again is not there twice"
    original = MemoryDatabase._write

    def forget_the_step_before(
        self: MemoryDatabase, epoch: int, step: int, segment: int, traces: set[int], appended: list[Appended]
    ) -> None:
        original(self, epoch, step, segment, traces, appended)
        newest: dict[int, dict[int, States]] = {}
        for each, held in self._held.items():
            newest[each] = {max(held): held[max(held)]}
        self._held = newest

    monkeypatch.setattr(MemoryDatabase, "_write", forget_the_step_before)
    with pytest.raises(UnavailableError):
        run_again()


def test_the_table_names_what_exists() -> None:
    assert __doc__ is not None
    rows = [line for line in __doc__.splitlines() if re.match(r"\| \d \|", line)]
    assert len(rows) >= 20
    plants = {plant.name for plant in PLANTS}
    for row in rows:
        _, section, _, rule, found, _ = (cell.strip() for cell in row.split("|"))
        named = re.findall(r"`([a-z][\w-]*)`", rule)
        if found == "the simulator":
            assert named, row
            assert set(named) <= plants, row
            assert all(plant.design in ("6", "7", "8", "9") for plant in PLANTS if plant.name in named), section
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", found):
            text = (ROOT / file).read_text()
            assert not name or f"def {name}(" in text, row
