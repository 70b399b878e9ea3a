"""Aggregates: the functions of `group_by(...).aggregate(...)`. Each kind has its type rule, its state and its SQL in
one module.

Nulls are left out, as in SQL. An aggregate of a group without any value is null, a count is 0. All are exact: inserted
and deleted rows leave no trace in a result.
"""

from dbsp.aggregates.aggregate import Aggregate
from dbsp.aggregates.counts import approx_count_distinct, count, count_distinct, mode
from dbsp.aggregates.covariances import (
    corr,
    covar_pop,
    covar_samp,
    regr_avgx,
    regr_avgy,
    regr_count,
    regr_intercept,
    regr_r2,
    regr_slope,
)
from dbsp.aggregates.lists import array_agg, string_agg
from dbsp.aggregates.logic import bit_and, bit_or, bit_xor, bool_and, bool_or
from dbsp.aggregates.ordering import asc, desc
from dbsp.aggregates.positions import arg_max, arg_min, first, last, max, min  # noqa: A004 (SQL's names, used as dbsp.min)
from dbsp.aggregates.quantiles import median, quantile_cont, quantile_disc
from dbsp.aggregates.shapes import histogram, kurtosis, skewness
from dbsp.aggregates.sums import avg, sum  # noqa: A004 (as above)
from dbsp.aggregates.user import fold_aggregate, linear_aggregate
from dbsp.aggregates.variances import stddev, stddev_pop, stddev_samp, var_pop, var_samp, variance

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "arg_max",
    "arg_min",
    "array_agg",
    "asc",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "count_distinct",
    "covar_pop",
    "covar_samp",
    "desc",
    "first",
    "fold_aggregate",
    "histogram",
    "kurtosis",
    "last",
    "linear_aggregate",
    "max",
    "median",
    "min",
    "mode",
    "quantile_cont",
    "quantile_disc",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "skewness",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
]
