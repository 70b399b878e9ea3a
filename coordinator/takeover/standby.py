"""`dbsp-coordinator --standby`: a process that prepares a start, and takes over when the pipeline's coordinator has ended.

Two things say *when* to start:

- The lock of the file `owner.lock`, on the host of the coordinator. Every coordinator holds it while it runs, and the kernel
  releases it when the process ends, however it ends. So a standby notices a kill at once, without asking anybody.
- The lease, on any host, where the logs are on Kafka (`lease`): no heartbeat came for a while.

The claim of the epoch makes it *safe*, as at every start: a coordinator that was wrongly taken for dead is fenced.

Invariants
1. A standby writes no file of the pipeline, and serves no request, before it takes over.
2. Of several standbys one starts; the others wait for that one.
3. `coordinator stop` ends the pipeline, and so its standbys. Any other end, also SIGTERM, is that of one process.

It prepares all that a start needs besides the pipeline's state: imports, kernels and the circuit. On Spark it also starts an
application, whose Python workers load the same.

Left out: with embedded logs, a coordinator that is stopped (SIGSTOP) or hangs still holds the lock; `--take-over` is for
that. Source: docs/operations.md, "A standby coordinator".
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dbsp.coordinator.build import Built, facts_of, folder_ledger, load_plan, make_folders, make_runtime, work_of
from dbsp.coordinator.checks.trial import try_circuit
from dbsp.coordinator.exits import say
from dbsp.coordinator.garbage import BEGUN_S
from dbsp.coordinator.preparing import prepare
from dbsp.coordinator.running.ledger_in_log import ledger_in_log
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover.lease import CoordinatorLease, Heart, name_of, open_heartbeats, place_of
from dbsp.coordinator.takeover.successor import ROOM_S, Inheritance
from dbsp.disk import PRIVATE_FILE
from dbsp.errors import ConfigError, NoRoomError, UnavailableError
from dbsp.runtime.runtime import Runtime

LOCK_FILE = "owner.lock"
NUMBER_BYTES = 20
LOOK_S = 1.0
"""Seconds between two looks at a coordinator that responds without holding the lock: an older version, or one that took over."""
LISTEN_S = 0.2
"""Seconds between two reads of the heartbeats."""


class OwnerLock:
    """The lock that a pipeline's coordinator holds while it runs.

    It is a record lock: a forked child does not inherit it, and a process keeps it when it becomes another program.
    Closing any descriptor of the file would release it, so nothing else opens the file. The file has a number: how often
    a user has stopped the pipeline.
    """

    def __init__(self, data_dir: Path) -> None:
        """Open the file; take no lock yet."""
        self._file = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)

    @property
    def stops(self) -> int:
        """Return how often a user has stopped the pipeline."""
        text = os.pread(self._file, NUMBER_BYTES, 0)
        return int(text) if text.isdigit() else 0

    def count_stop(self) -> None:
        """Record that a user has stopped the pipeline, while this process holds the lock: standbys end."""
        os.pwrite(self._file, str(self.stops + 1).encode(), 0)

    def wait(self) -> None:
        """Wait until no other process has the lock, and take it."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Take the lock if no other process has it; return whether this process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def take(self) -> None:
        """Take the lock; if the previous coordinator still has it, a thread takes it when that one ends."""
        if not self.try_take():
            threading.Thread(target=self._wait_beside, name="dbsp-owner-lock", daemon=True).start()

    def _wait_beside(self) -> None:
        with suppress(OSError):  # closed meanwhile
            self.wait()

    def release(self) -> None:
        """Release the lock; another process may take it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def keep_for_next_program(self) -> None:
        """Keep the lock when this process becomes another program, which takes it again for itself."""
        os.set_inheritable(self._file, True)

    def close(self) -> None:
        """Release the lock and close the file."""
        os.close(self._file)


@dataclass(slots=True)
class PreparedStart:
    """The prepared parts of a start: the lock and, on Spark, a runtime, which is used once.

    `of` is the run of the pipeline and the fingerprint of the circuit for which the runtime was made. `seconds` is how
    long all of it took. A successor has an `inheritance` besides: the sockets of the process before it. A standby that
    took over because a lease was over has a `heart`.
    """

    lock: OwnerLock
    of: tuple[str, str] = ("", "")
    runtime: Runtime | None = None
    seconds: float = 0.0
    inheritance: Inheritance | None = None
    heart: Heart | None = None

    def equip(self, built: Built) -> Built:
        """Return the parts of a start with the prepared runtime, if it is for this pipeline and this circuit."""
        if self.runtime is None or self.of != (built.facts.run, built.plan.fingerprint):
            self.close()
            return built
        make = built.parts.runtime

        def first() -> Runtime:
            prepared, self.runtime = self.runtime, None
            return make() if prepared is None else prepared  # a rollback makes a new one

        return replace(built, parts=replace(built.parts, runtime=first))

    def close(self) -> None:
        """Close the runtime, unless a start has used it."""
        prepared, self.runtime = self.runtime, None
        if prepared is not None:
            prepared.close()


def stand_by(config: Config) -> PreparedStart | None:
    """Prepare a start, and return when the pipeline has no coordinator any more; this process then holds the pipeline's lock.

    Return None if a user has stopped the pipeline while this process was waiting.
    **Errors** `ConfigError` without HTTP, and those of settings and circuit.
    """
    if not config.http.enabled:
        raise ConfigError(
            "a standby without HTTP cannot see whether a service answers", "set `enabled = true` in [http]"
        )
    begun_s, name = time.monotonic(), config.pipeline.name
    make_folders(config)
    prepared = prepare_start(config)
    beats = open_heartbeats(config)
    ready = f"{name}: standing by, ready after {time.monotonic() - begun_s:.1f} s"
    if beats is None:
        say(ready)
        goes_on = _wait_for_lock(config, prepared.lock)
    else:
        lease, of = CoordinatorLease(beats, config.coordinator.lease_s), name_of(config.data_dir)
        say(ready)
        goes_on = _wait_for_lease(config, lease, prepared.lock, of)
        if goes_on:
            prepared.heart = Heart(beats, of, config.coordinator.lease_s, say)
            prepared.heart.begin()
        else:
            beats.close()
    if not goes_on:
        say(f"{name}: the pipeline was stopped, and so this standby ends")
        prepared.close()
        prepared.lock.close()
        return None
    say(f"{name}: the coordinator has ended, this process goes on")
    return prepared


def _wait_for_lock(config: Config, lock: OwnerLock) -> bool:
    """Return True when no coordinator runs on this host, and False when a user has stopped the pipeline."""
    stops = lock.stops
    while True:
        lock.wait()
        if lock.stops != stops:
            return False
        if not _answers(config):
            return True
        lock.release()
        time.sleep(LOOK_S)  # polling a service that holds no lock


def _wait_for_lease(config: Config, lease: CoordinatorLease, lock: OwnerLock, of: str) -> bool:
    """Return True when no coordinator runs on any host, and False when a user has stopped the pipeline.

    The coordinator of this host has ended if the newest heartbeat was its own, its lock is free, and no service answers.
    """
    stops, place = lock.stops, place_of(config.data_dir)
    while True:
        is_over = lease.is_over()
        if lock.stops != stops or (lease.newest is not None and lease.newest.stopped):
            return False
        is_held = lock.try_take()
        has_ended = is_held and lease.is_of(place) and not _answers(config)
        if (is_over or has_ended) and lease.try_take(of):
            return True
        if is_held:
            lock.release()
        time.sleep(LISTEN_S)  # polling the brokers


def _answers(config: Config) -> bool:
    """Return whether a service of this pipeline answers on this host."""
    from dbsp.coordinator.client.liveness import refuse_running  # noqa: PLC0415 (it loads an HTTP client)

    try:
        refuse_running(config)
    except UnavailableError:
        return True
    return False


def prepare_start(config: Config, *, is_successor: bool = False) -> PreparedStart:
    """Load all modules and compile all kernels that a start needs; on Spark, start an application.

    A successor prepares everything, because its turn comes at once. On a cluster without room a standby keeps the driver of
    its application, which gets executors when those of the coordinator are free.
    **Errors** `NoRoomError` if a cluster gives a successor's application no executors in `ROOM_S`.
    """
    prepare(config)
    plan = load_plan(config)
    try_circuit(plan.circuit)
    prepared = PreparedStart(OwnerLock(config.data_dir), seconds=time.monotonic() - BEGUN_S)
    ledger = ledger_in_log(config) or folder_ledger(config)
    wants_spark = config.pipeline.runtime != "local" if is_successor else _wants_spark(config)
    if ledger is None or not wants_spark:
        return prepared
    runtime = make_runtime(config, work_of(config, plan, ledger.run, ledger.level))
    try:
        runtime.warm_up(facts_of(ledger, config).layout, room_s=ROOM_S)  # type: ignore[attr-defined]  # Spark's alone has it
    except BaseException as error:
        if is_successor or not isinstance(error, NoRoomError):
            runtime.close()
            raise
        say(f"{config.pipeline.name}: {error.message}; they start when this standby takes over")
    of, seconds = (ledger.run, plan.fingerprint), time.monotonic() - BEGUN_S
    return replace(prepared, of=of, runtime=runtime, seconds=seconds)


def _wants_spark(config: Config) -> bool:
    """Return whether a standby starts a Spark application before it takes over; a successor always does."""
    if config.pipeline.runtime == "local" or config.coordinator.standby == "process":
        return False
    return config.coordinator.standby == "spark" or config.spark.master.startswith("local")
