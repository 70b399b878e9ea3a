"""Methods of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbsp.expr import list_functions
from dbsp.expr.methods.applied import Applied, text, whole

if TYPE_CHECKING:
    from dbsp.expr.build import Expr


class Lists(Applied):
    """Length, elements, membership."""

    __slots__ = ()

    def list_length(self) -> Expr:
        """How many elements there are, null ones too."""
        return self._call(list_functions.LIST_LENGTH)

    def element(self, position: int) -> Expr:
        """The element at a position, counted from 1; null where the list is shorter."""
        return self._call(list_functions.ELEMENT, options=(whole("position", position),))

    def list_contains(self, value: Any) -> Expr:
        """Whether an element equals this constant."""
        return self._call(list_functions.LIST_CONTAINS, options=(value,))

    def list_join(self, separator: str) -> Expr:
        """The texts that are not null, with the separator between them."""
        return self._call(list_functions.LIST_JOIN, options=(text("separator", separator),))
