"""Unpack compressed bytes as a stream: files that are pushed, and bodies of pushes over HTTP.

The module loads no engine. pyarrow is loaded for the kinds that Python 3.11 cannot read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from typing import Any

from dbsp.errors import CapacityError, DataError

_PACKINGS = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"), (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
    (re.compile(rb"BZh[1-9]\x31\x41\x59\x26\x53\x59"), "bz2"), (re.compile(rb"\x04\x22\x4d\x18"), "lz4"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz"),
)  # fmt: skip
"""The first bytes of packed files, by kind of packing."""
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
ENCODINGS = ("gzip", "zstd")
"""The values of `Content-Encoding` that pushes may have."""


class ByteSource:
    """A stream of bytes of which the next ones can be looked at; `of` names the packed thing in errors."""

    def __init__(self, file: Any, of: str = "file") -> None:
        """Store the file; nothing is read yet."""
        self._file, self._ahead, self._of = file, b"", of
        self.closed = False

    def peek(self, size: int) -> bytes:
        """Return the next bytes without taking them; fewer at the end of the file."""
        while len(self._ahead) < size and (more := self._more(size - len(self._ahead))):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = 1 << 20) -> bytes:
        """Return the next `size` bytes, fewer at the end of the file."""
        pieces, self._ahead = [self._ahead[:size]], self._ahead[size:]
        have = len(pieces[0])
        while have < size and (more := self._more(size - have)):
            pieces.append(more)
            have += len(more)
        return b"".join(pieces)

    def close(self) -> None:
        """Note the end, as pyarrow requires; the caller closes the file."""
        self.closed = True

    def unpacked(self) -> ByteSource:
        """Return the stream of the unpacked bytes, this stream if it is not packed; its first bytes say how it is packed."""
        start = self.peek(10)
        kind = next((kind for begins, kind in _PACKINGS if begins.match(start)), None)
        return self if kind is None else self.opened(kind)

    def opened(self, kind: str) -> ByteSource:
        """Return the stream of the unpacked bytes; `kind` says how they are packed."""
        ways: dict[str, Callable[[Any], Any]] = {
            "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"), "bz2": bz2.BZ2File, "xz": lzma.LZMAFile,
        }  # fmt: skip
        return ByteSource(ways[kind](self) if kind in ways else self._arrow_opened(kind), self._of)

    def _arrow_opened(self, kind: str) -> Any:
        """Return the stream of the unpacked bytes of a kind that only pyarrow reads."""
        import pyarrow as pa  # noqa: PLC0415 - only these kinds need it

        return pa.CompressedInputStream(pa.PythonFile(self, mode="r"), kind)

    def _more(self, size: int) -> bytes:
        try:
            return bytes(self._file.read(size))
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            story = " ".join(str(error).split())[:200]
            raise DataError(f"the packed {self._of} cannot be read: {story}") from None


def too_large(what: str, bytes_max: int) -> CapacityError:
    """Return the error for a body of a push, packed or unpacked, that exceeds `max_body_bytes`."""
    return CapacityError(
        f"the {what} is too large: max_body_bytes={bytes_max}",
        "send several smaller pushes, or raise `max_body_bytes` in [http]",
    )


def unpacked_body(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return the bytes of a body that are packed as its `Content-Encoding` says, one of `ENCODINGS`.

    Not more than a buffer above `bytes_max` is ever unpacked.
    **Errors** `DataError` if the bytes are damaged; `CapacityError` if there are more than `bytes_max`.

    **Example**

    >>> unpacked_body(gzip.compress(b"[]"), "gzip", 10)
    b'[]'
    """
    source = ByteSource(io.BytesIO(body), "body").opened(encoding)
    pieces, have = list[bytes](), 0
    while piece := source.read():
        pieces.append(piece)
        have += len(piece)
        if have > bytes_max:
            raise too_large("unpacked body", bytes_max)
    return b"".join(pieces)
