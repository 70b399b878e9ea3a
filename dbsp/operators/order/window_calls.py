"""The calls of window functions: the known functions, their parameters, and how far each looks.

`dbsp.operators.order.window_values` computes their values.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.groups.quantile_part import QuantilePlace
from dbsp.operators.order.window_places import EndValue, Frame
from dbsp.stored import stored
from dbsp.zset.schema import OrderBy

NEIGHBOURS = ("lag", "lead")
EDGES = ("first_value", "last_value", "nth_value")
SHIFTING = ("row_number", "rank")
DENSE = "dense_rank"
WHOLE = ("percent_rank", "cume_dist", "ntile")
FOLD = "fold"

VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
COVARIANCES = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")
LEAST, GREATEST = ("min", "bool_and"), ("max", "bool_or")
ARGS = ("arg_min", "arg_max")
FIRSTS, BITS = ("first", "last"), ("bit_and", "bit_or", "bit_xor")
SUMMED = (*("count", "sum", "avg"), *VARIANCES, *COVARIANCES, *LEAST, *GREATEST, *ARGS, *FIRSTS, *BITS)
"""The aggregates of which a summary of bounded size represents rows (`dbsp.operators.order.summaries`)."""

QUANTILES = ("quantile_cont", "quantile_disc")
AGGREGATES = (*SUMMED, "count_distinct", "mode", *QUANTILES)


@stored("WindowCall", "name function column offset default frame skips other place by where fold")
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """A function call: its name in the output, its function, its column and its parameters.

    - `offset`: the distance of lag and lead, the place of nth_value, or the number of parts of ntile.
    - `default`: the column whose value replaces that of a missing row.
    - `skips`: rows where `column` is null are ignored.
    - `other`: an aggregate's second column; `place`: the quantile.
    - `by`: the order of first and last; `where`: the column that selects their rows.
    - `fold`: an aggregate of all rows of the frame.
    """

    name: str
    function: str
    column: str | None = None
    offset: int = 0
    default: str | None = None
    frame: Frame | None = None
    skips: bool = False
    other: str | None = None
    place: QuantilePlace | None = None
    by: tuple[OrderBy, ...] = ()
    where: str | None = None
    fold: FoldPart | None = None

    def __str__(self) -> str:
        """Return the call as text that resembles SQL."""
        if self.fold is not None:
            return f"{self.name} = {self.fold.text} over {self.frame}"
        values = [
            str(v) for v in (self.column, self.other, self.place, self.offset or None, self.default) if v is not None
        ]
        values += [f"by {', '.join(map(str, self.by))}"] if self.by else []
        values += [f"where {self.where}"] if self.where is not None else []
        over = f" over {self.frame}" if self.frame is not None else " ignore nulls" if self.skips else ""
        return f"{self.name} = {self.function}({', '.join(values)}){over}"

    def sees(self, kind: str) -> tuple[int, int]:
        """Return how far before and after its own row the call looks, in "rows" or "range"."""
        if self.function in NEIGHBOURS and kind == "rows":
            return (0, 0) if self.skips else self.reaches
        return (0, 0) if self.frame is None or self.frame.kind != kind else self.frame.sees

    @property
    def reaches(self) -> tuple[int, int]:
        """Return how many rows before and after their own lag and lead look.

        With `skips`, only the rows where the column is not null are counted.
        """
        return (self.offset, 0) if self.function == "lag" else (0, self.offset)

    @property
    def edge(self) -> EndValue | None:
        """Return the row of the partition from which each row takes its value; None if the function has no such row."""
        if self.function not in EDGES:
            return None
        place = self.offset if self.function == "nth_value" else 1
        return EndValue(column=str(self.column), place=place, backward=self.function == "last_value", skips=self.skips)

    @property
    def whole(self) -> bool:
        """Return whether any change influences the whole partition."""
        return self.function in WHOLE or (self.frame is not None and not self.frame.bounded and not self.runs)

    @property
    def runs(self) -> bool:
        """Return whether the frame reaches to an end of the partition, and the aggregate of the rows there has a summary."""
        return self.frame is not None and not self.frame.bounded and self.function in SUMMED

    @property
    def from_start(self) -> bool:
        """Return whether the frame runs from the partition's start, so that a change influences all rows after it."""
        return self.runs and self.frame is not None and self.frame.following is not None

    @property
    def to_end(self) -> bool:
        """Return whether the frame runs to the partition's end, so that a change influences all rows before it."""
        return self.runs and self.frame is not None and self.frame.preceding is not None

    @property
    def total(self) -> bool:
        """Return whether the call has one value for all rows of the partition."""
        return self.runs and not self.from_start and not self.to_end
