"""What formats a worker's database has: read only, its versions, and of its chunks the oldest and the newest alone.

Numbers of a format grow, and so do those of chunks: the lowest was written by the oldest version of the engine that had a hand in
the file, the highest by the newest. So whether this version reads a database can be told before anything is done with it, at
the cost of a few pages. Whether the chunks are whole is another question (`dbsp.storage.examine`).
"""

from __future__ import annotations

from pathlib import Path

from dbsp import lmdb_files
from dbsp.errors import DataError, FormatError
from dbsp.storage import chunkfile, records
from dbsp.storage.environment import data_file
from dbsp.storage.examine import ENGINE, durable_file, reading
from dbsp.storage.records import decode_record, number_of
from dbsp.storage.registry import is_open
from dbsp.trace import manifest
from dbsp.zset import encoding


def formats() -> dict[str, int]:
    """Every kind of bytes that a worker's database keeps, and the number of its format."""
    return {
        "database file (LMDB)": lmdb_files.FORMAT, "version record": records.FORMAT, "trace manifest": manifest.FORMAT,
        "chunk": chunkfile.FORMAT, "batch": encoding.FORMAT,
    }  # fmt: skip


def check_database(home: Path) -> None:
    """A worker's database, if it is there; `FormatError` names the file of another format.

    One that this process has open was looked at when it was opened. One that is damaged is for whoever opens it, who may have
    a standby to put in its place.
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
    except (DataError, *ENGINE):
        return
