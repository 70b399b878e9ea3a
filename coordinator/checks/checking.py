"""The check of a pipeline before a start: settings, circuit, stored state, outside systems. It starts and writes nothing.

`dbsp-coordinator --check` and `coordinator validate` print the result.
"""

from __future__ import annotations

from dbsp.coordinator.build import check_start, load_plan
from dbsp.coordinator.checks.determinism import refuse_varying
from dbsp.coordinator.checks.trial import try_circuit
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.settings.extras import check_extras
from dbsp.plan.plan import Plan


def check_pipeline(config: Config, *, evolve: bool) -> tuple[Plan, list[str]]:
    """Return the plan of a pipeline that can start, and the lines to print about it.

    **Errors** those of a start: `ConfigError`, `CircuitError`, `DataError`, and `UnavailableError` if a system is away.
    """
    plan = load_plan(config)
    check_extras(config)
    evolution = check_start(config, plan, evolve=evolve)
    refuse_varying(config, plan)
    try_circuit(plan.circuit)
    said = [
        f"ok: circuit={config.pipeline.circuit} fingerprint={plan.fingerprint[:12]} workers={config.pipeline.workers}"
    ]
    return plan, said if evolution is None else [*said, evolution.as_text(config.pipeline.name)]
