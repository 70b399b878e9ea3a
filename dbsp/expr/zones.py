"""Local times: a UTC time as the clocks of a zone show it, and back.

Offsets are those of Python's `zoneinfo`, whose files should be the same on every worker. They are looked up once per
zone and year, and whole columns are shifted. Arrow's kernels ignore the rule at the end of such files. So they know no
summer time after 2037, and with some systems' files long before.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.dates import micros_of, moments_of
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.names import nearest
from dbsp.expr.types import is_timestamp, type_of, typed
from dbsp.zset.schema import INT64, TIMESTAMP, TIMESTAMP_UTC

SECOND = 1_000_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST_YEAR, LAST_YEAR = 1800, 2800
"""Earlier clocks showed the local solar time. Later years have the offsets of 400 years before.

The calendar repeats after 400 years, and the rules of zones are taken to stay as they are.
"""
CYCLE_S = 146_097 * 86_400
Micros = np.ndarray[Any, np.dtype[np.int64]]


def _fit(operands: Operands) -> tuple[Expression, ...]:
    (zone,) = operands.options
    args = typed(operands)
    type_ = type_of(args[0], operands.types[0])
    if not is_timestamp(type_):
        raise operands.refuse(f"it is for timestamps: write {args[0]}.cast(dbsp.TIMESTAMP)")
    if operands.function == "from_zone" and type_ == TIMESTAMP_UTC:
        raise operands.refuse("it is a UTC time already: write .in_zone(…) for what a zone's clocks show then")
    if not isinstance(zone, str):
        raise CircuitError(f"a time zone must be a constant text: zone={zone!r}", 'such as "Europe/Berlin"')
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        known = available_timezones()
        hint = nearest(zone, known) if known else "there is no time zone database: install the package tzdata"
        raise CircuitError(f"no such time zone: zone={zone}", hint) from error
    return args


@lru_cache(maxsize=10_000)
def _offsets(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """Return the offsets of a zone within one year of UTC, as pairs.

    A pair has a second since 1970, and the seconds that clocks are ahead of UTC from then on.
    """
    info = ZoneInfo(zone)

    def ahead_at(second: int) -> int:
        offset = (EPOCH + datetime.timedelta(seconds=second)).astimezone(info).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    if year < FIRST_YEAR:
        return ((_start_s(year), ahead_at(_start_s(FIRST_YEAR))),)
    if year >= LAST_YEAR:
        cycles = (year - LAST_YEAR) // 400 + 1
        return tuple((since + cycles * CYCLE_S, ahead) for since, ahead in _offsets(zone, year - 400 * cycles))
    first, end = _start_s(year), _start_s(year + 1)
    found = [(first, ahead_at(first))]
    for day in range(first, end, 86_400):
        low, high = day, min(day + 86_400, end - 1)
        if ahead_at(high) == found[-1][1]:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ahead_at(middle) == found[-1][1] else (low, middle)
        found.append((high, ahead_at(high)))
    return tuple(found)


def _start_s(year: int) -> int:
    """Return the second since 1970 at which a year begins."""
    return int(np.datetime64(year - 1970, "Y").astype("datetime64[s]").astype(np.int64))


def _table(zone: str, micros: Micros) -> tuple[Micros, Micros]:
    """Return (moments in UTC, offsets from there on) in microseconds, for all years in which the times may be."""
    years = np.unique(micros.view("datetime64[us]").astype("datetime64[Y]").astype(np.int64)) + 1970
    near = sorted({int(year) + by for year in years for by in (-1, 0, 1)})
    pairs = np.array([pair for year in near for pair in _offsets(zone, year)], np.int64).reshape(-1, 2) * SECOND
    return pairs[:, 0], pairs[:, 1]


def _in_zone(values: pa.Array, zone: str) -> pa.Array:
    micros, valid = micros_of(values)
    since, ahead = _table(zone, micros)
    return moments_of(_shifted(micros, ahead[np.searchsorted(since, micros, side="right") - 1]), valid, TIMESTAMP)


def _shifted(micros: Micros, by: Micros) -> Micros:
    """Return the sum; `ArrowInvalid` if it is outside the range of timestamps."""
    return np.asarray(pc.add_checked(pa.array(micros, INT64), pa.array(by, INT64)))


def _from_zone(values: pa.Array, zone: str) -> pa.Array:
    """Convert local times to UTC; a time that clocks show twice means the first, and a skipped time fails."""
    micros, valid = micros_of(values)
    since, ahead = _table(zone, micros)
    before = np.append(ahead[:1], ahead[:-1])
    at = np.searchsorted(since + np.maximum(before, ahead), micros, side="right") - 1
    following = np.minimum(at + 1, len(since) - 1)
    skipped = (micros >= since[following] + ahead[at]) & (at < following) & np.asarray(valid)
    if skipped.any():
        shown = micros[skipped][:1].view("datetime64[us]")[0]
        raise pa.ArrowInvalid(f"the clocks skipped this time: zone={zone} time={shown}")
    return moments_of(_shifted(micros, -ahead[at]), valid, TIMESTAMP_UTC)


IN_ZONE = Function(name="in_zone", fit=_fit, result=lambda *_: TIMESTAMP, compute=_in_zone, text="{0}.in_zone({1})")
FROM_ZONE = Function(
    name="from_zone", fit=_fit, result=lambda *_: TIMESTAMP_UTC, compute=_from_zone, text="{0}.from_zone({1})"
)

FUNCTIONS = (IN_ZONE, FROM_ZONE)
