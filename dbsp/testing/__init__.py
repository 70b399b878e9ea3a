"""Tests of your own circuits: rows in, what a view then is; and the law that every way to the same rows gives the same answer.

`given(…)` plays one story in steps. `check(…)` plays random ones: the rows arrive in any split and order, some are deleted and
put back, the run restarts and changes its workers. After every step each view must be what an oracle (SQL for DuckDB, or a
Python function) makes of the rows that are there. Both raise an `AssertionError` with the rows too many and those missing.
"""

from dbsp.testing.checking import Oracle, check
from dbsp.testing.comparing import Difference, difference
from dbsp.testing.stories import Story, given

__all__ = ["Difference", "Oracle", "Story", "check", "difference", "given"]
