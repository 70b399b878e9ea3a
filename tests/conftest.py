"""What holds for every test: Hypothesis never judges by the clock (timing is measured in benchmarks only).

How many examples: 100, or what a test names as `max_examples=examples(200)`; tests with many like cases say `some(CASES)`
(`tests.pace`). `make test` draws a quarter, as pytest alone does, and `make quick` an eighth (`DBSP_TEST_EXAMPLES=few`).
Both draw the same ones every time, so that a failure is of the change at hand; `new`, as in `make soak`, draws others at every
run, and three times as many, to hunt for what nobody thought of (what it finds becomes a test of its own).
What a test counts of its examples (`tests.laws.tally`) it judges in `make test` and `make soak`. Kill points and other cases that
rotate over commits: `tests.pace.rotating`, docs/testing.md.

`tests.seconds` measures every file, and puts the longest ones first.

Two settings save processor time, and change nothing that a test judges. Garbage is collected more seldom, because a collection
looks at all that pytest and the tests hold. numpy starts no threads for linear algebra, which no test uses.
"""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.pace import anew, examples

pytest_plugins = ["tests.seconds"]

gc.set_threshold(50_000, 20, 50)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy is imported later, and in every process that a test starts


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep later collections from looking at what lasts until the end anyway."""
    gc.collect()
    gc.freeze()


settings.register_profile(
    "dbsp",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not anew(),
)
settings.load_profile("dbsp")
