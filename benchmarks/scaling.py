"""What it costs to spread a circuit: processor seconds of two workers together by those of one.

`python -m benchmarks.scaling [--events 1000000] [--step 100000] [--queries q3 q4 q9] [--workers 2] [--runs 3]`. Nexmark from
memory, in process, where workers take turns in one thread: rows are hashed, split and gathered as between processes, but not
encoded. What Spark adds to a step is in `benchmarks.spark_step`. Medians of runs that take turns; the answers are compared
with DuckDB's on fewer events. Two workers should use at most 1.25 times what one does.
"""

from __future__ import annotations

from functools import partial

from benchmarks import report
from benchmarks.nexmark.__main__ import WARM_EVENTS, run_query
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.queries import QUERIES

RATIO_MAX = 1.25


def seconds(name: str, steps: list[Tables], workers: int) -> float:
    """Processor seconds of all steps."""
    return run_query(name, steps, compare=False, workers=workers).whole_s


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=["q3", "q4", "q9"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=report.RUNS)
    arguments = parser.parse_args()
    figures: dict[str, object] = {"events": arguments.events, "step": arguments.step, "workers": arguments.workers}
    targets = {}
    steps = list(Generator().batches(arguments.events, arguments.step))
    warm = list(Generator(seed=1).batches(WARM_EVENTS, 100_000))
    for name in arguments.queries:
        run_query(name, warm, compare=True, workers=arguments.workers)
        measures = {workers: partial(seconds, name, steps, workers) for workers in (1, arguments.workers)}
        found = report.medians({str(workers): measure for workers, measure in measures.items()}, arguments.runs)
        key = f"{name}_cpu_ratio_to_one_worker"
        figures[key] = found[str(arguments.workers)] / found["1"]
        targets[key] = report.at_most(RATIO_MAX)
    report.keep("scaling", figures, targets)


if __name__ == "__main__":
    main()
