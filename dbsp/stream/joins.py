"""Methods that join the rows of two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

from dbsp.algebra.side_join import SEMI
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.stream.computed_keys import only, with_fields, with_hidden_fields
from dbsp.stream.handle import check_streams
from dbsp.stream.join_keys import joined, keys_of, sides_of
from dbsp.stream.time_joins import TimeJoinMethods


class Joins(TimeJoinMethods):
    """Joins on equal keys, and cross joins."""

    __slots__ = ()

    def join(
        self,
        other: Self,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
        where: Expr | None = None,
        null_safe: bool = False,
        suffix: str | None = "_right",
    ) -> Self:
        """Join rows whose keys are equal; a null key matches nothing, unless the join is `null_safe`.

        **Law** An inner join is bilinear: D(a ⋈ b) = Da ⋈ b + a ⋈ Db + Da ⋈ Db, with a and b as of the step before.
        Joins with `how` "left", "right" or "full" add the rows of that side, or of both, that have no partner, with
        nulls. Such a row is added when its last partner is deleted, and retracted when its first one is inserted. The
        "semi" join keeps the left rows with a partner, "anti" those without one. They are SQL's EXISTS and NOT EXISTS:
        a left row with a null key is in the anti join. A further condition on pairs, `where`, is part of SQL's ON: a
        row none of whose pairs satisfies it has no partner.

        **Shape** All left columns, then the right ones without the right keys; semi and anti: the left columns. A left
        key that is a field of a struct (`on={"address.zip": "zip"}`) is one more left column, named like the field. In
        an outer join the key is that of the side that has the row, as with SQL's USING. A right column whose name is
        taken gets the suffix, or is refused with `suffix=None`. Columns in `where` are named as in the output of the
        inner join. Integer keys of different widths are compared in the wider type; other types must be equal. Joins
        run in the order in which they are written.

        **State** Both sides, with the columns that are needed. Outer joins: also the number of rows per key. Semi and
        anti: the left side, and the number of right rows per key. With a `where` that reads both sides, every join but
        an inner one keeps both sides. It also keeps the number of pairs of each row that may have none.

        **Cost** Per changed row a look-up, and the pairs that it makes. Where a key gets its first partner or loses its
        last: the key's rows. With a `where`: the condition on every pair of a changed row, also for semi and anti.

        **Errors** A pair on which `where` fails goes to the error policy, and is no pair. When it is deleted, the
        failure is recorded again with the opposite weight.

        **Example**

        >>> import dbsp
        >>> flights = dbsp.table("flights", {"id": dbsp.INT64, "carrier": dbsp.STRING})
        >>> airlines = dbsp.table("airlines", {"code": dbsp.STRING, "name": dbsp.STRING}, primary_key="code")
        >>> named = flights.join(airlines, on={"carrier": "code"})
        >>> print(named.schema)
        (id: int64, carrier: string not null, name: string)
        >>> with dbsp.open(dbsp.circuit("demo", {"named": named})) as run:
        ...     run.push("flights", [{"id": 1, "carrier": "UA"}, {"id": 2, "carrier": "??"}])
        ...     run.push("airlines", [{"code": "UA", "name": "United"}])
        ...     print(run.step()["named"].to_rows())
        ...     run.push("airlines", [{"code": "UA", "name": "United Air"}])
        ...     print(run.step()["named"].to_rows())
        [((1, 'UA', 'United'), 1)]
        [((1, 'UA', 'United Air'), 1), ((1, 'UA', 'United'), -1)]
        >>> every = flights.join(airlines, on={"carrier": "code"}, how="left")
        >>> with dbsp.open(dbsp.circuit("demo", {"every": every})) as run:
        ...     run.push("flights", [{"id": 1, "carrier": "UA"}])
        ...     print(run.step()["every"].to_rows())
        ...     run.push("airlines", [{"code": "UA", "name": "United"}])
        ...     print(sorted(run.step()["every"].to_rows(), key=str))
        [((1, 'UA', None), 1)]
        [((1, 'UA', 'United'), 1), ((1, 'UA', None), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("join", [other])
            left_keys, right_keys = keys_of(on, left_on, right_on)
            left, left_keys = with_fields(self, left_keys, source)
            right, right_keys = with_hidden_fields(other, right_keys, source)
            sides = sides_of(left.node, right.node, (left_keys, right_keys), source)
            made = self._made(joined(sides, how, suffix, where, null_safe, source))
            return only(made, self.columns, source) if how in SEMI else made

    def cross_join(self, other: Self, *, where: Expr | None = None, suffix: str | None = "_right") -> Self:
        """Pair every row with every row of the other stream; with `where`, keep the pairs that satisfy the condition.

        **Law** Bilinear, as a join whose keys are always equal.

        **State** Both sides, on one worker: no key says how to distribute them.

        **Cost** Per changed row, all rows of the other side. If a part of the condition is an equality, `join` on it
        instead; if a part bounds a difference, use `interval_join`.

        **Example**

        >>> import dbsp
        >>> sizes = dbsp.table("sizes", {"size": dbsp.STRING})
        >>> colours = dbsp.table("colours", {"colour": dbsp.STRING})
        >>> with dbsp.open(dbsp.circuit("demo", {"all": sizes.cross_join(colours)})) as run:
        ...     run.push("sizes", [{"size": "s"}, {"size": "m"}])
        ...     run.push("colours", [{"colour": "red"}])
        ...     print(sorted(run.step()["all"].to_rows()))
        ...     run.delete("sizes", [{"size": "s"}])
        ...     print(run.step()["all"].to_rows())
        [(('m', 'red'), 1), (('s', 'red'), 1)]
        [(('s', 'red'), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("cross_join", [other])
            sides = sides_of(self.node, other.node, ((), ()), source)
            return self._made(joined(sides, "inner", suffix, where, False, source))


J = TypeVar("J", bound=Joins)


def join_all(
    streams: Sequence[J],
    on: str | Sequence[str],
    *,
    how: str = "inner",
    null_safe: bool = False,
) -> J:
    """Join all streams on columns that all of them have, one after the other in the given order.

    **Shape** The first stream's columns, then those of the others without the keys. A name that is taken gets the
    number of its stream: the second stream's `x` becomes `x_2`.

    **State**, **Cost** Those of the joins, one per stream after the first. Each join also keeps the previous one's
    output.

    **Example**

    >>> import dbsp
    >>> tables = [dbsp.table(name, {"k": dbsp.INT64, "x": dbsp.INT64}) for name in ("a", "b", "c")]
    >>> every = dbsp.join_all(tables, on="k")
    >>> print(every.schema)
    (k: int64 not null, x: int64, x_2: int64, x_3: int64)
    >>> with dbsp.open(dbsp.circuit("demo", {"every": every})) as run:
    ...     for name in ("a", "b", "c"):
    ...         run.push(name, [{"k": 1, "x": ord(name)}])
    ...     print(run.step()["every"].to_rows())
    ...     run.delete("b", [{"k": 1, "x": 98}])
    ...     print(run.step()["every"].to_rows())
    [((1, 97, 98, 99), 1)]
    [((1, 97, 98, 99), -1)]
    """
    with located(user_line()):
        if isinstance(streams, Joins) or len(streams) < 2:  # noqa: PLR2004 (a join has two sides)
            raise CircuitError("join_all needs a list of at least two streams", 'such as dbsp.join_all([a, b], on="k")')
        check_streams("join_all", streams)
        made, *others = streams
        for number, other in enumerate(others, 2):
            made = made.join(other, on, how=how, null_safe=null_safe, suffix=f"_{number}")
        return made
