"""The kind "embedded": rows are pushed to logs in the data folder, and the changes of views are read there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dbsp.errors import ConfigError
from dbsp.io import forms
from dbsp.io.connectors.kind import Residence, ResumePoint, bounds, option, words
from dbsp.io.connectors.local import LocalInput, LocalOutput, number_of
from dbsp.io.connectors.messages import ReadsTopics
from dbsp.io.connectors.registry import input_kind, output_kind

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.circuit.circuit import Circuit
    from dbsp.io.embedded_input import EmbeddedInputLog
    from dbsp.io.embedded_output import EmbeddedOutputLog
    from dbsp.io.examine import Spans
    from dbsp.io.kafka.input import KafkaSource
    from dbsp.plan.plan import ViewSpec
    from dbsp.store.findings import Examined


@input_kind
@dataclass(frozen=True, kw_only=True)
class EmbeddedInput(LocalInput, ReadsTopics):
    """Rows are pushed to any table. The messages of the topics in `topics` are also copied into their tables as they arrive."""

    kind: ClassVar[str] = "embedded"
    stored_formats: ClassVar[Mapping[str, int]] = {
        "step log": LocalInput.steps_format, "input log": number_of(forms.INPUT_LOG), "input record": int(forms.INPUT_RECORD[6:]),
    }  # fmt: skip
    log_form: ClassVar[tuple[str, tuple[str, ...]] | None] = (forms.INPUT_LOG, forms.INPUT_LOG_PARTS)
    push_elsewhere: ClassVar[str | None] = None
    knows_ends: ClassVar[bool] = True
    no_resume: ClassVar[tuple[str, str] | None] = None

    def check(self) -> None:
        """Refuse what `ReadsTopics` refuses, and a format of a table that is not copied."""
        ReadsTopics.check(self)
        for table in self.formats:
            if table not in self.topics:
                raise ConfigError(
                    f"a format of a table without a topic: input.formats names {table}", "name it in `topics`, too"
                )

    def copied_sources(self, tables: Sequence[Table]) -> list[KafkaSource]:
        """Return the topics that are copied; `ConfigError` for a format that a table cannot have."""
        found = self.sources([table for table in tables if table.name in self.topics])
        for source in found:
            source.reader()
        return found

    def check_circuit(self, circuit: Circuit) -> Circuit:
        """Refuse a format that a table of the circuit cannot have."""
        self.copied_sources(circuit.tables)
        return circuit

    def open(
        self,
        residence: Residence,
        tables: Sequence[Table],
        *,
        create: bool = False,
        check: bool = False,  # noqa: ARG002 - there is no source to look at
    ) -> EmbeddedInputLog:
        """Open the input log in the data folder."""
        from dbsp.io.embedded_input import EmbeddedInputLog  # noqa: PLC0415 - reading settings loads no engine

        return EmbeddedInputLog(
            residence.data_dir, tables, partitions=self.partitions, create=create, level=residence.level
        )

    def resume(self, residence: Residence, tables: Sequence[Table], at: ResumePoint) -> None:
        """Create the step log and the input log again, both without records."""
        self.resume_steps(residence, at)
        log = self.open(residence, tables, create=True)
        log.resume(at.positions, at.known or {"producers": [], "pushes": []})
        log.close()

    def examine(self, residence: Residence) -> tuple[Examined, Spans]:
        """Read every record of the input log."""
        from dbsp.io.examine import examine_input  # noqa: PLC0415 - reading settings loads no engine

        return examine_input(residence.data_dir)

    def left_out(self, residence: Residence) -> tuple[str, ...]:  # noqa: ARG002 - the log has all rows
        """Return nothing: a backup contains all rows."""
        return ()

    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Ask the brokers of copied topics whether they answer."""
        if self.has_topics:
            copied = [table for table in tables if table.name in self.topics]
            self.refuse_away_topics(residence, copied, patience_s)


@output_kind
@dataclass(frozen=True, kw_only=True)
class EmbeddedOutput(LocalOutput):
    """The changes of all views, of all steps; `retention_steps` bounds the steps below the oldest openable checkpoint.

    A consumer that is slower misses rows. `format` is checked, and has no effect.
    """

    kind: ClassVar[str] = "embedded"
    form: ClassVar[str | None] = forms.OUTPUT_LOG
    stored_formats: ClassVar[Mapping[str, int]] = {"output log": number_of(forms.OUTPUT_LOG)}
    changes_elsewhere: ClassVar[str | None] = None
    retracts: ClassVar[bool] = False

    format: str = option("json", check=words("json", "arrow"))
    retention_steps: int | None = option(
        None,
        check=bounds(0),
        elsewhere=(
            "only an embedded output drops old rows itself: output.kind={kind}",
            "leave `retention_steps` out; delete old files, or set the retention of the Kafka topics",
        ),
    )

    @property
    def retention(self) -> int | None:
        """Return `retention_steps`."""
        return self.retention_steps

    def open(self, residence: Residence, worker: int, first_step: int, *, create: bool = False) -> EmbeddedOutputLog:
        """Open the worker's log in the data folder."""
        from dbsp.io.embedded_output import EmbeddedOutputLog  # noqa: PLC0415 - reading settings loads no engine

        return EmbeddedOutputLog(
            residence.data_dir,
            worker,
            first_step=first_step,
            create=create,
            retention_steps=self.retention_steps,
            level=residence.level,
        )

    def resume(self, residence: Residence, workers: Iterable[int], step: int) -> None:
        """Make each worker's log begin at `step`; requests for earlier steps, which were lost, fail."""
        for worker in workers:
            log = self.open(residence, worker, step, create=True)
            log.trim(step)
            log.close()

    def no_retraction(self, before: ViewSpec, now: ViewSpec) -> None:
        """Return None: an edited view can always begin anew, because its readers are notified."""

    def folders(self, residence: Residence) -> tuple[tuple[str, Path], ...]:  # noqa: ARG002 - as it says
        """Return nothing: the rows are in the data folder, which already exists."""
        return ()

    def progress(self, residence: Residence) -> Path:
        """Return the folder of the outputs, whose files contain rows and progress."""
        return residence.data_dir / "outputs"

    def in_backup(self) -> EmbeddedOutput:
        """Return this output: its files are in the data folder."""
        return self

    def written_later(self, residence: Residence, step: int) -> Sequence[str]:  # noqa: ARG002 - as it says
        """Return nothing: all rows are in the data folder."""
        return ()

    def left_out(self, residence: Residence) -> tuple[str, ...]:  # noqa: ARG002 - the log has all rows
        """Return nothing: a backup contains all rows."""
        return ()
