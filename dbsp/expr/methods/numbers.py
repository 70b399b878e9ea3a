"""Methods of numbers."""

from __future__ import annotations

from typing import Any, Self

from dbsp.expr import arithmetic, mathematics
from dbsp.expr.methods.applied import Applied, whole


class NumberMethods(Applied):
    """Methods of numbers: arithmetic beyond the operators, angles and bits."""

    __slots__ = ()

    def abs(self) -> Self:
        """Return the absolute value."""
        return self._call(arithmetic.ABS)

    def round(self, digits: int = 0) -> Self:
        """Round to so many digits after the point, halves away from zero."""
        return self._call(arithmetic.ROUND, options=(whole("digits", digits),))

    def floor(self) -> Self:
        """Round down to a whole number, in the same type."""
        return self._call(arithmetic.FLOOR)

    def ceil(self) -> Self:
        """Round up to a whole number, in the same type."""
        return self._call(arithmetic.CEIL)

    def trunc(self) -> Self:
        """Round towards zero to a whole number, in the same type."""
        return self._call(arithmetic.TRUNC)

    def __pow__(self, exponent: Any) -> Self:
        """Return this to the power of `exponent`, as float64."""
        return self._call(mathematics.POWER, exponent)

    def sqrt(self) -> Self:
        """Return the square root; a negative number fails the row."""
        return self._call(mathematics.SQRT)

    def exp(self) -> Self:
        """Return e to the power of this."""
        return self._call(mathematics.EXP)

    def ln(self) -> Self:
        """Return the natural logarithm; a number that is not positive fails the row."""
        return self._call(mathematics.LN)

    def log10(self) -> Self:
        """Return the logarithm to the base of 10."""
        return self._call(mathematics.LOG10)

    def log2(self) -> Self:
        """Return the logarithm to the base of 2."""
        return self._call(mathematics.LOG2)

    def sin(self) -> Self:
        """Return the sine of an angle in radians."""
        return self._call(mathematics.SIN)

    def cos(self) -> Self:
        """Return the cosine of an angle in radians."""
        return self._call(mathematics.COS)

    def tan(self) -> Self:
        """Return the tangent of an angle in radians."""
        return self._call(mathematics.TAN)

    def asin(self) -> Self:
        """Return the angle with this sine, in radians; a number outside -1 to 1 fails the row."""
        return self._call(mathematics.ASIN)

    def acos(self) -> Self:
        """Return the angle with this cosine, in radians; a number outside -1 to 1 fails the row."""
        return self._call(mathematics.ACOS)

    def atan(self) -> Self:
        """Return the angle with this tangent, in radians."""
        return self._call(mathematics.ATAN)

    def atan2(self, x: Any) -> Self:
        """Return the angle of the point (x, this), in radians."""
        return self._call(mathematics.ATAN2, x)

    def sign(self) -> Self:
        """Return the sign, -1, 0 or 1; null for a NaN."""
        return self._call(mathematics.SIGN)

    def is_nan(self) -> Self:
        """Return whether a float is NaN."""
        return self._call(mathematics.IS_NAN)

    def is_finite(self) -> Self:
        """Return whether a float is neither infinite nor NaN."""
        return self._call(mathematics.IS_FINITE)

    def bit_and(self, other: Any) -> Self:
        """Return the bits that both numbers have."""
        return self._call(mathematics.BIT_AND, other)

    def bit_or(self, other: Any) -> Self:
        """Return the bits that at least one number has."""
        return self._call(mathematics.BIT_OR, other)

    def bit_xor(self, other: Any) -> Self:
        """Return the bits that exactly one number has."""
        return self._call(mathematics.BIT_XOR, other)

    def bit_not(self) -> Self:
        """Return the number with every bit flipped."""
        return self._call(mathematics.BIT_NOT)

    def shift_left(self, bits: Any) -> Self:
        """Shift the bits left.

        The row fails if a bit is lost or reaches the sign, or if the shift is negative or exceeds the number's bits.
        """
        return self._call(mathematics.SHIFT_LEFT, bits)

    def shift_right(self, bits: Any) -> Self:
        """Shift the bits right and keep the sign; the result is 0 if the shift is negative or as wide as the number."""
        return self._call(mathematics.SHIFT_RIGHT, bits)
