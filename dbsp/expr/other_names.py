"""What other libraries and SQL call methods, functions and aggregates: the answer to a name that is not there."""

from __future__ import annotations

from collections.abc import Mapping

_GROUPED = 'write .group_by("k").aggregate(n=dbsp.count(), total=dbsp.sum("x")), or .aggregate(…) alone for all rows'
_ORDERED = 'a kept table has no order: .limit(10, by=dbsp.desc("x")) has the first rows; sort what you read'
_READ = 'put it into a circuit, dbsp.circuit("c", {"v": stream}), and read run.view("v") after a step'
_NEXT = 'write .window(partition_by="k", order_by="at").with_columns(before=dbsp.lag("x"))'
_NAMED = "write name=expression in select, with_columns, group_by or aggregate"
_ONCE = 'write .distinct(), or .limit(1, by="at", partition_by="k") for one row per key'
_LONG = 'write .unpivot(["jan", "feb"], name="month", value="sold")'
_LATER = 'compute with its column after that: .group_by("k").aggregate(m=dbsp.avg("x")).with_columns(m=dbsp.col("m").round(2))'
_LATER_IN_WINDOW = (
    'compute with its column after that: .window(…).with_columns(p=dbsp.lag("x")).with_columns(p=dbsp.col("p").fill_null(0));'
    ' lag and lead take a default, dbsp.lag("x", 1, 0)'
)
_COMPUTED = ("fill_null", "coalesce", "round", "cast", "try_cast", "nullif", "abs", "floor", "ceil", "is_null", "is_not_null",
             "between", "is_in", "or_null")  # fmt: skip
_SPREAD = 'write stream.explode(dbsp.sequence(a, b), "n") for a row each; dbsp.sequence(a, b, dbsp.days(1)) of dates and times'
_GROUPING = (
    'write .rollup("a", "b", grouping="g"): a column g with a bit per key, dbsp.col("g").bit_and(1) is that of the last'
)
_IN_ROWS = "write .explode(…), then a group_by or .map(function, schema={…}), a function of a row"
_DIGEST = "write .md5() or .sha256() of a text; others by .map_batches(function, schema={…}) with hashlib"
_MOMENTS = 'it is the variance of the pairs times their number: dbsp.var_pop("x").where(dbsp.col("y").is_not_null())'
_MOST = 'write dbsp.mode("x"); for several count per value, then .limit(3, by=dbsp.desc("n"), partition_by="k")'
_QUANTILE = (
    'write dbsp.quantile_cont("x", 0.95), dbsp.quantile_disc("x", 0.95) or dbsp.median("x"); one aggregate per fraction'
)
_FILL = (
    'write .with_columns(before=dbsp.lag("x", ignore_nulls=True)) in a window, then dbsp.coalesce(dbsp.col("x"),'
    ' dbsp.col("before"))'
)
_PUSHED = 'write t = dbsp.table("t", {"id": dbsp.INT64}), and run.push("t", rows): dicts, columns, or an Arrow table'
_SIGNS = "write Python's signs: == != < <= > >= + - * / & | ~"
_AFTER = 'write .filter(dbsp.col("n") > 1) after the aggregate or the window'

_BY_ROW = "write .map(function, schema={…}) on the stream, a function of a row"
_MADE = (
    'write dbsp.concat_ws("-", y.cast(dbsp.STRING), m.cast(dbsp.STRING), d.cast(dbsp.STRING)).strptime("%Y-%m-%d"),'
    " then .cast(dbsp.DATE) for a date"
)
_STRPTIME = 'write .strptime("%d.%m.%Y"), or .cast(dbsp.DATE) and .cast(dbsp.TIMESTAMP) of ISO texts'
_WHERE = 'write dbsp.sum("x").where(condition), and so for every aggregate'
_LISTED = 'columns make no list: write dbsp.struct("a", "b"); rows do, dbsp.array_agg("x"), and texts, .split(",")'
_BOTH: Mapping[str, str] = {
    **dict.fromkeys(
        ("ascii", "ord", "chr", "translate", "soundex", "to_hex", "to_base64", "gcd", "factorial"), _BY_ROW
    ),
    "cbrt": "write x.sign() * x.abs() ** (1 / 3)",
    **dict.fromkeys(("generate_series", "range", "date_range", "series"), _SPREAD),
    **dict.fromkeys(
        ("regexp_extract_all", "findall", "extract_all"),
        "write .flat_map(function, schema={…}), with Python's re.findall",
    ),
    **dict.fromkeys(
        ("list_filter", "list_transform", "list_reduce", "list_aggregate", "list_zip", "list_position"), _IN_ROWS
    ),
    **dict.fromkeys(("add_years", "add_quarters"), "write .add_months(12) for a year, .add_months(3) for a quarter"),
    **dict.fromkeys(("add_days", "add_hours", "date_add", "dateadd"), 'write dbsp.col("at") + dbsp.days(1)'),
    **dict.fromkeys(
        ("list_min", "list_max", "array_min", "array_max"), "write .list_sort().element(1), or with descending=True"
    ),
    **dict.fromkeys(("list_sum", "list_avg", "array_sum"), _IN_ROWS),
    **dict.fromkeys(("sort_array", "array_sort"), "write .list_sort()"),
    **dict.fromkeys(("array_distinct", "list_unique"), "write .list_distinct()"),
    **dict.fromkeys(("array_contains", "list_has"), "write .list_contains(value)"),
    **dict.fromkeys(("array_length", "len_list", "cardinality"), "write .list_length()"),
    **dict.fromkeys(("bit_count", "popcount", "url_decode", "url_encode"), _BY_ROW),
    **dict.fromkeys(("radians", "degrees"), "write x * (math.pi / 180), x * (180 / math.pi)"),
    "mod": "write a % b",
    **dict.fromkeys(
        (
            "at_timezone",
            "at_time_zone",
            "tz_convert",
            "convert_timezone",
            "convert_time_zone",
            "from_utc",
            "from_utc_timestamp",
        ),
        'write .in_zone("Europe/Berlin") for what its clocks show at a UTC time',
    ),
    **dict.fromkeys(
        ("to_utc", "to_utc_timestamp", "tz_localize", "replace_time_zone"),
        'write .from_zone("Europe/Berlin") for the UTC time at which its clocks show this',
    ),
    **dict.fromkeys(("date_trunc",), 'write .truncate("month")'),
    **dict.fromkeys(("make_date", "make_timestamp", "datefromparts"), _MADE),
    "width_bucket": "write ((x - low) / ((high - low) / n)).floor() + 1, of floats",
    **dict.fromkeys(("to_date", "to_timestamp", "parse_date", "str_to_date"), _STRPTIME),
}
"""Of expressions and of the module alike."""
PIVOT = 'write one aggregate per value: .aggregate(a=dbsp.sum("x").where(dbsp.col("kind") == "a"), b=…)'

STREAM: Mapping[str, str] = {
    **dict.fromkeys(("where", "query"), "write .filter(condition)"),
    **dict.fromkeys(("agg", "count", "sum", "min", "max", "mean", "avg", "groupby", "groupBy", "count_distinct"), _GROUPED),
    **dict.fromkeys(("sort", "sort_by", "sort_values", "order_by", "orderBy", "head", "top", "take", "tail"), _ORDERED),
    **dict.fromkeys(("unique", "drop_duplicates", "dropDuplicates", "dedup", "deduplicate"), _ONCE),
    **dict.fromkeys(("union_all", "unionAll", "unionByName", "concat", "append"), "write .union(other)"),
    **dict.fromkeys(("minus", "subtract", "except_all"), "write .except_(other), with all=True for SQL's except all"),
    **dict.fromkeys(("with_column", "withColumn", "withColumns", "assign", "mutate"), "write .with_columns(name=expression)"),
    **dict.fromkeys(("merge", "inner_join", "left_join"), 'write .join(other, on="k", how="left")'),
    **dict.fromkeys(("having", "qualify"), _AFTER),
    **dict.fromkeys(("fillna", "fill_null", "fill_nulls"), 'write .with_columns(x=dbsp.col("x").fill_null(0))'),
    **dict.fromkeys(("dropna", "drop_nulls"), 'write .filter(dbsp.col("x").is_not_null())'),
    **dict.fromkeys(("over", "lag", "lead", "shift", "diff", "rolling", "row_number"), _NEXT),
    **dict.fromkeys(("apply", "map_rows"), "write .map(function, schema={…})"),
    **dict.fromkeys(("flatten",), 'write .explode("list") for rows, .unnest("struct") for columns'),
    **dict.fromkeys(("show", "collect", "to_pandas", "to_arrow", "to_pylist", "to_rows", "execute", "run"), _READ),
    "pivot": 'write .group_by("k").pivot("kind", ["a", "b"], n=dbsp.count())',
    **dict.fromkeys(("melt", "stack"), _LONG),
    **dict.fromkeys(("sample", "describe", "corr"), _READ),
    **dict.fromkeys(("cast", "astype"), 'write .with_columns(x=dbsp.col("x").cast(dbsp.INT64))'),
    "recursive": "write dbsp.recursive(start, body)",
}  # fmt: skip
GROUP: Mapping[str, str] = {
    **dict.fromkeys(
        ("agg", "count", "size", "sum", "min", "max", "mean", "avg", "median", "first", "last"),
        'write .aggregate(n=dbsp.count(), total=dbsp.sum("x"))',
    ),
    **dict.fromkeys(("head", "top", "limit", "top_k"), 'write stream.limit(1, by="at", partition_by="k")'),
    **dict.fromkeys(("apply", "map_groups"), "write .aggregate(x=dbsp.fold_aggregate(…)) for a function of a group's rows"),
    **dict.fromkeys(("having", "filter"), _AFTER),
    **dict.fromkeys(("rollup", "cube", "grouping_sets"), 'write stream.rollup("a", "b").aggregate(…), all keys in the one call'),
}  # fmt: skip
EXPRESSION: Mapping[str, str] = {
    **_BOTH,
    **dict.fromkeys(("alias", "as_", "name", "label"), _NAMED),
    **dict.fromkeys(("isin", "in_", "isInCollection"), "write .is_in([1, 2])"),
    **dict.fromkeys(("isnull", "isna", "isNull"), "write .is_null()"),
    **dict.fromkeys(("eqNullSafe", "eq_missing", "is_not_distinct_from"), "write ~x.is_distinct_from(y)"),
    **dict.fromkeys(("ne_missing",), "write x.is_distinct_from(y)"),
    **dict.fromkeys(("notnull", "notna", "isNotNull", "is_not_na"), "write .is_not_null()"),
    **dict.fromkeys(("dt", "str", "list", "arr"), 'its methods stand on the expression itself, such as dbsp.col("at").hour()'),
    **dict.fromkeys(("astype", "to_type"), "write .cast(dbsp.INT64)"),
    **dict.fromkeys(
        ("sum", "count", "min", "max", "mean", "avg", "median", "std", "n_unique", "first", "last"),
        'aggregates are functions: .group_by("k").aggregate(total=dbsp.sum("x"))',
    ),
    **dict.fromkeys(("over", "shift", "lag", "lead", "diff", "cum_sum", "cumsum", "rank", "rolling_sum"), _NEXT),
    **dict.fromkeys(("then",), "write dbsp.when(condition, value).otherwise(other)"),
    **dict.fromkeys(("fillna", "coalesce", "ifnull"), "write .fill_null(0), or dbsp.coalesce(a, b)"),
    **dict.fromkeys(("startswith",), "write .starts_with(text)"),
    **dict.fromkeys(("endswith",), "write .ends_with(text)"),
    **dict.fromkeys(("apply", "map"), "write .map(function, schema={…}) on the stream"),
    **dict.fromkeys(("len", "size"), "write .length() of a text, .list_length() of a list"),
    **dict.fromkeys(("struct", "get_field", "getField", "struct_extract"), 'write .field("name"), or ["name"]'),
    **dict.fromkeys(("date",), "write .cast(dbsp.DATE)"),
    **dict.fromkeys(("format", "date_format", "to_char"), 'write .strftime("%Y-%m-%d") of a time, + of texts'),
    **dict.fromkeys(("total_seconds", "seconds"), "write (a - b) / dbsp.seconds(1)"),
    **dict.fromkeys(("slice", "str_slice"), "write .substr(start, length), which counts from 1"),
    **dict.fromkeys(("extract", "date_part"), "write .year(), .month(), .hour(), …; of text .regexp_extract(pattern, group)"),
    **dict.fromkeys(("dayname", "weekday_name"), "write .day_name()"),
    **dict.fromkeys(("monthname",), "write .month_name()"),
    **dict.fromkeys(("unhex",), "write .from_hex()"),
    **dict.fromkeys(("to_base64", "b64encode"), "write .base64()"),
    **dict.fromkeys(("edit_distance",), "write .levenshtein(other)"),
    **dict.fromkeys(("weekday", "dayofweek", "isodow"), "write .day_of_week(), 1 for Monday to 7"),
    **dict.fromkeys(("sha1", "sha512", "hash", "xxhash64"), _DIGEST),
    **dict.fromkeys(("eq", "ne", "gt", "lt", "ge", "le", "add", "sub", "mul", "and_", "or_", "not_", "neg"), _SIGNS),
    **dict.fromkeys(("clip",), "write dbsp.greatest(dbsp.least(x, high), low)"),
    **dict.fromkeys(("pow", "power"), "write x ** 2"),
    **dict.fromkeys(("log",), "write .ln(), .log2() or .log10()"),
    **dict.fromkeys(("json_extract", "get_json_object", "json_path_match"), 'write .json_value("$.a")'),
    **dict.fromkeys(("cat", "binary", "struct"), "its methods stand on the expression itself"),
    **dict.fromkeys(("desc", "asc"), 'write dbsp.desc("x") where an order is asked for'),
}  # fmt: skip

AGGREGATE: Mapping[str, str] = {
    **dict.fromkeys(_COMPUTED, _LATER),
    **dict.fromkeys(("filter", "filter_where"), "write .where(condition)"),
    **dict.fromkeys(("alias", "as_", "name"), _NAMED),
    "over": 'write .window(partition_by="k", order_by="at").with_columns(s=dbsp.rolling(dbsp.sum("x"), rows=3))',
}
# of the module: functions of others that are something else here
FUNCTION: Mapping[str, str] = {
    **_BOTH,
    "pi": "write math.pi",
    **dict.fromkeys(("md5", "sha256", "sha1", "sha512", "hash", "xxhash64"), _DIGEST),
    **dict.fromkeys(("date_part", "datepart", "extract"), 'write dbsp.col("at").year(), .month(), .hour(), …'),
    **dict.fromkeys(("sum_if", "sumif", "avg_if", "min_if", "max_if"), _WHERE),
    "array": _LISTED,
    **dict.fromkeys(("grouping", "grouping_id"), _GROUPING),
    **dict.fromkeys(("exists", "not_exists", "any_match"), 'write .join(other, on="k", how="semi"), or how="anti" for none'),
    **dict.fromkeys(("any_value", "arbitrary"), 'write dbsp.min("x"), or dbsp.first("x", order_by="at")'),
    **dict.fromkeys(("top_frequent", "approx_top_k", "most_common"), _MOST),
    **dict.fromkeys(("regr_sxx", "regr_syy", "regr_sxy"), _MOMENTS),
    **dict.fromkeys(("covariance", "cov", "covar"), 'write dbsp.covar_samp("y", "x"), or dbsp.covar_pop of a population'),
    **dict.fromkeys(("quantile", "percentile", "percentile_cont", "percentile_disc", "approx_quantile"), _QUANTILE),
    **dict.fromkeys(("max_by", "maxBy"), 'write dbsp.arg_max("x", "by")'),
    **dict.fromkeys(("min_by", "minBy"), 'write dbsp.arg_min("x", "by")'),
    **dict.fromkeys(("count_if", "countif"), "write dbsp.count().where(condition)"),
    **dict.fromkeys(("approx_count_distinct", "n_unique", "nunique"), 'write dbsp.count_distinct("x"), which is exact'),
    "sum_distinct": 'write dbsp.sum("x", distinct=True)',
    "avg_distinct": 'write dbsp.avg("x", distinct=True)',
    **dict.fromkeys(("mean", "average"), 'write dbsp.avg("x")'),
    **dict.fromkeys(("std", "stdev"), 'write dbsp.stddev("x")'),
    **dict.fromkeys(("every", "all"), "write dbsp.bool_and(condition)"),
    **dict.fromkeys(("any", "some"), "write dbsp.bool_or(condition)"),
    **dict.fromkeys(("listagg", "group_concat"), 'write dbsp.string_agg("x", ",", order_by="at")'),
    **dict.fromkeys(("collect_list", "list_agg", "list"), 'write dbsp.array_agg("x", order_by="at")'),
    **dict.fromkeys(("product", "skewness", "kurtosis", "histogram"), "write dbsp.fold_aggregate(…), any function of the rows"),
    **dict.fromkeys(("ffill", "forward_fill", "locf"), _FILL),
    **dict.fromkeys(("if_", "iff", "ifelse", "if_else", "case"), "write dbsp.when(condition, value).otherwise(other)"),
    **dict.fromkeys(("months", "weeks", "years"), 'write dbsp.days(7) for a week, dbsp.col("at").add_months(1) for months'),
    **dict.fromkeys(("random", "rand", "uuid"), "a replay gives the same rows: push such values as a column"),
    **dict.fromkeys(("current_timestamp", "today", "current_date"), 'write .filter(dbsp.col("at") > dbsp.now() - dbsp.hours(1))'),
    **dict.fromkeys(("TEXT", "VARCHAR", "UTF8", "Utf8", "String"), "write dbsp.STRING"),
    **dict.fromkeys(("INTEGER", "BIGINT", "LONG", "Int64"), "write dbsp.INT64"),
    **dict.fromkeys(("INT", "SMALLINT", "TINYINT"), "write dbsp.INT32, dbsp.INT16 or dbsp.INT8"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "REAL", "Float64"), "write dbsp.FLOAT64"),
    **dict.fromkeys(("BOOLEAN", "Boolean"), "write dbsp.BOOL"),
    **dict.fromkeys(("DATETIME", "Datetime", "TIMESTAMPTZ"), "write dbsp.TIMESTAMP, or dbsp.TIMESTAMP_UTC with a zone"),
    **dict.fromkeys(("NUMERIC", "DECIMAL", "Decimal"), "write dbsp.decimal(12, 2)"),
    **dict.fromkeys(("BYTES", "BLOB", "VARBINARY", "BYTEA"), "write dbsp.BINARY"),
    **dict.fromkeys(("INTERVAL", "Duration"), "write dbsp.DURATION"),
    **dict.fromkeys(("LIST", "ARRAY", "List"), "write dbsp.list_of(dbsp.STRING)"),
    **dict.fromkeys(("STRUCT", "Struct", "ROW"), "write dbsp.struct_of({…})"),
    **dict.fromkeys(("MAP", "JSON"), "write dbsp.struct_of({…}), or keep JSON text in a dbsp.STRING"),
    **dict.fromkeys(("interval", "timedelta"), "write dbsp.days(1), dbsp.hours(1), dbsp.minutes(5)"),
    **dict.fromkeys(("element", "elem"), "name the column: dbsp.col(\"x\")"),
    "query": 'write dbsp.sql("select …", t=t), or methods; what SQL calls each is in docs/streams.md',
    **dict.fromkeys(("read_csv", "read_parquet", "from_pandas", "from_arrow", "from_dicts", "source", "input"), _PUSHED),
    **dict.fromkeys(("struct_pack", "named_struct", "row"), 'write dbsp.struct("a", b=dbsp.col("x"))'),
    **dict.fromkeys(("map", "json_object", "to_json"), 'fields are columns, or a struct: dbsp.struct("a", b=dbsp.col("x"))'),
    **dict.fromkeys(("literal", "const", "val"), "write dbsp.lit(value)"),
    **dict.fromkeys(("ifnull", "nvl"), 'write dbsp.coalesce(dbsp.col("x"), 0)'),
    **dict.fromkeys(("concat", "union", "union_all"), "write a.union(b) of streams, .concat(…) or + of texts"),
    **dict.fromkeys(("unnest", "explode"), 'write stream.explode("list") for rows, stream.unnest("struct") for columns'),
}  # fmt: skip
WINDOW: Mapping[str, str] = {
    **dict.fromkeys(_COMPUTED, _LATER_IN_WINDOW),
    "over": 'write .window(partition_by="k", order_by="at").with_columns(n=dbsp.row_number())',
    **dict.fromkeys(("alias", "as_", "name"), "write name=… in the window's with_columns"),
}
WINDOWED: Mapping[str, str] = {
    **dict.fromkeys(
        ("agg", "aggregate", "sum", "count", "mean", "apply"), "write .with_columns(total=dbsp.rolling(dbsp.sum(\"x\"), rows=3))"
    ),
    **dict.fromkeys(("filter", "qualify", "limit"), _AFTER),
}  # fmt: skip
WHEN: Mapping[str, str] = {
    **dict.fromkeys(("then", "elif_", "elsewhen"), "write .when(condition, value) for each case"),
    **dict.fromkeys(("else_", "end", "default", "els", "else_value"), "end it with .otherwise(value)"),
}
_PUSH = 'write run.push("t", rows); of a table with a primary key a row replaces the one before'
_LOOK = "write .to_pylist() for dicts, .to_rows() for rows with their weights"
RUN: Mapping[str, str] = {
    **dict.fromkeys(("insert", "upsert", "update", "add", "send", "append", "write"), _PUSH),
    **dict.fromkeys(("remove", "retract"), 'write run.delete("t", rows)'),
    **dict.fromkeys(("query", "sql", "execute", "collect"), 'write run.view("v").to_arrow(), which DuckDB and pandas read'),
    **dict.fromkeys(("views", "read", "get", "table", "fetch", "result", "output_of"), 'write run.view("v")'),
    **dict.fromkeys(("tables", "inputs"), "write circuit.tables"),
    **dict.fromkeys(("run", "tick", "advance", "commit", "flush", "process"), "write run.step()"),
    **dict.fromkeys(("errors", "failures"), "write run.dead_letters()"),
}  # fmt: skip
ROWSET: Mapping[str, str] = {
    **dict.fromkeys(("df", "to_df", "toPandas"), "write .to_pandas()"),
    **dict.fromkeys(("pl",), "write .to_polars()"),
    **dict.fromkeys(("rows", "collect", "fetchall", "to_dicts", "to_list", "show", "head", "items"), _LOOK),
}  # fmt: skip
