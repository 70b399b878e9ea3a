"""DBSP's own operators, for experts: streams of Z-sets as in the paper, so that its equations can be written and tried.

Elsewhere in dbsp a stream is a table that changes, and the engine makes a query on the stream incremental. Here a stream
is the sequence a[0], a[1], … of the Z-sets of its steps. Nothing is made incremental, except by `incremental`.

The `step()` of a run returns for a view the Z-set of the view's stream in that step. Make such views with
`materialize=False`. The table of a view of `integrate(a)` would add up sums, and means nothing.

`select`, `filter`, `with_columns` and `union` are linear, so they equal their lifted and their incremental form. Nested
circuits are `dbsp.recursive`.

Source: DBSP, sections 2 to 4. The paper's equations are in `tests/core/test_equations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from dbsp.algebra.join import Join
from dbsp.algebra.streaming import StepJoin, Streaming
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import InternalError
from dbsp.stream.handle import check_streams
from dbsp.stream.stream import Stream

__all__ = ["delay", "differentiate", "incremental", "integrate", "lifted_distinct", "lifted_join"]


def delay(stream: Stream) -> Stream:
    """Return the stream of the previous step's Z-sets: z⁻¹.

    **Law** delay(a)[0] = 0, delay(a)[s] = a[s - 1].

    **State** the Z-set of the step before; **Cost** its rows.

    **Example**

    >>> import dbsp, dbsp.core
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> with dbsp.open(dbsp.circuit("demo", {"late": dbsp.core.delay(t)}, materialize=False)) as run:
    ...     run.push("t", [{"x": 1}])
    ...     print(run.step()["late"].to_rows())
    ...     run.delete("t", [{"x": 1}])
    ...     print(run.step()["late"].to_rows())
    ...     print(run.step()["late"].to_rows())
    []
    [((1,), 1)]
    [((1,), -1)]
    """
    return _streaming("delay", stream)


def integrate(stream: Stream) -> Stream:
    """Return the stream of sums of all Z-sets up to and including each step: I.

    **Law** integrate(a)[s] = a[0] + … + a[s]; differentiate(integrate(a)) = integrate(differentiate(a)) = a.

    **State** the sum; **Cost** the whole sum, at every step: each step's Z-set is the table.

    **Example**

    >>> import dbsp, dbsp.core
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> with dbsp.open(dbsp.circuit("demo", {"all": dbsp.core.integrate(t)}, materialize=False)) as run:
    ...     run.push("t", [{"x": 1}, {"x": 2}])
    ...     print(run.step()["all"].to_rows())
    ...     run.delete("t", [{"x": 1}])
    ...     print(run.step()["all"].to_rows())
    [((1,), 1), ((2,), 1)]
    [((2,), 1)]
    """
    return _streaming("integrate", stream)


def differentiate(stream: Stream) -> Stream:
    """Return the stream of each step's Z-set minus that of the previous step: D.

    **Law** differentiate(a)[s] = a[s] - a[s - 1].

    **State** the Z-set of the step before; **Cost** its rows.

    **Example**

    >>> import dbsp, dbsp.core
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> with dbsp.open(dbsp.circuit("demo", {"more": dbsp.core.differentiate(t)}, materialize=False)) as run:
    ...     run.push("t", [{"x": 1}])
    ...     print(run.step()["more"].to_rows())
    ...     print(run.step()["more"].to_rows())
    [((1,), 1)]
    [((1,), -1)]
    """
    return _streaming("differentiate", stream)


def lifted_distinct(stream: Stream) -> Stream:
    """Return the rows of positive weight of each step's Z-set with weight 1, without regard to earlier steps: ↑distinct.

    **Law** stream.distinct() = incremental(lifted_distinct, stream).

    **Example**

    >>> import dbsp, dbsp.core
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> with dbsp.open(dbsp.circuit("demo", {"once": dbsp.core.lifted_distinct(t)}, materialize=False)) as run:
    ...     run.push("t", [{"x": 1}, {"x": 1}])
    ...     print(run.step()["once"].to_rows())
    ...     run.delete("t", [{"x": 1}])
    ...     print(run.step()["once"].to_rows())
    [((1,), 1)]
    []
    """
    return _streaming("distinct", stream)


def lifted_join(
    left: Stream,
    right: Stream,
    on: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    suffix: str | None = "_right",
) -> Stream:
    """Join the rows of both streams within each step, with keys and columns as in `Stream.join`: ↑⋈.

    **Law** left.join(right) = incremental(lifted_join, left, right).

    **Example**

    >>> import dbsp, dbsp.core
    >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
    >>> with dbsp.open(dbsp.circuit("demo", {"both": dbsp.core.lifted_join(a, b, "x")}, materialize=False)) as run:
    ...     run.push("a", [{"x": 1}])
    ...     run.push("b", [{"x": 1}, {"x": 1}])
    ...     print(run.step()["both"].to_rows())
    ...     run.delete("a", [{"x": 1}])
    ...     print(run.step()["both"].to_rows())
    [((1,), 2)]
    []
    """
    source = user_line()
    with located(source):
        check_streams("lifted_join", [left, right])
        join = left.join(right, on, suffix=suffix).node
        if not isinstance(join, Join):
            raise InternalError(f"an inner join is another node: node={join}")
        return Stream(StepJoin(**{each.name: getattr(join, each.name) for each in fields(join)}))


def incremental(query: Callable[..., Stream], *streams: Stream) -> Stream:
    """Return the incremental form of a query that is written on whole Z-sets: Q^Δ = D ∘ Q ∘ I.

    **Cost** the whole tables at every step. The form defines the results of the engine's own operators, whose cost is
    proportional to the change.

    **Example**

    >>> import dbsp, dbsp.core
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> once = dbsp.core.incremental(dbsp.core.lifted_distinct, t)
    >>> with dbsp.open(dbsp.circuit("demo", {"once": once})) as run:
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
    with located(user_line()):
        check_streams("incremental", streams)
        return differentiate(query(*map(integrate, streams)))


def _streaming(kind: str, stream: Stream) -> Stream:
    source = user_line()
    with located(source):
        check_streams(kind, [stream])
        return Stream(Streaming(input=stream.node, kind=kind, schema=stream.schema, source=source))
