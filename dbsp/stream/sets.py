"""Methods that treat whole rows as members of sets and bags."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from dbsp.algebra.difference import DifferenceNode
from dbsp.algebra.distinct import Distinct
from dbsp.algebra.set_pair import SetPair
from dbsp.algebra.union import Union
from dbsp.algebra.with_weight import WithWeight
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.stream.alignment import aligned
from dbsp.stream.handle import Handle, check_streams
from dbsp.zset.schema import INT64, Column, Schema


class SetMethods(Handle):
    """Union, difference, intersection, distinct, and weights."""

    __slots__ = ()

    def distinct(self) -> Self:
        """Keep every row once, whatever its weight.

        **Law** distinct(distinct(a)) = distinct(a); not linear.

        **State** One weight per distinct row.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"once": t.distinct()})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 1}])
        ...     print(run.step()["once"].to_rows())
        ...     run.delete("t", [{"x": 1}])
        ...     print(run.step()["once"].to_rows())
        ...     run.delete("t", [{"x": 1}])
        ...     print(run.step()["once"].to_rows())
        [((1,), 1)]
        []
        [((1,), -1)]
        """
        return self._made(Distinct(input=self.node, schema=self.schema, source=user_line()))

    def with_weight(self, name: str = "weight") -> Self:
        """Keep every distinct row once, and add its weight as the column `name`.

        **Law** A row of weight w becomes (row, w), once; a row of weight 0 is absent.

        **Shape** The columns, and `name` (int64, not null).

        **State** One weight per distinct row.

        **Cost** Per changed row one look-up, and two output rows: the old weight is retracted.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"bag": t.with_weight("times")})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 1}])
        ...     print(run.step()["bag"].to_rows())
        ...     run.delete("t", [{"x": 1}])
        ...     print(sorted(run.step()["bag"].to_rows()))
        [((1, 2), 1)]
        [((1, 1), 1), ((1, 2), -1)]
        """
        source = user_line()
        with located(source):
            if not isinstance(name, str) or name in self.schema:
                hint = f'such as .with_weight("{_free("weight", self.schema.names)}")'
                raise CircuitError(f"the weight needs a name that no column has: name={name!r}", hint)
            schema = Schema((*self.schema.columns, Column(name, INT64, nullable=False)))
            return self._made(WithWeight(input=self.node, name=name, schema=schema, source=source))

    def union(self, *others: Self, distinct: bool = False) -> Self:
        """Return all rows of all streams: the sum of Z-sets, SQL's UNION ALL; with `distinct` every row once, SQL's UNION.

        **Shape** Columns are matched by name; names and types must agree; the order is the first stream's.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
        >>> with dbsp.open(dbsp.circuit("demo", {"both": a.union(b)})) as run:
        ...     run.push("a", [{"x": 1}])
        ...     run.push("b", [{"x": 1}])
        ...     print(run.step()["both"].to_rows())
        ...     run.delete("b", [{"x": 1}])
        ...     print(run.step()["both"].to_rows())
        [((1,), 2)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("union", others)
            inputs = aligned([self.node, *(other.node for other in others)], source)
            schema = inputs[0].schema
            node = inputs[0] if len(inputs) == 1 else Union(inputs=inputs, schema=schema, source=source)
            return self._made(Distinct(input=node, schema=schema, source=source) if distinct else node)

    def difference(self, other: Self, *, all: bool = False) -> Self:  # noqa: A002 (SQL's word)
        """Return the distinct rows of this stream that the other lacks: SQL's EXCEPT.

        **Law** With `all` (EXCEPT ALL) a row that occurs a times here and b times there stays max(a - b, 0) times.

        **Shape** Columns are matched by name, as in `union`.

        **State** One weight per side for every distinct row.

        **Cost** Per changed row one look-up.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
        >>> with dbsp.open(dbsp.circuit("demo", {"rest": a.difference(b)})) as run:
        ...     run.push("a", [{"x": 1}, {"x": 2}])
        ...     print(run.step()["rest"].to_rows())
        ...     run.push("b", [{"x": 1}])
        ...     print(run.step()["rest"].to_rows())
        [((1,), 1), ((2,), 1)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("difference", [other])
            return self._pair("difference", other, source, all=all)

    def except_(self, other: Self, *, all: bool = False) -> Self:  # noqa: A002 (SQL's word)
        """Return SQL's EXCEPT, with `all` EXCEPT ALL: another name of `difference`.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in "ab")
        >>> rest = a.except_(b)
        >>> with dbsp.open(dbsp.circuit("demo", {"rest": rest})) as run:
        ...     run.push("a", [{"x": 1}, {"x": 2}])
        ...     print(run.step()["rest"].to_rows())
        ...     run.delete("a", [{"x": 1}])
        ...     print(run.step()["rest"].to_rows())
        [((1,), 1), ((2,), 1)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("except_", [other])
            return self._pair("difference", other, source, all=all)

    def intersect(self, *others: Self, all: bool = False) -> Self:  # noqa: A002 (SQL's word)
        """Return the distinct rows that all streams have: SQL's INTERSECT.

        **Law** With `all` (INTERSECT ALL) a row that occurs a times here and b times there is in the result min(a, b)
        times.

        **Shape** Columns are matched by name, as in `union`.

        **State** One weight per side for every distinct row; again for each further stream.

        **Cost** Per changed row one look-up.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
        >>> with dbsp.open(dbsp.circuit("demo", {"both": a.intersect(b, all=True)})) as run:
        ...     run.push("a", [{"x": 1}, {"x": 1}, {"x": 2}])
        ...     run.push("b", [{"x": 1}, {"x": 1}, {"x": 1}])
        ...     print(run.step()["both"].to_rows())
        ...     run.delete("a", [{"x": 1}])
        ...     print(run.step()["both"].to_rows())
        [((1,), 2)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            if not others:
                raise CircuitError("intersect needs another stream", "such as a.intersect(b)")
            check_streams("intersect", others)
            made = self._made(self.node)
            for other in others:
                made = made._pair("intersect", other, source, all=all)
            return made

    def _pair(self, kind: str, other: Self, source: SourceLine | None, *, all: bool) -> Self:  # noqa: A002
        """Return the stream of a set operation with `other`; `kind` is its name, such as `difference`.

        With `all` the operands are bags: repeated rows count, as in SQL's EXCEPT ALL.
        """
        left, right = aligned([self.node, other.node], source)
        if kind == "difference" and not all:
            return self._made(DifferenceNode(left=left, right=right, schema=left.schema, source=source))
        kind = f"{kind} all" if all else kind
        return self._made(SetPair(kind=kind, left=left, right=right, schema=left.schema, source=source))


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, with underscores appended until no column has it."""
    while name in taken:
        name = f"{name}_"
    return name
