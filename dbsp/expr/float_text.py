"""Texts of floats, as DuckDB, Python and others write them: the fewest digits that tell a value from its neighbours.

**Law** A text always has a point or an exponent. It has an exponent below 0.0001 and from 1e16 on: `3.0`, `0.1`,
`1000000000000000.0`, `1e+16`, `1e-05`, `nan`, `inf`. A float of 32 bits has the digits that it needs among floats of
32 bits. There is no `-0.0`: the text is `0.0`.

Arrow finds the digits. But Arrow writes whole numbers without a point, has exponents from 1e10 on, and none down to
1e-6. The texts in these ranges are rewritten, in whole columns too.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.schema import FLOAT32, FLOAT64, INT64, STRING

_SMALL, _LARGE = 1e-4, 1e10
_PLACES = range(10, 16)
"""The powers of ten for which Arrow writes an exponent, and these texts have none."""
_EXPONENT = len("e+10")


def text_of_floats(values: pa.Array) -> pa.Array:
    """Return the text of each float."""
    if values.type == FLOAT32:
        values = values.cast(STRING).cast(FLOAT64)  # the float of 64 bits that has the same text
    values = pc.add(values, 0.0)  # -0.0 is 0.0
    texts, size = values.cast(STRING), pc.abs(values)
    whole = pc.and_(pc.equal(pc.trunc(values), values), pc.less(size, _LARGE))
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts) if pc.any(whole).as_py() else texts
    small = pc.fill_null(pc.and_(pc.less(size, _SMALL), pc.greater(size, 0.0)), False)
    if pc.any(small).as_py():
        texts = pc.replace_with_mask(texts, small, _small(texts.filter(small)))
    for places in _PLACES if pc.any(pc.greater_equal(size, _LARGE)).as_py() else ():
        large = pc.and_(pc.greater_equal(size, 10.0**places), pc.less(size, 10.0 ** (places + 1)))
        large = pc.fill_null(large, False)
        if pc.any(large).as_py():
            texts = pc.replace_with_mask(texts, large, _large(values.filter(large), size.filter(large), places))
    return texts


def _small(texts: pa.Array) -> pa.Array:
    """Rewrite the texts of values below 0.0001 with an exponent of two digits."""
    for zeros, exponent in (("00000", "06"), ("0000", "05")):
        texts = pc.replace_substring_regex(texts, rf"^(-?)0\.{zeros}([1-9])(\d*)$", rf"\1\2.\3e-{exponent}")
    return pc.replace_substring(pc.replace_substring_regex(texts, r"e-(\d)$", r"e-0\1"), ".e", "e")


def _large(values: pa.Array, size: pa.Array, places: int) -> pa.Array:
    """Write values with `places` digits between the first digit and the point.

    All whole numbers of this size are floats, so the digits before the point are exact.
    """
    written = size.cast(STRING).cast(pa.binary())  # 1.25e+10
    behind = pc.binary_slice(written, len("1.") + places, -_EXPONENT).cast(STRING)
    behind = pc.if_else(pc.equal(behind, ""), "0", behind)
    return pc.binary_join_element_wise(pc.trunc(values).cast(INT64).cast(STRING), behind, ".")
