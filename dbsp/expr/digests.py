"""Digests of texts, such as keys made of several columns: `concat_ws("|", …).md5()`.

**Cost** Python per row, half a microsecond or so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dbsp.expr.expression import Function
from dbsp.expr.strings import fit_text
from dbsp.zset.schema import STRING


def _digest(name: str, digest: Callable[[bytes], Any]) -> Function:
    def compute(values: pa.Array) -> pa.Array:
        texts = values.to_pylist()
        return pa.array([None if text is None else digest(text.encode()).hexdigest() for text in texts], STRING)

    return Function(
        name=name, fit=fit_text, result=lambda *_: STRING, compute=compute, text=f"{{0}}.{name}()", costly=True
    )


MD5 = _digest("md5", lambda text: hashlib.md5(text, usedforsecurity=False))
SHA256 = _digest("sha256", hashlib.sha256)

FUNCTIONS = (MD5, SHA256)
