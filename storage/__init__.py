"""Durable state: the two-version database of each worker, on LMDB.

`WorkerDatabase` is the way in. Layers below it: `environment` (LMDB, its errors, its one opening per process), `chunkfile`
(chunks as values), `records`, `durable` and `scratch` (the two sides), `transaction` (one step), `committing`, `adopting`
(rescale), `standby` (copies elsewhere), `writers` (ending stopped writers), `verify`.
"""

if __name__ != "dbsp.storage":
    raise ImportError("import dbsp.storage: the bare name makes a second copy of every class")

from dbsp.storage.chunkfile import CHUNK_BYTES_MAX
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.verify import VerifyReport
from dbsp.storage.worker import WorkerDatabase
from dbsp.trace.redistribute import redistribute

__all__ = ["CHUNK_BYTES_MAX", "MAP_SIZE_BYTES", "VerifyReport", "WorkerDatabase", "redistribute"]
