"""Standbys: copies of a worker's versions in other folders, on other disks, from which a lost database is restored.

A standby is only the durable side of a database: versions, their chunks and small values, but no steps. A standby follows
the database: a version counts as committed, or opened, when every standby holds it too. So each standby has every
published version.

Invariants:

1. A chunk number means the same chunk here and in the database where a version with the same record refers to it.
   Records are compared byte for byte. All other content of a standby is deleted before anything is copied in, because it
   may belong to steps that were rolled back.
2. Every write is fenced like a database's (invariant 6): the epoch is compared in its transaction. The transaction also detects
   a late task within an epoch. From the first `open` of an epoch on versions only grow, so a task that would go back is
   refused.
3. From its first version on a standby holds one or two versions (invariant 8). A new one lands before the oldest is dropped.
4. Only a process that has raised a standby's epoch restores a database from it. So a database that was deleted on purpose stays
   deleted.

**Cost** a version once more: the bytes of the chunks that a standby lacks, in bounded transactions.

Source: "KIP-441: smooth scaling out" (standby tasks), with copies made from checkpoints and not from a changelog.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dbsp.disk import PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import ConfigError, DataError, UnavailableError
from dbsp.storage.committing import chunk_values
from dbsp.storage.durable import Durable, Root, ids_of, refs_of_states
from dbsp.storage.environment import DATABASE
from dbsp.storage.records import number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId

DURABLE, WRITERS = "durable", "writers"
"""The names of the folders inside the folder of a database or of a standby."""

_FOLLOWS = b"follows"


class Standby:
    """A standby of a worker, in its own folder."""

    def __init__(self, home: Path, map_size_bytes: int) -> None:
        """Name the folder; nothing is opened or made yet."""
        self.home = home
        self._map_size_bytes = map_size_bytes

    @property
    def exists(self) -> bool:
        """Return whether the folder contains a standby."""
        return (self.home / DURABLE).is_dir()

    def opened(self) -> Durable:
        """Open the standby; the caller closes it. Raise `DataError` if it is absent or broken."""
        return Durable(self.home / DURABLE, self.home / WRITERS, self._map_size_bytes)

    def raise_epoch(self, source: Durable, epoch: int) -> None:
        """Refuse older epochs of the database's run from now on; do nothing where there is no standby."""
        if not self.exists:
            return
        target = self.opened()
        try:
            _refuse_other_run(source, target)
            target.raise_epoch(epoch)
        finally:
            target.close()

    def follow(self, source: Durable, version: int, epoch: int, bytes_max: int | None = None) -> bool:
        """Copy about `bytes_max` bytes of a version that the standby lacks (None: all); return whether it has the version now.

        **Errors** `FencedError` for an older epoch; `ConfigError` if the standby cannot be made.
        """
        if not self.exists:
            source.check_place()  # a database that was deleted gets no standby
            self._make(epoch)
        target = self.opened()
        try:
            _refuse_other_run(source, target)
            target.raise_epoch(epoch)
            with source.environment.reading() as txn:
                return _follow(txn, source, target, version, epoch, bytes_max)
        finally:
            target.close()

    def open(self, source: Durable, version: int, epoch: int) -> None:
        """Copy the missing content of a version, and discard all other versions, as the database does when it opens one."""
        self.follow(source, version, epoch)
        target = self.opened()
        try:
            target.keep_only(epoch, version)
        finally:
            target.close()

    def _make(self, epoch: int) -> None:
        """Make an empty standby; raise `ConfigError` if that fails."""
        try:
            make_bare(self.home, epoch, self._map_size_bytes)
        except OSError as error:
            raise ConfigError(
                f"a standby cannot be made: folder={self.home} error={error.strerror}",
                "repair the disk, or take its folder out of `standbys` in [layout]",
            ) from error

    def restore(self, home: Path, epoch: int) -> None:
        """Restore the database in `home` from the versions of this standby.

        The remains of the old database stay next to it as `.lost-…`. Do nothing if another attempt has made the
        database meanwhile: the database may hold later versions by now.

        **Errors** `FencedError` if the standby has seen a newer epoch; `DataError` if this standby is broken as well, or
        has no version.
        """
        target = self.opened()
        made = home.with_name(f"{home.name}.new-{uuid.uuid4().hex}")
        try:
            target.raise_epoch(epoch)
            with target.environment.reading() as txn:
                if not target.versions(txn):
                    raise DataError(f"a standby holds no version: folder={self.home}", "restore it from a backup")
            make_folder(home.parent)
            made.mkdir(mode=PRIVATE_FOLDER)
            (made / WRITERS).mkdir(mode=PRIVATE_FOLDER)
            target.environment.copy_to(made / DURABLE)
            sync_path(made)
            target.write(epoch, lambda _txn: put_in_place(made, home))
        finally:
            target.close()
            shutil.rmtree(made, ignore_errors=True)


def make_bare(home: Path, epoch: int, map_size_bytes: int) -> None:
    """Make only the durable side of a database, without a version; if another process was first, leave its database.

    **Errors** `OSError` if the files cannot be made.
    """
    made = home.with_name(f"{home.name}.new-{uuid.uuid4().hex}")
    nothing = CheckpointId(run="", epoch=epoch, step=0, layout_version=0, fingerprint="")
    try:
        make_folder(home.parent)
        made.mkdir(mode=PRIVATE_FOLDER)
        (made / WRITERS).mkdir(mode=PRIVATE_FOLDER)
        Durable.create(made / DURABLE, nothing, None, map_size_bytes)
        sync_path(made)
        made.rename(home)
        sync_path(home.parent)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not (home / DURABLE).is_dir():
            raise


def restore_from(standbys: Sequence[Standby], home: Path, epoch: int) -> None:
    """Restore a database from the first of its standbys that can be read; raise `DataError` if none can."""
    failed = []
    for standby in standbys:
        try:
            return standby.restore(home, epoch)
        except DataError as error:
            failed.append(error.message)
    raise DataError(
        f"a database is lost, and so are its standbys: folder={home}: {'; '.join(failed)}", "restore a backup"
    )


def is_sound(home: Path) -> bool:
    """Return whether there is a database in the folder whose file can be opened."""
    try:
        DATABASE.check(home / DURABLE)
    except DataError:
        return False
    return True


def runs_of(txn: Txn, side: Durable) -> frozenset[str]:
    """Return the runs of the held versions; only an old file can have versions of more than one run."""
    return frozenset(info.checkpoint.run for info in side.versions(txn))


def refuse_other_run(runs: frozenset[str], target: Durable) -> None:
    """Raise `ConfigError` if a standby has versions of a run that is not in `runs`: of another pipeline, or a former run."""
    with target.environment.reading() as held:
        others = runs_of(held, target) - runs
    if runs and others:
        raise ConfigError(
            f"a standby belongs to another run: folder={target.folder.parent} run={', '.join(sorted(others))}",
            "move it away if it may be needed, else delete it; or name other `standbys` in [layout]",
        )


def _refuse_other_run(source: Durable, target: Durable) -> None:
    with source.environment.reading() as txn:
        runs = runs_of(txn, source)
    refuse_other_run(runs, target)


def put_in_place(made: Path, home: Path) -> None:
    """Rename the restored folder into place, unless a sound database is there.

    The caller's transaction has checked the epoch. A process that raises the epoch also ends a process that is stopped here.
    """
    if is_sound(home):
        return
    if home.exists():
        home.rename(home.with_name(f".{home.name}.lost-{uuid.uuid4().hex}"))
    made.rename(home)
    sync_path(home.parent)


def _follow(txn: Txn, source: Durable, target: Durable, version: int, epoch: int, bytes_max: int | None) -> bool:
    """Do the work of `Standby.follow`, with both sides opened, and the database as `txn` sees it."""
    digests = digests_of(txn, source)
    record = source.record(txn, version)
    with target.environment.reading() as held:
        if holds(held, version, digests):
            return True
        settled = is_settled(held, version, digests)
    if not settled and target.write(epoch, lambda mine: settle(mine, target, version, epoch, digests)):
        return True
    fresh, whole = target.lacking(refs_of_states(record.traces.values()), bytes_max)
    with chunk_values(source, fresh) as chunks:
        target.copy_in(epoch, chunks)
    if not whole:
        return False
    with target.environment.reading() as held:
        values = values_since(txn, source, version, follows=target.find(held, version - 1) is not None)
    target.land(Root(version=version, record=record, values=values, keep=np.empty(0, np.uint64)), epoch)
    return True


def digests_of(txn: Txn, source: Durable) -> dict[int, bytes]:
    """Return the digest of the record of each version that a database holds."""
    return {info.version: _digest(txn.get("versions", number_key(info.version))) for info in source.versions(txn)}


def _digest(record: Any) -> bytes:
    return b"" if record is None else hashlib.sha256(record).digest()


def holds(txn: Txn, version: int, digests: Mapping[int, bytes]) -> bool:
    """Return whether the standby has this version with the same record."""
    return _digest(txn.get("versions", number_key(version))) == digests[version]


def _goal(version: int, digests: Mapping[int, bytes]) -> bytes:
    """Return the note that a standby keeps while it follows to a version."""
    return number_key(version) + digests[version]


def is_settled(txn: Txn, version: int, digests: Mapping[int, bytes]) -> bool:
    """Return whether the standby is ready to follow to this version."""
    return bytes(txn.get("meta", _FOLLOWS) or b"") == _goal(version, digests)


def settle(txn: Txn, target: Durable, version: int, epoch: int, digests: Mapping[int, bytes]) -> bool:
    """Prepare the standby to copy a version; return whether it has that version already.

    Keep the versions whose records are the same in the database, with their chunks and values; note the version as
    the goal.
    """
    if holds(txn, version, digests):
        return True
    if is_settled(txn, version, digests):
        return False
    _refuse_late(txn, target, version, epoch)
    held = {number_of(key): _digest(value) for key, value in txn.items("versions")}
    same = sorted(number for number, digest in held.items() if digests.get(number) == digest)
    for number in sorted(held.keys() - set(same), reverse=True):
        target.drop(txn, number, undo=bool(same) and number > same[0])
    if same:
        target.forget_before(txn, same[0])
    else:
        for table in ("values", "changed"):
            for key in txn.keys(table):
                txn.delete(table, key)
    referred = set(ids_of(target.record(txn, number) for number in same).tolist())
    target.sweep(txn, referred)
    txn.put("meta", _FOLLOWS, _goal(version, digests))
    return False


def _refuse_late(txn: Txn, target: Durable, version: int, epoch: int) -> None:
    """Refuse a task that would revert versions that followed since this epoch was opened."""
    opened, held = target.opened_in(txn), [info.version for info in target.versions(txn)]
    if opened is not None and opened[0] == epoch and max(held, default=version) > version:
        story = f"version={version} versions={held} folder={target.folder.parent}"
        raise UnavailableError(f"a standby holds a later version: {story}")


def values_since(txn: Txn, source: Durable, version: int, follows: bool) -> dict[bytes, bytes | None]:
    """Return the small values that changed in a version; all small values, unless the standby has the version before it."""
    keys: Iterator[bytes] = iter(source.changed(txn, version) if follows else source.value_keys(txn))
    return {key: source.value(txn, version, key) for key in keys}
