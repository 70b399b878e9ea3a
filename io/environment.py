"""One LMDB environment as the embedded logs use it: created whole or not at all, synced, grown on demand, shared in a process.

Invariants kept here:
- An environment appears under its name only when its first commit is on disk (temporary folder, commit, fsync, rename, fsync).
- A missing, empty, truncated or foreign data file is a `DataError` that names it; nothing is ever started empty in its place.
- Every commit is synced (LMDB's default flags); a reader in another process sees whole transactions only.
- Closing waits for the transactions that other threads have begun; after it a transaction is refused, never begun.
- A transaction that cannot be written is given up whole, and its error says so. The next may try: it writes every page that it
  refers to and no earlier commit holds, so nothing rests on what the disk refused (LMDB ends the file's use where the page
  that names the newest commit could not be written).

LMDB forbids opening one file twice in a process, so handles are shared through a table keyed by process and file; that
table is the only module-level state. Left out: what is stored (the logs' business).
Source: docs/concepts/storage.md and docs/concepts/logs.md.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from dbsp.disk import PRIVATE_FILE, PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import CapacityError, ConfigError, DataError, DbspError, UnavailableError
from dbsp.lmdb_errors import told
from dbsp.lmdb_files import check_lmdb_file
from dbsp.lmdb_locks import reserve_locks
from dbsp.processes import Writers
from dbsp.stored.format_numbers import check_name

MAP_BYTES_START = 1 << 28
MAP_BYTES_MAX = 1 << 44
LMDB_ENGINE = 0
"""The LMDB engine all environments are made with: 0 is 0.9, whose format no other reads; fixed for every file."""

_META = b"meta"
_FORMAT = b"format"

_Result = TypeVar("_Result")


class Environment:
    """One open environment with its named databases; `write` and `read` are safe from several threads.

    **Errors** of both: `UnavailableError` where the disk refuses, `DataError` where pages are broken, `CapacityError` where more
    transactions read than LMDB allows; each names the file.

    **Limit** a thread must not write inside its own `read` block: growing the map waits until nobody reads.
    """

    def __init__(self, path: Path, form: str, names: Sequence[str], map_bytes: int, later: Sequence[str] = ()) -> None:
        """Open what is there; use `open_environment`, which checks the file first and shares handles."""
        self.path = path
        self.where = f"file={_data_file(path)}"
        self._turn = threading.Condition()
        self._active = 0
        self._resizing = False
        self._closed = False
        self._writers = Writers(path)
        _reserve(path)
        self._env = lmdb.open(
            str(path),
            max_dbs=len(names) + len(later) + 2,
            map_size=max(map_bytes, _data_file(path).stat().st_size),
            lib_version=LMDB_ENGINE,
            mode=PRIVATE_FILE,
        )
        self._env.reader_check()  # readers that were killed keep pages until somebody looks
        with self._writers.waiting():  # LMDB opens named databases for good only in a write transaction
            opening = self._env.begin(write=True)
        try:
            with opening as txn:
                self._dbs = {"meta": self._open_db(txn, "meta")}
                found = txn.get(_FORMAT, db=self.db("meta"))
                check_name("the log file", f"file={_data_file(path)}", found or b"", form.encode())
                self._dbs |= {name: self._open_db(txn, name) for name in names}
                self._dbs |= {name: self._open_db(txn, name) for name in later if txn.get(name.encode()) is not None}
        except DataError:
            self.close_handle()
            raise

    def _open_db(self, txn: Any, name: str) -> Any:
        try:
            return self._env.open_db(name.encode(), txn=txn, create=False)
        except lmdb.Error as error:
            raise DataError(f"a part of the log file is missing: file={_data_file(self.path)} part={name}") from error

    def db(self, name: str) -> Any:
        """The named database, for `txn.get(key, db=...)` and cursors."""
        return self._dbs[name]

    def has(self, name: str) -> bool:
        """Whether the named database is there."""
        return name in self._dbs

    def add(self, name: str) -> None:
        """Make a named database of those that come `later`, unless it is there."""
        if not self.has(name):
            self._dbs[name] = self.write(lambda txn: self._env.open_db(name.encode(), txn=txn))

    @contextmanager
    def read(self, *, buffers: bool = False) -> Iterator[Any]:
        """A snapshot to read from; with `buffers` values are views of the file, and none may be kept after it ends."""
        with self._begun(write=False, buffers=buffers) as txn:
            yield txn

    def write(self, action: Callable[[Any], _Result]) -> _Result:
        """Run `action` in one synced transaction; when the map is full it grows and the whole action runs again."""
        while True:
            try:
                with self._begun(write=True) as txn:
                    return action(txn)
            except lmdb.MapFullError:
                self._resize(min(MAP_BYTES_MAX, 2 * self._env.info()["map_size"]))

    @contextmanager
    def _begun(self, *, write: bool, buffers: bool = False) -> Iterator[Any]:
        txn = self._begin(write=write, buffers=buffers)
        try:
            with _telling(self.path), txn:
                yield txn
        finally:
            self._leave()

    def _begin(self, *, write: bool, buffers: bool = False) -> Any:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: not self._resizing)
                self._refuse_closed()
                self._active += 1
            try:
                with _telling(self.path):
                    return self._begin_once(write=write, buffers=buffers)
            except lmdb.MapResizedError:
                self._leave()
                self._resize(0)
            except BaseException:
                self._leave()
                raise

    def _begin_once(self, *, write: bool, buffers: bool) -> Any:
        if not write:
            return self._env.begin(buffers=True) if buffers else self._env.begin()
        with self._writers.waiting():
            return self._env.begin(write=True)

    def _refuse_closed(self) -> None:
        if self._closed:
            hint = "the service that had it open has ended: start it again"
            raise UnavailableError(f"the log is closed: file={_data_file(self.path)}", hint)

    def _leave(self) -> None:
        with self._turn:
            self._active -= 1
            self._turn.notify_all()

    def _resize(self, size: int) -> None:
        """Set the map's size (0: what another process made it) while no transaction of this process is open."""
        with self._turn:
            self._turn.wait_for(lambda: not self._resizing)
            self._refuse_closed()
            self._resizing = True
            self._turn.wait_for(lambda: self._active == 0)
            try:
                if size and size <= self._env.info()["map_size"]:
                    if size == MAP_BYTES_MAX:
                        raise CapacityError(f"the log file is full: file={_data_file(self.path)} bytes={size}")
                    return
                self._env.set_mapsize(size)
            finally:
                self._resizing = False
                self._turn.notify_all()

    def close_handle(self) -> None:
        """Close the file when nobody reads or writes it any more; called by the last `release`."""
        with self._turn:
            self._closed = True
            self._turn.wait_for(lambda: not self._resizing and self._active == 0)
        self._writers.forget()
        self._env.close()


_OPEN: dict[tuple[int, str], tuple[Environment, int]] = {}
_OPEN_LOCK = threading.Lock()


def open_environment(
    path: Path,
    *,
    form: str,
    names: Sequence[str],
    later: Sequence[str] = (),
    create: bool = False,
    map_bytes: int = MAP_BYTES_START,
) -> Environment:
    """The environment in folder `path`, shared with others of this process; hand it back with `release_environment`.

    `form` is the format's name, checked against what the file says. It has the databases `names`, and may have those of `later`
    (`Environment.add`). With `create` an absent one is made.

    **Errors** `DataError` names a missing, empty, truncated or foreign file.
    """
    key = (os.getpid(), os.path.realpath(path))
    with _OPEN_LOCK:
        if key in _OPEN:
            env, count = _OPEN[key]
            _OPEN[key] = (env, count + 1)
            return env
        with _telling(path):
            if create and not path.exists():
                _create(path, form, names)
            check_data_file(_data_file(path))
            env = Environment(path, form, names, map_bytes, later)
        _OPEN[key] = (env, 1)
        return env


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """LMDB's errors become ours, but those that say that the map has to grow."""
    try:
        yield
    except (lmdb.MapFullError, lmdb.MapResizedError):
        raise
    except lmdb.Error as error:
        raise _told(error, path) from error


def _reserve(path: Path) -> None:
    try:
        reserve_locks(path)
    except OSError as error:
        raise _told(error, path) from error


def _told(error: lmdb.Error | OSError, path: Path) -> DbspError:
    return told(error, _data_file(path), "log file", "nothing that was answered is lost")


def is_open(path: Path) -> bool:
    """Whether this process has the environment open; LMDB would not open it a second time."""
    with _OPEN_LOCK:
        return (os.getpid(), os.path.realpath(path)) in _OPEN


@contextmanager
def borrowed(path: Path) -> Iterator[Environment | None]:
    """Lend the environment if this process has it open, kept open within; None if it has not."""
    with _OPEN_LOCK:
        key = (os.getpid(), os.path.realpath(path))
        env, count = _OPEN.get(key, (None, 0))
        if env is not None:
            _OPEN[key] = (env, count + 1)
    try:
        yield env
    finally:
        if env is not None:
            release_environment(env)


def release_environment(env: Environment) -> None:
    """Give a handle back; the last one closes the file."""
    key = (os.getpid(), os.path.realpath(env.path))
    with _OPEN_LOCK:
        if key not in _OPEN:
            return
        _, count = _OPEN[key]
        if count > 1:
            _OPEN[key] = (env, count - 1)
            return
        del _OPEN[key]
        env.close_handle()


def check_data_file(file: Path) -> None:
    """Refuse a data file that is missing, empty, cut off or not LMDB's, before LMDB maps it; see `dbsp.lmdb_files`."""
    check_lmdb_file(file, "log file")


def _data_file(path: Path) -> Path:
    return path / "data.mdb"


def _create(path: Path, form: str, names: Sequence[str]) -> None:
    """Make a new environment under a temporary name and rename it into place when it is on disk."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.creating-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=PRIVATE_FOLDER)
    _reserve(temporary)
    env = lmdb.open(
        str(temporary), max_dbs=len(names) + 2, map_size=MAP_BYTES_START, lib_version=LMDB_ENGINE, mode=PRIVATE_FILE
    )
    meta = env.open_db(_META)
    for name in names:
        env.open_db(name.encode())
    with env.begin(write=True) as txn:
        txn.put(_FORMAT, form.encode(), db=meta)
    env.close()
    sync_path(temporary / "data.mdb")
    sync_path(temporary)
    try:
        temporary.rename(path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not _data_file(path).exists():
            raise ConfigError(f"the log's folder is in the way: folder={path}", "move it or name another") from None
    sync_path(path.parent)
