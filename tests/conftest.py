"""What holds for every test: Hypothesis never judges by the clock (timing is measured in benchmarks only).

How many examples: 100, or what a test names as `max_examples=examples(200)`; tests with many like cases say `some(CASES)`
(`tests.pace`). `make test` draws a quarter, as pytest alone does, and `make quick` an eighth (`DBSP_TEST_EXAMPLES=few`).
Both draw the same ones every time, so that a failure is of the change at hand; `new`, as in `make soak`, draws others at every
run, and three times as many, to hunt for what nobody thought of (what it finds becomes a test of its own).
What a test counts of its examples (`tests.laws.tally`) it judges in `make test` and `make soak`. Kill points and other cases that
rotate over commits: `tests.pace.rotating`, docs/testing.md.

`tests.seconds` measures every file, and puts the longest ones first.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.pace import anew, examples

pytest_plugins = ["tests.seconds"]

settings.register_profile(
    "dbsp",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not anew(),
)
settings.load_profile("dbsp")
