"""Errors, grouped by what the caller must do.

    DbspError
    ├── CircuitError      fix the program: the message names your file and line
    ├── ConfigError       fix the settings or the command line
    ├── DataError         bytes on disk or on the wire are wrong: the message names the file or position
    │   ├── RowsError     rows on which an evaluation fails, under error policy `stop`: decide about them
    │   ├── MismatchError  a step that ran again gave another output: accept it, or fix the function
    │   └── PositionError  a consumer asks for dropped or future steps: read the view again, continue from its step
    │       └── BegunAnewError  the view was edited or made again: forget its rows, read it again
    ├── UnavailableError  a system outside this process does not respond: try again
    │   ├── OverloadedError  more rows wait than a setting allows: send the rows again later
    │   └── AwayError     a broker, a registry or a store does not respond: the service waits until it does
    ├── CapacityError     a named limit was hit: raise it
    ├── FencedError       another owner has taken over: stop
    ├── EngineError       another version of the engine logged the steps to run: start that one, or accept this one
    └── InternalError     our bug: report it with the message

A message holds no password of an address (`dbsp.diagnostics.secrets`).
A message is lower case, with ``key=value`` pairs last. A hint follows where one setting or command fixes the cause.
Every class survives pickling, because errors cross from Spark tasks to the driver: they take positional arguments only.
"""

from __future__ import annotations

from dbsp.diagnostics.secrets import without_login

PYTHON_WORKER_DIED = "a Python worker died in every try of its task"
"""How the message begins of a step that has lost a worker again and again."""


class DbspError(Exception):
    """The root of all errors that this project raises on purpose."""

    code = "dbsp"
    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        """Keep the message and the hint apart, so that both survive a pickle."""
        self.message = without_login(message)
        self.hint = None if hint is None else without_login(hint)
        super().__init__(self.message, self.hint)

    def __str__(self) -> str:
        """Return the message, then the hint."""
        return self.message if self.hint is None else f"{self.message}; {self.hint}"


class CircuitError(DbspError):
    """The program is wrong: fix the circuit. `located` is True if the message already names the user's line."""

    code = "circuit"
    exit_code = 2
    located = False


class ConfigError(DbspError):
    """A setting, a file name or an argument is wrong: fix it and start again."""

    code = "config"
    exit_code = 2


class DataError(DbspError):
    """Stored or received bytes are wrong: damaged, incomplete or not as declared."""

    code = "data"
    exit_code = 3


class FormatError(DataError):
    """Stored bytes have a format that this version of dbsp does not read; the bytes themselves are sound."""


class RowsError(DataError):
    """Rows failed at a node under the error policy `stop`: decide to skip them, or fix the cause of their failure.

    `node` is the node's number in the plan and `name` its name. `rows` are the first of the `count` rows that failed, as
    (payload, reason, weight).
    """

    code = "rows"

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        node: int = -1,
        name: str = "",
        count: int = 0,
        rows: tuple[tuple[str, str, int], ...] = (),
    ) -> None:
        """Keep the node and the failed rows, which a decision needs."""
        Exception.__init__(self, message, hint, node, name, count, rows)
        self.message, self.hint = message, hint
        self.node, self.name, self.count, self.rows = node, name, count, rows


class PositionError(DataError):
    """A consumer asks for dropped or future steps: read the view again and continue from its step."""

    code = "position"


class BegunAnewError(PositionError):
    """A follower has rows of an earlier definition of a view, which began anew at `step`: forget them, read the view again."""

    code = "anew"

    def __init__(self, message: str, hint: str | None = None, step: int = 0) -> None:
        """Keep the step, which holds the first output of the view's present definition."""
        Exception.__init__(self, message, hint, step)
        self.message, self.hint, self.step = message, hint, step


class MismatchError(DataError):
    """A step that ran again gave another output: decide to accept the new one, or fix what is not deterministic."""

    code = "mismatch"


class UnavailableError(DbspError):
    """A system outside this process does not respond: try again later."""

    code = "unavailable"
    exit_code = 4


class OverloadedError(UnavailableError):
    """More rows wait than a setting allows: no row of this push was accepted; send the push again later."""

    code = "overloaded"


class AwayError(UnavailableError):
    """A broker, a schema registry or a store does not respond: a running service waits until it does."""

    code = "away"


class NoRoomError(UnavailableError):
    """A cluster has no free cores for what is to start beside the rest: free some, or accept a pause."""

    code = "no-room"


class CapacityError(DbspError):
    """A named limit was reached: raise it or send less."""

    code = "capacity"
    exit_code = 5


class FencedError(DbspError):
    """A newer epoch owns the pipeline: this process must stop."""

    code = "fenced"
    exit_code = 6


class EngineError(DbspError):
    """Another version of the engine is needed, or the one that is installed cannot go on: the message names both."""

    code = "engine"
    exit_code = 7


class InternalError(DbspError):
    """The code reached a state that it rules out: a bug of this project."""

    code = "internal"
    exit_code = 70


KINDS: dict[str, type[DbspError]] = {
    kind.code: kind
    for kind in (
        CircuitError,
        ConfigError,
        DataError,
        RowsError,
        PositionError,
        MismatchError,
        UnavailableError,
        OverloadedError,
        AwayError,
        NoRoomError,
        CapacityError,
        FencedError,
        EngineError,
        InternalError,
    )
}
"""The error classes by code.

An error that another process or an event sent as values becomes an object of its class again.
"""
