"""Parse `FETCH` and `MOVE`: the cursor, the number of rows, and the time to wait for the first row."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, SYNTAX, PostgresRefusal
from dbsp.coordinator.postgres.statements import pieces_of, unquoted
from dbsp.coordinator.postgres.variables import seconds_of

FORM = "write FETCH count FROM cursor"
_ALL = (1 << 63) - 1
_COUNTS = {"ALL": _ALL, "NEXT": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStatement:
    """A FETCH: the cursor, the number of rows, and the seconds to wait for the first row; None: without limit."""

    cursor: str
    count: int
    wait_s: float | None = None


def fetch_of(sql: str) -> FetchStatement:
    """Read `FETCH [count | ALL | NEXT] [FROM] cursor [WITH (TIMEOUT = '1s')]`.

    **Errors** `PostgresRefusal` for other forms; cursors only go forward.

    **Example**

    >>> fetch_of("fetch forward 10 from c with (timeout = '0s')")
    FetchStatement(cursor='c', count=10, wait_s=0.0)
    """
    pieces, wait_s = _without_timeout(pieces_of(sql)[1:])
    pieces = [piece for piece in pieces if piece not in ("FROM", "IN", "FORWARD")]
    if not pieces or "BACKWARD" in pieces or "-" in pieces:
        raise PostgresRefusal(NOT_SUPPORTED, "cursors only go forward", FORM)
    given = pieces[0] if len(pieces) > 1 else "NEXT"
    if given not in _COUNTS and not given.isdecimal():
        raise PostgresRefusal(SYNTAX, f"not a count of rows: {given[:40]}", FORM)
    count = _COUNTS[given] if given in _COUNTS else min(int(given[:18]), _ALL)
    return FetchStatement(cursor=unquoted(pieces[-1]), count=count, wait_s=wait_s)


def _without_timeout(pieces: list[str]) -> tuple[list[str], float | None]:
    """Return the words before WITH, and the seconds of its time-out."""
    if "WITH" not in pieces[1:]:
        return pieces, None
    place = pieces.index("WITH", 1)
    match pieces[place + 1 :]:
        case ["(", "TIMEOUT", "=", value, ")"] | ["(", "TIMEOUT", value, ")"]:
            return pieces[:place], seconds_of(unquoted(value))
    raise PostgresRefusal(SYNTAX, "not an option of FETCH", "write FETCH count FROM cursor WITH (TIMEOUT = '1s')")
