"""Random commands against both databases and a model made of dictionaries: steps, commits beside them, crashes, rollbacks."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
from databases import (
    SEGMENTS,
    TRACES,
    Kit,
    MemoryKit,
    WorkerKit,
    ZSet,
    append_all,
    arranged,
    checkpoint,
    content,
    first_id,
    leased,
    without_zeros,
)
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dbsp.errors import DbspError, FencedError, UnavailableError
from dbsp.store import CheckpointId, Database, Lease, LeaseNames, NamesLeases
from tests.pace import examples

ROWS = st.lists(
    st.tuples(st.tuples(st.integers(0, 40), st.sampled_from(["", "a", "bb"])), st.sampled_from([-2, -1, 1, 1, 3])),
    max_size=60,
)
KEYS = st.sampled_from([b"", b"a", b"ab", b"b"])


@dataclass
class Kept:
    """A version as the model knows it."""

    checkpoint: CheckpointId
    state: ZSet = field(default_factory=Counter)
    table: dict[bytes, bytes] = field(default_factory=dict)


class DatabaseMachine(RuleBasedStateMachine):
    """Every trace of both segments gets the same rows, so one dictionary models all."""

    kit: Kit
    behind: CheckpointId | None = None
    """A version that has landed and is not told yet; only what has standbys knows such a time."""

    def make_kit(self) -> Kit:
        raise NotImplementedError

    @initialize()
    def create(self) -> None:
        self.kit = self.make_kit()
        self.database: Database = self.kit.create()
        self.epoch = 1
        self.leases: list[tuple[int, Lease, ZSet]] = []
        self.named: dict[int, tuple[int, ZSet]] = {}
        self.newest = 0
        self.versions = {0: Kept(first_id())}
        self.rows: dict[int, list[tuple[tuple[int, str], int]]] = {}
        self._open(0)

    def _open(self, version: int) -> None:
        kept = self.versions[version]
        assert self.database.open(version, self.epoch) == kept.checkpoint
        self.versions = {version: kept}
        self.opened = version
        self.base = self.step = kept.checkpoint.step
        self.states = {self.step - 1: Counter(kept.state)}
        self.table = dict(kept.table)
        self.pinned: Kept | None = None

    @rule(rows=ROWS, segments=st.permutations([0, 1]), twice=st.booleans())
    def run(self, rows: list[tuple[tuple[int, str], int]], segments: list[int], twice: bool) -> None:
        for segment in segments + (segments if twice else []):
            traces = SEGMENTS[segment]
            with self.database.begin(self.epoch, self.step, segment, traces) as transaction:
                for trace in traces:
                    assert content(transaction.spine(trace)) == self.states[self.step - 1]
                append_all(transaction, traces, rows)
                transaction.finish()
        state = Counter(self.states[self.step - 1])
        for row, weight in rows:
            state[row] += weight
        self.rows[self.step] = rows
        self.states[self.step] = without_zeros(state)
        self.step += 1

    @precondition(lambda self: self.step > self.base)
    @rule(segment=st.sampled_from([0, 1]), rows=ROWS)
    def run_the_last_again(self, segment: int, rows: list[tuple[tuple[int, str], int]]) -> None:
        traces = SEGMENTS[segment]
        with self.database.begin(self.epoch, self.step - 1, segment, traces) as transaction:
            assert transaction.done
            for trace in traces:
                assert content(transaction.spine(trace)) == self.states[self.step - 2]
            append_all(transaction, traces, rows)
            transaction.finish()

    @rule(ahead=st.sampled_from([-3, -2, 1, 2]))
    def run_a_wrong_step(self, ahead: int) -> None:
        if self.step + ahead < self.base or ahead > 0:
            with pytest.raises(UnavailableError):
                self.database.begin(self.epoch, self.step + ahead, 0, SEGMENTS[0])

    @rule(key=KEYS, value=st.one_of(st.none(), st.binary(max_size=5)))
    def put(self, key: bytes, value: bytes | None) -> None:
        self.database.put(self.epoch, "table", key, value)
        if value is None:
            self.table.pop(key, None)
        else:
            self.table[key] = value

    @precondition(lambda self: self.pinned is None and self.behind is None)
    @rule(times=st.integers(1, 2))
    def pin(self, times: int) -> None:
        made = checkpoint(self.epoch, self.step)
        for _ in range(times):
            self.database.pin(self.opened + 1, made)
        self.pinned = Kept(made, Counter(self.states[self.step - 1]), dict(self.table))

    @precondition(lambda self: self.pinned is not None)
    @rule(bytes_max=st.sampled_from([1, 1000, 5000, None]), times=st.integers(1, 2))
    def copy(self, bytes_max: int | None, times: int) -> None:
        """A piece of the pinned cut; steps were run since it was pinned, and go on if it is not whole."""
        assert self.pinned is not None
        made = self.pinned.checkpoint
        report = self.database.copy(self.opened + 1, made, bytes_max)
        if report is None:
            assert bytes_max is not None
            return
        for _ in range(times - 1):
            assert self.database.copy(self.opened + 1, made, bytes_max) == report
        self.versions = {self.opened: self.versions[self.opened], self.opened + 1: self.pinned}
        self.opened += 1
        self.base, self.pinned = made.step, None

    @precondition(lambda self: self.pinned is None and self.behind is None)
    @rule(times=st.integers(1, 2))
    def commit(self, times: int) -> None:
        made = checkpoint(self.epoch, self.step)
        reports = [self.database.commit(self.opened + 1, made) for _ in range(times)]
        assert reports[0] == reports[-1]
        kept = Kept(made, Counter(self.states[self.step - 1]), dict(self.table))
        self.versions = {self.opened: self.versions[self.opened], self.opened + 1: kept}
        self.opened += 1
        self.base = self.step

    @precondition(lambda self: len(self.leases) < 3)
    @rule()
    def lease(self) -> None:
        """Grant a lease on the newest step; it is read at once and later, between any commands."""
        self.leases.append((self.epoch, self.database.lease(self.epoch, self.step, TRACES), self.states[self.step - 1]))

    @precondition(lambda self: bool(self.leases))
    @rule(oldest=st.booleans(), times=st.integers(1, 2))
    def end_a_lease(self, oldest: bool, times: int) -> None:
        _, lease, _ = self.leases.pop(0 if oldest else -1)
        for _ in range(times):
            lease.end()
        with pytest.raises(UnavailableError), lease.reading():
            pass

    @invariant()
    def leases_are_the_models(self) -> None:
        """A lease reads the rows of its own step, or is refused after a rollback."""
        for epoch, lease, state in getattr(self, "leases", ()):
            for trace in TRACES:
                if epoch == self.epoch:
                    assert leased(lease, trace) == state
                elif lease.state(trace).rows:
                    with pytest.raises(UnavailableError):
                        leased(lease, trace)

    @precondition(lambda self: len(self.named) < 3 and isinstance(self.database, NamesLeases))
    @rule(times=st.integers(1, 2))
    def grant_a_named_lease(self, times: int) -> None:
        self.newest += 1
        self.named[self.newest] = self.epoch, self.states[self.step - 1]
        for _ in range(times):
            self.database.grant_named(self.epoch, self.names(), self.step, TRACES)

    @precondition(lambda self: bool(self.named))
    @rule(oldest=st.booleans(), lost=st.booleans())
    def end_a_named_lease(self, oldest: bool, lost: bool) -> None:
        """The message that ends it may be lost; later ones end it too."""
        self.named.pop(min(self.named) if oldest else max(self.named))
        if not lost:
            self.database.end_named(self.epoch, self.names())

    def names(self) -> LeaseNames:
        return LeaseNames(live=frozenset(self.named), newest=self.newest)

    @invariant()
    def named_leases_are_the_models(self) -> None:
        """Opened anew for each read, they read the rows of their own step, or are refused after a rollback."""
        for name, (epoch, state) in getattr(self, "named", {}).items():
            if epoch != self.epoch:
                with pytest.raises(DbspError):
                    self.database.named_lease(epoch, name, TRACES)
                continue
            lease = self.database.named_lease(epoch, name, TRACES)
            assert all(leased(lease, trace) == state for trace in TRACES)
            lease.end()

    @rule(older=st.booleans(), crash=st.booleans(), gap=st.integers(1, 3))
    def roll_back(self, older: bool, crash: bool, gap: int) -> None:
        if crash:
            self.database = self.kit.reopen(self.database)
        stale, self.epoch = self.epoch, self.epoch + gap
        self.database.raise_epoch(self.epoch)
        with pytest.raises(FencedError):
            self.database.raise_epoch(stale)
        self._open(min(self.versions) if older else max(self.versions))
        with pytest.raises(DbspError):
            self.database.begin(stale, self.step, 0, SEGMENTS[0])

    @rule(rows=ROWS)
    def be_fenced(self, rows: list[tuple[tuple[int, str], int]]) -> None:
        with self.database.begin(self.epoch, self.step, 0, SEGMENTS[0]) as transaction:
            transaction.append(SEGMENTS[0][0], arranged(SEGMENTS[0][0], rows))
            self.epoch += 1
            self.database.raise_epoch(self.epoch)
            with pytest.raises(FencedError):
                transaction.finish()
        self._open(max(self.versions))

    @invariant()
    def versions_are_the_models(self) -> None:
        if hasattr(self, "database"):
            found = {info.version: info.checkpoint for info in self.database.versions()}
            assert found == {version: kept.checkpoint for version, kept in self.versions.items()}

    @invariant()
    def reads_are_the_models(self) -> None:
        if hasattr(self, "database"):
            for trace in TRACES:
                with self.database.read_trace(trace) as spine:  # type: ignore[attr-defined]
                    assert content(spine) == self.states[self.step - 1]
            for key in (b"", b"a", b"ab", b"b"):
                assert self.database.get("table", key) == self.table.get(key)

    def teardown(self) -> None:
        for _, lease, _ in getattr(self, "leases", ()):
            lease.end()
        if hasattr(self, "database"):
            self.database.close()


class MemoryMachine(DatabaseMachine):
    def make_kit(self) -> Kit:
        return MemoryKit()


class WorkerMachine(DatabaseMachine):
    def make_kit(self) -> Kit:
        self.folder = Path(tempfile.mkdtemp())
        return WorkerKit(self.folder, map_size_bytes=256 << 10)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


SETTINGS = settings(
    max_examples=examples(48), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = SETTINGS
TestWorkerMachine = WorkerMachine.TestCase
TestWorkerMachine.settings = SETTINGS
