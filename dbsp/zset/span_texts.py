"""Texts of spans: the forms in which Python and PostgreSQL write them, and ISO 8601's.

| form | examples |
| --- | --- |
| days and a clock | `1 day, 1:00:00`, `-1 days -02:03:04.5`, `36:00:00`, `3 days` |
| ISO 8601 | `PT1H30M`, `P2DT0.25S`, `-PT5M`; without years, months and weeks |

In the first form a sign belongs to its own part: Python writes minus one hour as `-1 day, 23:00:00`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.schema import DURATION, INT64, STRING

_CLOCK = r"(?P<sign>[+-]?)(?P<hours>\d{1,12}):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)(?:\.(?P<parts>\d{1,6}))?"
_DAYS = r"(?P<days>[+-]?\d{1,9}) days?"
_FORMS = (
    rf"^{_DAYS},? {_CLOCK}$",
    rf"^{_CLOCK}$",
    rf"^{_DAYS}$",
    r"^(?P<sign>[+-]?)P(?:(?P<all_days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?(?:(?P<seconds>\d{1,12})(?:\.(?P<parts>\d{1,6}))?S)?)?$",
)
_EMPTY = r"[PT]$"
_MICROS = {"all_days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000, "parts": 1}
_PLACES = 6


def spans_of_texts(texts: pa.Array) -> pa.Array:
    """Return the spans that texts denote; nulls stay nulls.

    **Errors** `ArrowInvalid` shows a text of no span, or of one beyond 292,000 years.

    >>> spans_of_texts(pa.array(["1 day, 1:00:00", "-26:03:04.5", "PT1M", None])).cast(INT64).to_pylist()
    [90000000000, -93784500000, 60000000, None]
    """
    array = texts.cast(STRING)
    found = pa.nulls(len(array), INT64)
    for form in _FORMS:
        if found.null_count == array.null_count:
            break
        found = pc.coalesce(found, _micros(pc.extract_regex(array, form)))
    wrong = pc.and_(array.is_valid(), pc.or_(found.is_null(), pc.match_substring_regex(array, _EMPTY)))
    if pc.any(wrong, min_count=0).as_py():
        raise pa.ArrowInvalid(f"{array.filter(wrong)[0].as_py()[:100]!r} is not a span")
    return found.cast(DURATION)


def _micros(parts: pa.StructArray) -> pa.Array:
    """Return the microseconds of each text of one form; null where it is not of the form."""
    names = [field.name for field in parts.type]
    total = pa.array([0] * len(parts), INT64)
    for name, micros in _MICROS.items():
        if name in names:
            digits = pc.struct_field(parts, name)
            padded = pc.utf8_rpad(digits, _PLACES, "0") if name == "parts" else digits
            total = pc.add_checked(total, pc.multiply_checked(_whole(padded), micros))
    if "sign" in names:
        negative = pc.equal(pc.struct_field(parts, "sign"), "-")
        total = pc.if_else(negative, pc.negate_checked(total), total)
    if "days" in names:
        days = pc.multiply_checked(_whole(pc.struct_field(parts, "days")), _MICROS["all_days"])
        total = pc.add_checked(total, days)
    return pc.if_else(parts.is_valid(), total, pa.scalar(None, INT64))


def _whole(digits: pa.Array) -> pa.Array:
    """Return the number of each text of digits; 0 where a part is missing."""
    plain = pc.replace_substring_regex(pc.fill_null(digits, "0"), r"^\+", "")
    return pc.if_else(pc.equal(plain, ""), "0", plain).cast(INT64)
