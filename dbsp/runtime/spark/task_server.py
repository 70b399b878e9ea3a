"""Resident tasks: one Spark job runs many steps, and its tasks rendezvous and exchange blocks in the driver.

Used where every worker of a layout has a core of this host at the same time. Submitting a Spark job, reaching a Python worker and
ending the job cost more than the work of a small step. Each stage adds a similar cost. So one resident job runs many steps, with
one task for each worker. A task asks the driver for the next step over a Unix domain socket. At an exchange the task sends its
blocks to the driver and waits for the blocks that the other workers have for it. A large parcel is a file, and its block is the
file's name. The next request carries the report of the finished step. If a task asks
before the step has ended everywhere, the driver announces the next step, if known. The task may then prepare that step.

Invariants:
1. Every resident job and every step has its own number. The driver rejects a task that gives another number, and a task that
   waits when its job or step ends.
2. The first blocks of a worker for an exchange count, and stay until the step ends. Thus a task that Spark runs again receives
   the step again, sends its blocks again, and gets the same blocks as the first attempt.
3. At most one resident job runs for each Spark context. Its tasks wait for one another and hold their cores meanwhile: two such
   jobs could each hold the cores that the other needs.
4. A resident task exits after `LINGER_S` idle seconds or when dismissed, never during a step.
5. A job with a retried task ends after the current step. Spark counts the failures of a task over the whole life of its job, and
   would fail a job that runs for days.
6. The driver announces a coming step to a worker once, after the worker reported the step before. Thus no step waits for the
   preparation of a step that is not the next one.

Left out: Spark's barrier stages. Their `allGather` wakes waiting tasks once a second, and a failed task ends the whole job.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dbsp.errors import UnavailableError

LINGER_S = 5.0
"""Seconds that resident tasks wait for a step. They hold cores, which nothing else in this application needs meanwhile."""

_HEAD = struct.Struct("<QIII")
"""A message's head: step number, exchange depth, slot of the sender, number of blocks. All lengths, then all blocks follow."""
_ASKS = 0xFFFF_FFFF
"""Value of the depth by which a task asks for the next step; the message has the report of the step before, if any."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")
_NUMBER = struct.Struct("<Q")
COMES = 0
"""Value of the step number that announces the next step, which a task may prepare but must not run yet."""

Brought = dict[tuple[int, int], list[bytes]]


class TurnedAwayError(UnavailableError):
    """The driver rejected a task because its job or its step has ended; the task has nothing left to do."""


@dataclass(slots=True)
class _Step:
    """The running step: its order, the blocks by exchange depth and source slot, and the reports by slot."""

    number: int
    workers: int
    order: bytes
    place: int
    brought: Brought = field(default_factory=dict)
    reports: dict[int, bytes] = field(default_factory=dict)

    def whole(self, depth: int) -> bool:
        """Return whether every worker has sent its blocks to the exchange at this depth."""
        return all((depth, source) in self.brought for source in range(self.workers))

    def blocks_for(self, depth: int, destination: int) -> list[bytes]:
        """Return the blocks for one worker, in the order of the source slots."""
        return [self.brought[depth, source][destination] for source in range(self.workers)]

    def done(self) -> bool:
        """Return whether every worker has reported."""
        return len(self.reports) == self.workers


@dataclass(frozen=True, slots=True)
class _Coming:
    """An announced step: its place among all steps, its order, and the slots that received the announcement."""

    place: int
    order: bytes
    announced_to: set[int] = field(default_factory=set)


class TaskServer:
    """The driver's side of resident tasks: a socket in `folder`, and one thread for each connected task.

    **State** the number of the resident job, and the blocks and reports of the running step. `turn` is the context's lock: the
    resident job holds the lock from `stand` to `over` (invariant 3).
    """

    def __init__(self, folder: Path, turn: threading.Lock, linger_s: float = LINGER_S) -> None:
        """Listen on a socket in `folder`; the folder must be private to this user, and its path short enough for a socket."""
        self.address = tempfile.mktemp(prefix="meet-", dir=folder)  # noqa: S306 - it fails where there is such a file
        self._turn, self._linger_s = turn, linger_s
        self._change = threading.Condition()
        self._standing: int | None = None
        self._step: _Step | None = None
        self._coming: _Coming | None = None
        self._place: int | None = None
        self._leaves = False
        self._came: set[int] = set()
        self._rests_since = 0.0
        self._number = self._heard = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="dbsp-tasks", daemon=True).start()

    def stand(self) -> int:
        """Begin a resident job and return its number; wait for the context's lock. Call `over` when the job has ended."""
        self._turn.acquire()
        with self._change:
            self._standing, self._leaves, self._rests_since = self._next_number(), False, time.monotonic()
            self._came = set()
            return self._standing

    def over(self, standing: int) -> None:
        """End the resident job and release the context's lock; a running step fails."""
        with self._change:
            if self._standing == standing:
                self._part()
        self._turn.release()

    def send_away(self) -> None:
        """Dismiss the resident tasks: at once if no step runs, otherwise after the running step."""
        with self._change:
            self._leave()

    def coming(self, order: bytes, place: int) -> None:
        """Notify the workers of the step at this place; a worker that reported the step before may prepare it."""
        with self._change:
            self._coming = _Coming(place, order)
            self._change.notify_all()

    def step(self, standing: int, order: bytes, workers: int, place: int) -> list[bytes] | None:
        """Run a step and return the reports in the layout's order; return None if the resident job has ended already.

        `place` is the step's number among all steps of the pipeline.
        **Errors** `UnavailableError` if the job ends before the step does.
        """
        with self._change:
            if self._standing != standing:
                return None
            step = self._step = _Step(self._next_number(), workers, order, place)
            self._place = place
            self._change.notify_all()
            self._change.wait_for(lambda: step.done() or self._standing != standing)
            # Idle time counts from the end of a step: a step longer than the limit must not dismiss its own tasks.
            self._step, self._rests_since = None, time.monotonic()
            if self._leaves and self._standing == standing:
                self._part()
            self._change.notify_all()
        if not step.done():
            raise UnavailableError("the Spark job of a step ended before the step did", "start the same command again")
        return [step.reports[slot] for slot in range(workers)]

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _leave(self) -> None:
        """End the resident job now, or after the running step if there is one."""
        self._leaves = True
        if self._step is None:
            self._part()

    def _part(self) -> None:
        """Forget the resident job and wake the waiting tasks, so that they exit."""
        self._standing = None
        self._change.notify_all()

    def awaited(self) -> tuple[int, ...]:
        """Return the slots whose progress the running step awaits; empty if no step runs.

        A slot is awaited if its worker has neither reported nor reached the deepest exchange so far. If all have reached that
        exchange, every slot without a report is awaited.
        """
        with self._change:
            step = self._step
            if step is None:
                return ()
            last = max((depth for depth, _ in step.brought), default=0)
            return tuple(
                slot for slot in range(step.workers) if slot not in step.reports and (last, slot) not in step.brought
            ) or tuple(slot for slot in range(step.workers) if slot not in step.reports)

    def heard(self) -> int:
        """Return the number of requests received from tasks so far; a growing number shows that the job makes progress."""
        return self._heard

    def close(self) -> None:
        """Stop listening and delete the socket."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self.address).unlink(missing_ok=True)

    def _accept(self) -> None:
        """Accept connections and start a thread for each; the body of the listening thread."""
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(came,), name="dbsp-task", daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        """Serve one task, request by request, until the task exits or is rejected."""
        with came, came.makefile("rb") as stream, suppress(OSError, EOFError):
            new = True
            while True:
                number, depth, source, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
                blocks = _read_blocks(stream, count)
                asks = depth == _ASKS
                if asks and new:
                    self._join(number, source)
                    new = False
                found = self._asked(number, source, blocks) if asks else self._exchange(number, depth, source, blocks)
                if found is None:
                    return
                came.sendall(_COUNT.pack(len(found)) + _written(found))

    def _join(self, standing: int, slot: int) -> None:
        """Register a new task; a second task of a slot means that the first one failed (invariant 5)."""
        with self._change:
            if self._standing == standing:
                if slot in self._came:
                    self._leave()
                self._came.add(slot)

    def _exchange(self, number: int, depth: int, source: int, blocks: list[bytes]) -> list[bytes] | None:
        """Wait until all workers reach the exchange; return the blocks for `source`, or None if the step does not run."""
        with self._change:
            self._heard += 1
            step = self._step
            if step is None or step.number != number:
                return None
            # A retried task sends its blocks again. The first ones stay: another worker may have read them already.
            step.brought.setdefault((depth, source), blocks)
            self._change.notify_all()
            self._change.wait_for(lambda: self._step is not step or step.whole(depth))
            return step.blocks_for(depth, source) if self._step is step else None

    def _asked(self, standing: int, slot: int, report: list[bytes]) -> list[bytes] | None:
        """Return the next step with its number for a worker; empty to dismiss the task, None if its job has ended."""
        with self._change:
            self._heard += 1
            if self._standing is not None and self._standing != standing:
                return None
            if report:
                self._reported(slot, report[0])
            while not self._change.wait_for(lambda: self._has_news(standing, slot), self._linger_s):
                rested = time.monotonic() - self._rests_since
                if self._step is None and rested >= self._linger_s:
                    self._part()
            step, coming = self._step, self._coming
            # The running step takes precedence over an announced one: other workers may wait for this worker's blocks.
            if self._standing != standing:
                return []
            if step is not None and self._awaits(slot):
                return [_NUMBER.pack(step.number) + step.order]
            if coming is not None and self._may_prepare(slot):
                coming.announced_to.add(slot)
                return [_NUMBER.pack(COMES) + coming.order]
            return []

    def _has_news(self, standing: int, slot: int) -> bool:
        """Return whether a waiting worker can be sent a step, an announcement or its dismissal."""
        return self._standing != standing or self._awaits(slot) or self._may_prepare(slot)

    def _reported(self, slot: int, report: bytes) -> None:
        """Keep the first report of a worker; ignore reports of other steps."""
        (number,) = _NUMBER.unpack_from(report)
        step = self._step
        if step is not None and step.number == number:
            step.reports.setdefault(slot, report[_NUMBER.size :])
            self._change.notify_all()

    def _awaits(self, slot: int) -> bool:
        """Return whether a step runs that this worker has not reported."""
        return self._step is not None and slot not in self._step.reports

    def _may_prepare(self, slot: int) -> bool:
        """Return whether a worker reported the last step and has no announcement of the step after it (invariant 6)."""
        coming, last = self._coming, self._place
        if coming is None or last is None or coming.place != last + 1 or slot in coming.announced_to:
            return False
        return self._step is None or slot in self._step.reports


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConnection:
    """A resident task's connection to the driver: worker `slot` of the layout, in the resident job `number`."""

    number: int
    slot: int
    link: socket.socket
    stream: BinaryIO

    def asked(self, report: tuple[int, bytes] | None) -> tuple[int, bytes] | None:
        """Send the report of the last step and return the next step with its number; None when the task is dismissed.

        The number is `COMES` for an announced step, which must not run yet: the driver sends the step again when it starts.

        **Errors** `TurnedAwayError` if the job has ended.
        """
        message = [] if report is None else [_NUMBER.pack(report[0]) + report[1]]
        found = self._answered(self.number, _ASKS, message)
        if not found:
            return None
        (number,) = _NUMBER.unpack_from(found[0])
        return number, found[0][_NUMBER.size :]

    def exchange(self, step: int, depth: int, blocks: Sequence[bytes]) -> list[bytes]:
        """Send a block for each worker and return the blocks that all workers have for this one, in the layout's order.

        **Errors** `TurnedAwayError` if the step has ended.
        """
        return self._answered(step, depth, blocks)

    def _answered(self, number: int, depth: int, blocks: Sequence[bytes]) -> list[bytes]:
        head = _HEAD.pack(number, depth, self.slot, len(blocks))
        try:
            self.link.sendall(head + _written(blocks))
            (count,) = _COUNT.unpack(_exactly(self.stream, _COUNT.size))
            return _read_blocks(self.stream, count)
        except (OSError, EOFError):
            raise TurnedAwayError(f"a step's job has ended before its task: slot={self.slot} number={number}") from None


@contextmanager
def joined(address: str, number: int, slot: int) -> Iterator[TaskConnection]:
    """Connect a task to the driver's socket. **Errors** `UnavailableError` if the driver does not listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(address)
        except OSError as error:
            raise UnavailableError(f"the driver is gone: socket={address} error={error.strerror}") from None
        with link.makefile("rb") as stream:
            yield TaskConnection(number=number, slot=slot, link=link, stream=stream)


def _written(blocks: Sequence[bytes]) -> bytes:
    """Return the blocks as bytes for the socket: all lengths, then all blocks."""
    return b"".join([*(_LENGTH.pack(len(block)) for block in blocks), *blocks])


def _read_blocks(stream: BinaryIO, count: int) -> list[bytes]:
    """Read `count` blocks from the socket."""
    lengths = [_LENGTH.unpack(_exactly(stream, _LENGTH.size))[0] for _ in range(count)]
    return [_exactly(stream, length) for length in lengths]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Read exactly `size` bytes. **Errors** `EOFError` if the stream ends before."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
