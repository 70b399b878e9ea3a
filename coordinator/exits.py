"""Exit codes of `dbsp-coordinator` and `coordinator`: one for each thing that a script must tell apart.

0   done
1   an error of no other kind
2   the program, the settings or the command line are wrong: mend them
3   stored or received bytes are wrong
4   something is away (the service, Spark, Kafka): try again
5   a named limit was reached: raise it
6   fenced: another coordinator owns the pipeline
70  a bug of this project
130 interrupted twice
"""

from __future__ import annotations

from dbsp import errors

OK = 0
INTERRUPTED = 130

KINDS: dict[str, type[errors.DbspError]] = {
    kind.code: kind
    for kind in (
        errors.CircuitError,
        errors.ConfigError,
        errors.DataError,
        errors.RowsError,
        errors.UnavailableError,
        errors.OverloadedError,
        errors.CapacityError,
        errors.FencedError,
        errors.InternalError,
    )
}


def error_of(code: str, message: str, hint: str | None = None) -> errors.DbspError:
    """The error of a kind."""
    return KINDS.get(code, errors.DbspError)(message, hint)


def exit_code(code: str | None) -> int:
    """The exit code for an error's kind; None is success."""
    return OK if code is None else KINDS.get(code, errors.DbspError).exit_code
