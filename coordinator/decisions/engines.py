"""Decide whether this version of the engine may replay the steps that another version logged.

A step record names the engine that logged and ran the step. Another version may compute something else from the same
rows. So a replay under another version is refused, unless a user accepted it by command. The checksums of outputs are
still compared, as in every replay. An acceptance is durable before the first such step runs, and covers the steps that
existed then. So a restart after a crash during the replay needs no new acceptance, but a step that is logged later does.

No I/O: `machine` decides by this module, and `preflight` predicts by it. Source: docs/concepts/rescale.md,
docs/design/0022.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dbsp.errors import EngineError
from dbsp.logs import StepRecord
from dbsp.stored import stored


@stored("Acceptance", "engine by last")
@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A permission: steps up to `last` that version `engine` logged may be replayed by version `by`."""

    engine: str
    by: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSteps:
    """A run of consecutive steps, `first` to `last`, that one version logged."""

    engine: str
    first: int
    last: int

    def __str__(self) -> str:
        """Describe the run for a user, such as "steps 3 to 5 by 0.9.1"."""
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        return f"{steps} by {self.engine}"


def accepted_anew(
    records: Sequence[StepRecord], engine: str, accepted: Iterable[Acceptance], accepting: Iterable[str]
) -> tuple[Acceptance, ...]:
    """Return the acceptances to note before `engine` replays these records; empty if it may replay them already.

    **Errors** `EngineError` if some were logged by a version that is neither accepted nor in `accepting`.

    **Example**

    >>> step = StepRecord(epoch=1, step=7, layout_version=0, ranges=(), clock_us=0, engine="0.9.1")
    >>> accepted_anew([step], "0.9.1", (), ())
    ()
    >>> accepted_anew([step], "0.9.2", (), ["0.9.1"])
    (Acceptance(engine='0.9.1', by='0.9.2', last=7),)
    """
    open_ = _unaccepted(records, engine, accepted)
    refused = [record for record in open_ if record.engine not in frozenset(accepting)]
    if refused:
        raise _refusal(_spans(refused), engine)
    lasts = {record.engine: record.step for record in open_}
    return tuple(Acceptance(engine=name, by=engine, last=last) for name, last in sorted(lasts.items()))


def still_needed(accepted: Iterable[Acceptance], step: int) -> tuple[Acceptance, ...]:
    """Return the acceptances for `step` and later steps; steps below a published checkpoint are never replayed again."""
    return tuple(acceptance for acceptance in accepted if acceptance.last >= step)


def _unaccepted(records: Iterable[StepRecord], engine: str, accepted: Iterable[Acceptance]) -> list[StepRecord]:
    reach = {acceptance.engine: acceptance.last for acceptance in accepted if acceptance.by == engine}
    return [record for record in records if record.engine != engine and record.step > reach.get(record.engine, -1)]


def _spans(records: Sequence[StepRecord]) -> tuple[LoggedSteps, ...]:
    """Group consecutive records of one version into runs."""
    spans: list[LoggedSteps] = []
    for record in records:
        if spans and (spans[-1].engine, spans[-1].last + 1) == (record.engine, record.step):
            spans[-1] = LoggedSteps(engine=record.engine, first=spans[-1].first, last=record.step)
        else:
            spans.append(LoggedSteps(engine=record.engine, first=record.step, last=record.step))
    return tuple(spans)


def _refusal(spans: Sequence[LoggedSteps], engine: str) -> EngineError:
    names = list(dict.fromkeys(span.engine for span in spans))
    accept = " ".join(f"--accept-engine {name}" for name in names)
    message = (
        "steps above the checkpoint were logged by another version of dbsp, and this one may compute something else:"
        f" {', '.join(map(str, spans))}; this is {engine}"
    )
    hint = (
        f"start version {names[-1]} and end it with `coordinator stop`, then start this one;"
        f" or let this one run them again: `dbsp-coordinator … {accept}`"
    )
    return EngineError(message, hint)
