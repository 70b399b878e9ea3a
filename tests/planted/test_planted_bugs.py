"""Planted bugs: each rule that keeps data safe is switched off in this process, and a test that exists must turn red.

A plant names the rule, how to break it, the detector (an existing test, or the simulator, run with one seed), and within how many
seeds the detector must fail; without the plant it passes on the same seeds. What only the simulated world can break is planted
beside it, in `tests/sim`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import dbsp.io.kafka.output
import dbsp.io.progress
import dbsp.steps.exchange
from dbsp.coordinator.running.checkpoint_copy import CheckpointCopy
from dbsp.errors import DbspError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.output_part import OutputProgress, Verdict, decide
from dbsp.runtime import far_views
from dbsp.steps.timing import Partitions, Timing
from dbsp.storage.durable import Durable
from dbsp.storage.leases import WorkerLease
from dbsp.storage.scratch import Scratch
from dbsp.storage.transaction import StateReader
from dbsp.store import CommitReport, LeaseNames, TraceSpec
from dbsp.trace.manifest import SpineState
from dbsp.trace.sorted_read import WORD_MAX, SortedRead
from dbsp.zset import coded, equality, kernels, narrow
from dbsp.zset.batch import Batch
from tests.coordinator import fake_runtime, fakes
from tests.io.log_contracts import OutputLogContract
from tests.io.test_embedded_contracts import EmbeddedOutputHarness
from tests.kafka.broker import Broker
from tests.kafka.test_kafka_contracts import KafkaOutputHarness
from tests.laws import test_equalities as equalities
from tests.laws import test_leased_reads as leased_views
from tests.laws.circuits import relations
from tests.pace import rotating
from tests.sim.__main__ import run_one
from tests.timing import test_partitions as partitions
from tests.zset import test_coded as texts
from tests.zset import test_encoding as encodings
from tests.zset import test_laws as laws

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "crash"), str(TESTS / "storage")]

import test_database_contract as contract  # noqa: E402 (the path must be set first)
import test_leases as leases  # noqa: E402
import test_power_loss as power_loss  # noqa: E402
from databases import WorkerKit  # noqa: E402

Patch = pytest.MonkeyPatch
Detector = Callable[[Path, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A rule that is broken, and what must notice it within so many seeds."""

    rule: str
    breaks: Callable[[Patch], None]
    detector: Detector
    seeds: int = 1
    marks: tuple[pytest.MarkDecorator, ...] = ()


# --- detectors: one existing test, one seed -------------------------------------------------------------------------


def generated(test: Any, strategies: Mapping[str, Any], most: int, **fixed: Any) -> Detector:
    """A Hypothesis test on some examples of a seed."""

    def detect(_folder: Path, number: int) -> None:
        def run(**drawn: Any) -> None:
            test.hypothesis.inner_test(**fixed, **drawn)

        bounded = settings(
            max_examples=most, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        seed(number)(bounded(given(**strategies)(run)))()

    return detect


def simulated(_folder: Path, number: int) -> None:
    """The coordinator's simulation."""
    _, error = run_one(number, turns=300)
    assert error is None, error


def embedded_outputs(name: str) -> Detector:
    """A test of the contract of output logs, on the embedded one."""

    def detect(folder: Path, _number: int) -> None:
        harness = EmbeddedOutputHarness(folder)
        try:
            getattr(OutputLogContract(), name)(harness)
        finally:
            for log in harness.opened:
                log.close()

    return detect


def kafka_outputs(name: str) -> Detector:
    """The same on Kafka."""

    def detect(folder: Path, _number: int) -> None:
        broker = Broker(folder).start()
        harness = KafkaOutputHarness(KafkaSettings(brokers=broker.brokers, pipeline="p"))
        try:
            getattr(OutputLogContract(), name)(harness)
        finally:
            for log in harness.opened:
                log.close()
            broker.close()

    return detect


def database_epochs(folder: Path, _number: int) -> None:
    """The databases' contract: an older epoch is refused wherever it writes."""
    contract.test_an_older_epoch_is_refused_wherever_it_writes(WorkerKit(folder))


def leased_reads(folder: Path, _number: int) -> None:
    """A lease that is read after merges and commits."""
    leases.test_a_lease_outlives_merges_and_commits(WorkerKit(folder))


def late_messages(folder: Path, _number: int) -> None:
    """Messages about leases that come late, and one that is lost."""
    leases.test_a_late_message_ends_no_newer_lease(folder)


def continued_reads(folder: Path, _number: int) -> None:
    """A read that another process goes on with, after each piece."""
    leases.test_a_read_goes_on_in_another_process(WorkerKit(folder))


def power_lost(folder: Path, _number: int) -> None:
    """Images of a database file as a power loss leaves them."""
    _, faults = power_loss.judged(folder, broken=False, tries=0, seed=0)
    assert not faults


EQUALITIES = generated(
    equalities.test_incremental_equals_recomputed,
    {
        "relation": relations(),
        "history": st.lists(equalities.actions, min_size=10, max_size=25),
        "workers": st.integers(2, 5),
    },
    most=20,
)

FAR_READS = generated(
    leased_views.test_a_leased_read_is_the_view_at_its_step,
    {
        "relation": relations(),
        "history": st.lists(equalities.actions, min_size=15, max_size=25),
        "workers": st.integers(2, 3),
        "seed": st.integers(0, 1000),
    },
    most=10,
    bits=leased_views.FULL_HASH,
)

WATERLINES = generated(
    partitions.test_a_row_within_the_lateness_of_its_own_partition_is_never_late,
    {
        "kind": st.sampled_from(list(partitions.TABLES)),
        "walks": st.tuples(*[partitions.moves()] * partitions.PARTITIONS),
        "steps": partitions.cuts,
        "workers": st.integers(1, 3),
    },
    most=15,
)


# --- plants ---------------------------------------------------------------------------------------------------------


def no_sync(patch: Patch) -> None:
    recorded = power_loss.recorded
    patch.setattr(power_loss, "recorded", lambda folder, broken: recorded(folder, not broken))


def no_epoch_in_databases(patch: Patch) -> None:
    patch.setattr(Durable, "check_epoch", lambda *_: None)


def free_leased_chunks(patch: Patch) -> None:
    patch.setattr(Scratch, "leased", lambda _self, _txn: np.empty(0, np.uint64))


def move_leased_heads(patch: Patch) -> None:
    def newest(lease: WorkerLease, trace: TraceSpec) -> SpineState:
        reading = StateReader(lease._scratch, lease._durable, 1)
        try:
            return reading.newest().get(trace.id, SpineState())
        finally:
            reading.end()

    patch.setattr(WorkerLease, "state", newest)


def end_newer_leases(patch: Patch) -> None:
    patch.setattr(LeaseNames, "is_over", lambda names, name: name not in names.live)


def begin_chunks_again(patch: Patch) -> None:
    place = property(lambda read: tuple((side.chunk, 0) for side in read._sides))
    patch.setattr(SortedRead, "place", place)


def pass_on_at_once(patch: Patch) -> None:
    """What came of a worker is passed on, though smaller hashes of others may come later."""
    patch.setattr(far_views, "PAGE_BYTES_FIRST", 1)
    patch.setattr(far_views, "PAGE_BYTES_MAX", 1)
    taken = far_views._Side.taken
    patch.setattr(far_views._Side, "taken", lambda side, last: taken(side, None if last is None else WORD_MAX))


def no_epoch_in_outputs(patch: Patch) -> None:
    def lenient(progress: OutputProgress, epoch: int, *rest: Any) -> Verdict:
        return decide(dataclasses.replace(progress, epoch=min(epoch, progress.epoch)), epoch, *rest)

    patch.setattr(dbsp.io.progress, "decide", lenient)


def publish_early(patch: Patch) -> None:
    """One worker has not committed when the others have acknowledged; nobody asks who is missing."""
    advance_one = fake_runtime.FakeCopy.advance

    def advance(self: fake_runtime.FakeCopy) -> None:
        if len(self.waiting) == 1 and not self.future.done():
            self.future.set_result(self.reports)
        advance_one(self)

    def reports(self: CheckpointCopy) -> Mapping[int, CommitReport]:
        return self.future.result()

    patch.setattr(fake_runtime.FakeCopy, "advance", advance)
    patch.setattr(CheckpointCopy, "reports", reports)


def keep_zeros(patch: Patch) -> None:
    def reduce_runs(weights: Any, order: Any, fresh: Any) -> tuple[Any, Any, Any]:
        starts = np.flatnonzero(fresh)
        summed = np.add.reduceat(weights[order], starts, axis=0) if len(starts) else weights[:0]
        return order[starts], starts, summed

    patch.setattr(kernels, "reduce_runs", reduce_runs)


def forget_a_record(patch: Patch) -> None:
    """The newest record of the step log does not outlive a crash."""
    crash = fakes.World.crash

    def forgetful(self: fakes.World) -> None:
        crash(self)
        del self.steps[-1:]

    patch.setattr(fakes.World, "crash", forgetful)


def write_again(patch: Patch) -> None:
    def always(*_: Any) -> Verdict:
        return Verdict.APPEND

    patch.setattr(dbsp.io.progress, "decide", always)
    patch.setattr(dbsp.io.kafka.output, "decide", always)


def wrong_hash_bit(patch: Patch) -> None:
    """One bit in the middle of the shard's number, for every second key only."""
    right = dbsp.steps.exchange.keys_of

    def wrong(batch: Batch, names: Sequence[str]) -> Any:
        found = right(batch, names)
        return found ^ ((found & np.uint64(1)) << np.uint64(62))

    patch.setattr(dbsp.steps.exchange, "keys_of", wrong)


def one_dictionary_for_all(patch: Patch) -> None:
    """Codes of different dictionaries are compared, and put together, as they are."""
    for module in (coded, equality):
        patch.setattr(module, "share_dictionary", lambda *_: True)


def weights_of_a_byte(patch: Patch) -> None:
    """Whatever does not fit is cut off."""
    patch.setattr(narrow, "_narrowest", lambda column: column.astype(np.int8))


def one_waterline_for_all(patch: Patch) -> None:
    """As in 0.1.0: the latest row of any partition moves the waterline of all."""

    def greatest(self: Timing, node: int, _table: str, _partitions: Partitions) -> int | None:
        return max(self.reached.get(node, {}).values(), default=None)

    patch.setattr(Timing, "_least", greatest)


PLANTS = [
    Plant(rule="a commit is synced", breaks=no_sync, detector=power_lost, marks=(pytest.mark.crash,)),
    Plant(rule="a database refuses older epochs", breaks=no_epoch_in_databases, detector=database_epochs),
    Plant(rule="chunks of a lease stay", breaks=free_leased_chunks, detector=leased_reads),
    Plant(rule="a lease keeps the manifests of its step", breaks=move_leased_heads, detector=leased_reads),
    Plant(rule="a late message ends no newer lease", breaks=end_newer_leases, detector=late_messages),
    Plant(rule="a read goes on after the rows that came", breaks=begin_chunks_again, detector=continued_reads),
    Plant(rule="far rows come in the order of hashes", breaks=pass_on_at_once, detector=FAR_READS, seeds=3),
    Plant(
        rule="outputs refuse older epochs",
        breaks=no_epoch_in_outputs,
        detector=embedded_outputs("test_a_newer_writer_ends_the_older"),
    ),
    Plant(rule="a version is published when all have it", breaks=publish_early, detector=simulated, seeds=5),
    Plant(
        rule="no row has weight zero",
        breaks=keep_zeros,
        detector=generated(laws.test_arranging_keeps_the_z_set, {"data": st.data()}, 20, bits=None),
        seeds=3,
    ),
    Plant(rule="a step record is durable", breaks=forget_a_record, detector=simulated, seeds=5),
    Plant(
        rule="a repeated part is compared",
        breaks=write_again,
        detector=embedded_outputs("test_out_of_turn_different_and_old"),
    ),
    Plant(
        rule="a part is written once to Kafka",
        breaks=write_again,
        detector=kafka_outputs("test_each_step_is_seen_once"),
        marks=(pytest.mark.kafka,),
    ),
    Plant(rule="a row goes to the owner of its key", breaks=wrong_hash_bit, detector=EQUALITIES, seeds=5),
    Plant(
        rule="a code is of its own dictionary",
        breaks=one_dictionary_for_all,
        detector=generated(texts.test_batches_of_coded_columns, {"data": st.data()}, 50),
    ),
    Plant(
        rule="a weight is as wide as it must be",
        breaks=weights_of_a_byte,
        detector=generated(
            encodings.test_weights_are_as_narrow_as_they_can_be,
            {"weights": encodings.SOME_WEIGHTS, "data": st.data()},
            50,
        ),
    ),
    Plant(
        rule="a waterline is the least of the partitions", breaks=one_waterline_for_all, detector=WATERLINES, seeds=5
    ),
]


CASES = [pytest.param(each, id=each.rule, marks=each.marks) for each in PLANTS]


def red(plant: Plant, folder: Path) -> int | None:
    """The first seed whose detector fails."""
    for number in range(plant.seeds):
        home = folder / str(number)
        home.mkdir(parents=True)
        try:
            plant.detector(home, number)
        except (AssertionError, DbspError, ExceptionGroup, pa.ArrowException, pytest.fail.Exception):
            return number
    return None


@pytest.mark.parametrize("plant", CASES)
def test_a_broken_rule_is_noticed(plant: Plant, tmp_path: Path) -> None:
    with Patch.context() as patch:
        plant.breaks(patch)
        found = red(plant, tmp_path)
    assert found is not None, f"nothing noticed within {plant.seeds} seeds that this is broken: {plant.rule}"


@pytest.mark.parametrize("plant", rotating([case for case in CASES if not case.marks], 3))
def test_an_unbroken_rule_is_not(plant: Plant, tmp_path: Path) -> None:
    assert red(plant, tmp_path) is None
