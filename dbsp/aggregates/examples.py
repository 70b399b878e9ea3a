"""Examples of the aggregates that differ only in their name and their results: written once, shown by each function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

OF_PAIRS = """\
>>> import dbsp
>>> t = dbsp.table("t", {{"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64}})
>>> fit = t.group_by("k").aggregate(r=dbsp.{name}("y", "x"))
>>> with dbsp.open(dbsp.circuit("demo", {{"fit": fit}})) as run:
...     run.push("t", [{{"k": "a", "y": y, "x": x}} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
...     print(run.step()["fit"].to_rows())
...     run.delete("t", [{{"k": "a", "y": 6.0, "x": 3.0}}])
...     print(run.step()["fit"].to_rows())
"""
"""A function of the pairs y, x: three pairs, then the third is deleted."""

OF_VALUES = """\
>>> import dbsp
>>> t = dbsp.table("t", {{"k": dbsp.STRING, "x": dbsp.INT64}})
>>> spread = t.group_by("k").aggregate(v=dbsp.{name}("x"))
>>> with dbsp.open(dbsp.circuit("demo", {{"spread": spread}})) as run:
...     run.push("t", [{{"k": "a", "x": 1}}, {{"k": "a", "x": 3}}, {{"k": "a", "x": 5}}])
...     print(run.step()["spread"].to_rows())
...     run.delete("t", [{{"k": "a", "x": 5}}])
...     print(run.step()["spread"].to_rows())
"""
"""A function of the values of x: three values, then the third is deleted."""


def with_example(example: str, first: str, then: str) -> Callable[[Function], Function]:
    """Add an example to the function's docstring; it prints the rows `first`, and after the deletion the rows `then`."""

    def documented(function: Function) -> Function:
        text = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = f"{text}\n\n**Example**\n\n{example.format(name=function.__name__)}{first}\n{then}\n"
        return function

    return documented
