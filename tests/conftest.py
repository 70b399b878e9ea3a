"""What holds for every test: Hypothesis never judges by the clock (house style: timing is measured in benchmarks only).

How many examples: 100, or what a test says as `max_examples=examples(200)`; tests with many like cases say `some(CASES)`
(`tests.pace`). With `DBSP_TEST_EXAMPLES=few`, as in `make quick`, it is a quarter; `make test` runs all, as pytest alone does.
Both draw the same ones every time, so that a failure is of the change at hand; `new`, as in `make soak`, draws others at every
run, and three times as many, to hunt for what nobody thought of (what it finds becomes a test of its own).
What a test counts of its examples (`tests.laws.tally`) it judges only where it draws all of them.

Which file first: `make` deals whole files to processes as they come free, so the longest ones begin first; else the last of them
would run on while the other processes have nothing to do (`--no-loadscope-reorder` leaves the order to this file).
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.pace import anew, examples

settings.register_profile(
    "dbsp",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not anew(),
)
settings.load_profile("dbsp")

LONGEST = (
    "tests/laws/test_evolving.py",
    "tests/operators/test_window.py",
    "tests/kafka/test_evolving_kafka.py",
    "tests/laws/test_equalities.py",
    "tests/crash/test_commit_killed.py",
    "tests/crash/test_coordinator_crash.py",
    "tests/coordinator/test_upgrade.py",
    "tests/recursion/test_recursion.py",
    "tests/kafka/test_hosts_apart.py",
    # These share one Spark (`tests/spark/conftest.py`), so they stand together.
    "tests/spark/test_runtime.py",
    "tests/spark/test_keepers.py",
    "tests/spark/test_recursion.py",
    "tests/spark/test_all_operators.py",
    "tests/spark/test_memory.py",
    "tests/spark/test_hot_rescale.py",
    "tests/spark/test_jobs.py",
    "tests/spark/test_time.py",
    "tests/spark/test_read_ahead.py",
    "tests/spark/test_parcel_files.py",
    "tests/spark/test_meetings.py",
    "tests/spark/test_session.py",
    "tests/spark/test_aggregates.py",
    # The others.
    "tests/spark/test_drivers.py",
    "tests/spark/test_evolving_spark.py",
    "tests/coordinator/test_backups.py",
    "tests/coordinator/test_backups_killed.py",
    "tests/kafka/test_kafka_faults.py",
    "tests/crash/test_upgrade_killed.py",
    "tests/sim/test_sim_plants.py",
    "tests/coordinator/test_delta.py",
    "tests/examples/test_flights_run.py",
    "tests/sim/test_circuits_sim.py",
    "tests/kafka/test_spark_killed.py",
    "tests/coordinator/test_migration.py",
    "tests/sim/test_coordinator_sim.py",
    "tests/spark/test_cuts.py",
    "tests/spark/test_migration_spark.py",
    "tests/coordinator/test_evolving.py",
    "tests/laws/test_order_alone.py",
    "tests/sim/test_sim_coverage.py",
    "tests/timing/test_watermarks.py",
    "tests/zset/test_kernels.py",
    "tests/kafka/test_copied_topics.py",
    "tests/io/test_embedded.py",
    "tests/spark/test_service_spark.py",
    "tests/spark/test_warmup_spark.py",
    "tests/examples/test_queries.py",
    "tests/coordinator/test_command_lines.py",
    "tests/kafka/test_service_kafka.py",
    "tests/operators/test_aggregates.py",
    "tests/laws/test_groups_alone.py",
    "tests/kafka/test_upserts.py",
    "tests/spark/test_standbys_spark.py",
    "tests/crash/test_evolving_killed.py",
    "tests/planted/test_planted_bugs.py",
    "tests/laws/test_unique_joins.py",
    "tests/storage/test_warm.py",
    "tests/spark/test_backups_spark.py",
    "tests/io/test_full_disks.py",
    "tests/laws/test_dead_letters.py",
    "tests/kafka/test_kafka_contracts.py",
    "tests/packaging/test_wheel.py",
    "tests/trace/test_held_merges.py",
    "tests/coordinator/test_files.py",
    "tests/io/test_debezium.py",
    "tests/coordinator/test_standbys.py",
    "tests/coordinator/test_warmup.py",
    "tests/sql/test_random_queries.py",
    "tests/spark/test_class_archive.py",
    "tests/coordinator/test_changes.py",
    "tests/storage/test_worker_faults.py",
    "tests/io/test_formats.py",
    "tests/distribute/test_lockstep.py",
    "tests/zset/test_coded.py",
    "tests/crash/test_power_loss.py",
    "tests/tidy/test_controls.py",
    "tests/keeper/test_keeper_in_steps.py",
    "tests/storage/test_standby.py",
    "tests/crash/test_two_at_once.py",
)
"""By seconds, as measured; the others follow by how many tests they have."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first where several processes share them; within a file nothing changes."""
    if not hasattr(config, "workerinput"):
        return
    files = [item.nodeid.partition("::")[0] for item in items]
    sizes = Counter(files)
    place = {name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), -sizes[name]) for name in sizes}
    order = sorted(range(len(items)), key=lambda at: place[files[at]])
    items[:] = [items[at] for at in order]
