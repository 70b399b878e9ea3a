"""The DSL: streams of changing tables, and the methods that derive streams from them.

A `Stream` is a thin handle on a logical node. Every method checks names and types at once and returns a new stream;
errors name the user's file and line. A stream denotes a query over whole tables; the engine keeps its result up to
date. The methods are defined by family: rows, joins, sets, groups, order, time.
"""

from __future__ import annotations

from dbsp.stream.groups import GroupMethods
from dbsp.stream.joins import Joins
from dbsp.stream.order import OrderMethods
from dbsp.stream.time import TimeMethods


class Stream(Joins, GroupMethods, OrderMethods, TimeMethods):
    """A table, or a query over tables, that changes over time.

    **Example**

    >>> import dbsp
    >>> flights = dbsp.table("flights", {"id": dbsp.INT64, "origin": dbsp.STRING, "delay": dbsp.INT32}, primary_key="id")
    >>> late = flights.filter(dbsp.col("delay") > 15).group_by("origin").aggregate(n=dbsp.count())
    >>> print(late.schema)
    (origin: string, n: int64 not null)
    """

    __slots__ = ()
