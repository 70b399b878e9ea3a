"""Methods that read one row at a time: all are linear and have no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import pyarrow as pa

from dbsp.algebra.explode import Explode
from dbsp.algebra.map_rows import MapRows
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col, column_name, lit
from dbsp.expr.expression import Call, ColumnRef
from dbsp.expr.functions import UserFunction
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import missing_column
from dbsp.expr.now import has_now
from dbsp.expr.resolving import resolve
from dbsp.expr.struct_functions import FIELD, path_of
from dbsp.expr.type_names import spelled
from dbsp.stream.clocked import clocked
from dbsp.stream.owners import placed
from dbsp.stream.schemas import Columns, as_schema
from dbsp.stream.sets import SetMethods
from dbsp.zset.schema import INT64, Column, Schema, is_list, is_struct

T = TypeVar("T")
_CONDITION = 'such as dbsp.col("x") > 0'
_COMPARED = (
    "Python answered a comparison itself: of an aggregate or a window function compare the column that it makes,"
    ' .with_columns(n=dbsp.row_number()) in a window, then .filter(dbsp.col("n") == 1)'
)


class RowMethods(SetMethods):
    """Selections, filters and user functions."""

    __slots__ = ()

    def select(self, *columns: str | Expr, **named: str | Expr | Any) -> Self:
        """Keep only these columns: names unchanged, and expressions under new names.

        **Law** Linear: select(a + b) = select(a) + select(b).

        **Shape** A field of a struct keeps its own name: `select("address.zip")` has a column `zip`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64, "y": dbsp.INT64})
        >>> totals = t.select("x", total=dbsp.col("x") + dbsp.col("y"))
        >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals})) as run:
        ...     run.push("t", [{"x": 1, "y": 2}])
        ...     print(run.step()["totals"].to_rows())
        ...     run.delete("t", [{"x": 1, "y": 2}])
        ...     print(run.step()["totals"].to_rows())
        [((1, 3), 1)]
        [((1, 3), -1)]
        """
        source = user_line()
        with located(source):
            pairs = [(self._name_of(column), column) for column in columns]
            return self._selected([*pairs, *named.items()], source)

    def with_columns(self, **named: str | Expr | Any) -> Self:
        """Keep all columns, and add these: a known name is replaced in its place, a new one is added at the end.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT32})
        >>> both = t.with_columns(x=dbsp.col("x").cast(dbsp.INT64), double=dbsp.col("x") * 2)
        >>> with dbsp.open(dbsp.circuit("demo", {"both": both})) as run:
        ...     run.push("t", [{"x": 4}])
        ...     print(run.step()["both"].to_rows())
        ...     run.delete("t", [{"x": 4}])
        ...     print(run.step()["both"].to_rows())
        [((4, 8), 1)]
        [((4, 8), -1)]
        """
        source = user_line()
        with located(source):
            kept = [(name, named.get(name, name)) for name in self.columns]
            added = [(name, value) for name, value in named.items() if name not in self.schema]
            return self._selected([*kept, *added], source)

    def pipe(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return `function(self, *arguments, **named)`, so that a chain of methods can contain a function of streams.

        **Example**

        >>> import dbsp
        >>> def above(stream: dbsp.Stream, least: int) -> dbsp.Stream:
        ...     return stream.filter(dbsp.col("x") > least)
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> big = t.pipe(above, 1).select("x")
        >>> with dbsp.open(dbsp.circuit("demo", {"big": big})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 2}])
        ...     print(run.step()["big"].to_rows())
        ...     run.delete("t", [{"x": 2}])
        ...     print(run.step()["big"].to_rows())
        [((2,), 1)]
        [((2,), -1)]
        """
        with located(user_line()):
            if not callable(function):
                raise CircuitError(f"pipe takes a function of a stream: got={function!r}", "such as .pipe(cleaned)")
        return function(self, *arguments, **named)

    def rename(self, names: Mapping[str, str]) -> Self:
        """Rename some of the columns: `{"old": "new"}`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> named = t.rename({"x": "pieces"})
        >>> with dbsp.open(dbsp.circuit("demo", {"named": named})) as run:
        ...     run.push("t", [{"x": 4}])
        ...     print(run.step()["named"].to_rows())
        ...     run.delete("t", [{"x": 4}])
        ...     print(run.step()["named"].to_rows())
        [((4,), 1)]
        [((4,), -1)]
        """
        source = user_line()
        with located(source):
            if not isinstance(names, Mapping):
                raise CircuitError(f"rename takes a dict: got={names!r}", 'such as .rename({"old": "new"})')
            for old, new in names.items():
                if isinstance(old, str) and path_of(old, self.schema) is not None:
                    hint = f"take it out as a column: .with_columns({new}=dbsp.col({old!r}))"
                    raise CircuitError(f"a field of a struct stays in it: column={old}", hint)
                if old not in self.schema:
                    raise missing_column(old, self.schema)
            return self._selected([(names.get(name, name), name) for name in self.columns], source)

    def drop(self, *names: str) -> Self:
        """Drop these columns.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64, "note": dbsp.STRING})
        >>> bare = t.drop("note")
        >>> with dbsp.open(dbsp.circuit("demo", {"bare": bare})) as run:
        ...     run.push("t", [{"x": 4, "note": "a"}, {"x": 4, "note": "b"}])
        ...     print(run.step()["bare"].to_rows())
        ...     run.delete("t", [{"x": 4, "note": "a"}])
        ...     print(run.step()["bare"].to_rows())
        [((4,), 2)]
        [((4,), -1)]
        """
        source = user_line()
        with located(source):
            for name in names:
                if isinstance(name, str) and path_of(name, self.schema) is not None:
                    whole = f".with_columns({name.partition('.')[0]}=dbsp.struct(…))"
                    raise CircuitError(
                        f"a field of a struct stays in it: column={name}", f"make the struct anew: {whole}"
                    )
                if name not in self.schema:
                    raise missing_column(name, self.schema)
            return self._selected([(name, name) for name in self.columns if name not in names], source)

    def filter(self, predicate: Expr, *more: Expr) -> Self:
        """Keep the rows for which all conditions are true; a row for which one is null is dropped, as in SQL.

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
            if more:
                return self.filter(predicate).filter(*more)
            if not isinstance(predicate, Expr):
                shown = f"{predicate!r}" if not callable(predicate) else "a function"
                hint = _COMPARED if isinstance(predicate, bool) else _CONDITION
                raise CircuitError(f"filter takes an expression: got={shown}", hint)
            own = placed(unwrap(predicate), self.node)
            if has_now(own):
                return clocked(self, own, source)
            return self._filtered(own, source)

    def map(
        self,
        function: Callable[[dict[str, Any]], Mapping[str, Any]],
        schema: Columns,
        depends_on: Iterable[Any] = (),
        check: bool = False,
    ) -> Self:
        """Apply a Python function that takes a row (a dict) and returns a row (a dict with exactly the columns of `schema`).

        **Law** Linear. The function must be deterministic: it may run more than once for a row, and runs again for a
        retraction and at every replay. Equal rows must give equal results in every process. With `check` it is called
        twice for every row, in another order, and two different results for one row stop the pipeline.

        **Cost** Python per row: a hundred times an expression. Prefer `with_columns` where an expression suffices.

        **Errors** A row for which the function raises, or returns a row that does not fit, goes to the error policy.

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
        return self._map(function, schema, "row", depends_on, check)

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]],
        schema: Columns,
        depends_on: Iterable[Any] = (),
        check: bool = False,
    ) -> Self:
        """Apply a Python function (also a generator) from a row to any number of rows (None: no row); all else is as in `map`.

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
        return self._map(function, schema, "flat", depends_on, check)

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        schema: Columns,
        depends_on: Iterable[Any] = (),
        check: bool = False,
    ) -> Self:
        """Apply a function from a `pyarrow.RecordBatch` to a batch of as many rows, with the columns of `schema`.

        **Law** Linear, provided that row i of the result depends on row i alone: batches are cut anywhere, and equal
        rows are passed once. With `check` the function is called again with the rows in another order.

        **Cost** That of the function: for pyarrow's or numpy's kernels, like an expression.

        **Errors** If the function raises, or returns a batch that does not fit, bisection finds the failing rows. They
        go to the error policy.

        **Example**

        >>> import dbsp, pyarrow as pa, pyarrow.compute as pc
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> def scaled(rows: pa.RecordBatch) -> pa.RecordBatch:
        ...     return pa.RecordBatch.from_arrays([pc.multiply(rows["x"], 10)], names=["x"])
        >>> tens = t.map_batches(scaled, schema={"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"tens": tens})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 2}])
        ...     print(run.step()["tens"].to_rows())
        ...     run.delete("t", [{"x": 2}])
        ...     print(run.step()["tens"].to_rows())
        [((10,), 1), ((20,), 1)]
        [((20,), -1)]
        """
        return self._map(function, schema, "batch", depends_on, check)

    def explode(
        self, column: str | Expr, name: str | None = None, position: str | None = None, outer: bool = False
    ) -> Self:
        """Make one row per element of a list: SQL's UNNEST.

        **Law** Linear.

        **Shape** The other columns, and the element in the place of the list, under the list's name or `name`. The
        int64 column `position`, if named, counts elements from 1. A row whose list is null or empty has no row, or with
        `outer` one with a null. A computed list, `explode(dbsp.col("text").split(" "), "word")`, needs the name, and
        its elements are the last column.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"id": dbsp.INT64, "tags": dbsp.list_of(dbsp.STRING)})
        >>> with dbsp.open(dbsp.circuit("demo", {"tags": t.explode("tags", "tag")})) as run:
        ...     run.push("t", [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}])
        ...     print(run.step()["tags"].to_rows())
        ...     run.delete("t", [{"id": 1, "tags": ["a", "b"]}])
        ...     print(run.step()["tags"].to_rows())
        [((1, 'a'), 1), ((1, 'b'), 1)]
        [((1, 'a'), -1), ((1, 'b'), -1)]
        """
        source = user_line()
        with located(source):
            if isinstance(column, Expr) and not isinstance(unwrap(column), ColumnRef):
                return self._exploded(column, name, position, outer)
            column = self._name(column)
            if column not in self.schema:
                raise missing_column(column, self.schema)
            list_ = self.schema[column]
            if not pa.types.is_list(list_.type):
                hint = 'explode takes a list: a column of type dbsp.list_of(…), or with_columns(parts=col("text").split(","))'
                if is_struct(list_.type):
                    hint = f'write .unnest("{column}") for the fields of a struct'
                raise CircuitError(f"not a list: column={column} type={list_.type}", hint)
            element = Column(name or column, list_.type.value_type)
            added = (Column(position, INT64, nullable=outer),) if position is not None else ()
            kept = (element if own.name == column else own for own in self.schema)
            schema = Schema((*kept, *added))
            return self._made(
                Explode(input=self.node, column=column, position=position, outer=outer, schema=schema, source=source)
            )

    def _exploded(self, list_: Expr, name: str | None, position: str | None, outer: bool) -> Self:
        """Make one row per element of a list that an expression computes."""
        if name is None:
            raise CircuitError(f"the elements need a name: list={list_}", f'write .explode({list_}, "element")')
        return self.with_columns(**{name: list_}).explode(name, None, position, outer)

    def unpivot(self, columns: Sequence[str], name: str = "name", value: str = "value") -> Self:
        """Make a row for each row and each column of `columns`: SQL's UNPIVOT, also called melt.

        **Law** Linear: the union of one selection per column.

        **Shape** The other columns, then `name` (string, the column's name) and `value` (its value). The columns must
        be of one type. A null is a value: `.filter(dbsp.col("value").is_not_null())` leaves it out, as SQL does. A
        field of a struct (`"sold.jan"`) has its own name (`jan`), and the struct stays among the other columns.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"shop": dbsp.STRING, "jan": dbsp.INT64, "feb": dbsp.INT64})
        >>> months = t.unpivot(["jan", "feb"], name="month", value="sold")
        >>> with dbsp.open(dbsp.circuit("demo", {"months": months})) as run:
        ...     run.push("t", [{"shop": "a", "jan": 1, "feb": 2}])
        ...     print(sorted(run.step()["months"].to_rows()))
        ...     run.delete("t", [{"shop": "a", "jan": 1, "feb": 2}])
        ...     print(sorted(run.step()["months"].to_rows()))
        [(('a', 'feb', 2), 1), (('a', 'jan', 1), 1)]
        [(('a', 'feb', 2), -1), (('a', 'jan', 1), -1)]
        """
        source = user_line()
        with located(source):
            if isinstance(columns, str) or not columns:
                raise CircuitError(f"unpivot takes a list of columns: got={columns!r}", 'such as ["jan", "feb"]')
            paths = {column: path_of(column, self.schema) for column in columns}
            for column, path in paths.items():
                if column not in self.schema and path is None:
                    raise missing_column(column, self.schema)
            types = {
                column: self.schema[column].type if path is None else resolve(path, self.schema).type(self.schema)
                for column, path in paths.items()
            }
            shown = {column: column if paths[column] is None else self._name_of(column) for column in types}
            if len(set(shown.values())) < len(shown):
                repeated = f"unpivot names two columns alike: columns={list(shown.values())}"
                raise CircuitError(repeated, "name one of them before, .with_columns(…), and take that column")
            first = types[columns[0]]
            for column, type_ in types.items():
                if type_ != first:
                    own = shown[column]
                    hint = f'write .with_columns({own}=dbsp.col("{column}").cast({spelled(first)})) before'
                    raise CircuitError(f"column types differ: column={column} types={first} and {type_}", hint)
            kept = [(own, own) for own in self.columns if own not in types]
            taken = [own for own, _ in kept if own in (name, value)] or ([name] if name == value else [])
            if taken:
                hint = 'such as name="month", value="sold"'
                raise CircuitError(f"unpivot makes a column twice: column={taken[0]}", hint)
            parts = [self._selected([*kept, (name, lit(shown[column])), (value, column)], source) for column in types]
            return parts[0].union(*parts[1:])

    def unnest(self, *columns: str | Expr, prefix: str = "") -> Self:
        """Turn the fields of structs into columns.

        **Law** Linear.

        **Shape** The fields take the place of the struct, under their names with `prefix` before; a null struct gives
        nulls. A list of structs has to be exploded first.

        **Example**

        >>> import dbsp
        >>> address = dbsp.struct_of({"street": dbsp.STRING, "zip": dbsp.INT64})
        >>> t = dbsp.table("t", {"id": dbsp.INT64, "address": address}, primary_key="id")
        >>> with dbsp.open(dbsp.circuit("demo", {"flat": t.unnest("address")})) as run:
        ...     run.push("t", [{"id": 1, "address": {"street": "Elm", "zip": 7}}, {"id": 2, "address": None}])
        ...     print(run.step()["flat"].to_rows())
        ...     run.push("t", [{"id": 1, "address": {"street": "Oak"}}])
        ...     print(run.step()["flat"].to_rows())
        [((1, 'Elm', 7), 1), ((2, None, None), 1)]
        [((1, 'Elm', 7), -1), ((1, 'Oak', None), 1)]
        """
        source = user_line()
        with located(source):
            structs = [column_name(column) for column in columns]
            for column in structs:
                self._check_struct(column)
            pairs: list[tuple[str, Any]] = []
            for own in self.schema:
                fields = [field.name for field in own.type] if own.name in structs else []
                pairs += [(prefix + name, col(own.name).field(name)) for name in fields] or [(own.name, own.name)]
            names = [name for name, _ in pairs]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                hint = 'give a prefix: .unnest("address", prefix="address_"), or select fields: .select(street="address.street")'
                raise CircuitError(f"a field has the name of another column: columns={twice}", hint)
            return self._selected(pairs, source)

    def _check_struct(self, column: str) -> None:
        """Refuse a column that is no struct."""
        if column not in self.schema:
            raise missing_column(column, self.schema)
        type_ = self.schema[column].type
        if not is_struct(type_):
            listed = (
                f'write .explode("{column}") for the elements of a list, then .unnest("{column}") if they are structs'
            )
            hint = listed if is_list(type_) else "unnest takes a struct: a column of type dbsp.struct_of({…})"
            raise CircuitError(f"not a struct: column={column} type={type_}", hint)

    def _name_of(self, column: str | Expr) -> str:
        """Return the name of a column that is selected without a new one; a field of a struct has its own name."""
        value = ColumnRef(column) if isinstance(column, str) else unwrap(column)
        field = path_of(value.name, self.schema) if isinstance(value, ColumnRef) else value
        if isinstance(field, Call) and field.function == FIELD:
            return str(field.options[0])
        return column_name(column)

    def _map(
        self, function: Callable[..., Any], schema: Columns, kind: str, depends_on: Iterable[Any], check: bool
    ) -> Self:
        source = user_line()
        with located(source):
            made = UserFunction.of(function, as_schema(schema), kind, depends_on, check)
            return self._made(MapRows(input=self.node, function=made, schema=made.schema, source=source))
