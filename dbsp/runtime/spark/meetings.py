"""Steps without jobs: where all workers of a layout have a core of this host at once, their tasks stay and meet in the driver.

A job of Spark costs more than a small step's work in it: to be submitted, to be brought to a Python worker, to end; and so does
each of its stages. So one job stands for many steps. A task of it is a worker, and asks the driver for the next step by a
socket in the file system. At an exchange it brings its blocks there, and waits for those that the others have for it; large
parcels lie in files, and their blocks are names. With the next question it brings its report. Who asks while the others, or the
driver, have not done with a step is told of the one that comes next, if that is known, and may prepare for it.

Invariants:
1. Every standing job and every step has a number of its own; who comes under another one is turned away, and so is who waits when
   it ends.
2. What a worker brings to a step counts once and stays until the step ends: a task that Spark runs again is given the step again,
   brings it again, and gets what the first one got.
3. One job stands at a time, of all that share a context: tasks that wait for one another hold cores for which nobody else may
   wait.
4. Who stands without work goes: after `LINGER_S` without a step, or when it is sent away, never in the middle of a step.
5. A job of which a task was run again ends after the step: Spark counts how often a task fails over all steps of a job, and would
   give up one that stands for days.
6. Who is told of a step to come has reported of the one before it, and is told once: nobody waits for preparations of a step that
   is not the next one to be done.

Left out: Spark's barrier stages. Their `allGather` wakes who waits once a second, and a stage whose task fails ends its job.
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
"""How long the tasks of a standing job wait for a step: they hold cores that nobody else of this application wants meanwhile."""

_HEAD = struct.Struct("<QIII")
"""Number of the step, depth of the exchange, who brings, how many blocks; their lengths follow, then the blocks."""
_ASKS = 0xFFFF_FFFF
"""In the place of a depth: who stands under this number asks for a step, and brings the report of the one before, if any."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")
_NUMBER = struct.Struct("<Q")
COMES = 0
"""In the place of a step's number: it comes next, and is not to be done yet."""

Brought = dict[tuple[int, int], list[bytes]]


class TurnedAwayError(UnavailableError):
    """A task came, or waited, for what is over: another one has done its work, or nobody wants it any more."""


@dataclass(slots=True)
class _Step:
    """What it is, what its workers have brought, by depth and source, and what they report."""

    number: int
    workers: int
    order: bytes
    place: int
    brought: Brought = field(default_factory=dict)
    reports: dict[int, bytes] = field(default_factory=dict)

    def whole(self, depth: int) -> bool:
        """Whether all have come to an exchange."""
        return all((depth, source) in self.brought for source in range(self.workers))

    def blocks_for(self, depth: int, destination: int) -> list[bytes]:
        """What the others have for a worker, in the order of the sources."""
        return [self.brought[depth, source][destination] for source in range(self.workers)]

    def done(self) -> bool:
        """Whether all have reported."""
        return len(self.reports) == self.workers


@dataclass(frozen=True, slots=True)
class _Coming:
    """A step that comes: its place among all steps, its order, the workers that were told of it."""

    place: int
    order: bytes
    told: set[int] = field(default_factory=set)


class Meetings:
    """The driver's side: a socket in `folder`, and a thread per task that has come.

    **State** the job that stands, the blocks and reports of the step that runs. `turn` is the lock of the context.
    """

    def __init__(self, folder: Path, turn: threading.Lock, linger_s: float = LINGER_S) -> None:
        """Listen; the folder is for this user alone, and its name is short, as that of a socket must be."""
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
        threading.Thread(target=self._accept, name="dbsp-meetings", daemon=True).start()

    def stand(self) -> int:
        """The number under which the tasks of a new job stand; `over` must follow when it has ended."""
        self._turn.acquire()
        with self._change:
            self._standing, self._leaves, self._rests_since = self._next_number(), False, time.monotonic()
            self._came = set()
            return self._standing

    def over(self, standing: int) -> None:
        """The job has ended, and what it did not do is not done."""
        with self._change:
            if self._standing == standing:
                self._part()
        self._turn.release()

    def send_away(self) -> None:
        """Let the tasks that stand go when they have no step to do."""
        with self._change:
            self._leave()

    def coming(self, order: bytes, place: int) -> None:
        """The step at this place is known: who has reported of the one before it is told."""
        with self._change:
            self._coming = _Coming(place, order)
            self._change.notify_all()

    def step(self, standing: int, order: bytes, workers: int, place: int) -> list[bytes] | None:
        """What the workers report of a step, in the order of the layout; None where nobody stands under this number any more.

        `place` is its number among all steps.
        **Errors** `UnavailableError` where the job ends before the step does.
        """
        with self._change:
            if self._standing != standing:
                return None
            step = self._step = _Step(self._next_number(), workers, order, place)
            self._place = place
            self._change.notify_all()
            self._change.wait_for(lambda: step.done() or self._standing != standing)
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
        """Stand no longer than the step that runs, if one does."""
        self._leaves = True
        if self._step is None:
            self._part()

    def _part(self) -> None:
        """Nobody stands any more."""
        self._standing = None
        self._change.notify_all()

    def awaited(self) -> tuple[int, ...]:
        """The slots of the workers that have neither reported of the step that runs nor come to its last exchange so far."""
        with self._change:
            step = self._step
            if step is None:
                return ()
            last = max((depth for depth, _ in step.brought), default=0)
            return tuple(
                slot for slot in range(step.workers) if slot not in step.reports and (last, slot) not in step.brought
            ) or tuple(slot for slot in range(step.workers) if slot not in step.reports)

    def heard(self) -> int:
        """How often a worker has come to an exchange so far: where it grows, a job goes on."""
        return self._heard

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self.address).unlink(missing_ok=True)

    def _accept(self) -> None:
        """The thread that listens."""
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(came,), name="dbsp-meeting", daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        """One task, question by question, until it leaves or is turned away."""
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
        """A task has come; where it is not the first of its worker, one before it has failed."""
        with self._change:
            if self._standing == standing:
                if slot in self._came:
                    self._leave()
                self._came.add(slot)

    def _exchange(self, number: int, depth: int, source: int, blocks: list[bytes]) -> list[bytes] | None:
        """What all have for this worker; None where its step is not the one that runs."""
        with self._change:
            self._heard += 1
            step = self._step
            if step is None or step.number != number:
                return None
            step.brought.setdefault((depth, source), blocks)
            self._change.notify_all()
            self._change.wait_for(lambda: self._step is not step or step.whole(depth))
            return step.blocks_for(depth, source) if self._step is step else None

    def _asked(self, standing: int, slot: int, report: list[bytes]) -> list[bytes] | None:
        """The next step of a worker, with its number; no blocks where it may go, None where it does not stand here."""
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
            if self._standing != standing:
                return []
            if step is not None and self._awaits(slot):
                return [_NUMBER.pack(step.number) + step.order]
            if coming is not None and self._may_prepare(slot):
                coming.told.add(slot)
                return [_NUMBER.pack(COMES) + coming.order]
            return []

    def _has_news(self, standing: int, slot: int) -> bool:
        """Whether there is something to tell a worker that asks."""
        return self._standing != standing or self._awaits(slot) or self._may_prepare(slot)

    def _reported(self, slot: int, report: bytes) -> None:
        """Keep the first report of a worker."""
        (number,) = _NUMBER.unpack_from(report)
        step = self._step
        if step is not None and step.number == number:
            step.reports.setdefault(slot, report[_NUMBER.size :])
            self._change.notify_all()

    def _awaits(self, slot: int) -> bool:
        """Whether a step runs that this worker has not reported of."""
        return self._step is not None and slot not in self._step.reports

    def _may_prepare(self, slot: int) -> bool:
        """Whether a worker has done its part of the last step, and was not told of the one behind it."""
        coming, last = self._coming, self._place
        if coming is None or last is None or coming.place != last + 1 or slot in coming.told:
            return False
        return self._step is None or slot in self._step.reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A task's side: worker `slot` of the layout, in the job that stands under this number."""

    number: int
    slot: int
    link: socket.socket
    stream: BinaryIO

    def asked(self, report: tuple[int, bytes] | None) -> tuple[int, bytes] | None:
        """The next step, with its number, for the report of the one before; None when it is time to go.

        The number is `COMES` for one that is not to be done yet: it will be told again, to whoever asks again.

        **Errors** `TurnedAwayError` where the job has ended.
        """
        told = [] if report is None else [_NUMBER.pack(report[0]) + report[1]]
        found = self._answered(self.number, _ASKS, told)
        if not found:
            return None
        (number,) = _NUMBER.unpack_from(found[0])
        return number, found[0][_NUMBER.size :]

    def exchange(self, step: int, depth: int, blocks: Sequence[bytes]) -> list[bytes]:
        """Bring a block for each worker; what all have for this one, in the order of the layout.

        **Errors** `TurnedAwayError` where the step has ended.
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
def joined(address: str, number: int, slot: int) -> Iterator[Meeting]:
    """Go to where the tasks of a job meet. **Errors** `UnavailableError` where nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(address)
        except OSError as error:
            raise UnavailableError(f"the driver is gone: socket={address} error={error.strerror}") from None
        with link.makefile("rb") as stream:
            yield Meeting(number=number, slot=slot, link=link, stream=stream)


def _written(blocks: Sequence[bytes]) -> bytes:
    """The lengths of blocks, and the blocks."""
    return b"".join([*(_LENGTH.pack(len(block)) for block in blocks), *blocks])


def _read_blocks(stream: BinaryIO, count: int) -> list[bytes]:
    """So many blocks."""
    lengths = [_LENGTH.unpack(_exactly(stream, _LENGTH.size))[0] for _ in range(count)]
    return [_exactly(stream, length) for length in lengths]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """So many bytes. **Errors** `EOFError` where they end before."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
