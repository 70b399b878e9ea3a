"""Errors cross from a task to the caller whole, and a failed job's text is told apart."""

from __future__ import annotations

import pytest

from dbsp import errors
from dbsp.errors import (
    CapacityError,
    DataError,
    DbspError,
    FencedError,
    InternalError,
    RowsError,
    UnavailableError,
)
from dbsp.runtime.spark.failures import failure_from, failure_of, is_failure, job_failed, worst

KINDS = [kind for kind in errors.KINDS.values() if kind is not RowsError]  # that one brings its rows along


@pytest.mark.parametrize("kind", KINDS)
def test_every_class_comes_back_as_itself(kind: type[DbspError]) -> None:
    block = failure_of(kind("row is wrong: worker=3 step=7", "mend it"), 3).to_bytes()
    assert is_failure(block)
    error = failure_from(block).error()
    assert (type(error), error.message, error.hint) == (kind, "row is wrong: worker=3 step=7", "mend it")


def test_the_worker_is_named_once() -> None:
    assert failure_of(DataError("bad", None), 2).error().message == "bad worker=2"


def test_a_parcel_is_no_failure() -> None:
    assert not is_failure(b"DBSPXCH1....")
    assert not is_failure(b"")


def test_a_fenced_worker_is_told_first() -> None:
    failures = [failure_of(DataError("a"), 0), failure_of(FencedError("b"), 1)]
    assert isinstance(worst(failures).error(), FencedError)


JVM_TEXT = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 1.0 (TID 5) (127.0.0.1 executor driver): {detail}
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
	at org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:940)
"""


def test_a_traceback_is_a_bug_and_keeps_its_story() -> None:
    detail = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n    g()\nZeroDivisionError: division by zero\n'
    )
    error = job_failed("step 4", JVM_TEXT.format(detail=detail))
    assert isinstance(error, InternalError)
    assert "while=step 4 reason=ZeroDivisionError: division by zero" in error.message
    assert 'File "x.py", line 1, in f' in error.message
    assert "PythonRunner.scala" not in error.message


@pytest.mark.parametrize("word", ["cancelled", "canceled", "Job cancelled"])
def test_what_a_task_says_is_not_what_spark_says(word: str) -> None:
    """A status of an order that nobody knows, for one."""
    detail = f"Traceback (most recent call last):\n  File\nKeyError: '{word}'\n"
    error = job_failed("step 4", JVM_TEXT.format(detail=detail))
    assert isinstance(error, InternalError)
    assert f"reason=KeyError: '{word}'" in error.message


def test_memory_is_a_limit() -> None:
    detail = "Traceback (most recent call last):\n  File\nMemoryError: 8 GiB\n"
    assert isinstance(job_failed("step 4", JVM_TEXT.format(detail=detail)), CapacityError)


def test_a_lost_worker_is_an_outage() -> None:
    detail = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    error = job_failed("step 4", JVM_TEXT.format(detail=detail))
    assert isinstance(error, UnavailableError)
    assert error.message == "a Python worker died in every try of its task: while=step 4"
    assert "lower `max_rows_per_step`" in str(error)


def test_a_cancelled_job_is_an_outage() -> None:
    error = job_failed("step 4", "org.apache.spark.SparkException: Job 3 cancelled part of cancelled job group x")
    assert isinstance(error, UnavailableError)
