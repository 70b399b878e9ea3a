"""LMDB environments of the embedded logs: created whole or not at all, synced, grown on demand, shared in a process.

Invariants kept here:

- An environment appears under its name only when its first commit is on disk (temporary folder, commit, fsync,
  rename, fsync).
- A missing, empty, truncated or foreign data file is a `DataError` that names it; no empty file ever replaces it.
- Every commit is synced (LMDB's default flags); a reader in another process sees whole transactions only.
- Closing waits for the transactions that other threads have begun; afterwards a new transaction is refused.
- A transaction that cannot be written is aborted whole, and its error says so. The next transaction may still
  succeed: it writes every page that no earlier commit has, so it does not depend on the failed write. (LMDB closes
  the file for further use if the page that names the newest commit could not be written.)

LMDB forbids opening one file twice in a process, so handles are shared through a table keyed by process and file.
This table is the only module-level state. Left out: the content, which the logs define. Source:
docs/concepts/storage.md and docs/concepts/logs.md.
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

from dbsp.disk import PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import CapacityError, ConfigError, DataError, UnavailableError
from dbsp.lmdb_environments import FileKind, data_file, open_to_write
from dbsp.processes import Writers
from dbsp.stored.format_numbers import check_names

MAP_BYTES_START = 1 << 28
MAP_BYTES_MAX = 1 << 44
LOG = FileKind(name="log file", unharmed="nothing that was answered is lost")

_META = b"meta"
_FORMAT = b"format"

_Result = TypeVar("_Result")


class LogEnvironment:
    """An open environment with its named databases; several threads may call `write` and `read`.

    **Errors** of both, each with the file: `UnavailableError` if the disk fails, `DataError` for broken pages,
    `CapacityError` if more transactions read than LMDB allows.

    **Limit** a thread must not write inside its own `read` block: growing the map waits until no transaction is open.
    """

    def __init__(
        self, path: Path, forms: Sequence[str], names: Sequence[str], map_bytes: int, later: Sequence[str] = ()
    ) -> None:
        """Open an existing file; call `open_environment` instead, which checks the file and shares handles."""
        self.path = path
        self.where = f"file={data_file(path)}"
        self._turn = threading.Condition()
        self._active = 0
        self._resizing = False
        self._closed = False
        self._writers = Writers(path)
        self._env = _open(path, len(names) + len(later), map_bytes)
        self._env.reader_check()  # a killed reader pins old pages until this check
        with self._writers.waiting():  # only a write transaction opens named databases for longer than itself
            opening = self._env.begin(write=True)
        try:
            with opening as txn:
                self._dbs = {"meta": self._open_db(txn, "meta")}
                found = txn.get(_FORMAT, db=self.db("meta"))
                check_names("the log file", f"file={data_file(path)}", found or b"", forms)
                self._dbs |= {name: self._open_db(txn, name) for name in names}
                self._dbs |= {name: self._open_db(txn, name) for name in later if txn.get(name.encode()) is not None}
        except DataError:
            self.close_handle()
            raise

    def _open_db(self, txn: Any, name: str) -> Any:
        try:
            return self._env.open_db(name.encode(), txn=txn, create=False)
        except lmdb.Error as error:
            raise DataError(f"a part of the log file is missing: file={data_file(self.path)} part={name}") from error

    def db(self, name: str) -> Any:
        """Return the named database, for `txn.get(key, db=...)` and cursors."""
        return self._dbs[name]

    def has(self, name: str) -> bool:
        """Return whether the named database exists."""
        return name in self._dbs

    def add(self, name: str) -> None:
        """Create one of the `later` databases, unless it exists."""
        if not self.has(name):
            self._dbs[name] = self.write(lambda txn: self._env.open_db(name.encode(), txn=txn))

    def put_form(self, txn: Any, form: str) -> None:
        """Give the file another of the forms that it may have, within a transaction that writes."""
        if txn.get(_FORMAT, db=self.db("meta")) != form.encode():
            txn.put(_FORMAT, form.encode(), db=self.db("meta"))

    @contextmanager
    def read(self, *, buffers: bool = False) -> Iterator[Any]:
        """Open a snapshot to read; with `buffers` values are views of the file, valid only within the block."""
        with self._begun(write=False, buffers=buffers) as txn:
            yield txn

    def write(self, action: Callable[[Any], _Result]) -> _Result:
        """Run `action` in one synced transaction; if the map is full, grow it and run the whole action again."""
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
            raise UnavailableError(f"the log is closed: file={data_file(self.path)}", hint)

    def _leave(self) -> None:
        with self._turn:
            self._active -= 1
            self._turn.notify_all()

    def _resize(self, size: int) -> None:
        """Set the map's size (0: the size that another process set) while this process has no open transaction."""
        with self._turn:
            self._turn.wait_for(lambda: not self._resizing)
            self._refuse_closed()
            self._resizing = True
            self._turn.wait_for(lambda: self._active == 0)
            try:
                if size and size <= self._env.info()["map_size"]:
                    if size == MAP_BYTES_MAX:
                        raise CapacityError(f"the log file is full: file={data_file(self.path)} bytes={size}")
                    return
                self._env.set_mapsize(size)
            finally:
                self._resizing = False
                self._turn.notify_all()

    def close_handle(self) -> None:
        """Close the file after its last open transaction; the last `release_environment` calls it."""
        with self._turn:
            self._closed = True
            self._turn.wait_for(lambda: not self._resizing and self._active == 0)
        self._writers.forget()
        self._env.close()


_OPEN: dict[tuple[int, str], tuple[LogEnvironment, int]] = {}
_OPEN_LOCK = threading.Lock()


def open_environment(
    path: Path,
    *,
    form: str,
    older: Sequence[str] = (),
    names: Sequence[str],
    later: Sequence[str] = (),
    create: bool = False,
    map_bytes: int = MAP_BYTES_START,
) -> LogEnvironment:
    """Open the environment in folder `path`, shared within this process; return it with `release_environment`.

    `form` is the format's name, checked against the file's, which may also be one of `older`. The file has the databases
    `names`, and may have those of `later` (`LogEnvironment.add`). `create` makes an absent one.

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
            LOG.check(path)
            env = LogEnvironment(path, (*older, form), names, map_bytes, later)
        _OPEN[key] = (env, 1)
        return env


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Turn LMDB's errors in the body into errors of the engine, except those that mean that the map must grow."""
    try:
        yield
    except (lmdb.MapFullError, lmdb.MapResizedError):
        raise
    except lmdb.Error as error:
        raise LOG.translate(error, path) from error


def _open(folder: Path, databases: int, map_bytes: int) -> Any:
    """Open or create an environment with so many named databases, and LMDB's own."""
    try:
        return open_to_write(folder, map_bytes, databases=databases + 2)
    except OSError as error:
        raise LOG.translate(error, folder) from error


def is_open(path: Path) -> bool:
    """Return whether this process has the environment open; LMDB does not allow opening it a second time."""
    with _OPEN_LOCK:
        return (os.getpid(), os.path.realpath(path)) in _OPEN


@contextmanager
def borrowed(path: Path) -> Iterator[LogEnvironment | None]:
    """Yield the environment, kept open within the block, if this process has it open; otherwise None."""
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


def release_environment(env: LogEnvironment) -> None:
    """Release a handle; the last release closes the file."""
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


def _create(path: Path, form: str, names: Sequence[str]) -> None:
    """Create an environment under a temporary name, and rename it when it is on disk."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.creating-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=PRIVATE_FOLDER)
    env = _open(temporary, len(names), MAP_BYTES_START)
    meta = env.open_db(_META)
    for name in names:
        env.open_db(name.encode())
    with env.begin(write=True) as txn:
        txn.put(_FORMAT, form.encode(), db=meta)
    env.close()
    sync_path(data_file(temporary))
    sync_path(temporary)
    try:
        temporary.rename(path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not data_file(path).exists():
            raise ConfigError(f"the log's folder is in the way: folder={path}", "move it or name another") from None
    sync_path(path.parent)
