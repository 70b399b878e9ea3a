"""Shard transfers: the part of another host's version that one worker here needs, deleted when the rescale is over.

Workers whose hosts have disks of their own cannot read each other's databases. So the chunks that slices of a version
need are sent first. The source's side returns pieces of them (`outgoing`), and a runtime carries each piece to the
target's host. There a `ShardTransfer` stores them (`ShardTransfer.take`). The last piece contains the version's
record. From then on, readers use the transfer like the source's database. Chunks never change, so for a later version
only the chunks that the target lacks are sent.

Invariants:

1. A transfer is of one epoch and one source. Nothing is rolled back within an epoch, so a chunk's number means one chunk.
   Another epoch has another folder, and the first piece of a newer epoch deletes the older folders.
2. A version can be read when all its chunks that the target's ranges touch are there, and not before.
3. Nothing refers to a transfer: its rows are copied, as from a database on the same disk. It is deleted when the
   target is opened, cooled or deleted. It may be lost at any moment, at the cost of sending the chunks again.

Source: docs/concepts/rescale.md (warm-up); design record 0031.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError, UnavailableError
from dbsp.storage.committing import chunk_values
from dbsp.storage.durable import Durable, Root, reading_version
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.records import Record, decode_record, encode_record, number_of
from dbsp.storage.standby import DURABLE, WRITERS, make_bare
from dbsp.store import CheckpointId, Shipment, VersionView
from dbsp.trace.manifest import ID, NBYTES, Refs
from dbsp.trace.slicing import HashRange, refs_within

Numbers = npt.NDArray[np.uint64]


def outgoing(durable: Durable, version: int, ranges: Sequence[HashRange], held: Numbers, bytes_max: int) -> Shipment:
    """Return about `bytes_max` bytes of the chunks that slices of these ranges need and that the target lacks.

    `held` contains the numbers of the chunks that the target has. The shipment with the last chunks contains the
    version's record.
    """
    with durable.environment.reading() as txn:
        record = durable.record(txn, version)
    return shipment_of(durable, version, record, refs_within(record.traces.values(), ranges), held, bytes_max)


def shipment_of(
    durable: Durable, version: int, record: Record, needed: Refs, held: Numbers, bytes_max: int
) -> Shipment:
    """Return about `bytes_max` bytes of the `needed` chunks that are not `held`; the last piece has the version's record."""
    lacking = needed[~np.isin(needed[:, ID], held)]
    ends = np.cumsum(lacking[:, NBYTES])
    count = max(1, int(ends.searchsorted(np.uint64(bytes_max), "right")))
    now, later = lacking[:count], lacking[count:]
    with chunk_values(durable, now[:, ID].tolist()) as values:
        chunks = tuple((number, bytes(value)) for number, value in values)
    return Shipment(
        version=version,
        chunks=chunks,
        record=None if len(later) else encode_record(record),
        left_bytes=int(later[:, NBYTES].sum()),
        total_bytes=int(needed[:, NBYTES].sum()),
    )


class ShardTransfer:
    """The chunks and versions of one source that are on the target's host, in an epoch."""

    def __init__(self, home: Path, source_worker: int, epoch: int, map_size_bytes: int = MAP_SIZE_BYTES) -> None:
        """Use a folder inside `home`, which contains all transfers to one target; nothing is opened or made yet."""
        self._home, self._giver, self._epoch, self._map_size_bytes = home, source_worker, epoch, map_size_bytes
        self.folder = home / f"{source_worker:04d}-{epoch}"

    def held(self) -> Numbers:
        """Return the numbers of all chunks that were stored in this transfer."""
        if not (self.folder / DURABLE).is_dir():
            return np.empty(0, np.uint64)
        with self._opened() as durable, durable.environment.reading() as txn:
            return np.array([number_of(key) for key in txn.keys("chunks")], np.uint64)

    def take(self, shipment: Shipment) -> None:
        """Store a piece; after the last piece the version can be read. A repeat does nothing."""
        if not (self.folder / DURABLE).is_dir():
            self._delete_older()
            make_bare(self.folder, self._epoch, self._map_size_bytes)
        with self._opened() as durable:
            durable.copy_in(self._epoch, shipment.chunks)
            if shipment.record is not None:
                record = decode_record(shipment.record, f"source worker={self._giver} version={shipment.version}")
                root = Root(version=shipment.version, record=record, values={}, keep=np.empty(0, np.uint64))
                durable.land(root, self._epoch)

    @contextmanager
    def read_version(self, version: int) -> Iterator[VersionView]:
        """Yield the traces of a version for slicing; raise `UnavailableError` if the transfer lacks a part of the version."""
        try:
            opened = Durable(self.folder / DURABLE, self.folder / WRITERS, self._map_size_bytes)
        except DataError as error:
            story = f"source worker={self._giver} version={version} folder={self.folder}"
            raise UnavailableError(f"state of a worker on another host is not here: {story}") from error
        try:
            with reading_version(opened, version) as view:
                yield view
        finally:
            opened.close()

    @contextmanager
    def read_cut(self, version: int, cut: CheckpointId) -> Iterator[VersionView]:
        """Raise `UnavailableError`: a cut, which is no version yet, can be read only on its own host."""
        raise UnavailableError(
            f"a cut is not read on another host: source worker={self._giver} version={version} cut={cut}"
        )
        yield

    @contextmanager
    def _opened(self) -> Iterator[Durable]:
        durable = Durable(self.folder / DURABLE, self.folder / WRITERS, self._map_size_bytes)
        try:
            yield durable
        finally:
            durable.close()

    def _delete_older(self) -> None:
        """Delete the transfers of this source in older epochs."""
        for folder in _folders(self._home):
            source_worker, epoch = map(int, folder.name.split("-"))
            if source_worker == self._giver and epoch < self._epoch:
                shutil.rmtree(folder, ignore_errors=True)


def end_transfers(home: Path, epoch: int) -> None:
    """Delete all transfers in the folder of a target, except those of newer epochs."""
    for folder in _folders(home):
        if int(folder.name.split("-")[1]) <= epoch:
            shutil.rmtree(folder, ignore_errors=True)
    for unfinished in home.glob("*.new-*") if home.is_dir() else ():
        if int(re.split("[-.]", unfinished.name)[1]) <= epoch:
            shutil.rmtree(unfinished, ignore_errors=True)


def _folders(home: Path) -> list[Path]:
    """Return the folders of all transfers to a target."""
    return [each for each in sorted(home.iterdir()) if re.fullmatch(r"\d+-\d+", each.name)] if home.is_dir() else []
