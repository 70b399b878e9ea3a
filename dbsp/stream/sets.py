"""Methods that look at whole rows as members of sets and bags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbsp.algebra.difference import Difference
from dbsp.algebra.distinct import Distinct
from dbsp.algebra.union import Union
from dbsp.circuit.source_lines import located, user_line
from dbsp.stream.alignment import aligned
from dbsp.stream.handle import Handle, check_streams

if TYPE_CHECKING:
    from dbsp.stream.stream import Stream


class Sets(Handle):
    """Union, difference, distinct."""

    __slots__ = ()

    def distinct(self) -> Stream:
        """Every row once, however often it occurs.

        **Law** distinct(distinct(a)) = distinct(a); not linear.

        **State** One weight per different row.

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
        return self.made(Distinct(input=self.node, schema=self.schema, source=user_line()))

    def union(self, *others: Stream) -> Stream:
        """All rows of all streams: the sum of Z-sets, SQL's UNION ALL. For UNION add `.distinct()`.

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
            if len(inputs) == 1:
                return self.made(self.node)
            return self.made(Union(inputs=inputs, schema=inputs[0].schema, source=source))

    def difference(self, other: Stream) -> Stream:
        """The different rows of this stream that the other does not have: SQL's EXCEPT.

        **Shape** Columns are matched by name, as in `union`.

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
            left, right = aligned([self.node, other.node], source)
            return self.made(Difference(left=left, right=right, schema=left.schema, source=source))
