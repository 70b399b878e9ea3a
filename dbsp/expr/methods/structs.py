"""Methods of structs."""

from __future__ import annotations

from typing import Self

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr import struct_functions
from dbsp.expr.methods.applied import Applied


class StructMethods(Applied):
    """Methods of structs: reading fields."""

    __slots__ = ()

    def field(self, name: str) -> Self:
        """Return a field of a struct; null where the struct is null.

        Users also write `col("address")["street"]` and `col("address.street")`.

        **Example**

        >>> import dbsp
        >>> dbsp.col("address").field("street")
        address.field("street")
        """
        with located(user_line()):
            if not isinstance(name, str):
                raise CircuitError(f"a field is named by a text: got={name!r}", 'such as .field("street")')
        return self._call(struct_functions.FIELD, options=(name,))
