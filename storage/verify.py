"""Check a whole database: compare every chunk of every version with its checksums, for `coordinator doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.errors import DataError
from dbsp.lmdb_environments import data_file, structure_problems
from dbsp.storage.chunkfile import payload_of
from dbsp.storage.durable import Durable, refs_of_states
from dbsp.storage.readahead import will_need
from dbsp.storage.records import number_key
from dbsp.trace.manifest import StoredBatch
from dbsp.zset.encoding import verify as verify_encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of a check without damage: the versions, and the number of chunks and of bytes that were read."""

    versions: tuple[int, ...]
    chunks: int
    bytes_read: int


def verify_database(durable: Durable) -> VerifyReport:
    """Walk the file's structure, then all chunks; raise a `DataError` that names the file and the first fault.

    **Cost**: reads everything once.
    """
    file = data_file(durable.folder)
    problems = structure_problems(file)
    if problems:
        raise DataError(f"the database file is broken: file={file} problem={problems[0]}", "restore it from a backup")
    with durable.environment.reading() as txn:
        infos = durable.versions(txn)
        states = [state for info in infos for state in durable.record(txn, info.version).traces.values()]
        run = StoredBatch(refs_of_states(states))
        size = 0
        for ref in run:
            value = txn.lying("chunks", number_key(ref.id))
            if value is None:
                raise DataError(f"a chunk is missing: file={file} chunk={ref.id}", "restore it from a backup")
            will_need(value)
            payload = payload_of(value, ref, file)
            try:
                verify_encoded(payload)
            except DataError as error:
                story = f"a chunk is broken: file={file} chunk={ref.id} cause={error.message}"
                raise DataError(story, "restore it from a backup") from error
            size += len(payload)
    return VerifyReport(versions=tuple(info.version for info in infos), chunks=len(run), bytes_read=size)
