"""The DSL: streams of changing tables, and what can be made of them.

A `Stream` is a thin handle on a logical node. Every method checks names and types at once and returns a new stream; errors
name the user's file and line. What a stream means is a query over whole tables; the engine keeps its answer up to date.
The methods are written by family: rows, joins, sets, groups, order, time.
"""

from __future__ import annotations

from dbsp.stream.groups import Groups
from dbsp.stream.joins import Joins
from dbsp.stream.order import Ordered
from dbsp.stream.rows import Rows
from dbsp.stream.sets import Sets
from dbsp.stream.time import Timed


class Stream(Rows, Joins, Sets, Groups, Ordered, Timed):
    """A table, or a query over tables, that changes.

    **Example**

    >>> import dbsp
    >>> flights = dbsp.table("flights", {"id": dbsp.INT64, "origin": dbsp.STRING, "delay": dbsp.INT32}, primary_key="id")
    >>> late = flights.filter(dbsp.col("delay") > 15).group_by("origin").aggregate(n=dbsp.count())
    >>> print(late.schema)
    (origin: string, n: int64 not null)
    """

    __slots__ = ()
