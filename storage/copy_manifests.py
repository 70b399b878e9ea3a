"""The manifest of a version among the copies, and its name: see the module `copies`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbsp.errors import DataError
from dbsp.stored.format_numbers import check_format

FORMAT = 1
_CHECKSUM_CHARS = 32


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """The parts of a manifest's name; the order is that in which manifests were made."""

    epoch: int
    version: int
    life: str
    record: str

    @classmethod
    def of(cls, name: str) -> ManifestName:
        """Return the parts of an object's name."""
        version, epoch, life, record = name.rpartition("/")[2].split("-")
        return cls(int(epoch), int(version), life, record)

    def __str__(self) -> str:
        """Return the end of the object's name, below the worker's prefix."""
        return f"versions/{self.version:020}-{self.epoch:020}-{self.life}-{self.record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionManifest:
    """A version in the place: its record, its small values, and the name of each chunk's object."""

    record: bytes
    values: Mapping[bytes, bytes]
    chunks: Mapping[int, str]

    def encoded(self) -> bytes:
        """Return the bytes of the object: a checksum and JSON."""
        body = {
            "format": FORMAT,
            "record": base64.b64encode(self.record).decode(),
            "values": [[base64.b64encode(part).decode() for part in pair] for pair in sorted(self.values.items())],
            "chunks": sorted(self.chunks.items()),
        }
        text = json.dumps(body)
        return f"{checksum(text.encode())}\n{text}".encode()

    @classmethod
    def decoded(cls, data: bytes, where: str) -> VersionManifest:
        """Return the manifest of an object; raise `DataError` that names `where` if its checksum is wrong."""
        stated, _, text = data.partition(b"\n")
        if stated.decode(errors="replace") != checksum(text):
            raise DataError(f"a manifest of the copies is damaged: {where}", "restore the copies from elsewhere")
        body = json.loads(text)
        check_format("a manifest of the copies", where, body["format"], FORMAT)
        return cls(
            record=base64.b64decode(body["record"]),
            values={base64.b64decode(key): base64.b64decode(value) for key, value in body["values"]},
            chunks={int(number): name for number, name in body["chunks"]},
        )


def checksum(data: Any) -> str:
    """Return the checksum that the names of objects contain."""
    return hashlib.sha256(data).hexdigest()[:_CHECKSUM_CHARS]
