"""Files of another version of the engine are refused with one error that names file, found and known format (row 22)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from databases import BY_KEY, CHUNK_BYTES, checkpoint, first_id, run_step

from dbsp.coordinator.running import ledger_file
from dbsp.errors import DataError
from dbsp.io import chunk, embedded_input, embedded_output, embedded_steps, file_output, step_codec
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.io.examine import examine_steps
from dbsp.io.file_output import FileOutputLog
from dbsp.io.formats import decode_json
from dbsp.logs import Range
from dbsp.storage import WorkerDatabase, chunkfile, records
from dbsp.stored.format_numbers import NEWER, OLDER
from dbsp.trace import manifest
from dbsp.zset import encoding
from tests.io.log_samples import TABLE, make_part, make_record

Patch = pytest.MonkeyPatch
ROWS = [((key, "x"), 1) for key in range(200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of stored bytes: how another version writes it, how this one reads it, and the file it must name."""

    write: Callable[[Path, Patch, int], None]
    read: Callable[[Path], Any]
    names: str
    known: int = 1
    reads: int = 1
    """How many numbers this version reads, the known one and those before it."""


# --- a worker's database --------------------------------------------------------------------------------------------


def database(folder: Path, _patch: Patch, _number: int) -> None:
    made = WorkerDatabase.create(folder / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    made.open(0, 1)
    run_step(made, 1, 0, ROWS)
    made.commit(1, checkpoint(1, 1))
    made.close()


def written_with(module: Any, name: str) -> Callable[[Path, Patch, int], None]:
    def write(folder: Path, patch: Patch, number: int) -> None:
        patch.setattr(module, name, number)
        database(folder, patch, number)

    return write


def lmdb_of_another_version(folder: Path, patch: Patch, number: int) -> None:
    database(folder, patch, number)
    renumber(folder / "w" / "durable" / "data.mdb", number)


def renumber(file: Path, number: int) -> None:
    """Change the format that LMDB notes in both of its meta pages, behind the magic number."""
    data = bytearray(file.read_bytes())
    for page in (0, 4096):
        struct.pack_into("<I", data, page + 20, number)
    file.write_bytes(data)


def read_database(folder: Path) -> None:
    found = WorkerDatabase(folder / "w", chunk_bytes_max=CHUNK_BYTES)
    try:
        found.open(1, 2)
        with found.read_trace(BY_KEY) as spine:
            list(spine.parts())
    finally:
        found.close()


# --- logs -----------------------------------------------------------------------------------------------------------


def named(module: Any, opened: Callable[[Path], Any]) -> Callable[[Path, Patch, int], None]:
    """An LMDB file whose name of the format ends with another number."""

    def write(folder: Path, patch: Patch, number: int) -> None:
        patch.setattr(module, "FORM", f"{module.FORM.rpartition(' ')[0]} {number}")
        opened(folder).close()

    return write


def inputs(folder: Path) -> EmbeddedInputLog:
    return EmbeddedInputLog(folder, [TABLE], create=True)


def steps(folder: Path) -> EmbeddedStepLog:
    return EmbeddedStepLog(folder, create=True)


def outputs(folder: Path) -> EmbeddedOutputLog:
    return EmbeddedOutputLog(folder, 0, create=True)


def files(folder: Path) -> FileOutputLog:
    return FileOutputLog(folder, 0, create=True)


def write_rows(folder: Path, patch: Patch, number: int) -> None:
    patch.setattr(chunk, "MAGIC", b"DBSPIN%02d" % number)
    log = inputs(folder)
    log.append("t", decode_json(b'{"id": 1}', TABLE))
    log.close()


def read_rows(folder: Path) -> None:
    log = inputs(folder)
    try:
        log.read(Range(table="t", partition=0, first=0, last=1), 0)
    finally:
        log.close()


def write_steps(folder: Path, patch: Patch, number: int) -> None:
    seal = step_codec.seal
    patch.setattr(embedded_steps, "seal", lambda value: seal(value | {"format": number}))
    patch.setattr(step_codec, "FORMAT", number)
    log = steps(folder)
    log.append(make_record(0, epoch=log.claim()))
    log.close()


def read_steps(folder: Path) -> None:
    log = steps(folder)
    try:
        log.read(0)
    finally:
        log.close()


def write_large_output(folder: Path, patch: Patch, number: int) -> None:
    log = outputs(folder)
    log.write(1, 0, {"v": make_part([((1, "a"), 1)])}, [])
    log.close()
    renumber(folder / "outputs" / "0" / "data.mdb", number)


def open_with(module: Any, opened: Callable[[Path], Any], place: str) -> Kind:
    known = int(module.FORM.rpartition(" ")[2])
    return Kind(write=named(module, opened), read=lambda folder: opened(folder).close(), names=place, known=known)


KINDS = {
    "version record": Kind(
        write=written_with(records, "FORMAT"),
        read=read_database,
        names="a record has another format: file={}/w/durable",
        known=2,
    ),
    "chunk": Kind(
        write=written_with(chunkfile, "FORMAT"),
        read=read_database,
        names="a chunk has another format: file={}/w/durable",
        known=2,
    ),
    "trace manifest": Kind(
        write=written_with(manifest, "FORMAT"),
        read=read_database,
        names="a trace manifest has another format: file={}/w/durable",
        known=3,
    ),
    "batch": Kind(write=written_with(encoding, "FORMAT"), read=read_database, names="file={}/w/durable", known=3),
    "database file": Kind(
        write=lmdb_of_another_version,
        read=read_database,
        names="the database file (LMDB) has another format: file={}/w/durable/data.mdb",
    ),
    "input log": open_with(embedded_input, inputs, "the log file has another format: file={}/input/data.mdb"),
    "step log": open_with(embedded_steps, steps, "the log file has another format: file={}/steps/data.mdb"),
    "output log": open_with(embedded_output, outputs, "the log file has another format: file={}/outputs/0/data.mdb"),
    "file outputs": open_with(file_output, files, "the log file has another format: file={}/.progress/0/data.mdb"),
    "ledger": replace(
        open_with(ledger_file, ledger_file.LmdbControl, "the log file has another format: file={}/control/data.mdb"),
        reads=2,
    ),
    "input record": Kind(write=write_rows, read=read_rows, names="an input record has another format: file={}/input"),
    "step record": Kind(write=write_steps, read=read_steps, names="a log record has another format: file={}/steps"),
    "log file": Kind(
        write=write_large_output,
        read=lambda folder: outputs(folder).close(),
        names="the log file (LMDB) has another format: file={}/outputs/0/data.mdb",
    ),
}


@pytest.mark.parametrize(("further", "hint"), [(1, NEWER), (-1, OLDER)], ids=["newer", "older"])
@pytest.mark.parametrize("kind", KINDS)
def test_another_format_is_refused(tmp_path: Path, kind: str, further: int, hint: str) -> None:
    found = KINDS[kind]
    number = found.known + further * (1 if further > 0 else found.reads)
    with Patch.context() as patch:
        found.write(tmp_path, patch, number)
    with pytest.raises(DataError) as refused:
        found.read(tmp_path)
    assert found.names.format(tmp_path) in refused.value.message
    assert f"found={number} known={found.known}" in refused.value.message
    assert refused.value.hint == hint


@pytest.mark.parametrize("kind", KINDS)
def test_the_format_of_this_version_is_read(tmp_path: Path, kind: str) -> None:
    with Patch.context() as patch:
        KINDS[kind].write(tmp_path, patch, KINDS[kind].known)
    KINDS[kind].read(tmp_path)


def test_the_doctor_names_it_too(tmp_path: Path) -> None:
    found = KINDS["step log"]
    with Patch.context() as patch:
        found.write(tmp_path, patch, found.known + 1)
    seen, _ = examine_steps(tmp_path)
    assert ["the log file has another format" in finding.what for finding in seen.findings] == [True]
