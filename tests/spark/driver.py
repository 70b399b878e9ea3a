"""A pipeline as a program of its own, to be killed: `python -m tests.spark.driver SETTINGS.json`; run again, it continues."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbsp.errors import DbspError
from dbsp.runtime.background import BackgroundProcesses
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkSettings
from dbsp.runtime.work import Work
from tests.spark.pipelines import Pipeline, push_some
from tests.spark.wrapped_resources import DearInput, KillingResources


def main(settings: dict[str, Any]) -> int:
    folder = Path(settings["folder"])
    spark = SparkSettings(
        master=settings["master"],
        conf=settings.get("conf", {}),
        environment={"DBSP_TEST": str(folder), **settings.get("environment", {})},
        work_dir=folder / "spark",
    )
    fault = settings.get("fault")

    def wrap(resources: Any) -> Any:
        return KillingResources(resources, folder / "killed", *fault) if fault else resources

    def made(work: Work) -> SparkRuntime:
        if settings.get("background"):
            work = replace(work, resources=DearInput(work.resources), background=BackgroundProcesses(str(folder)))
        return SparkRuntime(work, spark)

    pipeline = Pipeline(folder, made, wrap_resources=wrap)
    print("from", pipeline.step, flush=True)
    while pipeline.step < settings["steps"]:
        push_some(pipeline, 1, 20)
        record = pipeline.next_record()
        pipeline.runtime.read_ahead(record, pipeline.layout)
        pipeline.run_step(record)
        if pipeline.step == settings["steps"] // 2:
            pipeline.checkpoint()
    print("views", sum(map(len, pipeline.views().values())) > 0, flush=True)
    pipeline.close()
    return 0


if __name__ == "__main__":
    try:
        code = main(json.loads(Path(sys.argv[1]).read_text()))
    except DbspError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        code = error.exit_code
    sys.exit(code)
