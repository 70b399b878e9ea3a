"""Digests of texts, such as keys made of several columns: `concat_ws("|", …).md5()`.

**Cost** Python per row, half a microsecond or so.
"""

from __future__ import annotations

import hashlib

from dbsp.expr.encodings import written
from dbsp.expr.strings import fit_text

MD5 = written("md5", lambda text: hashlib.md5(text, usedforsecurity=False).hexdigest(), fit_text)
SHA256 = written("sha256", lambda text: hashlib.sha256(text).hexdigest(), fit_text)

FUNCTIONS = (MD5, SHA256)
