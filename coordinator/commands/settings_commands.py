"""`coordinator validate` and `coordinator reset`: they read the pipeline's settings, and need no service."""

from __future__ import annotations

from pathlib import Path

import click

from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError

PIPELINE = click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), required=False)


@click.command()
@PIPELINE
@click.option(
    "--accept-circuit", "evolve", is_flag=True, help="For a changed circuit: say what is kept and what is filled."
)
@click.option("--plan", "shows_plan", is_flag=True, help="Print the plan, too.")
@click.pass_obj
def validate(context: CommandContext, pipeline: Path | None, evolve: bool, shows_plan: bool) -> None:
    """Check the settings, the circuit, the stored state, and whether brokers answer; start and write nothing."""
    from dbsp.coordinator.checks.checking import check_pipeline  # noqa: PLC0415 - it loads the engine
    from dbsp.plan.explain import explain  # noqa: PLC0415 - as above

    plan, said = check_pipeline(load_config(pipeline or context.pipeline), evolve=evolve)
    text = [*([explain(plan)] if shows_plan else []), *said]
    answer = {
        "ok": True, "fingerprint": plan.fingerprint, "said": said, "tables": [table.name for table in plan.tables],
        "views": [name for name, _ in plan.circuit.views],
    }  # fmt: skip
    context.show(answer, "\n".join(text))


@click.command()
@PIPELINE
@click.option("--yes", is_flag=True, help="Reset; without this option only say what would be done.")
@click.option("--delete", is_flag=True, help="Delete the data instead of moving it aside.")
@click.option("--outside", is_flag=True, help="Also take standbys and outputs outside the data folder.")
@click.pass_obj
def reset(context: CommandContext, pipeline: Path | None, yes: bool, delete: bool, outside: bool) -> None:
    """Reset a stopped pipeline: move everything that it has stored aside, pushed rows included."""
    from dbsp.coordinator.resetting import carry_out_reset, survey_reset  # noqa: PLC0415 - of one command

    if context.client.connection.url is not None:
        raise ConfigError(
            "a reset is done on the service's host", "log in there, and name its settings with --pipeline"
        )
    config = load_config(pipeline or context.pipeline)
    found = survey_reset(config, outside=outside)
    if not found.takes:
        context.show(
            {"done": [], "leaves": found.leaves}, "\n".join([f"nothing is stored: {config.data_dir}", *found.leaves])
        )
        return
    lines = found.lines(delete=delete)
    if not yes:
        said = "\n".join([*lines, "nothing was done; do it with --yes"])
        context.show({"would": lines, "done": [], "leaves": found.leaves}, said)
        return
    done = carry_out_reset(found, delete=delete)
    context.show({"done": done, "leaves": found.leaves}, "\n".join([*done, *(f"left {what}" for what in found.leaves)]))
