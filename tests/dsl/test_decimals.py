"""Decimals of all precisions and scales: the exact result in its type, or a row that fails, never another number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from math import floor
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import Expr, col
from dbsp.errors import CircuitError
from dbsp.expr.decimals import as_floats
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.outcomes import outcomes
from dbsp.expr.resolving import resolve
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema
from tests.pace import examples

Type = tuple[int, int]
Rows = list[tuple[Decimal | None, Decimal | None]]
Number = Fraction | None
FAILS = "fails"
EXACT = Context(prec=400)


def number(type_: Type) -> st.SearchStrategy[Decimal | None]:
    """A value of the type: small, of any length, near the greatest; or null."""
    precision, scale = type_
    most = 10**precision - 1
    whole = st.one_of(
        st.integers(-min(20, most), min(20, most)),
        st.integers(1, precision).flatmap(lambda digits: st.integers(1 - 10**digits, 10**digits - 1)),
        st.sampled_from([most, -most, most // 2 + 1, most // 3]),
        st.integers(1, 126).map(lambda bits: (2**bits - 1) % (most + 1)),
    )
    return st.none() | whole.map(lambda value: EXACT.scaleb(Decimal(value), -scale))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Type, Type, Rows]:
    """Two types, often wide ones, and rows of values in them."""
    sizes = st.integers(1, 38) | st.integers(36, 38)
    left, right = (
        draw(sizes.flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision))))
        for _ in range(2)
    )
    return left, right, draw(st.lists(st.tuples(number(left), number(right)), min_size=1, max_size=6))


def in_type(value: Fraction, type_: Type) -> Fraction | str:
    """The value, if the type holds it unchanged."""
    precision, scale = type_
    units = value * 10**scale
    return value if units.denominator == 1 and abs(units) < 10**precision else FAILS


def common(left: Type, right: Type) -> Type:
    """The type in which both meet."""
    scale = max(left[1], right[1])
    return min(38, max(left[0] - left[1], right[0] - right[1]) + scale), scale


def sums(x: Number, y: Number, left: Type, right: Type, sign: int) -> Fraction | str | None:
    """A sum or a difference."""
    precision, scale = common((left[0] + 1, left[1]), (right[0] + 1, right[1]))
    return None if x is None or y is None else in_type(x + sign * y, (precision, scale))


def products(x: Number, y: Number, left: Type, right: Type) -> Fraction | str | None:
    """A product, with the decimal places of both."""
    return None if x is None or y is None else in_type(x * y, (min(38, left[0] + right[0]), left[1] + right[1]))


def quotients(x: Number, y: Number, left: Type, _right: Type) -> Fraction | str | None:
    """A quotient, rounded half away from zero to at least six places, if the dividend fits its type."""
    scale = max(6, left[1])
    if x is not None and in_type(x, (38, scale)) is FAILS:
        return FAILS
    if x is None or y is None:
        return None
    if y == 0:
        return FAILS
    units = x / y * 10**scale
    rounded = floor(abs(units) + Fraction(1, 2)) * (1 if units > 0 else -1)
    return in_type(Fraction(rounded, 10**scale), (38, scale))


def met(function: Callable[[Fraction, Fraction], Any], divides: bool) -> Callable[..., Any]:
    """A function of two numbers in the type in which they meet."""

    def expected(x: Number, y: Number, left: Type, right: Type) -> Any:
        if any(value is not None and in_type(value, common(left, right)) is FAILS for value in (x, y)):
            return FAILS
        if x is None or y is None:
            return None
        return FAILS if divides and y == 0 else function(x, y)

    return expected


FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Expr], Callable[..., Any]]] = {
    "+": (operator.add, lambda x, y, left, right: sums(x, y, left, right, 1)),
    "-": (operator.sub, lambda x, y, left, right: sums(x, y, left, right, -1)),
    "*": (operator.mul, products),
    "/": (operator.truediv, quotients),
    "//": (operator.floordiv, met(operator.floordiv, True)),
    "%": (operator.mod, met(operator.mod, True)),
    "<": (operator.lt, met(operator.lt, False)),
    "==": (operator.eq, met(operator.eq, False)),
}


def exact(value: Decimal | None) -> Fraction | None:
    """As a fraction."""
    return None if value is None else Fraction(value)


def ours(expr: Expr, left: Type, right: Type, rows: Rows) -> list[Any]:
    """What the expression makes of each row of the batch, and that an empty batch has the same type."""
    types = {"x": dbsp.decimal(*left), "y": dbsp.decimal(*right)}
    schema = Schema.of(types)
    expression = resolve(unwrap(expr), schema)
    columns = [pa.array(values, type_) for values, type_ in zip(zip(*rows, strict=True), types.values(), strict=True)]
    values, reasons = outcomes(expression, Batch.of(schema, columns))
    assert values.type == expression.type(schema)
    assert outcomes(expression, Batch.of(schema, [column[:0] for column in columns]))[0].type == values.type
    return [FAILS if row in reasons else value for row, value in enumerate(values.to_pylist())]


def nines(places: int = 0) -> Decimal:
    """38 digits of nine, moved by so many places."""
    return EXACT.scaleb(Decimal("9" * 38), places)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=examples(60))
@given(tables())
@example(((38, 2), (38, 2), [(Decimal("1.90"), Decimal("12.00")), (Decimal("1.00"), nines(-2))]))
@example(((38, 0), (38, 38), [(Decimal(1), Decimal("0.3")), (Decimal(0), nines(-38)), (Decimal(7), Decimal(0))]))
@example(((38, 6), (38, 0), [(nines(-6), nines()), (nines(-6), Decimal(1)), (Decimal(0), nines())]))
@example(((38, 6), (38, 6), [(nines(-6), Decimal(1)), (Decimal("73786976294838206463"), Decimal(10) ** 6)]))
@example(((36, 0), (15, 0), [(Decimal("332306998946228968225951765070086143"), Decimal(10) ** 14)]))
@example(((38, 0), (38, 0), [(Decimal(0), nines()), (nines(), Decimal(1)), (Decimal(1), nines()), (nines(), nines())]))
def test_every_result_is_the_exact_one_or_its_row_fails(name: str, table: tuple[Type, Type, Rows]) -> None:
    left, right, rows = table
    build, expected = FUNCTIONS[name]
    if name == "*" and left[1] + right[1] > 38:
        with pytest.raises(CircuitError, match="at most 38"):
            ours(build(col("x"), col("y")), left, right, rows)
        return
    wanted = [expected(exact(x), exact(y), left, right) for x, y in rows]
    found = ours(build(col("x"), col("y")), left, right, rows)
    assert [exact(value) if isinstance(value, Decimal) else value for value in found] == wanted


@settings(max_examples=examples(60))
@given(tables())
@example(((38, 0), (38, 38), [(Decimal(7), None), (Decimal(0), None)]))
def test_a_cast_keeps_the_value_or_its_row_fails(table: tuple[Type, Type, Rows]) -> None:
    left, right, rows = table
    found = ours(col("x").cast(dbsp.decimal(*right)), left, right, rows)
    assert [exact(value) if isinstance(value, Decimal) else value for value in found] == [
        None if x is None else in_type(Fraction(x), right) for x, _ in rows
    ]


@settings(max_examples=examples(60))
@given(tables(), st.integers(-5, 38))
@example(((38, 17), (1, 0), [(Decimal("73786976294838206463.5"), None), (Decimal("-73786976294838206463.5"), None)]), 0)
def test_rounding_is_pythons_or_the_row_fails(table: tuple[Type, Type, Rows], digits: int) -> None:
    left, _, rows = table
    for expr, rounding, places in (
        (col("x").round(digits), ROUND_HALF_UP, digits),
        (col("x").floor(), ROUND_FLOOR, 0),
        (col("x").ceil(), ROUND_CEILING, 0),
    ):
        unit = EXACT.scaleb(Decimal(1), -min(places, left[1]))
        wanted = [None if x is None else Fraction(x.quantize(unit, rounding, EXACT)) for x, _ in rows]
        found = ours(expr, left, (1, 0), [(x, None) for x, _ in rows])
        assert [exact(value) if isinstance(value, Decimal) else value for value in found] == [
            None if value is None else in_type(value, left) for value in wanted
        ]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("12345", (38, 36)),
        ("7", (38, 38)),
        ("7" + "0" * 70, (38, 0)),
        ("1e50", (38, 2)),
        ("9" * 60, (38, 2)),
        ("x", (4, 2)),
    ],
)
def test_a_text_of_too_many_digits_fails_its_row(text: str, type_: Type) -> None:
    schema = Schema.of({"x": dbsp.STRING})
    expression = resolve(unwrap(col("x").cast(dbsp.decimal(*type_))), schema)
    _, reasons = outcomes(expression, Batch.of(schema, [pa.array(["1e-1", text, None, "0.5"])]))
    assert list(reasons) == ([1] if type_[1] else [0, 1, 3])
    table = dbsp.table("t", {"x": dbsp.decimal(*type_)})
    with (
        dbsp.open(dbsp.circuit("q", {"v": table})) as run,
        pytest.raises(CircuitError, match="does not fit its column"),
    ):
        run.push("t", [{"x": text}])


def test_pushed_decimals_of_arrow_keep_their_value() -> None:
    table = dbsp.table("t", {"x": dbsp.decimal(38, 38)})
    with (
        dbsp.open(dbsp.circuit("q", {"v": table})) as run,
        pytest.raises(CircuitError, match="does not fit its column"),
    ):
        run.push("t", pa.table({"x": pa.array([Decimal(7)], pa.decimal128(38, 0))}))


@pytest.mark.parametrize(("precision", "scale"), [(9, 2), (18, 6), (18, 18), (38, 0), (38, 10), (38, 30)])
def test_a_float_is_the_nearest_one(precision: int, scale: int) -> None:
    chance = Random(precision + scale)
    lengths = [digits for digits in range(1, precision + 1) for _ in range(40)]
    values = [EXACT.scaleb(Decimal(chance.randrange(-(10**digits), 10**digits)), -scale) for digits in lengths]
    for some in ([*values, None], [value for value in values if abs(value) < Decimal(2**52).scaleb(-scale)], []):
        column = pa.array([None, *some], pa.decimal128(precision, scale)).slice(1)
        assert as_floats(column).to_pylist() == [None if value is None else float(value) for value in some]


def test_comparisons_with_floats_are_of_the_nearest() -> None:
    t = dbsp.table("t", {"d": dbsp.decimal(9, 2), "f": dbsp.FLOAT64, "r": dbsp.FLOAT32})
    same = t.select(
        f=col("d").cast(dbsp.FLOAT64) == col("f"),
        r=col("d").cast(dbsp.FLOAT32) == col("r"),
        n=col("d").cast(dbsp.FLOAT64).is_nan(),
    )
    rows = [{"d": Decimal(cents).scaleb(-2), "f": cents / 100, "r": cents / 100} for cents in range(2000)]
    with dbsp.open(dbsp.circuit("c", {"v": same})) as run:
        run.push("t", rows)
        assert run.step()["v"].to_rows() == [((True, True, False), len(rows))]
