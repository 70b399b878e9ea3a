"""Methods that read rows in an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from dbsp.aggregates.ordering import ComputedOrder
from dbsp.algebra.top_k import TopK
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.stream.computed_keys import only, with_keys
from dbsp.stream.rows import RowMethods
from dbsp.stream.window import Window
from dbsp.stream.window_functions import row_number
from dbsp.zset.schema import INT64, Column, OrderBy, Schema

One = str | OrderBy | ComputedOrder | Expr
By = One | Sequence[One]
ONE = (str, OrderBy, ComputedOrder, Expr)


class OrderMethods(RowMethods):
    """The first rows of partitions, and functions of neighbouring rows."""

    __slots__ = ()

    def top_k(
        self,
        k: int,
        by: By = (),
        partition_by: str | Expr | Sequence[str | Expr] = (),
        rank: str | None = None,
        offset: int = 0,
    ) -> Self:
        """Keep the first `k` rows of each partition in this order, after skipping `offset` rows.

        Ties are broken by all columns, so the result is unique. Order and partition may be struct fields
        (`"address.zip"`) and expressions.

        **Shape** The input's columns, and a column `rank` (offset + 1 to offset + k, int64) if it is named. A row of
        weight w takes w places.

        **State** All rows; over append-only tables, only those in the first places. Without a partition the rows are
        spread over the workers, each of which passes on only its own first rows.

        **Cost** About k + offset rows are read per changed partition. In a queue, whose first rows are deleted all the
        time, deleted rows are skipped once. If more than 256 partitions lose first rows in a step, deleted rows are
        read until a merge removes them.

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
            _check_count("top_k", "k", k, least=1)
            _check_count("top_k", "offset", offset, least=0)
            if rank is not None and not isinstance(rank, str):
                raise CircuitError(f"rank is the name of a column: got={rank!r}", 'such as rank="place"')
            stream, order, partition = self._placed_by("top_k", by, partition_by, source)
            added = (Column(rank, INT64, nullable=False),) if rank is not None else ()
            schema = Schema((*stream.schema.columns, *added))
            node = TopK(
                input=stream.node, partition=partition, order=order, k=k, offset=offset, rank=rank, schema=schema,
                source=source,
            )  # fmt: skip
            return only(self._made(node), [*self.columns, *(column.name for column in added)], source)

    def limit(
        self,
        k: int,
        by: By = (),
        partition_by: str | Expr | Sequence[str | Expr] = (),
        offset: int = 0,
    ) -> Self:
        """Keep the rows of SQL's `order by ... limit k offset ...`, per partition if one is named: `top_k` without a rank.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"second": t.limit(1, by="x", offset=1)})) as run:
        ...     run.push("t", [{"x": 5}, {"x": 3}, {"x": 9}])
        ...     print(run.step()["second"].to_rows())
        ...     run.delete("t", [{"x": 3}])
        ...     print(run.step()["second"].to_rows())
        [((5,), 1)]
        [((5,), -1), ((9,), 1)]
        """
        return self.top_k(k, by, partition_by, offset=offset)

    def window(
        self,
        partition_by: str | Expr | Sequence[str | Expr] = (),
        order_by: By = (),
    ) -> Window[Self]:
        """Compute functions of each row and its neighbours in a partition: `.with_columns(n=dbsp.row_number(), ...)` follows.

        Partition and order are columns, struct fields (`"address.zip"`) or expressions
        (`partition_by=dbsp.col("at").truncate("day")`), whose values are stored with the rows.

        Functions: `dbsp.row_number`, `rank`, `dense_rank`, `percent_rank`, `cume_dist`, `ntile`, `lag`, `lead`,
        `first_value`, `last_value`, `nth_value`, and `dbsp.rolling` of an aggregate. Ties are broken by all columns, so
        the order is total. Without `order_by` only `dbsp.rolling(..., rows=(None, None))`, the whole partition, is
        possible.

        **State** All rows, distributed by the partition; without one they are on one worker. A watermark drops
        partitions that it closes (by a `window_end` among their columns), not the early rows of a partition.

        **Cost** See each function. If a partition's last rows are deleted all the time, deleted rows are read too until
        a merge removes them. They are at most half as many as the rows. Deleted first rows, as in a queue, cost what
        they cost in `top_k`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
        >>> places = t.window(partition_by="k", order_by=dbsp.desc("x")).with_columns(place=dbsp.rank())
        >>> with dbsp.open(dbsp.circuit("demo", {"places": places})) as run:
        ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
        ...     print(sorted(run.step()["places"].to_rows()))
        ...     run.delete("t", [{"k": "a", "x": 7}])
        ...     print(sorted(run.step()["places"].to_rows()))
        [(('a', 5, 2), 1), (('a', 7, 1), 1)]
        [(('a', 5, 1), 1), (('a', 5, 2), -1), (('a', 7, 1), -1)]
        """
        source = user_line()
        with located(source):
            items = [order_by] if isinstance(order_by, ONE) else list(order_by)
            stream, order, partition = self._placed_by("window" if items else "", items, partition_by, source)
            return Window(stream, partition, order, self.columns)

    def with_row_number(
        self,
        name: str,
        order_by: By,
        partition_by: str | Expr | Sequence[str | Expr] = (),
    ) -> Self:
        """Add each row's place in its partition, from 1: `window(...).with_columns(name=dbsp.row_number())`.

        **Cost** An inserted or deleted row changes all rows after it.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"numbered": t.with_row_number("n", order_by="x")})) as run:
        ...     run.push("t", [{"x": 5}, {"x": 3}])
        ...     print(run.step()["numbered"].to_rows())
        ...     run.delete("t", [{"x": 5}])
        ...     print(run.step()["numbered"].to_rows())
        [((3, 1), 1), ((5, 2), 1)]
        [((5, 2), -1)]
        """
        source = user_line()
        with located(source):
            self._placed_by("with_row_number", order_by, partition_by, source)
        return self.window(partition_by, order_by).with_columns(**{name: row_number()})

    def _placed_by(
        self, what: str, by: Any, partition_by: Any, source: SourceLine | None
    ) -> tuple[Self, tuple[OrderBy, ...], tuple[str, ...]]:
        """Return the stream with a column for each computed key, the order, and the partition's columns.

        `what` names the method in the error for an empty order; an empty `what` allows it.
        """
        items = [by] if isinstance(by, ONE) else list(by)
        if what and not items:
            raise CircuitError(f"{what} needs an order", 'such as dbsp.desc("x"); ties are broken by all columns')
        per = [partition_by] if isinstance(partition_by, str | Expr) else list(partition_by)
        stream, names = with_keys(self, [*map(_sorted_by, items), *per], source)
        order = tuple(
            OrderBy(name, item.descending, item.nulls_first)
            if isinstance(item, OrderBy | ComputedOrder)
            else OrderBy(name)
            for item, name in zip(items, names, strict=False)
        )
        return stream, order, tuple(dict.fromkeys(names[len(items) :]))


def _sorted_by(item: Any) -> Any:
    """Return the column or expression of an element of an order."""
    if isinstance(item, OrderBy):
        return item.column
    return Expr(item.expression) if isinstance(item, ComputedOrder) else item


def _check_count(what: str, name: str, count: Any, least: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count < 1 << 31:
        number = "at least one" if least else "zero or more"
        raise CircuitError(f"{what} needs a whole number of rows, {number}: {name}={count!r}")
