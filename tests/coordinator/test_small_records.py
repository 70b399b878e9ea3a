"""Every byte of every small record is flipped in a small pipeline: the doctor names the file; records of 0.1.0 are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.io.embedded_output import KEPT_FROM
from dbsp.io.examine import examine_input, examine_output
from dbsp.io.pushed import Producer
from dbsp.lmdb_environments import ENGINE_VERSION
from dbsp.store.findings import Examined
from dbsp.stored import checksums
from tests.coordinator.shop import settings_text

CIRCUIT = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(10)})
per_day = orders.group_by(day=dbsp.col("at").truncate("day")).aggregate(orders=dbsp.count())
pipeline = dbsp.circuit("shop", {"per_day": per_day, "all": orders.aggregate(most=dbsp.max("id"))})
"""
Examine = Callable[[Path], Examined]
CASES: dict[str, tuple[str, str, bytes, Examine]] = {
    "spans": ("input", "spans", b"", lambda data: examine_input(data)[0]),
    "producers": ("input", "producers", b"", lambda data: examine_input(data)[0]),
    "checksums": ("outputs/0", "checksums", b"", lambda data: examine_output(data, 0)[0]),
    "first kept step": (
        "outputs/0",
        "meta",
        KEPT_FROM,
        lambda data: examine_output(data, 0)[0],
    ),
    "progress": ("outputs/0", "meta", b"progress", lambda data: examine_output(data, 0)[0]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a pipeline that was stopped: two producers, one with a gap, a checkpoint."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 1000\n", workers=1))
    with Service(
        load_config(folder / "pipeline.toml", environment={}, overrides=["output.retention_steps=1"])
    ) as service:
        for number, (producer, sequence) in enumerate([("b", 7), ("a", 1), ("b", 9), ("a", 2)]):
            rows = pa.table({"id": [number], "at": pa.array([number * 1_000_000], pa.timestamp("us"))})
            pushed = service.push("orders", rows, producer=Producer(id=producer, sequence=sequence))
            service.wait_until_processed(pushed, 60)
            service.checkpoint(60)
    return folder / "data"


class File:
    """A file of LMDB that is written by whoever has no business there; closed between, as the doctor opens it, too."""

    def __init__(self, folder: Path, part: str, prefix: bytes) -> None:
        self._folder, self._part, self._prefix = folder, part, prefix

    def write(self, work: Callable[[Any], Any]) -> Any:
        env = lmdb.open(str(self._folder), max_dbs=8, map_size=1 << 28, lib_version=ENGINE_VERSION, sync=False)  # noqa: TID251 - as another program
        try:
            db = env.open_db(self._part.encode(), create=False)
            with env.begin(write=True, db=db) as txn:
                return work(txn)
        finally:
            env.close()

    def items(self) -> list[tuple[bytes, bytes]]:
        return self.write(lambda txn: [item for item in txn.cursor() if item[0].startswith(self._prefix)])

    def replace(self, old: tuple[bytes, bytes], new: tuple[bytes, bytes]) -> None:
        self.write(lambda txn: (txn.delete(old[0]), txn.put(*new)))


def flips(item: tuple[bytes, bytes], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The record with one bit flipped, a different one of each byte; not in what says which kind it is."""
    key, value = item
    for at in range(len(prefix), len(key)):
        yield key[:at] + bytes([key[at] ^ 1 << at % 8]) + key[at + 1 :], value
    for at in range(len(value)):
        yield key, value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]


@pytest.mark.parametrize("case", CASES)
def test_every_flipped_byte_is_named(case: str, data: Path) -> None:
    folder, part, prefix, examine = CASES[case]
    file = File(data / folder, part, prefix)
    assert not examine(data).findings
    items = file.items()
    assert items
    for item in items:
        for flipped in flips(item, prefix):
            file.replace(item, flipped)
            assert examine(data).findings, (item, flipped)
            file.replace(flipped, item)
    assert not examine(data).findings


@pytest.mark.parametrize("case", CASES)
def test_records_without_checksums_are_read(case: str, data: Path) -> None:
    """As 0.1.0 wrote them."""
    folder, part, prefix, examine = CASES[case]
    file = File(data / folder, part, prefix)
    for key, value in (items := file.items()):
        old = value[: -checksums.CRC_BYTES]
        file.replace((key, value), (key, old))
    assert not examine(data).findings
    for key, value in items:
        file.replace((key, b""), (key, value))
    assert not examine(data).findings
