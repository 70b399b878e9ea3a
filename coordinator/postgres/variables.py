"""The variables of a session: what `SET` sets and `SHOW` shows.

A variable that would change results accepts only the value that is in force. Variables of PostgreSQL's planner and
writers accept any value, without effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, PostgresRefusal
from dbsp.coordinator.query.listing import LIST_VIEWS
from dbsp.version import VERSION

SERVER_VERSION = "15.0"
SERVER_VERSION_NUMBER = "150000"
VERSION_TEXT = f"PostgreSQL {SERVER_VERSION} (dbsp {VERSION}: views of an incremental engine, SQL run by DuckDB)"
REPORTED = {
    "server_version": "server_version", "server_encoding": "server_encoding", "client_encoding": "client_encoding",
    "application_name": "application_name", "is_superuser": "is_superuser", "datestyle": "DateStyle",
    "session_authorization": "session_authorization", "intervalstyle": "IntervalStyle", "timezone": "TimeZone",
    "default_transaction_read_only": "default_transaction_read_only", "in_hot_standby": "in_hot_standby",
    "integer_datetimes": "integer_datetimes", "standard_conforming_strings": "standard_conforming_strings",
}  # fmt: skip
"""Variables that are reported to a client, in the spelling that clients know."""
_DEFAULTS: Mapping[str, str] = {
    "server_version": SERVER_VERSION, "server_version_num": SERVER_VERSION_NUMBER, "server_encoding": "UTF8",
    "client_encoding": "UTF8", "application_name": "", "is_superuser": "off", "datestyle": "ISO, MDY",
    "intervalstyle": "postgres", "timezone": "UTC", "default_transaction_read_only": "on", "in_hot_standby": "off",
    "transaction_read_only": "on", "integer_datetimes": "on", "standard_conforming_strings": "on",
    "transaction_isolation": "read committed", "default_transaction_isolation": "read committed",
    "transaction_deferrable": "off", "default_transaction_deferrable": "off", "session_authorization": "dbsp",
    "search_path": '"$user", public', "max_identifier_length": "63", "extra_float_digits": "1", "statement_timeout": "0",
    "bytea_output": "hex", "lc_collate": "C", "lc_ctype": "C", "lc_messages": "C", "lc_monetary": "C", "lc_numeric": "C",
    "lc_time": "C", "role": "none", "max_index_keys": "32", "block_size": "8192", "max_connections": "100",
    "client_min_messages": "notice", "default_tablespace": "", "default_table_access_method": "heap", "xmloption": "content",
    "ssl": "off", "password_encryption": "scram-sha-256", "default_with_oids": "off", "wal_level": "replica",
    "max_prepared_transactions": "0", "shared_preload_libraries": "", "timezone_abbreviations": "Default",
    "check_function_bodies": "on", "row_security": "on", "jit": "off", "lock_timeout": "0", "tcp_keepalives_idle": "0",
    "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0", "synchronize_seqscans": "on",
    "escape_string_warning": "on", "backslash_quote": "safe_encoding", "quote_all_identifiers": "off", "work_mem": "4MB",
    "array_nulls": "on", "default_statistics_target": "100", "constraint_exclusion": "partition", "geqo": "on",
    "random_page_cost": "4", "max_parallel_workers_per_gather": "0", "maintenance_work_mem": "64MB", "seed": "0",
    "tcp_user_timeout": "0", "tcp_keepalives_interval": "0", "tcp_keepalives_count": "0", "log_statement": "none",
    "plan_cache_mode": "auto", "synchronous_commit": "on", "from_collapse_limit": "8", "join_collapse_limit": "8",
    "data_directory": "", "port": "5432", "listen_addresses": "", "cursor_tuple_fraction": "0.1", "log_min_messages": "warning",
}  # fmt: skip
_FIXED = frozenset(
    [
        "server_version",
        "server_version_num",
        "server_encoding",
        "is_superuser",
        "in_hot_standby",
        "integer_datetimes",
        "max_identifier_length",
        "lc_collate",
        "lc_ctype",
        "block_size",
        "max_index_keys",
        "ssl",
        "wal_level",
    ]
)
_TRUE = frozenset({"on", "true", "yes", "1"})
_ALLOWED: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "client_encoding": r"utf-?8|unicode|auto|default", "datestyle": r"iso\b.*|default", "intervalstyle": "postgres|default",
        "bytea_output": "hex|default", "standard_conforming_strings": "on|true|1|default",
        "transaction_isolation": r"read (un)?committed|default", "default_transaction_isolation": r"read (un)?committed|default",
        "timezone": r"(etc/)?(utc|gmt|uct|zulu|universal)|default|local|0|\+00(:00)?",
    }.items()
}  # fmt: skip
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|)")
_UNIT_S = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_$]*)*")
_VALUE_CHARS_MAX = 1000


class Variables:
    """The variables of one session."""

    def __init__(self, own: Mapping[str, str]) -> None:
        """Begin with the defaults, and the values of this session."""
        self._begun = {**_DEFAULTS, **own}
        self._now = dict(self._begun)

    @property
    def values(self) -> Mapping[str, str]:
        """Return all values, by their names in small letters."""
        return self._now

    def get(self, name: str) -> str:
        """Return a value. **Errors** `PostgresRefusal` if there is no such variable."""
        try:
            return self._now[name.lower()]
        except KeyError:
            raise PostgresRefusal(
                "42704",
                f'unrecognized configuration parameter "{name[:60]}"',
                f"SHOW ALL lists those there are; {LIST_VIEWS}",
            ) from None

    def set(self, name: str, value: str | None) -> None:
        """Set a value; None sets the value with which the session began.

        **Errors** `PostgresRefusal` for an unknown variable, and for a value that is not in force.
        """
        name = name.lower()
        if name not in self._begun and not ("." in name and _NAME.fullmatch(name)):
            raise PostgresRefusal(
                "42704", f'unrecognized configuration parameter "{name[:60]}"', "SHOW ALL lists those there are"
            )
        if name in _FIXED:
            raise PostgresRefusal("55P02", f'parameter "{name}" cannot be changed')
        if value is None or (value.lower() == "default" and name in self._begun):
            self._now[name] = self._begun.get(name, "")
            return
        if len(value) > _VALUE_CHARS_MAX:
            raise PostgresRefusal("22023", f'the value of "{name}" is too long: chars={len(value)}')
        allowed = _ALLOWED.get(name)
        if allowed is not None and not allowed.fullmatch(value.strip()):
            raise PostgresRefusal(
                NOT_SUPPORTED,
                f'"{name}" cannot be {value[:60]!r} here',
                f"it is {self._begun[name]!r} for every session",
            )
        if name == "statement_timeout":
            seconds_of(value)
        self._now[name] = self._begun[name] if allowed is not None else value

    def reset(self) -> None:
        """Set all variables to the values with which the session began."""
        self._now = dict(self._begun)

    @property
    def statement_timeout_s(self) -> float | None:
        """Return the time limit of a statement in seconds; None: the limit of the settings."""
        return seconds_of(self._now["statement_timeout"]) or None


def seconds_of(text: str) -> float:
    """Parse a time; without a unit it is in milliseconds.

    **Example**

    >>> seconds_of("1500"), seconds_of("2s"), seconds_of("1min")
    (1.5, 2.0, 60.0)
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise PostgresRefusal("22023", f"not a time: {text[:40]!r}", "write such as '5s' or 5000 (milliseconds)")
    return float(found[1]) * _UNIT_S[found[2]]


def is_true(text: str) -> bool:
    """Return whether a value means true."""
    return text.lower() in _TRUE
