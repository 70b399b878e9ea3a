"""Methods that put the rows of two streams side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dbsp.circuit.source_lines import located, user_line
from dbsp.stream.handle import Handle, check_streams
from dbsp.stream.join_keys import join_node

if TYPE_CHECKING:
    from dbsp.stream.stream import Stream


class Joins(Handle):
    """Joins."""

    __slots__ = ()

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str | None = "_right",
    ) -> Stream:
        """Pairs of rows whose keys are equal; a null key meets nothing.

        **Law** Bilinear: D(a ⋈ b) = Da ⋈ b + a ⋈ Db + Da ⋈ Db, with a and b as of the step before.

        **Shape** All left columns, then the right ones without the right keys. A right column whose name is taken
        gets the suffix; with
        `suffix=None` it is refused. Integer keys of different widths meet in the wider type; other types must be equal.

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
        """
        source = user_line()
        with located(source):
            check_streams("join", [other])
            return self.made(join_node(self.node, other.node, on, left_on, right_on, suffix, source))
