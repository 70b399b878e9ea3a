"""The LMDB environments of workers' databases: opened once per file and process, with their policy for growth and failure.

Invariants:

1. A missing, empty or truncated file raises a `DataError` that names it. LMDB itself would make a new database of a missing or
   empty file, and reading a truncated file would end the process with SIGBUS.
2. An environment is opened once per process (LMDB refuses a second time), and shared by all callers. It is never used in a
   process that inherited it by fork.
3. After a commit has failed for any reason except a full map, this process uses the environment no more. The content of the disk
   is then unknown, and a repeated fsync may report success wrongly (Rebello et al., ATC 2020).
4. A full map is never an error of the caller: the whole transaction is aborted, the map doubled, and the transaction run again.

Limit: LMDB counts the readers of one environment; `READERS_MAX` transactions may be open at once in all processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from dbsp.disk import PRIVATE_FILE, PRIVATE_FOLDER, sync_path
from dbsp.errors import CapacityError, InternalError, UnavailableError
from dbsp.lmdb_environments import FileKind, data_file, open_to_write
from dbsp.storage.readahead import Paging
from dbsp.storage.tables import PAGE, Txn

DATABASE = FileKind(
    name="database file",
    restore="restore it from a backup or a standby",
    unharmed="the last checkpoint is intact",
)

MAP_SIZE_BYTES = 1 << 37
"""Initial size of a map: 128 GiB of the 128 TiB of address space, enough for 256 workers with three environments each."""
READERS_MAX = 510
VERIFIED_MAX = 1 << 18
"""The maximum number of verified chunks that are remembered: about 20 MB of memory, for 512 GB of chunks."""
PASSING_WAIT_S = 10.0
"""Maximum seconds that the growth of a map waits for short readers (`passing`), each of which reads for milliseconds."""

T = TypeVar("T")


class Verified:
    """The chunks whose checksums this process has computed, or which it wrote.

    **Limit**: `VERIFIED_MAX` numbers. When that is reached all are forgotten, at the cost of computing checksums
    again. This process forgets a number when it deletes the chunk; another process may delete chunks too.
    """

    def __init__(self) -> None:
        """Start with no chunk."""
        self._numbers: set[int] = set()

    def __contains__(self, number: int) -> bool:
        """Return whether this chunk needs no check."""
        return number in self._numbers

    def __len__(self) -> int:
        """Return the number of chunks that need no check."""
        return len(self._numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Note that these chunks need no check."""
        if len(self._numbers) >= VERIFIED_MAX:
            self._numbers = set()
        self._numbers.update(numbers)

    def forget(self, number: int) -> None:
        """Forget a chunk that is deleted."""
        self._numbers.discard(number)


class DatabaseEnvironment:
    """An LMDB environment that this process has open."""

    def __init__(self, folder: Path, map_size_bytes: int, sync: bool) -> None:
        """Open an environment that exists; `create_environment` makes new ones."""
        DATABASE.check(folder)
        self.folder = folder
        self.inode = data_file(folder).stat().st_ino
        self.users = 0
        self.verified = Verified()
        self.paging = Paging()
        self._pid = os.getpid()
        self._active = 0
        self._passing = 0
        self._moves = False
        self._lock = threading.Condition()
        self._writer = threading.Lock()
        self._dead: str | None = None
        try:
            self._env = _open(folder, map_size_bytes, sync)
            self._env.reader_check()
        except (lmdb.Error, OSError) as error:
            raise DATABASE.translate(error, folder) from error

    def _check_usable(self) -> None:
        """Refuse use after a fork, or after a failed commit."""
        if self._pid != os.getpid():
            hint = "open the database in the process that uses it, after the fork"
            raise InternalError(
                f"a database opened before a fork is used after it: file={data_file(self.folder)}", hint
            )
        if self._dead is not None:
            hint = "free the disk or replace it, then start this process again: it goes on from the last checkpoint"
            raise UnavailableError(f"an earlier write failed: file={data_file(self.folder)} cause={self._dead}", hint)

    @contextmanager
    def reading(self) -> Iterator[Txn]:
        """Yield a read transaction; every buffer that it returns is invalid after the block."""
        txn = self.begin_read()
        try:
            yield txn
        finally:
            self.end_read(txn)

    def begin_read(self) -> Txn:
        """Begin a read transaction, to be ended with `end_read`."""
        self._check_usable()
        with self._lock:
            try:
                txn = self._begin(write=False)
            except lmdb.Error as error:
                raise DATABASE.translate(error, self.folder) from error
            self._active += 1
        return txn

    def end_read(self, txn: Txn) -> None:
        """End a read transaction."""
        with self._lock:
            self._active -= 1
        if self._pid == os.getpid():
            txn.abort()

    @contextmanager
    def passing(self) -> Iterator[Txn]:
        """Yield a read transaction for a short read at any time; the thread must not read this environment otherwise.

        A map that has to grow waits for the end of the block, and a block that would begin meanwhile waits for the map.
        Without this rule, a step whose map is full would fail while a view is read.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._moves, PASSING_WAIT_S)
            txn = self.begin_read()
            self._passing += 1
        try:
            yield txn
        finally:
            with self._lock:
                self.end_read(txn)
                self._passing -= 1
                self._lock.notify_all()

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Hold the lock after the passing readers have left; the caller moves the map."""
        with self._lock:
            self._moves = True
            try:
                self._lock.wait_for(lambda: not self._passing, PASSING_WAIT_S)
                yield
            finally:
                self._moves = False
                self._lock.notify_all()

    @property
    def in_use(self) -> bool:
        """Return whether a thread of this process reads or writes at the moment."""
        return self._active > 0 or self._writer.locked()

    def _begin(self, write: bool) -> Txn:
        """Begin a transaction; take over a map that another process made larger."""
        try:
            return Txn(self._env.begin(write=write, buffers=True), write)
        except lmdb.MapResizedError:
            with self._moving():
                if self._active:
                    raise
                self._env.set_mapsize(0)
                return Txn(self._env.begin(write=write, buffers=True), write)

    def write(self, work: Callable[[Txn], T], grow: Callable[[], None] | None = None) -> T:
        """Run `work` in a write transaction and commit it; run it again from the start if the map had to grow.

        A growing map moves under its readers. So a caller that also reads passes its own `grow`, which stops reading
        first.
        """
        while True:
            self._check_usable()
            try:
                with self._writer:
                    return self._write_once(work)
            except lmdb.MapFullError:
                (grow or self.grow)()

    def _write_once(self, work: Callable[[Txn], T]) -> T:
        """Run one attempt of a write; raise `MapFullError` unchanged, and mark the environment as dead after other failures."""
        try:
            txn = self._begin(write=True)
        except lmdb.MapFullError:
            raise
        except lmdb.Error as error:
            raise DATABASE.translate(error, self.folder) from error
        try:
            result = work(txn)
            txn.commit()
        except lmdb.MapFullError:
            txn.abort()
            raise
        except lmdb.Error as error:
            self._dead = str(error)
            _abort(txn)
            raise DATABASE.translate(error, self.folder) from error
        except BaseException:
            _abort(txn)
            raise
        return result

    def grow(self, bytes_min: int = 0) -> None:
        """Make the map twice as large, or at least `bytes_min` large; raise `CapacityError` while this process reads."""
        with self._writer, self._moving():
            if self._active:
                hint = "raise map_size_bytes: the map cannot grow while this process reads"
                size = self._env.info()["map_size"]
                raise CapacityError(f"the database map is full: file={data_file(self.folder)} bytes={size}", hint)
            size = self._env.info()["map_size"] * 2
            self._env.set_mapsize(max(size, bytes_min))

    def make_room(self) -> None:
        """Make the map twice as large if it is more than half used, and no thread of this process reads or writes now."""
        info = self._env.info()
        if (info["last_pgno"] + 1) * PAGE * 2 <= info["map_size"] or not self._writer.acquire(blocking=False):
            return
        try:
            with self._lock:
                if self._active == 0:
                    self._env.set_mapsize(2 * info["map_size"])
        finally:
            self._writer.release()

    def file_bytes(self) -> int:
        """Return the size of the file; a size far above `state_bytes` means that a reader holds old pages."""
        return data_file(self.folder).stat().st_size

    def copy_to(self, folder: Path) -> None:
        """Make another environment in `folder`, synced, with the present content of this environment."""
        folder.mkdir(mode=PRIVATE_FOLDER)
        try:
            self._env.copy(str(folder), compact=True)
            data_file(folder).chmod(PRIVATE_FILE)
        except lmdb.Error as error:
            raise DATABASE.translate(error, folder) from error
        sync_path(data_file(folder))
        sync_path(folder)

    def sync(self) -> None:
        """Force written data to disk."""
        self._env.sync(True)

    def close(self) -> None:
        """Close the files, unless this process only inherited them."""
        if self._pid == os.getpid():
            self._env.close()


def _abort(txn: Txn) -> None:
    """Cancel a transaction that may be broken already; ignore LMDB's errors."""
    try:
        txn.abort()
    except lmdb.Error:
        return


def _open(folder: Path, map_size_bytes: int, sync: bool) -> Any:
    """Open an environment with the settings that all environments of dbsp share."""
    return open_to_write(folder, map_size_bytes, readers=READERS_MAX, sync=sync, metasync=sync, readahead=False)


def create_environment(folder: Path, map_size_bytes: int, sync: bool, fill: Callable[[Txn], None]) -> None:
    """Make an environment with its first content in a new folder, and close it; sync it if `sync` is set.

    LMDB does not create an environment atomically (its first meta pages are not synced). So the caller renames the
    folder into place.
    """
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True)
    try:
        env = _open(folder, map_size_bytes, sync)
        try:
            with env.begin(write=True) as txn:
                fill(Txn(txn, writes=True))
            if sync:
                env.sync(True)
        finally:
            env.close()
    except (lmdb.Error, OSError) as error:
        raise DATABASE.translate(error, folder) from error
    if sync:
        sync_path(folder)
