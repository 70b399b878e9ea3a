"""`coordinator …`: talk to a running service.

It finds the service by `--url`, or by the `coordinator.json` in the data folder of `--pipeline` (default `pipeline.toml`).
`doctor` and the commands for backups (`backup`) need no service: they read the pipeline's files. The commands print text
for people; `--json` prints the service's own response. Exit codes: `exits`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dbsp.coordinator.garbage  # noqa: F401 - first, since it takes effect on the imports that follow
from dbsp.coordinator.backup import commands as backup_commands
from dbsp.coordinator.client.client import Client
from dbsp.coordinator.commands import log_commands, push_commands, settings_commands, sql_shell, top
from dbsp.coordinator.commands.changes_out import printer_of
from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.completing import VIEWS
from dbsp.coordinator.commands.letter_commands import dead_letters, reason_line
from dbsp.coordinator.commands.rows_out import LINES_OUTPUT, OUTPUT, print_rows, print_table
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.exits import exit_code, guarded
from dbsp.coordinator.running.progress import (
    error_lines,
    ranges_as_text,
    rescale_as_text,
    rescale_lines,
    upgrade_as_text,
)
from dbsp.coordinator.running.time_text import waterline_text
from dbsp.coordinator.settings.config import load_config
from dbsp.distribute.names import STRATEGIES as BY_KEY
from dbsp.errors import ConfigError, NoRoomError, UnavailableError
from dbsp.hosts import hosts_of_text
from dbsp.version import VERSION

UNANSWERED = ("the service stopped answering", "the service does not answer", "the service is not running")
"""The beginnings of the errors after which nobody knows whether the request had an effect."""
UNREAD = ("Starting", "Recovering")
"""States in which the service may not have read its step and checkpoint yet."""
EPILOG = """\b
Examples:
  coordinator status
  coordinator query "SELECT name, mean_delay FROM delay_by_airline ORDER BY 2 DESC"
  coordinator sql
  coordinator sql -c "select * from sales" -o csv
  coordinator changes sales --follow
  coordinator dead-letters list --table orders
  coordinator dead-letters replay --table orders --dry-run
  coordinator top
  coordinator logs --follow
  coordinator --pipeline shop/pipeline.toml validate
  coordinator rescale 4 --dry-run
  coordinator --pipeline shop/pipeline.toml checkpoint
  coordinator doctor shop/pipeline.toml
  coordinator upgrade
  coordinator backup /backups/shop
  coordinator restore /backups/shop/20261123T101500Z-step-42
  coordinator --url http://127.0.0.1:8080 --token secret status

\b
Exit codes: 0 done, 2 wrong arguments or statement, 3 data, 4 the service is not running or
gave up, 5 a limit, 6 fenced, 7 another version of dbsp, 70 a bug.
"""


WITH_VALUES = ("--pipeline", "--url", "--token", "--ca")
"""The options of all commands that have a value."""


class _Commands(click.Group):
    """The group of commands, which accepts its own options after a command, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments with the options of the group moved to the front: they may be anywhere before `--`."""
        end = args.index("--") if "--" in args else len(args)
        front, rest = _own_first(args[:end])
        return super().parse_args(ctx, [*front, *rest, *args[end:]])


def _own_first(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide arguments into the options of the group, with their values, and the rest.

    >>> _own_first(["status", "--url", "http://a", "--json", "--ca=b", "-o", "c"])
    (['--url', 'http://a', '--json', '--ca=b'], ['status', '-o', 'c'])
    """
    front: list[str] = []
    rest: list[str] = []
    following = iter(args)
    for each in following:
        if each in WITH_VALUES:
            front += [each, *islice(following, 1)]
        elif each == "--json" or each.partition("=")[0] in WITH_VALUES:
            front.append(each)
        else:
            rest.append(each)
    return front, rest


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--pipeline", type=click.Path(path_type=Path), default=Path("pipeline.toml"), show_default=True,
    help="The settings of the service to talk to.",
)  # fmt: skip
@click.option("--url", envvar="DBSP_URL", help="Where the service answers, if not as its settings say.")
@click.option("--token", envvar="DBSP_TOKEN", help="The bearer token, if it needs one.")
@click.option(
    "--ca", envvar="DBSP_CA", help="A file of certificates (PEM) to trust in addition to the system's, for https."
)
@click.option("--json", "as_json", is_flag=True, help="Print the service's own answer.")
@click.version_option(VERSION, prog_name="coordinator")
@click.pass_context
def command(
    context: click.Context, pipeline: Path, url: str | None, token: str | None, ca: str | None, as_json: bool
) -> None:
    """Look into and steer a running pipeline."""
    client = Client(None if url else pipeline, url=url, token=token, ca=ca)
    context.obj = CommandContext(pipeline=pipeline, client=client, as_json=as_json)


def _where(found: dict[str, Any]) -> list[str]:
    """Return the lines on step and checkpoint, once both are known."""
    if found["state"] in UNREAD and not found["step"]:
        return [f"dbsp {found['engine']}; step and checkpoint are known when recovery ends"]
    return [
        f"step {found['step']}, epoch {found['epoch']}, {found['workers']} workers (layout {found['layout_version']}),"
        f" dbsp {found['engine']}",
        f"checkpoint {found['version']} at step {found['checkpoint_step']}",
    ]


def _size_of_state(found: dict[str, Any]) -> str:
    """Return the size of the state, which the workers report with each step."""
    if found["state_bytes"] is None:
        return "the size of the state is known after the next step"
    return f"{found['state_bytes']:,} bytes of state"


def _waiting(found: dict[str, Any]) -> str:
    """Return the text about waiting rows; a start does not know their number until it has read the positions of steps."""
    lag = found["lag_rows"]
    return "the number that waits is known when recovery ends" if lag is None else f"{lag:,} waiting"


@command.command()
@click.pass_obj
def status(context: CommandContext) -> None:
    """Show the state, step, lag and checkpoint."""
    found = context.client.status()
    lines = [
        f"{found['name']}: {found['state']}" + (" (replaying)" if found["replaying"] else ""),
        *_where(found),
        f"since this start: {found['rows_in']:,} rows in, {found['rows_out']:,} rows out, {found['dead_letters']:,} dead letters,"
        f" {_waiting(found)}",
        f"{_size_of_state(found)}, {found['rollbacks']} rollbacks",
    ]
    if until := found.get("rollback_until"):
        lines.append(f"the version of dbsp before can continue from this pipeline until {until}")
    lines += rescale_lines(found)
    lines += map(waterline_text, found["waterlines"])
    lines += map(_copy_line, found["copies"])
    lines += map(_delta_line, found["delta"])
    lines += map(_lag_line, filter(None, [found.get("checkpoint_copies")]))
    lines += map(reason_line, found["last_dead_letters"])
    lines += [f"a user function is not deterministic: {each}" for each in found["not_deterministic"]]
    if found["halt"]:
        lines += _halt_lines(found["halt"])
    lines += error_lines(found)
    context.show(found, "\n".join(lines))


def _copy_line(copy: dict[str, Any]) -> str:
    """Return the line on the progress of a topic's copy, with the error that stops it."""
    line = f"{copy['table']} from topic {copy['topic']}: {copy['messages']:,} messages copied, {copy['behind_messages']:,} behind"
    return f"{line}; {copy['error']}" if copy["error"] else line


def _lag_line(lag: dict[str, Any]) -> str:
    """Return the line on copies of checkpoints that may lag, with what stops them."""
    line = (
        f"copies of checkpoints: version {lag['version']} of {lag['published']} is whole, {lag['lag_bytes']:,} bytes to put,"
        f" {lag['age_s']:,.0f} s old"
    )
    return f"{line}; {lag['error']}" if lag["error"] else line


def _delta_line(table: dict[str, Any]) -> str:
    """Return the line on the progress of a Delta table, with the error that stops it."""
    line = f"{table['view']} as a Delta table: up to step {table['step']}, {table['behind_steps']:,} behind"
    return f"{line}; {table['error']}" if table["error"] else line


@command.command()
@click.pass_obj
def explain(context: CommandContext) -> None:
    """Show the plan, and what every node did: rows, time, state, busiest worker."""
    plan = context.client.explain()
    context.show({"plan": plan}, plan)


def _halt_lines(halt: dict[str, Any]) -> list[str]:
    """Return the lines on a halt: the failing rows, their origin and a remedy; or the step that ends its process."""
    if halt["death"]:
        return [
            f"step {halt['step']} has ended its process again and again, and once more where it was tried: {halt['death']}",
            *(
                f"  it takes {r['table']} partition {r['partition']} offsets {r['first']} to {r['last'] - 1}"
                for r in halt["ranges"]
            ),
            "find the rows that do, and go on without them (they go to the dead letters): coordinator skip",
        ]
    if not halt["rows"]:
        return [f"halted before step {halt['step']}: {halt['message']}"]
    lines = [f"{halt['count']:,} rows of step {halt['step']} fail at {halt['name']}; no further step is taken"]
    for row in halt["rows"]:
        known = row["offset"] >= 0
        place = (
            f"{row['table']} partition {row['partition']} offset {row['offset']}"
            if known
            else "computed from input rows"
        )
        lines.append(f"  {place}: {row['reason']}: {row['payload']}")
    if halt["count"] > len(halt["rows"]):
        lines.append(f"  and {halt['count'] - len(halt['rows']):,} more")
    return [*lines, "go on without them (they go to the dead letters): coordinator skip"]


@command.command()
@click.option("--step", type=click.IntRange(min=0), help="The step that `coordinator status` names.")
@click.pass_obj
def skip(context: CommandContext, step: int | None) -> None:
    """Continue without the rows that halt the pipeline; they become dead letters.

    Either they fail under the error policy `stop`, or they end the process that runs their step: then they are looked for first.
    """
    with _patience("looking for the rows"):
        found = context.client.skip(step)
    rows = [
        f"  {row['table']} partition {row['partition']} offset {row['offset']}: {row['payload']}"
        for row in found["dropped"]
    ]
    text = "\n".join([f"step {found['step']} goes on without {found['rows']:,} rows: they are dead letters", *rows])
    context.show(found, f"step {found['step']} was decided before" if found["before"] else text)


@command.command("accept-output")
@click.option("--step", type=click.IntRange(min=0), help="The step that `coordinator status` names.")
@click.pass_obj
def accept_output(context: CommandContext, step: int | None) -> None:
    """Accept that a replayed step gives another output than before; the next new step emits the difference."""
    found = context.client.accept_output(step)
    text = f"step {found['step']} goes on: what its output differs by is put out with the next new step"
    context.show(found, f"step {found['step']} was decided before" if found["before"] else text)


@command.command()
@click.pass_obj
def checkpoint(context: CommandContext) -> None:
    """Commit the state now."""
    with _patience("taking a checkpoint"):
        found = context.client.checkpoint()
    context.show(found, f"checkpoint {found['version']} at step {found['step']}")


@command.command()
@click.pass_obj
def pause(context: CommandContext) -> None:
    """Pause the pipeline: no further step runs; rows that are pushed meanwhile wait."""
    found = context.client.pause()
    context.show(found, f"paused before step {found['step']}")


@command.command()
@click.pass_obj
def resume(context: CommandContext) -> None:
    """Resume a paused pipeline."""
    found = context.client.resume()
    context.show(found, f"running from step {found['step']}")


@command.command()
@click.argument("workers", type=click.IntRange(min=1), required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="cold: steps stop; warmup: state is copied while steps run; icadd, redistribute: the steps move it key by key.",
)
@click.option("--hosts", help="The hosts for all workers: a,b. With a weight: a,b=2.")
@click.option("--cancel", is_flag=True, help="Cancel a rescale that warms up or moves keys.")
@click.pass_obj
def rescale(
    context: CommandContext, workers: int | None, dry_run: bool, strategy: str | None, hosts: str | None, cancel: bool
) -> None:
    """Change the number of workers to WORKERS; with --hosts also the hosts that they are on."""
    if cancel == (workers is not None):
        raise ConfigError("a rescale needs a number of workers, or --cancel", "coordinator rescale 3")
    if cancel:
        found = context.client.cancel_rescale()
        context.show(found, f"cancelled: {found['workers']} workers go on")
        return
    at_rest = f"start it, or rescale and start it: `dbsp-coordinator {context.pipeline} --rescale {workers}`"
    count, named = int(workers or 0), None if hosts is None else hosts_of_text(hosts)
    if not dry_run:
        _say_if_paused(context.client.status(at_rest=at_rest), strategy or context.client.connection.usual_strategy())
    with _wish_stays(count, dry_run), _rescale_bar(f"rescaling to {workers} workers") as progress:
        found = context.client.rescale(
            count, strategy=strategy, hosts=named, dry_run=dry_run, progress=progress, at_rest=at_rest
        )
    context.show(found, rescale_as_text(found))


def _say_if_paused(status: dict[str, Any], strategy: str | None) -> None:
    """Print why a rescale that moves keys in steps waits: a paused pipeline takes no steps."""
    if status["state"] == "Paused" and strategy in BY_KEY:
        click.echo(
            f"the pipeline is paused: keys move by {strategy} in its steps, after `coordinator resume`", err=True
        )


@contextmanager
def _wish_stays(workers: int, dry_run: bool) -> Iterator[None]:
    """Print that the service continues the rescale, if the client ends before the response."""
    if dry_run:
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except (KeyboardInterrupt, UnavailableError) as error:
        if isinstance(error, KeyboardInterrupt) or error.message.startswith(UNANSWERED):
            click.echo(
                f"the service still goes to {workers} workers, also after a restart; `coordinator status` shows how far"
                " it is, `coordinator rescale --cancel` takes it back",
                err=True,
            )
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _rescale_bar(text: str) -> Iterator[Callable[[dict[str, Any]], object] | None]:
    """Show a spinner on a terminal; yield a function that shows the figures of a rescale in it, or None elsewhere."""
    with Console(stderr=True).status(text) as spinner:
        if not spinner.console.is_terminal:
            yield None
            return
        yield lambda found: spinner.update("; ".join(rescale_lines(found)) or text)


@command.command()
@OUTPUT
@click.pass_obj
def layout(context: CommandContext, form: str) -> None:
    """Show which worker owns what, and on which host it is."""
    found = context.client.layout()
    if context.as_json:
        context.show(found, "")
        return
    if form != "table":
        print_rows(form, list(found["rows"][0]), [list(row.values()) for row in found["rows"]])
        return
    table = Table("worker", "host", "shards", "hash ranges", "partitions", "bytes", "first step")
    for row in found["rows"]:
        parts = " ".join(f"{name}:{','.join(map(str, mine))}" for name, mine in row["partitions"].items() if mine)
        size = "-" if row["state_bytes"] is None else f"{row['state_bytes']:,}"
        table.add_row(
            str(row["worker"]), row["host"] or "-", str(row["shards"]), ranges_as_text(row["ranges"]), parts or "-",
            size, str(row["first_step"]),
        )  # fmt: skip
    click.echo(f"layout {found['version']}: {found['shards']} shards, {len(found['workers'])} workers")
    if moving := found["moving"]:
        before, after = (" ".join(map(str, moving[name])) for name in ("workers_before", "workers"))
        click.echo(f"keys move by {moving['strategy']} from workers {before} to workers {after}")
    print_table(table)


@command.command()
@click.argument("sql")
@click.option("--explain", is_flag=True, help="Show what is read of each view, and DuckDB's plan; nothing is read.")
@click.option("--analyze", is_flag=True, help="Show the plan of a query that also runs, with DuckDB's times.")
@OUTPUT
@click.pass_obj
def query(context: CommandContext, sql: str, explain: bool, analyze: bool, form: str) -> None:
    """Run one SELECT over the views, as of one step."""
    if explain or analyze:
        sql = f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}"
    if context.as_json:
        context.show(context.client.ask("POST", "/v1/query", json={"sql": sql}), "")
        return
    sql_shell.answer(context.client, sql, form)


@command.command()
@click.argument("view", shell_complete=VIEWS)
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first step to show.")
@click.option("--follow", is_flag=True, help="Continue with each new step, until interrupted.")
@LINES_OUTPUT
@click.pass_obj
def changes(context: CommandContext, view: str, first: int, follow: bool, form: str) -> None:
    """Show what every step changed in VIEW (or in dead_letters): step, weight, row, from an embedded output."""
    shown = printer_of(context, form)
    try:
        for found in context.client.pages(view, first=first, follow=follow, waiting=_say_waiting, ask=shown.ask):
            first = found["next"]
            if "anew" in found:
                shown.begin_anew(found["anew"])
            shown.show(found)
    finally:
        shown.close()
        if follow:
            click.echo(f"all before step {first} was shown; go on with --first {first}", err=True)


def _say_waiting(error: UnavailableError) -> None:
    """Print that a followed service does not respond."""
    click.echo(f"waiting for the service: {error.message}", err=True)


@command.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.pass_obj
def doctor(context: CommandContext, pipeline: Path | None) -> None:
    """Read all files of PIPELINE and say what is broken; works with the service running or stopped, changes nothing."""
    from dbsp.coordinator.checks.doctor import diagnose  # noqa: PLC0415 - the one command that reads storage itself

    config = load_config(pipeline or context.pipeline)
    with _patience("reading"):
        found = diagnose(config)
    context.show(found.as_json(), found.as_text())
    if found.findings:
        sys.exit(exit_code("data"))


for each in (
    *(backup_commands.backup, backup_commands.backups, backup_commands.restore),
    *(push_commands.push, push_commands.transaction, dead_letters),
    *(sql_shell.sql, log_commands.logs, top.top),
    *(settings_commands.validate, settings_commands.reset),
):
    command.add_command(each)


@command.command()
@click.option(
    "--timeout", "timeout_s", type=float, default=300.0, show_default=True, help="Seconds to wait for the upgrade."
)
@click.option(
    "--python",
    type=click.Path(dir_okay=False, exists=True),
    help="The Python of another environment, whose version of dbsp continues.",
)
@click.option(
    "--yes", "accepts_pause", is_flag=True,
    help="Where a cluster has no room for a second Spark application, let steps wait for the whole start.",
)  # fmt: skip
@click.pass_obj
def upgrade(context: CommandContext, timeout_s: float, python: str | None, accepts_pause: bool) -> None:
    """Replace the running service by another version of dbsp, which continues from a checkpoint.

    Without --python the new process runs the version that is installed now, and no steps run until it has started. With
    --python the new process starts while steps run, so steps wait only for the switch.
    """
    from dbsp.coordinator.commands.upgrading import upgraded  # noqa: PLC0415 - of one command

    ask, home = context.client.ask, context.client.connection.home()
    python = python and str(Path(python).absolute())
    try:
        with _patience("upgrading"):
            found = upgraded(ask, home, timeout_s, python, accepts_pause=accepts_pause)
    except NoRoomError as error:
        if not (sys.stdin.isatty() and click.confirm(f"{error.message}. Go on?")):
            raise
        with _patience("upgrading"):
            found = upgraded(ask, home, timeout_s, python, accepts_pause=True)
    context.show(found, upgrade_as_text(found))


@command.command()
@click.option("--now", is_flag=True, help="Stop without a last checkpoint.")
@click.pass_obj
def stop(context: CommandContext, now: bool) -> None:
    """Take a checkpoint and end the service."""
    found = context.client.stop(now=now)
    context.show(found, "stopping")


def _patience(text: str) -> Any:
    """Return a spinner, which is shown on a terminal only."""
    return Console(stderr=True).status(text)


def main() -> None:
    """Run the console script `coordinator`, and exit with its code."""
    sys.exit(guarded(lambda: command.main(standalone_mode=False, prog_name="coordinator")))


if __name__ == "__main__":
    main()
