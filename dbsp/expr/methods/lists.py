"""Methods of lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr import element_functions, list_functions
from dbsp.expr.expression import Function
from dbsp.expr.methods.applied import Applied, text, unwrap


class ListMethods(Applied):
    """Methods of lists: length, elements, order, membership, sums."""

    __slots__ = ()

    def list_length(self) -> Self:
        """Return the number of elements, null ones included."""
        return self._call(list_functions.LIST_LENGTH)

    def element(self, position: int | Self) -> Self:
        """Return the element at a position; null where the list is shorter.

        Positions count from 1, or from the end: -1 is the last.
        """
        return self._with(list_functions.ELEMENT, position=position)

    def list_contains(self, value: Any) -> Self:
        """Return whether an element equals this constant."""
        return self._call(list_functions.LIST_CONTAINS, options=(value,))

    def list_sort(self, *, descending: bool = False) -> Self:
        """Return the elements in order, nulls last; the least is `.list_sort().element(1)`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"tags": dbsp.list_of(dbsp.STRING)})
        >>> kinds = t.select(kind=dbsp.col("tags").list_distinct().list_sort().list_join("+"))
        >>> with dbsp.open(dbsp.circuit("demo", {"kinds": kinds})) as run:
        ...     run.push("t", [{"tags": ["b", "a", "b"]}])
        ...     print(run.step()["kinds"].to_rows())
        ...     run.delete("t", [{"tags": ["b", "a", "b"]}])
        ...     print(run.step()["kinds"].to_rows())
        [(('a+b',), 1)]
        [(('a+b',), -1)]
        """
        return self._call(list_functions.LIST_SORT, options=(bool(descending),))

    def list_distinct(self) -> Self:
        """Return every element once, in the order of first occurrence; a null is one of them."""
        return self._call(list_functions.LIST_DISTINCT)

    def list_slice(self, first: int | Self, last: int | Self) -> Self:
        """Return the elements from one position to another, both included; fewer where the list is shorter.

        Positions count from 1.
        """
        return self._with(list_functions.LIST_SLICE, first=first, last=last)

    def list_position(self, value: Any) -> Self:
        """Return the position of the first element that equals this constant, counted from 1; null if there is none."""
        return self._call(list_functions.LIST_POSITION, options=(value,))

    def list_reverse(self) -> Self:
        """Return the elements from the last to the first."""
        return self._call(list_functions.LIST_REVERSE)

    def list_min(self) -> Self:
        """Return the least element that is not null; NaN is above all numbers."""
        return self._call(list_functions.LIST_MIN)

    def list_max(self) -> Self:
        """Return the greatest element that is not null; NaN is above all numbers."""
        return self._call(list_functions.LIST_MAX)

    def list_sum(self) -> Self:
        """Return the sum of the elements that are not null, in the type of `dbsp.sum`; null if there is none.

        **Errors** A sum that does not fit fails its row. A sum of floats is rounded once.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"xs": dbsp.list_of(dbsp.INT64)})
        >>> xs = dbsp.col("xs")
        >>> seen = t.select(low=xs.list_min(), high=xs.list_max(), total=xs.list_concat(xs).list_sum())
        >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
        ...     run.push("t", [{"xs": [3, None, 1]}])
        ...     print(run.step()["seen"].to_rows())
        ...     run.delete("t", [{"xs": [3, None, 1]}])
        ...     print(run.step()["seen"].to_rows())
        [((1, 3, 8), 1)]
        [((1, 3, 8), -1)]
        """
        return self._call(list_functions.LIST_SUM)

    def list_concat(self, *others: Any) -> Self:
        """Return the elements of this list, then those of the others, all of one type; a null list counts as empty."""
        return self._call(list_functions.LIST_CONCAT, *others)

    def list_transform(self, function: Callable[..., Any]) -> Self:
        """Return the function's value for each element: `col("xs").list_transform(lambda x: x * col("rate"))`.

        The function is called once, when the circuit is built, with an expression for the element. A function of two
        parameters also receives the element's position, counted from 1.

        **Errors** A row fails if the value of one of its elements fails.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"xs": dbsp.list_of(dbsp.INT64), "least": dbsp.INT64})
        >>> kept = dbsp.col("xs").list_filter(lambda x: x >= dbsp.col("least"))
        >>> numbered = kept.list_transform(lambda x, i: dbsp.struct(at=i, twice=x * 2))
        >>> with dbsp.open(dbsp.circuit("demo", {"seen": t.select(seen=numbered.element(-1))})) as run:
        ...     run.push("t", [{"xs": [3, None, 1, 5], "least": 2}])
        ...     print(run.step()["seen"].to_rows())
        ...     run.delete("t", [{"xs": [3, None, 1, 5], "least": 2}])
        ...     print(run.step()["seen"].to_rows())
        [(({'at': 2, 'twice': 10},), 1)]
        [(({'at': 2, 'twice': 10},), -1)]
        """
        return self._over_elements(element_functions.LIST_TRANSFORM, function)

    def list_filter(self, function: Callable[..., Any]) -> Self:
        """Return the elements for which the function is true, in order; an element without an answer (null) is left out.

        The function is called as that of `list_transform`.
        """
        return self._over_elements(element_functions.LIST_FILTER, function)

    def _over_elements(self, function: Function, body: Callable[..., Any]) -> Self:
        with located(user_line()):
            names = _parameters(function, body)
            own = [element_functions.parameter(name) for name in names]
            made = unwrap(body(*map(type(self), own)))
        position = own[1] if len(own) > 1 else None
        return type(self)(element_functions.over_elements(function, self._expression, made, own[0], position))

    def list_join(self, separator: str) -> Self:
        """Join the texts that are not null, with the separator between them."""
        return self._call(list_functions.LIST_JOIN, options=(text("separator", separator),))


_PARAMETERS_MAX = 2


def _parameters(function: Function, body: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of the user's function: the element, perhaps its position."""
    hint = f"write .{function.name}(lambda x: …), or lambda x, i: … with the position"
    if not callable(body):
        raise CircuitError(f"a function of an element is wanted: function={function.name} got={body!r}", hint)
    try:
        found = inspect.signature(body).parameters.values()
    except ValueError:  # a built-in function without a signature
        found = None
    names = [each.name for each in found or () if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if found is None or not 1 <= len(names) <= _PARAMETERS_MAX:
        raise CircuitError(f"a function of one or two parameters is wanted: function={function.name}", hint)
    return names
