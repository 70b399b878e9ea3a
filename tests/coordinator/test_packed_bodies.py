"""Packed bodies of pushes over HTTP: the rows of the same body unpacked, within the same bounds; nothing of a damaged one."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.client import unpacking
from dbsp.coordinator.http.kinds import ARROW, CSV
from dbsp.coordinator.service import Service
from dbsp.errors import CapacityError, DataError
from tests.coordinator.shop import ORDERS, answering, settings

PATH = "/v1/tables/orders/rows"


def in_zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": in_zstd}


def stream_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


BODIES = {
    "application/json": b'[{"id": 1, "customer": "a", "amount": 10}, {"id": 2, "amount": "x"}, {"id": 3, "customer": "b"}]',
    CSV: b"id,customer,amount\n1,a,10\n2,b,x\n3,b,\n",
    ARROW: stream_of(ORDERS),
}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("kind", BODIES)
def test_a_packed_body_has_the_rows_of_the_same_body_unpacked(client: httpx.Client, kind: str, encoding: str) -> None:
    body, headers = BODIES[kind], {"Content-Type": kind}
    plain = client.post(PATH, content=body, headers=headers).json()
    packed = client.post(
        PATH, content=PACKED[encoding](body), headers={**headers, "Content-Encoding": encoding.upper()}
    ).json()
    assert (packed["bad_rows"], packed["bad"]) == (plain["bad_rows"], plain["bad"])
    assert (packed["first"], packed["last"] - packed["first"]) == (plain["last"], plain["last"] - plain["first"])


@pytest.mark.parametrize("encoding", PACKED)
def test_a_damaged_body_is_refused_and_no_row_of_it_is_taken(client: httpx.Client, encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    whole = PACKED[encoding](BODIES["application/json"])
    for damaged in (whole[:-5], b"x" + whole[1:], BODIES["application/json"]):
        answer = client.post(PATH, content=damaged, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "data")
        assert answer.json()["error"]["message"].startswith("the packed body cannot be read: ")
    together = client.post("/v1/transactions", content=PACKED[encoding](b'{"orders": [{"id": 1}]}'), headers=headers)
    assert together.json()["tables"][0]["first"] == 0, "nothing was taken before"


def test_an_encoding_that_is_not_read_is_named_with_those_that_are(client: httpx.Client) -> None:
    answer = client.post(PATH, content=b"[]", headers={"Content-Encoding": "br"}).json()["error"]
    assert answer["message"] == "bodies in this encoding are not supported: Content-Encoding=br"
    assert answer["hint"] == "send gzip or zstd, or the rows without compression"


def test_the_bound_of_a_body_is_that_of_its_unpacked_bytes(folder: Path) -> None:
    body = b"[" + b" " * (3 << 20) + b"]"
    with Service(settings(folder, f"http.max_body_bytes={2 << 20}")) as service, answering(service) as client:
        for encoding, pack in PACKED.items():
            answer = client.post(PATH, content=pack(body), headers={"Content-Encoding": encoding})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "capacity")
            assert answer.json()["error"]["message"] == f"the unpacked body is too large: max_body_bytes={2 << 20}"


@pytest.mark.parametrize("encoding", PACKED)
def test_no_more_than_the_bound_and_a_buffer_is_unpacked(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of kilobytes may unpack to gigabytes."""
    packed = PACKED[encoding](bytes(64 << 20))
    assert len(packed) < 1 << 20
    taken = list[int]()
    more = unpacking.ByteSource._more

    def counted(source: unpacking.ByteSource, size: int) -> bytes:
        found = more(source, size)
        if not isinstance(source._file, io.BytesIO):
            taken.append(len(found))
        return found

    monkeypatch.setattr(unpacking.ByteSource, "_more", counted)
    with pytest.raises(CapacityError, match="the unpacked body is too large"):
        unpacking.unpacked_body(packed, encoding, 3 << 20)
    assert sum(taken) <= (3 << 20) + (2 << 20)
    with pytest.raises(DataError, match="the packed body cannot be read"):
        unpacking.unpacked_body(packed[:-9], encoding, 1 << 30)
