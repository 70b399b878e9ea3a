"""Incremental circuits over Z-sets, kept up to date on Spark."""

from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING, NoReturn

from dbsp.aggregates import (
    Aggregate,
    arg_max,
    arg_min,
    array_agg,
    asc,
    avg,
    bit_and,
    bit_or,
    bit_xor,
    bool_and,
    bool_or,
    count,
    count_distinct,
    desc,
    first,
    fold_aggregate,
    last,
    linear_aggregate,
    max,  # noqa: A004 (SQL's name, used as dbsp.max)
    median,
    min,  # noqa: A004 (SQL's name, used as dbsp.min)
    quantile_cont,
    quantile_disc,
    stddev,
    stddev_pop,
    stddev_samp,
    string_agg,
    sum,  # noqa: A004 (SQL's name, used as dbsp.sum)
    var_pop,
    var_samp,
    variance,
)
from dbsp.circuit.circuit import circuit
from dbsp.circuit.drawing import drawing
from dbsp.circuit.load import load_circuit
from dbsp.circuit.nodes import Circuit
from dbsp.durations import days, hours, milliseconds, minutes, seconds
from dbsp.errors import (
    CapacityError,
    CircuitError,
    ConfigError,
    DataError,
    DbspError,
    FencedError,
    InternalError,
    UnavailableError,
)
from dbsp.expr.answering import answered as _answered
from dbsp.expr.answering import no_attribute as _no_attribute
from dbsp.expr.build import (
    Expr,
    coalesce,
    col,
    concat_ws,
    date_diff,
    from_epoch,
    greatest,
    least,
    lit,
    now,
    struct,
    when,
)
from dbsp.expr.other_names import FUNCTION as _FUNCTION
from dbsp.runtime.session import Rowset, Run
from dbsp.runtime.session import open_run as open  # noqa: A004 (dbsp.open reads as what it does)
from dbsp.stream import Group, Stream, join_all, recursive, table
from dbsp.version import VERSION as __version__  # noqa: N811 (the name Python gives it)
from dbsp.windows import (
    WindowFunction,
    cume_dist,
    dense_rank,
    first_value,
    lag,
    last_value,
    lead,
    ntile,
    percent_rank,
    rank,
    rolling,
    row_number,
)
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Column,
    OrderBy,
    Schema,
    decimal,
    list_of,
    struct_of,
)

__all__ = [
    "BINARY",
    "BOOL",
    "DATE",
    "DURATION",
    "FLOAT32",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_UTC",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "Aggregate",
    "CapacityError",
    "Circuit",
    "CircuitError",
    "Column",
    "ConfigError",
    "DataError",
    "DbspError",
    "Expr",
    "FencedError",
    "Group",
    "InternalError",
    "OrderBy",
    "Rowset",
    "Run",
    "Schema",
    "Stream",
    "UnavailableError",
    "WindowFunction",
    "__version__",
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
    "circuit",
    "coalesce",
    "col",
    "concat_ws",
    "count",
    "count_distinct",
    "cume_dist",
    "date_diff",
    "days",
    "decimal",
    "dense_rank",
    "desc",
    "drawing",
    "first",
    "first_value",
    "fold_aggregate",
    "from_epoch",
    "greatest",
    "hours",
    "join_all",
    "lag",
    "last",
    "last_value",
    "lead",
    "least",
    "linear_aggregate",
    "list_of",
    "lit",
    "load_circuit",
    "max",
    "median",
    "milliseconds",
    "min",
    "minutes",
    "now",
    "ntile",
    "open",
    "percent_rank",
    "quantile_cont",
    "quantile_disc",
    "rank",
    "recursive",
    "rolling",
    "row_number",
    "seconds",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "struct",
    "struct_of",
    "sum",
    "table",
    "var_pop",
    "var_samp",
    "variance",
    "when",
]

if not TYPE_CHECKING:  # for the type checker an unknown name, and an unknown argument, are errors
    globals().update(
        {
            name: _answered(value, name)
            for name, value in globals().items()
            if name in __all__ and type(value) is _FunctionType
        }
    )

    def __getattr__(name: str) -> NoReturn:
        """Only to say what others' functions are called here."""
        import dbsp  # noqa: PLC0415 (itself, whole by now)

        raise _no_attribute("dbsp", dbsp, name, _FUNCTION)
