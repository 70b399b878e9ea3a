"""Standbys on other hosts: copies of a worker's versions, from which the worker continues when its host is lost.

A standby of this kind follows by messages, because no process reads both disks. For each version:

1. the worker's host makes an `Offer`: the digests of the versions that the database has;
2. the standby *settles*: it keeps the versions that are the same there, deletes all else, and returns a `Settled`, which says
   which chunks it has;
3. the worker's host sends the other chunks in bounded pieces, the record and the small values with the last (`piece`);
4. the standby takes each piece. With the last one it holds the version.

The invariants of the module `standby`, for standbys on the worker's own host, hold here too. These are added:

1. Within an epoch a standby never settles for an older version: the epoch and the version are noted, and compared in the
   transaction. So a late task deletes nothing that a later task stored.
2. The epoch that the standby has seen is raised before it settles. So a task of an older epoch writes nothing afterwards.
   Before that it may add a version that was never published, and drops at most the version before the published one.
3. When a standby *takes over*, its folder is renamed to the database's folder. The transaction around the rename has checked
   the epoch, and that the standby has the wanted version with the same checkpoint. No chunk is copied.

Source: docs/design/0056-standbys-on-other-hosts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dbsp.disk import make_folder
from dbsp.errors import DataError, UnavailableError
from dbsp.storage.discarding import discard_folder, discard_leftovers, discard_older, is_older
from dbsp.storage.durable import Durable, Root, refs_of_states
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.records import decode_record, number_key, number_of
from dbsp.storage.standby import (
    DURABLE,
    WRITERS,
    digests_of,
    is_sound,
    make_bare,
    put_in_place,
    refuse_other_run,
    runs_of,
    settle,
    values_since,
)
from dbsp.storage.tables import Txn
from dbsp.storage.transfers import shipment_of
from dbsp.store import Shipment, VersionInfo

Numbers = npt.NDArray[np.uint64]
_SETTLED_FOR = b"settled for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A version that a standby is to hold: the run of the pipeline, and the digest of each version that the database has."""

    version: int
    runs: frozenset[str]
    digests: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The content of a standby: the offered version (`whole`), the version before it (`follows`), and chunks by number."""

    whole: bool
    follows: bool
    held: Numbers


def offer(source: Durable, version: int) -> Offer:
    """Return the offer of a version, from which a standby decides what it lacks; `UnavailableError` without the version."""
    with source.environment.reading() as txn:
        source.record(txn, version)
        return Offer(version=version, runs=runs_of(txn, source), digests=digests_of(txn, source))


def piece(source: Durable, version: int, settled: Settled, bytes_max: int) -> Shipment:
    """Return about `bytes_max` bytes of the chunks that a standby lacks; the last piece has the record and small values."""
    with source.environment.reading() as txn:
        record = source.record(txn, version)
        values = values_since(txn, source, version, follows=settled.follows)
    refs = refs_of_states(record.traces.values())
    found = shipment_of(source, version, record, refs, settled.held, bytes_max)
    return found if found.record is None else replace(found, values=values)


class FarStandby:
    """A standby, on this host, of a worker on another host; `home` is its folder."""

    def __init__(self, home: Path, map_size_bytes: int = MAP_SIZE_BYTES) -> None:
        """Name the folder; nothing is opened or made yet."""
        self.home, self._map_size_bytes = home, map_size_bytes

    @property
    def exists(self) -> bool:
        """Return whether the folder contains a standby."""
        return (self.home / DURABLE).is_dir()

    def settle(self, offered: Offer, epoch: int) -> Settled:
        """Prepare to follow to a version, in a new folder if there is none; return the content of the standby.

        **Errors** `FencedError` for an older epoch; `UnavailableError` where a later version was settled for in this epoch;
        `ConfigError` if the standby belongs to another run.
        """
        if not is_sound(self.home):
            if self.home.exists():
                discard_folder(self.home, epoch)
            make_bare(self.home, epoch, self._map_size_bytes)
        with self._opened() as target:
            refuse_other_run(offered.runs, target)
            target.raise_epoch(epoch)

            def settled(txn: Txn) -> bool:
                self._note(txn, epoch, offered.version)
                return settle(txn, target, offered.version, epoch, offered.digests)

            whole = target.write(epoch, settled)
            with target.environment.reading() as txn:
                return Settled(
                    whole=whole,
                    follows=target.find(txn, offered.version - 1) is not None,
                    held=np.array([number_of(key) for key in txn.keys("chunks")], np.uint64),
                )

    def _note(self, txn: Txn, epoch: int, version: int) -> None:
        """Note the version that the standby settles for; refuse a version older than that of an earlier call in this epoch."""
        before = bytes(txn.get("meta", _SETTLED_FOR) or b"")
        now = number_key(epoch) + number_key(version)
        if before[:8] == now[:8] and before > now:
            story = f"version={version} later={number_of(before[8:])} epoch={epoch} folder={self.home}"
            raise UnavailableError(f"a standby has settled for a later version: {story}")
        txn.put("meta", _SETTLED_FOR, now)

    def take(self, shipment: Shipment, epoch: int) -> None:
        """Store a piece; with the last one the version is held. A repeat does nothing."""
        with self._opened() as target:
            target.copy_in(epoch, shipment.chunks)
            if shipment.record is not None:
                record = decode_record(shipment.record, f"standby={self.home} version={shipment.version}")
                target.land(
                    Root(version=shipment.version, record=record, values=shipment.values, keep=np.empty(0, np.uint64)),
                    epoch,
                )

    def versions(self) -> tuple[VersionInfo, ...]:
        """Return the versions that are whole in the standby; empty if there is no standby, or its file is broken."""
        try:
            with self._opened() as target, target.environment.reading() as txn:
                return target.versions(txn)
        except DataError:
            return ()

    def take_over(self, home: Path, epoch: int, since: int, wanted: VersionInfo) -> bool:
        """Move this standby to `home` as the database, if it holds the wanted version; return whether it did so.

        Do nothing if `home` has a sound database that was fenced in epoch `since` or later. An older database is deleted.

        **Errors** `FencedError` if a newer epoch has used this standby.
        """
        if (is_sound(home) and not is_older(home, since)) or wanted not in self.versions():
            return False
        make_folder(home.parent)
        discard_older(home, epoch, since)
        discard_leftovers(home, epoch)
        with self._opened() as target:
            target.raise_epoch(epoch)

            def taken(txn: Txn) -> bool:
                if wanted not in target.versions(txn):
                    return False
                put_in_place(self.home, home)
                return True

            return target.write(epoch, taken)

    def discard(self, epoch: int) -> None:
        """Delete the standby; `FencedError` if it has seen a newer epoch."""
        discard_folder(self.home, epoch)

    @contextmanager
    def _opened(self) -> Iterator[Durable]:
        target = Durable(self.home / DURABLE, self.home / WRITERS, self._map_size_bytes)
        try:
            yield target
        finally:
            target.close()
