"""Check texts and Python decimals before Arrow converts them, because Arrow fails for more than 76 decimal places.

Arrow takes the power of ten for the number of places from a table without checking the table's end. A text such as
`1e-99999999` ends the process, and a shorter one may become another number. So values with more places never reach
Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PLACES_MAX = 76
"""The maximum number of decimal places: the size of Arrow's table of powers of ten for 256 bits."""
_NUMBER = re.compile(r"[+-]?\d*\.?(\d*)(?:[eE]([+-]?)0*(\d*))?", re.ASCII)
_EXPONENT_DIGITS_MAX = 9


def decimals_of_texts(texts: Any, type_: pa.DataType) -> Any:
    """Cast texts, an array or a scalar, to decimals of 256 bits.

    **Errors** `ArrowInvalid` for a text that is no number, or has more than 76 places.

    **Example**

    >>> decimals_of_texts(pa.array(["1.5", "2e-1"]), pa.decimal256(76, 2)).to_pylist()
    [Decimal('1.50'), Decimal('0.20')]
    >>> decimals_of_texts(pa.array(["1e-99999999"]), pa.decimal256(76, 2))
    Traceback (most recent call last):
    ...
    pyarrow.lib.ArrowInvalid: not a decimal of at most 76 places: '1e-99999999'
    """
    suspect = pc.or_(pc.match_substring(texts, "e", ignore_case=True), pc.greater(pc.binary_length(texts), PLACES_MAX))
    if pc.any(suspect, min_count=0).as_py():
        found = [texts.as_py()] if isinstance(texts, pa.Scalar) else texts.filter(suspect).to_pylist()
        for text in found:
            check_text(text)
    return texts.cast(type_)


def check_text(text: str) -> None:
    """Refuse a text that is no number, or has more places than Arrow's table, with `ArrowInvalid`."""
    found = _NUMBER.fullmatch(text)
    if found is not None:
        places, sign, exponent = found.groups(default="")
        if len(exponent) <= _EXPONENT_DIGITS_MAX:
            shift = int(exponent or 0) * (1 if sign == "-" else -1)
            if len(places) + shift <= PLACES_MAX:
                return
    raise pa.ArrowInvalid(f"not a decimal of at most {PLACES_MAX} places: {text[:80]!r}")


def check_decimals(values: Iterable[Any]) -> None:
    """Refuse Python decimals with more places than Arrow's table, also inside lists and structs.

    **Errors** `ArrowInvalid` shows a value.
    """
    for value in values:
        if isinstance(value, Mapping):
            check_decimals(value.values())
        elif isinstance(value, Decimal):
            exponent = value.as_tuple().exponent
            if isinstance(exponent, int) and exponent < -PLACES_MAX:
                raise pa.ArrowInvalid(f"not a decimal of at most {PLACES_MAX} places: {str(value)[:80]}")
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            check_decimals(value)


def holds_decimals(type_: pa.DataType) -> bool:
    """Return whether values of the type are, or contain, decimals."""
    if pa.types.is_decimal(type_):
        return True
    return any(holds_decimals(type_.field(number).type) for number in range(type_.num_fields))
