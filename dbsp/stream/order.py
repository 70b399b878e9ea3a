"""Methods that look at rows in an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dbsp.algebra.top_k import TopK
from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name
from dbsp.expr.names import missing_column
from dbsp.stream.handle import Handle, order_of
from dbsp.zset.schema import INT64, Column, OrderBy, Schema

if TYPE_CHECKING:
    from dbsp.stream.stream import Stream


class Ordered(Handle):
    """The first rows of partitions."""

    __slots__ = ()

    def top_k(
        self,
        k: int,
        by: str | OrderBy | Sequence[str | OrderBy],
        partition_by: str | Sequence[str] = (),
        rank: str | None = None,
    ) -> Stream:
        """The first `k` rows of each partition in this order; ties are broken by all columns, so the answer is always
        the same.

        **Shape** The input's columns, and a column `rank` (1 to k, int64) if it is named. A row of weight w takes w
        places.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"route": dbsp.STRING, "delay": dbsp.INT64})
        >>> worst = t.top_k(1, by=dbsp.desc("delay"), rank="place")
        >>> print(worst.schema)
        (route: string, delay: int64, place: int64 not null)
        >>> with dbsp.open(dbsp.circuit("demo", {"worst": worst})) as run:
        ...     run.push("t", [{"route": "a", "delay": 5}, {"route": "b", "delay": 3}])
        ...     print(run.step()["worst"].to_rows())
        ...     run.delete("t", [{"route": "a", "delay": 5}])
        ...     print(run.step()["worst"].to_rows())
        [(('a', 5, 1), 1)]
        [(('a', 5, 1), -1), (('b', 3, 1), 1)]
        """
        source = user_line()
        with located(source):
            if isinstance(k, bool) or not isinstance(k, int) or k < 1:
                raise CircuitError(f"top_k needs a whole number of rows, at least one: k={k!r}")
            order = tuple(order_of(item) for item in ([by] if isinstance(by, str | OrderBy | Expr) else by))
            partition = (
                (partition_by,) if isinstance(partition_by, str) else tuple(column_name(item) for item in partition_by)
            )
            for name in (*partition, *(item.column for item in order)):
                if name not in self.schema:
                    raise missing_column(name, self.schema)
            if not order:
                raise CircuitError("top_k needs an order", 'such as by=dbsp.desc("x")')
            added = (Column(rank, INT64, nullable=False),) if rank is not None else ()
            schema = Schema((*self.schema.columns, *added))
            node = TopK(input=self.node, partition=partition, order=order, k=k, rank=rank, schema=schema, source=source)
            return self.made(node)
