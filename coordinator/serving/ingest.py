"""The interface for pushing rows: append rows, wait until they are processed, read their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dbsp.coordinator.build import Built, shows_clock
from dbsp.coordinator.decisions.cutting import unread
from dbsp.coordinator.running.copies import TopicCopies
from dbsp.coordinator.running.watch import Watch, unread_rows
from dbsp.coordinator.serving.admission import refuse_overload
from dbsp.coordinator.serving.answers import Completion
from dbsp.coordinator.serving.core import ServiceCore, refuse_halted
from dbsp.coordinator.serving.rows_in import Rows, as_push, refuse_bad, writer_of
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.pushed import Incoming, InputWriter, Position, Producer


class Ingest(ServiceCore):
    """The methods for producers of rows."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Prepare the copies of topics and the watch, which start with the service."""
        super().__init__(config, built)
        self.copies = TopicCopies(config, self.built.plan, self.built.parts, self, self._observers.noted)
        self.watch = Watch(
            self.live_status, self._loop.runner, self.built.parts.clock, self.built.parts.inputs, self._observers.noted,
            own_input=self.built.own_input, others=self.copies.waits, shows_clock=shows_clock(self.built.plan),
        )  # fmt: skip

    def push(
        self, table: str, rows: Rows, *, delete: bool = False, partition: int = 0, producer: Producer | None = None
    ) -> Position:
        """Append rows to a table's input; they are durable on return, at the returned position."""
        push = as_push(self.table(table), rows, delete=delete)
        return self.push_many([Incoming(table=table, push=push, producer=producer, partition=partition)])[0]

    def push_together(
        self, rows: Mapping[str, Rows], *, partition: int = 0, producer: Producer | None = None
    ) -> list[Position]:
        """Append rows of several tables in one transaction, all or none; one step takes all of them, however many.

        With a producer, its sequence number counts for each of the tables.
        """
        pushes = {name: as_push(self.table(name), each) for name, each in rows.items()}
        for name, push in pushes.items():
            refuse_bad(self.table(name), push)
        incoming = [
            Incoming(table=name, push=push, producer=producer, partition=partition) for name, push in pushes.items()
        ]
        return self.push_many(incoming, together=True)

    def push_many(self, incoming: Sequence[Incoming], *, together: bool = False) -> list[Position]:
        """Append many pushes in one synced transaction; with `together` one step takes all of them.

        **Errors** `OverloadedError` while too many rows wait to be processed.
        """
        clock = self.built.parts.clock
        began_s, wall_s = clock.monotonic_s(), clock.wall_us() / 1e6
        writer = self._writer()
        inputs = self.built.parts.inputs
        done = {**inputs.floors(), **self.snapshot.processed}
        refuse_overload(unread(inputs.ends(), done), inputs.sizes, self.config.input)
        positions = writer.append_many(incoming, together=together)
        waited = (0.0 if each.arrived_s is None else max(0.0, wall_s - each.arrived_s) for each in incoming)
        self.metrics.rows.arrived(zip(positions, (began_s - seconds for seconds in waited), strict=True))
        self._loop.wake()
        return positions

    def last_sequence(self, table: str, producer: str) -> int | None:
        """Return the newest sequence number of a producer's pushes to a table, from which it continues after a crash."""
        return self._writer().last_sequence(table, producer)

    def _writer(self) -> InputWriter:
        return writer_of(self.built.parts.inputs, self.config.input)

    def wait_until_processed(self, position: Position, timeout_s: float | None = None) -> None:
        """Wait until the results of these rows are durable in the outputs and visible in the views."""
        self.live_status.wait_for(lambda now: now.has_processed(position) or now.halt is not None, timeout_s)
        self.refuse_unprocessed(position, timeout_s)

    def refuse_unprocessed(self, position: Position, waited_s: float | None) -> None:
        """Raise an error that says why these rows are not processed, if they are not."""
        if not self.snapshot.has_processed(position):
            self._refuse_ended()
            refuse_halted(self.snapshot.halt)
            raise UnavailableError(
                f"not processed in time: table={position.table} partition={position.partition} first={position.first}"
                f" last={position.last} timeout_s={waited_s}",
                "the rows are on disk and wait: do not send them again, unless as the same push of a producer",
            )

    def refuse_unfinished(self, steps: Sequence[int], waited_s: float | None) -> None:
        """Raise an error that says why one of these logged steps is not finished, if one is not."""
        if not self.snapshot.has_finished(steps):
            self._refuse_ended()
            refuse_halted(self.snapshot.halt)
            raise UnavailableError(
                f"not processed in time: step={max(steps)} timeout_s={waited_s}", "the step is logged, and runs later"
            )

    def completion(self, table: str, partition: int, offset: int) -> Completion:
        """Return the progress of one row: durable, processed, and in which step."""
        self.table(table)
        place = (table, partition)
        ends = {**self.watch.health.ends, **self.built.parts.inputs.ends()}
        if place not in ends:
            raise ConfigError(f"no such partition: table={table} partition={partition}")
        processed = self.snapshot.processed.get(place, 0) > offset
        step = self._loop.runner.index.step_of(table, partition, offset) if processed else None
        return Completion(durable=ends[place] > offset, processed=processed, step=step, delivered=processed)

    def lag_rows(self) -> int:
        """Return how many rows wait in the input; inputs other than the embedded one are asked once a second."""
        now = self.snapshot
        if now.ended or (not self.config.input.knows_ends and not self.watch.health.ends):
            return now.lag_rows
        if not self.config.input.knows_ends:
            return sum(unread_rows(self.watch.health, now.processed).values())
        ends = self.built.parts.inputs.ends()
        return sum(max(0, end - now.processed.get(place, 0)) for place, end in ends.items())
