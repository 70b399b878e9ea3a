"""Spans of time by their usual names, as Python's timedeltas."""

from __future__ import annotations

import datetime

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError

MICROSECOND = datetime.timedelta(microseconds=1)


def milliseconds(count: float) -> datetime.timedelta:
    """So many thousandths of a second."""
    return _span("milliseconds", count)


def seconds(count: float) -> datetime.timedelta:
    """So many seconds.

    **Example**

    >>> import dbsp
    >>> dbsp.seconds(90)
    datetime.timedelta(seconds=90)
    """
    return _span("seconds", count)


def minutes(count: float) -> datetime.timedelta:
    """So many minutes."""
    return _span("minutes", count)


def hours(count: float) -> datetime.timedelta:
    """So many hours."""
    return _span("hours", count)


def days(count: float) -> datetime.timedelta:
    """So many days of 24 hours."""
    return _span("days", count)


def _span(unit: str, count: float) -> datetime.timedelta:
    with located(user_line()):
        try:
            return datetime.timedelta(**{unit: count})
        except (TypeError, OverflowError, ValueError) as error:
            raise CircuitError(f"not a number of {unit}: got={count!r}", f"such as dbsp.{unit}(10)") from error


def micros(span: datetime.timedelta) -> int:
    """A span as whole microseconds."""
    return span // MICROSECOND


def check_span(what: str, span: object, least: int = 1) -> datetime.timedelta:
    """A span that a user gave, at least `least` microseconds long."""
    if not isinstance(span, datetime.timedelta):
        raise CircuitError(f"{what} is a span of time: got={span!r}", "such as dbsp.minutes(10)")
    if micros(span) < least:
        raise CircuitError(f"{what} is too short: {what}={span}", "such as dbsp.minutes(10)")
    return span
