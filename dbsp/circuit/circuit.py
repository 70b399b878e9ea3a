"""The frozen circuit that a user holds: its views, and methods that describe it."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.circuit import fingerprint as _fingerprint
from dbsp.circuit.drawing import drawing
from dbsp.circuit.explain import explain_circuit
from dbsp.circuit.graph import CircuitGraph
from dbsp.circuit.picture import picture


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Circuit(CircuitGraph):
    """A frozen circuit: named views, and the tables reachable from them; `materialized` views can be read as tables."""

    def explain(self) -> str:
        """Return the logical circuit as text: each view with the nodes below it."""
        return explain_circuit(self)

    def drawing(self) -> str:
        """Return the logical circuit as a Mermaid flow chart."""
        return drawing(self)

    @property
    def fingerprint(self) -> str:
        """Return the hash of what the circuit computes, as 64 hexadecimal digits."""
        return _fingerprint.fingerprint(self)

    def __repr__(self) -> str:
        """Return the circuit's name, tables and views; `explain()` has the whole."""
        tables, views = ", ".join(table.name for table in self.tables), ", ".join(name for name, _ in self.views)
        return f"<dbsp.Circuit {self.name!r}: tables {tables}; views {views}>"

    def _repr_html_(self) -> str:
        """Return the circuit drawn as SVG, which notebooks display."""
        return picture(self)

    def _repr_markdown_(self) -> str:
        """Return the drawing as Markdown, which notebooks display."""
        return f"```mermaid\n{self.drawing()}\n```"
