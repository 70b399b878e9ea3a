"""Methods of numbers."""

from __future__ import annotations

from typing import Any, Self

from dbsp.expr import arithmetic, mathematics
from dbsp.expr.methods.applied import Applied, whole


class NumberMethods(Applied):
    """Arithmetic beyond the operators."""

    __slots__ = ()

    def abs(self) -> Self:
        """Without its sign."""
        return self._call(arithmetic.ABS)

    def round(self, digits: int = 0) -> Self:
        """To so many digits after the point, halves away from zero."""
        return self._call(arithmetic.ROUND, options=(whole("digits", digits),))

    def floor(self) -> Self:
        """The next whole number below, in the same type."""
        return self._call(arithmetic.FLOOR)

    def ceil(self) -> Self:
        """The next whole number above, in the same type."""
        return self._call(arithmetic.CEIL)

    def trunc(self) -> Self:
        """The whole number on the way to zero, in the same type."""
        return self._call(arithmetic.TRUNC)

    def __pow__(self, exponent: Any) -> Self:
        """To a power, as float64."""
        return self._call(mathematics.POWER, exponent)

    def sqrt(self) -> Self:
        """Square root; of a negative number it fails the row."""
        return self._call(mathematics.SQRT)

    def exp(self) -> Self:
        """e to this power."""
        return self._call(mathematics.EXP)

    def ln(self) -> Self:
        """Natural logarithm; of a number that is not positive it fails the row."""
        return self._call(mathematics.LN)

    def log10(self) -> Self:
        """Logarithm to the base of 10."""
        return self._call(mathematics.LOG10)

    def log2(self) -> Self:
        """Logarithm to the base of 2."""
        return self._call(mathematics.LOG2)

    def sin(self) -> Self:
        """Sine of an angle in radians."""
        return self._call(mathematics.SIN)

    def cos(self) -> Self:
        """Cosine of an angle in radians."""
        return self._call(mathematics.COS)

    def tan(self) -> Self:
        """Tangent of an angle in radians."""
        return self._call(mathematics.TAN)

    def asin(self) -> Self:
        """The angle of this sine; outside -1 to 1 it fails the row."""
        return self._call(mathematics.ASIN)

    def acos(self) -> Self:
        """The angle of this cosine; outside -1 to 1 it fails the row."""
        return self._call(mathematics.ACOS)

    def atan(self) -> Self:
        """The angle of this tangent."""
        return self._call(mathematics.ATAN)

    def atan2(self, x: Any) -> Self:
        """The angle of the point (x, this)."""
        return self._call(mathematics.ATAN2, x)

    def sign(self) -> Self:
        """-1, 0 or 1; null of a NaN."""
        return self._call(mathematics.SIGN)

    def is_nan(self) -> Self:
        """Whether a float is not a number."""
        return self._call(mathematics.IS_NAN)

    def is_finite(self) -> Self:
        """Whether a float is neither infinite nor NaN."""
        return self._call(mathematics.IS_FINITE)

    def bit_and(self, other: Any) -> Self:
        """Bits that both have."""
        return self._call(mathematics.BIT_AND, other)

    def bit_or(self, other: Any) -> Self:
        """Bits that either has."""
        return self._call(mathematics.BIT_OR, other)

    def bit_xor(self, other: Any) -> Self:
        """Bits that one alone has."""
        return self._call(mathematics.BIT_XOR, other)

    def bit_not(self) -> Self:
        """Every bit turned."""
        return self._call(mathematics.BIT_NOT)

    def shift_left(self, bits: Any) -> Self:
        """Bits moved up; a shift by less than 0 or by as many as the number has fails the row."""
        return self._call(mathematics.SHIFT_LEFT, bits)

    def shift_right(self, bits: Any) -> Self:
        """Bits moved down, the sign kept."""
        return self._call(mathematics.SHIFT_RIGHT, bits)
