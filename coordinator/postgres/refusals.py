"""Errors with PostgreSQL's codes (SQLSTATE)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dbsp.coordinator.query.process import QueryStopped
from dbsp.errors import CapacityError, ConfigError, DbspError, OverloadedError, UnavailableError

READ_ONLY = "25006"
NOT_SUPPORTED = "0A000"
SYNTAX = "42601"
CANCELLED = "57014"
BUG = "XX000"
WRITE_HINT = "views change when rows are pushed to tables: `coordinator push TABLE FILE`, or POST /v1/tables/TABLE/rows"

_CHANGE_HINT = (
    "tables and views are part of the circuit: edit its file, and start the service with --accept-circuit; "
    "rows are pushed: `coordinator push TABLE FILE`"
)
_FRESH_HINT = "leave it out: a view has all rows that were processed, and needs no care"
_HINTS = {
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "COMMENT"), _CHANGE_HINT),
    **dict.fromkeys(("REFRESH", "REINDEX", "VACUUM", "ANALYZE", "CLUSTER", "CHECKPOINT", "LOCK"), _FRESH_HINT),
    **dict.fromkeys(("GRANT", "REVOKE", "REASSIGN", "SECURITY"), "the tokens of [http] say who may read"),
}


class PostgresRefusal(Exception):  # noqa: N818 - the word of this project
    """A statement that is refused: with PostgreSQL's code, a message and a hint."""

    def __init__(self, sqlstate: str, message: str, hint: str | None = None) -> None:
        """Keep the parts."""
        super().__init__(message)
        self.sqlstate, self.message, self.hint = sqlstate, message, hint


_BY_MESSAGE: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), code)
    for pattern, code in (
        (r"no such view|not materialized|write the view's name alone", "42P01"),
        (r"not SQL|exactly one statement|not a statement", SYNTAX),
        (r"only SELECT is allowed|only reading is allowed", READ_ONLY),
        (r"unrecognized configuration parameter", "42704"),
        (r"without a value|not a parameter", "08P01"),
        (r"Binder Error: (Referenced|Table .* does not have a) column|Column .* not found", "42703"),
        (r"Catalog Error: .*[Ff]unction|No function matches|Macro", "42883"),
        (r"Catalog Error: .*(Table|View)|Referenced table", "42P01"),
        (r"Catalog Error: .*Type", "42704"),
        (r"GROUP BY", "42803"),
        (r"[Aa]mbiguous", "42702"),
        (r"Conversion Error|Could not convert", "22P02"),
        (r"[Oo]verflow|Out of Range", "22003"),
        (r"[Dd]ivision by zero", "22012"),
        (r"Not implemented", NOT_SUPPORTED),
    )
]


def read_only(verb: str) -> PostgresRefusal:
    """Return the error for a statement that changes something, with what to do instead.

    >>> read_only("GRANT").hint
    'the tokens of [http] say who may read'
    """
    return PostgresRefusal(READ_ONLY, f"cannot execute {verb} in a read-only transaction", _HINTS.get(verb, WRITE_HINT))


def refusal_of(error: DbspError) -> PostgresRefusal:
    """Return an error of this project with PostgreSQL's code."""
    return PostgresRefusal(_code(error), error.message, error.hint)


def _code(error: DbspError) -> str:
    match error:
        case QueryStopped():
            return CANCELLED
        case OverloadedError():
            return "53300"
        case UnavailableError():
            return "57P03"
        case CapacityError():
            if "too long: timeout" in error.message:
                return CANCELLED
            return "53200" if re.search("memory|held at once", error.message) else "54000"
        case ConfigError():
            return next((code for pattern, code in _BY_MESSAGE if pattern.search(error.message)), "42000")
    return BUG
