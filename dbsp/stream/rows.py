"""Methods that look at one row at a time: all linear, none keeps anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dbsp.algebra.filter import Filter
from dbsp.algebra.map_rows import MapRows
from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name, unwrap
from dbsp.expr.expression import resolve
from dbsp.expr.functions import UserFunction
from dbsp.expr.names import missing_column
from dbsp.stream.handle import Handle
from dbsp.stream.schemas import Columns, as_schema
from dbsp.zset.schema import BOOL

if TYPE_CHECKING:
    from dbsp.stream.stream import Stream


class Rows(Handle):
    """Selections, filters, user functions."""

    __slots__ = ()

    def select(self, *columns: str | Expr, **named: str | Expr | Any) -> Stream:
        """Only these columns: names as they are, and expressions under new names.

        **Law** Linear: select(a + b) = select(a) + select(b).

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64, "y": dbsp.INT64})
        >>> print(t.select("x", total=dbsp.col("x") + dbsp.col("y")).schema)
        (x: int64, total: int64)
        """
        source = user_line()
        with located(source):
            pairs = [(column_name(column), column) for column in columns]
            return self.selected([*pairs, *named.items()], source)

    def with_columns(self, **named: str | Expr | Any) -> Stream:
        """All columns, and these: a known name is replaced in its place, a new one is added at the end.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT32})
        >>> print(t.with_columns(x=dbsp.col("x").cast(dbsp.INT64), double=dbsp.col("x") * 2).schema)
        (x: int64, double: int32)
        """
        source = user_line()
        with located(source):
            kept = [(name, named.get(name, name)) for name in self.columns]
            added = [(name, value) for name, value in named.items() if name not in self.schema]
            return self.selected([*kept, *added], source)

    def rename(self, names: Mapping[str, str]) -> Stream:
        """The same columns, some under new names: `{"old": "new"}`."""
        source = user_line()
        with located(source):
            if not isinstance(names, Mapping):
                raise CircuitError(f"rename takes a dict: got={names!r}", 'such as .rename({"old": "new"})')
            for old in names:
                if old not in self.schema:
                    raise missing_column(old, self.schema)
            return self.selected([(names.get(name, name), name) for name in self.columns], source)

    def drop(self, *names: str) -> Stream:
        """Without these columns."""
        source = user_line()
        with located(source):
            for name in names:
                if name not in self.schema:
                    raise missing_column(name, self.schema)
            return self.selected([(name, name) for name in self.columns if name not in names], source)

    def filter(self, predicate: Expr) -> Stream:
        """The rows for which the condition is true; rows for which it is null leave, as in SQL.

        **Law** Linear: filter(a + b) = filter(a) + filter(b).

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> big = t.filter(dbsp.col("x") > 1)
        >>> with dbsp.open(dbsp.circuit("demo", {"big": big})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 2}, {"x": None}])
        ...     print(run.step()["big"].to_rows())
        ...     run.delete("t", [{"x": 2}])
        ...     print(run.step()["big"].to_rows())
        [((2,), 1)]
        [((2,), -1)]
        """
        source = user_line()
        with located(source):
            if not isinstance(predicate, Expr):
                shown = f"{predicate!r}" if not callable(predicate) else "a function"
                raise CircuitError(f"filter takes an expression: got={shown}", 'such as dbsp.col("x") > 0')
            condition = resolve(unwrap(predicate), self.schema)
            if condition.type(self.schema) != BOOL:
                hint = f"write a comparison, such as ({condition}) != 0"
                raise CircuitError(
                    f"filter takes a condition: got={condition} type={condition.type(self.schema)}", hint
                )
            return self.made(Filter(input=self.node, predicate=condition, schema=self.schema, source=source))

    def map(
        self, function: Callable[[dict[str, Any]], Mapping[str, Any]], schema: Columns, depends_on: Iterable[Any] = ()
    ) -> Stream:
        """A Python function from a row (a dict) to a row (a dict with exactly the columns of `schema`).

        **Law** Linear. The function must be pure: it is called again for a retraction and at every replay.

        **Cost** Python per row: a hundred times an expression. Prefer `with_columns` where an expression can say it.

        **Errors** A row on which it raises, or returns what does not fit, leaves by the error policy.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"name": dbsp.STRING})
        >>> title = t.map(lambda row: {"title": row["name"].title()}, schema={"title": dbsp.STRING})
        >>> with dbsp.open(dbsp.circuit("demo", {"title": title})) as run:
        ...     run.push("t", [{"name": "ada"}])
        ...     print(run.step()["title"].to_rows())
        ...     run.delete("t", [{"name": "ada"}])
        ...     print(run.step()["title"].to_rows())
        [(('Ada',), 1)]
        [(('Ada',), -1)]
        """
        return self._map(function, schema, flat=False, depends_on=depends_on)

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]],
        schema: Columns,
        depends_on: Iterable[Any] = (),
    ) -> Stream:
        """A Python function (also a generator) from a row to any number of rows; otherwise like `map`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"id": dbsp.INT64, "text": dbsp.STRING}, primary_key="id")
        >>> words = t.flat_map(lambda row: [{"word": w} for w in row["text"].split()], schema={"word": dbsp.STRING})
        >>> with dbsp.open(dbsp.circuit("demo", {"words": words})) as run:
        ...     run.push("t", [{"id": 1, "text": "a b"}])
        ...     print(run.step()["words"].to_rows())
        ...     run.push("t", [{"id": 1, "text": "a c"}])
        ...     print(run.step()["words"].to_rows())
        [(('a',), 1), (('b',), 1)]
        [(('b',), -1), (('c',), 1)]
        """
        return self._map(function, schema, flat=True, depends_on=depends_on)

    def _map(self, function: Callable[..., Any], schema: Columns, flat: bool, depends_on: Iterable[Any]) -> Stream:
        source = user_line()
        with located(source):
            made = UserFunction.of(function, as_schema(schema), flat, depends_on)
            return self.made(MapRows(input=self.node, function=made, flat=flat, schema=made.schema, source=source))
