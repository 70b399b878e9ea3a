"""Keep secrets out of error messages, log lines and status texts."""

from __future__ import annotations

import re

HIDDEN = "***"
_LOGIN = re.compile(r"(?<=://)\S*@")


def without_login(text: str) -> str:
    """Return a text without the names and passwords of the addresses in it.

    **Example**

    >>> without_login("cannot ask: registry=http://me:p@ss@host:8081/x")
    'cannot ask: registry=http://***@host:8081/x'
    """
    return _LOGIN.sub(f"{HIDDEN}@", text) if "://" in text else text
