"""Check that the systems that a pipeline needs respond: brokers and their topics, schema registries.

`dbsp-coordinator --check` asks them before a start; a service that runs waits for them (`dbsp.io.waits`). Writes nothing there.
"""

from __future__ import annotations

from dbsp.coordinator.settings.config import Config
from dbsp.plan.plan import Plan

ANSWER_S = 5.0
"""Seconds that the check waits for each system's response."""


def look_outside(config: Config, plan: Plan) -> None:
    """Check that all systems respond.

    **Errors** `AwayError` with the address of a system that does not respond, `ConfigError` for a missing topic.
    """
    config.input.refuse_away(config.residence, plan.tables, ANSWER_S)
    config.output.refuse_away(config.residence, (), ANSWER_S)
