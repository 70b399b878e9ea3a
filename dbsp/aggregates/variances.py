"""Variances and standard deviations, exact until they are rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.counts import values_of
from dbsp.aggregates.examples import OF_VALUES, with_example
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.sums import number, scale_of
from dbsp.errors import CapacityError
from dbsp.expr.build import Expr
from dbsp.expr.types import is_float
from dbsp.operators.columns import column_of
from dbsp.operators.groups.limbs import limbs_of, square_limbs_of
from dbsp.operators.groups.measures import Limbs, Squares
from dbsp.operators.groups.variance_part import VarianceCall
from dbsp.stored import stored
from dbsp.zset.kernels import OVERFLOW_HINT, variances
from dbsp.zset.schema import FLOAT64, Column

Sums = npt.NDArray[np.int64]
_LIMB_MAX = 1 << 62


@stored("Varied", "less root scale")
@dataclass(frozen=True, slots=True)
class Varied:
    """The variance of numbers with `scale` decimal places, from sums as limbs; with `root` its square root."""

    less: int
    root: bool
    scale: int

    def __str__(self) -> str:
        """Return the function's name."""
        return Variance(self.less, self.root).name

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, None]:
        """Return each group's result, null where there are too few values."""
        count, ones, squares = (np.ascontiguousarray(part) for part in sums)
        result = np.empty(len(count), np.float64)
        peak = max((int(np.abs(part).max(initial=0)) for part in (ones, squares)), default=0)
        if peak >= _LIMB_MAX or not variances.limb_variances(
            count[:, 0].copy(), ones, squares, self.less, self.scale, result
        ):
            raise CapacityError("a variance has too many rows: rows_max=1073741824", OVERFLOW_HINT)
        values = np.sqrt(result) if self.root else result
        return column_of(values, count[:, 0] > self.less, type_), None


@stored("Variance", "less root")
@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of the population, or of a sample (`less` = 1); with `root` the standard deviation."""

    less: int
    root: bool
    keeps_nulls = False

    @property
    def name(self) -> str:
        """Return the function's name in SQL."""
        return f"{'stddev' if self.root else 'var'}_{'samp' if self.less else 'pop'}"

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a float64 column."""
        number(self.name, arguments[0])
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request limbs of values and squares, or bins for floats."""
        (column,) = call.columns
        type_ = asked.rows[column].type
        if is_float(type_):
            found = VarianceCall(name=call.name, text=self.sql(call.columns), less=self.less, root=self.root)
            asked.float_variance(found, column)
            return
        measures = [
            values_of(asked, column),
            Limbs(column, limbs_of(type_)),
            Squares(column, square_limbs_of(type_)),
        ]
        asked.linear(call.name, measures, Varied(self.less, self.root, scale_of(type_)))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{self.name}({arguments[0]})"


def var_pop(argument: str | Expr) -> Aggregate:
    """Return the variance of the values as a whole population; float64, null if there is none.

    **Law** The nearest float64 to the true variance of the current rows, whatever was inserted and deleted before.

    **State** Per group the sums of the values and of their squares.

    **Cost** Constant per changed row.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.FLOAT64})
    >>> spread = t.aggregate(v=dbsp.var_pop("x"), s=dbsp.stddev("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"spread": spread})) as run:
    ...     run.push("t", [{"x": 1.0}, {"x": 3.0}, {"x": 1e9}])
    ...     _ = run.step()
    ...     run.delete("t", [{"x": 1e9}])
    ...     _ = run.step()
    ...     print(run.view("spread").to_rows())
    [((1.0, 1.4142135623730951), 1)]
    """
    return Aggregate(Variance(0, False), (argument_of(argument),))


@with_example(OF_VALUES, "[(('a', 4.0), 1)]", "[(('a', 2.0), 1), (('a', 4.0), -1)]")
def var_samp(argument: str | Expr) -> Aggregate:
    """Return the variance of the values as a sample (divided by n - 1); null for fewer than two. Otherwise as `var_pop`."""
    return Aggregate(Variance(1, False), (argument_of(argument),))


def stddev_pop(argument: str | Expr) -> Aggregate:
    """Return the standard deviation of a whole population: the square root of `var_pop`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> spread = t.group_by("k").aggregate(d=dbsp.stddev_pop("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"spread": spread})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 3}, {"k": "a", "x": 11}])
    ...     print(run.step()["spread"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 11}])
    ...     print(run.step()["spread"].to_rows())
    [(('a', 4.320493798938574), 1)]
    [(('a', 1.0), 1), (('a', 4.320493798938574), -1)]
    """
    return Aggregate(Variance(0, True), (argument_of(argument),))


@with_example(OF_VALUES, "[(('a', 2.0), 1)]", "[(('a', 1.4142135623730951), 1), (('a', 2.0), -1)]")
def stddev_samp(argument: str | Expr) -> Aggregate:
    """Return the standard deviation of a sample: the square root of `var_samp`."""
    return Aggregate(Variance(1, True), (argument_of(argument),))


@with_example(OF_VALUES, "[(('a', 4.0), 1)]", "[(('a', 2.0), 1), (('a', 4.0), -1)]")
def variance(argument: str | Expr) -> Aggregate:
    """Return `var_samp`; this is SQL's other name for it."""
    return var_samp(argument)


@with_example(OF_VALUES, "[(('a', 2.0), 1)]", "[(('a', 1.4142135623730951), 1), (('a', 2.0), -1)]")
def stddev(argument: str | Expr) -> Aggregate:
    """Return `stddev_samp`; this is SQL's other name for it."""
    return stddev_samp(argument)
