"""Make Python timedeltas from counts of common units of time."""

from __future__ import annotations

import datetime

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError

MICROSECOND = datetime.timedelta(microseconds=1)


def milliseconds(count: float) -> datetime.timedelta:
    """Return a span of `count` milliseconds."""
    return _span("milliseconds", count)


def seconds(count: float) -> datetime.timedelta:
    """Return a span of `count` seconds.

    **Example**

    >>> import dbsp
    >>> dbsp.seconds(90)
    datetime.timedelta(seconds=90)
    """
    return _span("seconds", count)


def minutes(count: float) -> datetime.timedelta:
    """Return a span of `count` minutes."""
    return _span("minutes", count)


def hours(count: float) -> datetime.timedelta:
    """Return a span of `count` hours."""
    return _span("hours", count)


def days(count: float) -> datetime.timedelta:
    """Return a span of `count` days of 24 hours."""
    return _span("days", count)


def _span(unit: str, count: float) -> datetime.timedelta:
    with located(user_line()):
        try:
            return datetime.timedelta(**{unit: count})
        except (TypeError, OverflowError, ValueError) as error:
            raise CircuitError(f"not a number of {unit}: got={count!r}", f"such as dbsp.{unit}(10)") from error


def micros(span: datetime.timedelta) -> int:
    """Return a span in whole microseconds, rounded down."""
    return span // MICROSECOND


def check_span(what: str, span: object, least: int = 1) -> datetime.timedelta:
    """Return a span that a user gave; raise `CircuitError` unless it is a span of at least `least` microseconds."""
    if not isinstance(span, datetime.timedelta):
        raise CircuitError(f"{what} is a span of time: got={span!r}", "such as dbsp.minutes(10)")
    if micros(span) < least:
        raise CircuitError(f"{what} is too short: {what}={span}", "such as dbsp.minutes(10)")
    return span
