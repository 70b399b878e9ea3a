"""Durable state: the two-version database of each worker, on LMDB.

`WorkerDatabase` is the entry point. The layers below it:

- `environment`: LMDB, its errors, and one opening per file and process
- `chunkfile`: chunks as values; `records`: version and step records
- `durable` and `scratch`: the two sides of a database
- `transaction`: one step; `committing`: a version; `adopting`: a version made by a rescale
- `standby`: copies in other folders; `copies`: copies as objects in a place off the host
- `warm` and `transfers`: chunks that arrive ahead of a rescale
- `discarding`: the deletion of a database; `verify`, `examine`, `peek`: checks
"""

if __name__ != "dbsp.storage":
    raise ImportError("import dbsp.storage: the bare name makes a second copy of every class")

from dbsp.storage.chunkfile import CHUNK_BYTES_MAX
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.verify import VerifyReport
from dbsp.storage.worker import WorkerDatabase
from dbsp.trace.redistribute import redistribute

__all__ = ["CHUNK_BYTES_MAX", "MAP_SIZE_BYTES", "VerifyReport", "WorkerDatabase", "redistribute"]
