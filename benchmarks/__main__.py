"""All benchmarks, each in a process of its own, then one table of what they found: `python -m benchmarks [NAME ...]`.

`--small` takes sizes for a try of a quarter of an hour in all, `--large` adds those that need memory and time. Each runs alone
too: `python -m benchmarks.<name> --help` says what it measures and what it takes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import plots, report


@dataclass(frozen=True, slots=True)
class Suite:
    """A benchmark, and its arguments for each size; `spark` needs Java."""

    name: str
    usual: str = ""
    small: str | None = None
    large: str | None = None


ALL = (
    Suite("kernels"),
    Suite("generator", small="--events 1000000"),
    Suite("count_per_key", large="--large"),
    Suite("join_sum"),
    Suite("micro", small="--rows 200000"),
    Suite("latency", small="--rows 100000", large="--large"),
    Suite("recursion"),
    Suite("nexmark", "--peers duckdb crate", "--peers duckdb crate --events 200000 --steps 100000",
          "--peers duckdb --events 10000000 --steps 100000"),
    Suite("scaling", small="--events 200000"),
    Suite("shared_indexes", small="--events 40000"),
    Suite("tpch", "--scale 0.1", "--scale 0.01", "--scale 1"),
    Suite("windows", large="--large"),
    Suite("growth", "--rows 100000 1000000", "--rows 20000 100000 --operators count distinct top_k join", ""),
    Suite("checkpoint"),
    Suite("checkpoint_pause"),
    Suite("copies", small="--keys 1000000"),
    Suite("reads", small="--rows 200000 --lookup-rows 500000"),
    Suite("recovery", small="--keys 200000"),
    Suite("restart", small="--keys 100000"),
    Suite("upgrade", small="--keys 1000000"),
    Suite("rescale", small="--mb 20 --keys 100000"),
    Suite("memory", "--rows 10000000 --limit-mb 400", "--rows 1000000 --limit-mb 300", ""),
    Suite("state_size", small="--rows 1000000"),
    Suite("read_ahead", small="--runtime local --pairs 10", large="--rows 100000 1000000"),
    Suite("spark_step", large="--large"),
    Suite("structured_streaming", small="--rows 300000"),
    Suite("parquet", small="--events 400000"),
    Suite("kafka", small="--events 200000"),
    Suite("kafka_latency", small="--rows 50000 --changes 100"),
    Suite("outsiders", small="--rows 500000 --events 200000"),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run them one after the other; the number of those that failed."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(suite.name for suite in ALL))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--plots", action="store_true", help="draw the history afterwards (needs the extra `bench`)")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - {suite.name for suite in ALL}
    if unknown:
        parser.error(f"no such benchmark: {sorted(unknown)}")
    if chosen.plots and importlib.util.find_spec("matplotlib") is None:
        parser.error(plots.NEEDED)
    failed = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        summary = Path(folder) / "summary.jsonl"
        summary.touch()
        environment = os.environ | {report.SUMMARY_SWITCH: str(summary)}
        for suite in ALL:
            if (chosen.names and suite.name not in chosen.names) or not exists(suite.name):
                continue
            command = [sys.executable, "-m", f"benchmarks.{suite.name}", *words(suite, chosen.small, chosen.large)]
            print(f"\n== {' '.join(command[2:])}", flush=True)
            if subprocess.run(command, env=environment, check=False).returncode:
                failed.append(suite.name)
        lines = [json.loads(line) for line in summary.read_text().splitlines()]
    print_summary(lines, failed)
    return len(failed) + (plots.main([]) if chosen.plots else 0)


def exists(name: str) -> bool:
    """Whether there is such a module."""
    return importlib.util.find_spec(f"benchmarks.{name}") is not None


def words(suite: Suite, small: bool, large: bool) -> list[str]:
    """A suite's arguments for a size."""
    text = suite.small if small else suite.large if large else None
    return (suite.usual if text is None else text).split()


def print_summary(lines: list[dict[str, object]], failed: list[str]) -> None:
    """Figures that have a target, what was left out, and the machine."""
    print("\n== summary:", ", ".join(f"{key} {value}" for key, value in report.machine().items()))
    judged = [line for line in lines if "target" in line or "skipped" in line]
    print("\n".join(report.table(judged)))
    met = [line["met"] for line in judged if "met" in line]
    print(f"\n{sum(map(bool, met))} of {len(met)} targets met; {len(lines) - len(judged)} more figures above")
    share = report.others_share()
    if share > report.BUSY_SHARE:
        print(f"busy machine: other processes took {100 * share:.0f} % of it; only ratios from one run mean something")
    for name in failed:
        print(f"failed: {name}")


if __name__ == "__main__":
    sys.exit(main())
