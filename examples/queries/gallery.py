"""What the files here are made of: a query beside the SQL that says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import dbsp


@dataclass(frozen=True, slots=True)
class Query:
    """A view that answers a question, and SQL (DuckDB's) with the same answer. Made by `query`."""

    name: str
    question: str
    sql: str
    view: dbsp.Stream

    def circuit(self) -> dbsp.Circuit:
        """The view alone, under the query's name."""
        return dbsp.circuit(self.name, {self.name: self.view})


def query(sql: str) -> Callable[[Callable[[], dbsp.Stream]], Query]:
    """Make a `Query` of a function that builds the view: its name, and its docstring as the question."""

    def made(build: Callable[[], dbsp.Stream]) -> Query:
        return Query(build.__name__, (build.__doc__ or "").strip(), dedent(sql).strip(), build())

    return made
