"""The contract of a connector kind: one class has everything that the service needs to know about an input or an output.

A kind is a frozen dataclass. Its fields are the kind's settings in `pipeline.toml`, with types, defaults and checks. An
instance is a configured input or output. Nothing outside a kind compares kinds by name. `registry` registers a class,
and refuses one that lacks a method or value of the contract.

Instances travel to Spark's processes, so they can be pickled and open nothing by themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from dbsp.settings import at_least, at_most, one_of, seconds_of
from dbsp.steps.timing import IDLE_S
from dbsp.stored.levels import NEWEST

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.circuit.circuit import Circuit
    from dbsp.io.connectors.places import Place
    from dbsp.io.output_part import OutputProgress
    from dbsp.logs import Heartbeats, InputLog, OutputLog, StepLog
    from dbsp.plan.plan import ViewSpec
    from dbsp.store.findings import Examined

Check: TypeAlias = Callable[[str, Any], None]
"""A function of a setting's full name, such as "input.format", and its value; it raises `ConfigError` for a bad value."""
PARTITIONS_MAX = (1 << 16) - 1
"""The largest partition number: the input log stores it in two bytes."""
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """The pipeline that a connector belongs to: its name, its data folder, and the folder to which relative paths refer.

    `level` is the level of formats at which logs are written (`dbsp.stored.levels`).
    """

    data_dir: Path
    pipeline: str
    folder: Path = Path()
    level: int = NEWEST

    def path(self, directory: str) -> Path:
        """Return a folder of the settings as an absolute path."""
        return (self.folder / directory).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The point at which restored logs continue: above an epoch, at a step, at input positions.

    `known` is what the input log remembered at the checkpoint (`dbsp.logs.ResumableInput`).
    """

    epoch: int
    step: int
    positions: Mapping[tuple[str, int], int]
    known: Mapping[str, Any] | None


def option(
    default: Any = MISSING,
    *,
    factory: Any = MISSING,
    check: Check | None = None,
    names: str = "",
    columns: bool = False,
    elsewhere: tuple[str, str] | None = None,
    is_shown: bool = True,
) -> Any:
    """Declare a setting of a kind.

    `names` is "table" or "view" if the keys of the setting are such names. With `columns` its values are names of their
    columns, separated by commas.

    `elsewhere` is the error, and its hint, for a kind that does not have this setting; "{kind}" in the error stands for that
    kind. Without `elsewhere` another kind ignores the setting.
    """
    about = {"check": check, "names": names, "columns": columns, "elsewhere": elsewhere}
    if factory is not MISSING:
        return field(default_factory=factory, repr=is_shown, metadata=about)
    return field(default=default, repr=is_shown, metadata=about)


def words(*known: str) -> Check:
    """Return the check of a setting that is one of these words, or absent."""
    return lambda name, value: None if value is None else one_of(name, value, known)


def bounds(least: float, most: float | None = None) -> Check:
    """Return the check of a setting that is a number within these bounds, or absent."""

    def check(name: str, value: Any) -> None:
        if value is not None:
            at_least(name, value, least)
            if most is not None:
                at_most(name, value, most)

    return check


def columns_of(keys: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each view's key, which settings write as "shop, day"."""
    return {view: tuple(name.strip() for name in names.split(",")) for view, names in keys.items()}


def check_option(section: str, each: Field[Any], value: Any) -> None:
    """Refuse a value that a setting cannot have."""
    check = each.metadata.get("check")
    if check is not None:
        check(f"{section}.{each.name}", value)


class Connector(ABC):
    """The part of the contract that inputs and outputs share; a class variable without a value is a part of it, too."""

    section: ClassVar[str]
    kind: ClassVar[str]
    """The name in the settings, in the ledger and in manifests of backups: it is stored, and never changes."""
    stored_formats: ClassVar[Mapping[str, int]]
    """The stored formats that a pipeline with this kind writes on this host, and their numbers."""
    needs_one_host: ClassVar[bool]
    """Whether all workers must run on the host of the coordinator."""
    no_backup: ClassVar[tuple[str, str] | None]
    """Why a pipeline with this kind cannot be backed up, and what to do instead; None if it can."""

    def __post_init__(self) -> None:
        """Check the settings by themselves, then against each other."""
        for each in fields(self):  # type: ignore[arg-type]  # every kind is a dataclass
            check_option(self.section, each, getattr(self, each.name))
        self.check()

    def check(self) -> None:  # noqa: B027 - most kinds have no such settings
        """Refuse settings that contradict each other."""

    def check_circuit(self, circuit: Circuit) -> Circuit:
        """Refuse settings that do not fit the circuit; return the circuit as this kind needs it."""
        return circuit

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:  # noqa: ARG002 - most kinds have none
        """Return the topics or folders of these tables or views, and those that the kind itself needs in addition."""
        return ()

    @abstractmethod
    def left_out(self, residence: Residence) -> tuple[str, ...]:
        """Return what a backup does not contain of this input or output, a line each."""

    @abstractmethod
    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Return if all systems that the kind needs answer within `patience_s`; write nothing there.

        **Errors** `AwayError` with the address of a system that does not answer, `ConfigError` for something absent in it.
        """


@dataclass(frozen=True, kw_only=True)
class InputKind(Connector):
    """A source of rows, and the place of the step log.

    While more than `max_backlog_rows` or `max_backlog_bytes` wait unprocessed, pushes are refused (over HTTP: 429 with
    Retry-After). A partition that was read to its end for `idle_s` holds back no waterline until rows come; `idle_tables_s`
    sets this for single tables.
    """

    section: ClassVar[str] = "input"
    logs_elsewhere: ClassVar[str | None]
    """Where input and step log are, for the doctor; None if both are in the data folder."""
    log_form: ClassVar[tuple[str, tuple[str, ...]] | None]
    """The form of the file `input` in the data folder, and the parts that a check of formats reads; None if there is none."""
    push_elsewhere: ClassVar[str | None]
    """What to do instead of a push; None if rows can be pushed."""
    is_expensive_to_read: ClassVar[bool]
    """Whether rows take longer to read than to send between processes."""
    asks_others: ClassVar[bool]
    """Whether only another system knows the positions. It may answer late, so a second handle is opened to ask it."""
    knows_ends: ClassVar[bool]
    """Whether the ends of the partitions are known without a request or a look at files."""

    no_resume: ClassVar[tuple[str, str] | None]
    """Why the input cannot continue from copies of checkpoints alone, and what to do instead; None if it can."""

    partitions: int = option(1, check=bounds(1, PARTITIONS_MAX))
    max_backlog_rows: int = option(100_000_000, check=bounds(1))
    max_backlog_bytes: int = option(16 * 1024 * MEBIBYTE, check=bounds(1))
    idle_s: float = option(IDLE_S, check=bounds(0))
    idle_tables_s: Mapping[str, str] = option(factory=dict, names="table")

    def __post_init__(self) -> None:
        """Check the settings; times of single tables may be no numbers."""
        for table in self.idle_tables_s:
            at_least(f"input.idle_tables_s.{table}", self.idle_s_of(table), 0)
        Connector.__post_init__(self)

    @property
    def ignores_unknown(self) -> bool:
        """Return whether names in JSON rows that a table does not have are ignored."""
        return False

    def idle_s_of(self, table: str) -> float:
        """Return the seconds without new rows after which a partition of a table counts as idle."""
        return seconds_of("input.idle_tables_s", self.idle_tables_s, table, self.idle_s)

    @abstractmethod
    def open(
        self, residence: Residence, tables: Sequence[Table], *, create: bool = False, check: bool = False
    ) -> InputLog:
        """Open a handle; `create` makes an absent log, `check` looks first whether the sources are there."""

    @abstractmethod
    def open_steps(self, residence: Residence, *, create: bool = False) -> StepLog:
        """Open a handle on the step log; `create` makes an absent one."""

    def open_heartbeats(self, residence: Residence) -> Heartbeats | None:  # noqa: ARG002 - for those that have some
        """Open the heartbeats of the pipeline's coordinators; None if the logs are in the data folder of one host."""
        return None

    @abstractmethod
    def make_folders(self, residence: Residence, tables: Collection[Table]) -> None:
        """Make what the sources of new tables need on this host."""

    def resume(self, residence: Residence, tables: Sequence[Table], at: ResumePoint) -> None:
        """Create the logs in the data folder again, without rows and records, so that they continue at a checkpoint."""

    @abstractmethod
    def examine(self, residence: Residence) -> tuple[Examined, dict[tuple[str, int], tuple[int, int]]] | None:
        """Read all of the input that is on this host: findings, and (floor, end) per place; None if it is not on this host."""


@dataclass(frozen=True, kw_only=True)
class OutputKind(Connector):
    """A place for results."""

    section: ClassVar[str] = "output"
    changes_elsewhere: ClassVar[str | None]
    """Where users read the changes of views; None if the service reads them from this output."""
    retracts: ClassVar[bool]
    """Whether the first step of an edited view retracts its old rows here; else readers are notified to forget them."""
    form: ClassVar[str | None]
    """The form of the files in the folder `progress`; None if there are none."""
    is_expensive_to_open: ClassVar[bool]
    """Whether a writer takes long to start. Then a background worker, which outlives tasks, holds it."""

    @property
    def retention(self) -> int | None:
        """Return how many steps below the oldest openable checkpoint are kept; None if this output drops none itself."""
        return None

    @abstractmethod
    def open(self, residence: Residence, worker: int, first_step: int, *, create: bool = False) -> OutputLog:
        """Open the worker's part; `create` lets it begin at `first_step`, else absence is a `DataError`."""

    @abstractmethod
    def no_retraction(self, before: ViewSpec, now: ViewSpec) -> str | None:
        """Return why no step can retract the rows of an edited view and insert the new ones; None if one can.

        The view was `before` and is `now`. Only an output that `retracts` is asked.
        """

    @abstractmethod
    def folders(self, residence: Residence) -> tuple[tuple[str, Path], ...]:
        """Return the folders that a start makes, each with the name of its setting."""

    @abstractmethod
    def progress(self, residence: Residence) -> Path | None:
        """Return the folder with a progress file per worker; None if the progress is stored elsewhere.

        Starts look there for remains and formats, backups copy it, the doctor reads it, and restoring puts it back.
        """

    @abstractmethod
    def resume(self, residence: Residence, workers: Iterable[int], step: int) -> None:
        """Create the logs of these workers in the data folder again, so that they continue at `step`."""

    @abstractmethod
    def examine(self, residence: Residence, worker: int) -> tuple[Examined, OutputProgress | None] | None:
        """Read all that one worker has on this host: findings, and its readable progress; None if it is not on this host."""

    @abstractmethod
    def in_backup(self) -> OutputKind:
        """Return this output as it is in a backup, where its progress is inside the data folder."""

    @abstractmethod
    def written_later(self, residence: Residence, step: int) -> Sequence[str]:
        """Return the visible outputs of steps from `step` on; while there are any, a restore to this step is refused.

        An output whose rows are in the data folder returns nothing, because restoring needs an empty one.
        """
