"""Tests of your own circuits: compare views with expected rows, and check that they do not depend on how the rows
arrive.

The function `given(…)` plays one scripted story step by step. The function `check(…)` plays random stories. Their rows
arrive in any split and order, some are deleted and inserted again, and the run restarts and changes its number of
workers. After every step each view must equal the result of an oracle (SQL for DuckDB, or a Python function) on the
current rows. Both raise an `AssertionError` with the rows that are missing and those that are too many.
"""

from dbsp.testing.checking import Oracle, check
from dbsp.testing.comparing import Difference, difference
from dbsp.testing.stories import Story, given

__all__ = ["Difference", "Oracle", "Story", "check", "difference", "given"]
