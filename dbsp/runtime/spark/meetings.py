"""Exchanges without a shuffle: where all workers of a layout have a core of this host at once, their tasks meet in the driver.

A stage of Spark costs more than a small step's work in it: to be submitted, to be brought to a Python worker, to end. So one
task runs all segments of a worker. At an exchange it brings its blocks to the driver, by a socket in the file system, and
waits there for those that the others have for it; large parcels lie in files, and their blocks are names.

Invariants:
1. Every job meets under a number of its own; who comes under another one is turned away, and so is who waits when the job ends.
2. What a worker brings to an exchange counts once and stays until the job ends: a task that Spark runs again brings it again, and
   gets what the first one got.
3. One job meets at a time, of all that share a context: tasks that wait for one another hold cores that nobody else may wait for.

Left out: Spark's barrier stages. Their `allGather` wakes who waits once a second, and a stage whose task fails ends its job.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dbsp.errors import UnavailableError

_HEAD = struct.Struct("<QIII")
"""Number of the job, depth of the exchange, who brings, how many blocks; their lengths follow, then the blocks."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")

Brought = dict[tuple[int, int], list[bytes]]


@dataclass(slots=True)
class _Job:
    """What its workers have brought, by depth and source."""

    number: int
    workers: int
    brought: Brought = field(default_factory=dict)

    def whole(self, depth: int) -> bool:
        """Whether all have come to an exchange."""
        return all((depth, source) in self.brought for source in range(self.workers))

    def blocks_for(self, depth: int, destination: int) -> list[bytes]:
        """What the others have for a worker, in the order of the sources."""
        return [self.brought[depth, source][destination] for source in range(self.workers)]


class Meetings:
    """The driver's side: a socket in `folder`, and a thread per task that has come.

    **State** the blocks of the job that runs. `turn` is the lock of the context.
    """

    def __init__(self, folder: Path, turn: threading.Lock) -> None:
        """Listen; the folder is for this user alone, and its name is short, as that of a socket must be."""
        self.address = tempfile.mktemp(prefix="meet-", dir=folder)  # noqa: S306 - it fails where there is such a file
        self._turn = turn
        self._change = threading.Condition()
        self._job: _Job | None = None
        self._number = self._heard = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="dbsp-meetings", daemon=True).start()

    @contextmanager
    def held(self, workers: int) -> Iterator[int]:
        """The number under which the tasks of one job meet, while it runs."""
        with self._turn:
            with self._change:
                self._number += 1
                job = self._job = _Job(self._number, workers)
            try:
                yield job.number
            finally:
                with self._change:
                    self._job = None
                    self._change.notify_all()

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
        """One task, exchange by exchange, until it leaves or is turned away."""
        with came, came.makefile("rb") as stream, suppress(OSError, EOFError):
            while True:
                number, depth, source, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
                blocks = _read_blocks(stream, count)
                found = self._exchange(number, depth, source, blocks)
                if found is None:
                    return
                came.sendall(_COUNT.pack(len(found)) + _written(found))

    def _exchange(self, number: int, depth: int, source: int, blocks: list[bytes]) -> list[bytes] | None:
        """What all have for this worker; None where its job is not the one that runs."""
        with self._change:
            self._heard += 1
            job = self._job
            if job is None or job.number != number:
                return None
            job.brought.setdefault((depth, source), blocks)
            self._change.notify_all()
            self._change.wait_for(lambda: self._job is not job or job.whole(depth))
            return job.blocks_for(depth, source) if self._job is job else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A task's side: worker `slot` of the layout, in the job of this number."""

    number: int
    slot: int
    link: socket.socket
    stream: BinaryIO

    def exchange(self, depth: int, blocks: Sequence[bytes]) -> list[bytes]:
        """Bring a block for each worker; what all have for this one, in the order of the layout.

        **Errors** `UnavailableError` where the job has ended.
        """
        head = _HEAD.pack(self.number, depth, self.slot, len(blocks))
        try:
            self.link.sendall(head + _written(blocks))
            (count,) = _COUNT.unpack(_exactly(self.stream, _COUNT.size))
            return _read_blocks(self.stream, count)
        except (OSError, EOFError):
            raise UnavailableError(f"a step's job has ended before its task: slot={self.slot} depth={depth}") from None


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
