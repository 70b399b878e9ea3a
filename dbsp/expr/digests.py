"""Digests of texts, such as keys made of several columns: `concat_ws("|", …).md5()`, and 64-bit hashes of any values.

**Cost** A digest takes Python per row, about half a microsecond. A 64-bit hash is a kernel on whole columns.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from dbsp.expr.encodings import written
from dbsp.expr.expression import Function, broadcast
from dbsp.expr.strings import fit_text
from dbsp.expr.types import typed
from dbsp.zset.hashing import hash_columns
from dbsp.zset.schema import UINT64

MD5 = written("md5", lambda text: hashlib.md5(text, usedforsecurity=False).hexdigest(), fit_text)
SHA256 = written("sha256", lambda text: hashlib.sha256(text).hexdigest(), fit_text)


def _hashed(*data: Any) -> pa.Array:
    """Return the hash of each row of these columns, of which some may be constants."""
    rows = max(len(datum) for datum in data if not isinstance(datum, pa.Scalar))
    return pa.array(hash_columns([broadcast(datum, rows) for datum in data], rows), UINT64)


HASH = Function(name="hash", fit=typed, result=lambda *_: UINT64, compute=_hashed, nulls="never")

FUNCTIONS = (MD5, SHA256, HASH)
