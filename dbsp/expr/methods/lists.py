"""Methods of lists."""

from __future__ import annotations

from typing import Any, Self

from dbsp.expr import list_functions
from dbsp.expr.methods.applied import Applied, text


class ListMethods(Applied):
    """Length, elements, membership."""

    __slots__ = ()

    def list_length(self) -> Self:
        """How many elements there are, null ones too."""
        return self._call(list_functions.LIST_LENGTH)

    def element(self, position: int | Self) -> Self:
        """The element at a position, counted from 1, or from the end: -1 is the last; null where the list is shorter."""
        return self._with(list_functions.ELEMENT, position=position)

    def list_contains(self, value: Any) -> Self:
        """Whether an element equals this constant."""
        return self._call(list_functions.LIST_CONTAINS, options=(value,))

    def list_sort(self, *, descending: bool = False) -> Self:
        """The elements in order, nulls last; the least is `.list_sort().element(1)`.

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
        """Every element once, in the order in which they stand first; a null is one of them."""
        return self._call(list_functions.LIST_DISTINCT)

    def list_slice(self, first: int | Self, last: int | Self) -> Self:
        """The elements from one position to another, both included, counted from 1; fewer where the list is shorter."""
        return self._with(list_functions.LIST_SLICE, first=first, last=last)

    def list_join(self, separator: str) -> Self:
        """The texts that are not null, with the separator between them."""
        return self._call(list_functions.LIST_JOIN, options=(text("separator", separator),))
