"""What other libraries and SQL call arguments: the answer to a call that does not fit."""

from __future__ import annotations

from collections.abc import Mapping

SAME = (
    ("by", "order_by", "sort_by", "order", "orderBy", "sort", "key"),
    ("partition_by", "partition", "partitionBy", "group_by", "groupby", "over", "by", "keys", "key"),
    ("on", "using", "by", "keys", "key", "column", "left_on", "time", "time_column", "columns"),
    ("by", "left_by", "right_by", "keys"),
    ("k", "n", "limit", "count", "num", "size"),
    ("offset", "n", "periods", "shift", "skip", "k"),
    ("parts", "n", "buckets", "k"),
    ("how", "type", "kind", "join_type", "mode"),
    ("where", "condition", "filter", "predicate"),
    ("suffix", "suffixes", "rsuffix"),
    ("gap", "session_gap", "timeout", "max_gap", "inactivity"),
    ("size", "every", "width", "duration", "period", "interval", "window", "window_size", "length"),
    ("slide", "hop", "step", "every", "period", "advance"),
    ("offset", "origin", "start"),
    ("lateness", "delay", "threshold", "max_delay", "tolerance", "delay_threshold"),
    ("direction", "strategy"),
    ("separator", "sep", "delimiter", "by", "pat"),
    ("digits", "decimals", "places", "n", "ndigits"),
    ("columns", "schema", "fields", "dtypes"),
    ("schema", "output", "columns", "returns", "return_schema", "output_schema", "dtypes"),
    ("primary_key", "key", "keys", "primary_keys", "pk", "index"),
    ("views", "outputs", "queries"),
    ("workers", "parallelism", "n_workers", "threads", "num_workers"),
    ("error_policy", "on_error", "errors"),
    ("default", "default_value", "fill_value", "fill", "value"),
    ("columns", "on", "value_vars", "index", "id_vars"),
    ("name", "variable_name", "var_name"),
    ("value", "value_name"),
    ("name", "as_", "alias", "column", "names"),
    ("argument", "column", "expr", "x", "col", "value", "on"),
    ("low", "lower", "min", "lower_bound", "start"),
    ("high", "upper", "max", "upper_bound", "end"),
    ("lower", "lower_bound", "low"),
    ("upper", "upper_bound", "high"),
    ("within", "interval", "tolerance", "window"),
    ("rows", "window", "window_size", "rows_between", "size", "frame"),
    ("range", "period", "range_between", "interval"),
    ("fraction", "q", "p", "quantile", "percentile"),
    ("type", "dtype", "type_", "data_type"),
    ("type_", "dtype", "type", "to"),
    ("function", "f", "func", "fn", "udf"),
    ("length", "len", "n", "size"),
    ("place", "index", "n"),
    ("count", "n", "months", "days", "hours", "minutes", "seconds", "milliseconds"),
    ("pattern", "regex", "pat"),
    ("values", "other", "items"),
    ("clock", "now", "time", "at"),
    ("by", "key"),
)  # fmt: skip
"""Words that mean the same somewhere; one of them is a parameter here."""

_DESCENDING = 'write by=dbsp.desc("x") for a descending order'
_TIES = 'write .window(order_by=dbsp.desc("x")).with_columns(r=dbsp.rank()).filter(dbsp.col("r") <= 3) for ties too'
_DISTINCT = "make the rows distinct first: .select(…).distinct().group_by(…); sum, avg, string_agg, array_agg take distinct=True"
_ONE_ROW = 'write .distinct() for different rows, .limit(1, by="at", partition_by="k") for one row per key'
_PLACED = 'the window says it: .window(partition_by="k", order_by="x").with_columns(n=dbsp.row_number())'
_ROLLED = (
    'the window says it: .window(partition_by="k", order_by="at").with_columns(s=dbsp.rolling(dbsp.sum("x"), rows=3))'
)
_CARRIED = (
    "nulls are values to it: carry the last value forward first, with rolling and first_value "
    "(carried_forward in examples/queries/sensors.py)"
)

# by "function.word", by "*.word" of any function, or by "function" for any misfit
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("*.descending", "*.ascending", "*.reverse", "*.desc"), _DESCENDING),
    **dict.fromkeys(("*.where", "*.filter", "*.condition", "*.predicate"), 'write dbsp.sum("x").where(condition)'),
    **dict.fromkeys(("unpivot.index", "unpivot.id_vars"), "all other columns are kept: .drop those that are not wanted"),
    **dict.fromkeys(("*.ties", "*.with_ties"), _TIES),
    **dict.fromkeys(("array_agg.limit", "string_agg.limit"), 'write .limit(3, by="at", partition_by="k") before the group_by'),
    "*.nulls_last": "nulls come last unless nulls_first=True",
    "*.distinct": _DISTINCT,
    "rolling.partition_by": _ROLLED,
    "count.distinct": 'write dbsp.count_distinct("x")',
    **dict.fromkeys(("*.partition_by", "*.order_by"), _PLACED),
    **dict.fromkeys(("distinct.subset", "distinct.on", "distinct.keep", "distinct.columns"), _ONE_ROW),
    "*.ignore_nulls": _CARRIED,
    "*.ddof": "write dbsp.stddev_pop or dbsp.var_pop for ddof=0, dbsp.stddev or dbsp.variance for ddof=1",
    "union.all": "union keeps every row; distinct=True makes it SQL's UNION",
    "union.by_name": "columns are always matched by name",
    "except_.how": "all=True makes it SQL's EXCEPT ALL",
    "difference.how": "all=True makes it SQL's EXCEPT ALL",
    "intersect.distinct": "rows are made distinct unless all=True",
    "cross_join.on": 'write .join(other, on="k")',
    "fill_null.strategy": _CARRIED,
    "contains.case": "write .lower() before it, or .ilike(pattern)",
    "replace.regex": "write .regexp_replace(pattern, replacement)",
    "between.inclusive": "both ends are included: write (x >= a) & (x < b) for others",
    "cast.safe": "strict=False gives null where a value does not fit",
    "distinct": _ONE_ROW,
    **dict.fromkeys(("row_number", "rank", "dense_rank", "percent_rank", "cume_dist"), _PLACED),
    "with_columns": "write .with_columns(name=expression)",
    "rename": 'write .rename({"old": "new"})',
    "drop": 'write .drop("a", "b")',
    "filter": 'write .filter(dbsp.col("x") == 1)',
    "pivot": 'write .group_by("k").pivot("kind", ["a", "b"], n=dbsp.count()): the values are listed, for they make columns',
    "is_in": "write .is_in([1, 2])",
    "strip": "write .trim() for blanks",
    "union": "write a.union(b, c)",
    "circuit": 'write dbsp.circuit("name", {"view": stream})',
    "table": 'write dbsp.table("name", {"id": dbsp.INT64, "at": dbsp.TIMESTAMP}, primary_key="id")',
    "join_all": 'write dbsp.join_all([a, b, c], on="k")',
    "when": "write dbsp.when(condition, value).otherwise(other)",
    "map": "write .map(function, schema={…})",
    "flat_map": "write .flat_map(function, schema={…})",
    "map_batches": "write .map_batches(function, schema={…})",
    "push": 'write run.push("t", [{"id": 1}])',
    "delete": 'write run.delete("t", [{"id": 1}])',
    "step": "write run.step(), or run.step(clock=moment)",
    "lit": "write dbsp.lit(value), or dbsp.lit(None, dbsp.INT64)",
    "max": "write dbsp.greatest(a, b) for the greatest of several values of a row",
    "min": "write dbsp.least(a, b) for the least of several values of a row",
    "median": 'write dbsp.quantile_cont("x", 0.5)',
    "join": 'write .join(other, on="k", how="left")',
}  # fmt: skip
