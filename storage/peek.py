"""Check the formats of a worker's database without writing: those of its versions, its oldest chunk and its newest chunk.

Format numbers grow over time, and so do chunk numbers. So the oldest version of the engine that wrote to the file
wrote the lowest chunk, and the newest version wrote the highest. A few pages are therefore enough to decide if this
version of dbsp can read a database, before it does anything with it. The module `dbsp.storage.examine` checks that
the chunks are whole.
"""

from __future__ import annotations

from pathlib import Path

from dbsp import lmdb_files
from dbsp.errors import DataError, FormatError
from dbsp.lmdb_environments import BROKEN_FILE, data_file
from dbsp.storage import chunkfile, records
from dbsp.storage.examine import durable_file, reading
from dbsp.storage.records import decode_record, number_of
from dbsp.storage.registry import is_open
from dbsp.trace import manifest
from dbsp.zset import encoding


def formats() -> dict[str, int]:
    """Return the number of the format for every kind of bytes that a worker's database stores."""
    return {
        "database file (LMDB)": lmdb_files.FORMAT, "version record": records.FORMAT, "trace manifest": manifest.FORMAT,
        "chunk": chunkfile.FORMAT, "batch": encoding.FORMAT,
    }  # fmt: skip


def check_database(home: Path) -> None:
    """Check the formats of a worker's database, if it exists; a `FormatError` names the file of another format.

    A database that this process has open was checked when it was opened. Damage is ignored here, because the code that
    opens the database may be able to replace it by a standby.
    """
    file = durable_file(home)
    if not home.exists() or is_open(file.parent):
        return
    try:
        with reading(file.parent) as txn:
            for key, value in txn.items("versions"):
                decode_record(bytes(value), f"file={file} version={number_of(key)}")
            for key, value in txn.ends("chunks"):
                chunkfile.check_formats(value, f"file={data_file(file.parent)} chunk={number_of(key)}")
    except FormatError:
        raise
    except (DataError, *BROKEN_FILE):
        return
