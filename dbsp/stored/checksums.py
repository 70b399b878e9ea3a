"""Small records with a checksum, in a database whose pages have none, so that a read detects and names a flipped bit.

The checksum covers key and value, and follows the value. Records of version 0.1.0, and of a
pipeline that it may still continue, have none (`levels`). Their length shows that, and they are read without a check.
Records with a format of their own (chunks, versions, steps, the ledger) have checksums of their own.
"""

from __future__ import annotations

import struct
import zlib

from dbsp.errors import DataError
from dbsp.stored.levels import NEWEST, SEALED_SINCE

_CRC = struct.Struct("<I")
CRC_BYTES = _CRC.size


def sealed(key: bytes, data: bytes, level: int = NEWEST) -> bytes:
    """Return a value as it is stored under a key, with its checksum if the pipeline's level of formats has them.

    >>> sealed(b"progress", b"1234")[:4], len(sealed(b"progress", b"1234"))
    (b'1234', 8)
    >>> sealed(b"progress", b"1234", level=1)
    b'1234'
    """
    if level < SEALED_SINCE:
        return data
    return data + _CRC.pack(_of(key, data))


def unsealed(key: bytes, value: bytes, size: int, where: str) -> bytes:
    """Return the `size` bytes that `sealed` was given, or a value that was stored without a checksum.

    **Errors** `DataError` with `where` if key or value were changed.

    >>> unsealed(b"progress", sealed(b"progress", b"1234"), 4, ""), unsealed(b"progress", b"1234", 4, "")
    (b'1234', b'1234')
    """
    if len(value) == size:
        return value
    if len(value) != size + CRC_BYTES or _CRC.unpack_from(value, size)[0] != _of(key, value[:size]):
        raise DataError(f"a small record is damaged: {where} key={key!r}", "restore the file from a backup")
    return value[:size]


def _of(key: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(key))
