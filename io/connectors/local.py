"""Base classes of kinds on the disks of this host: most kinds of outputs derive from `FolderOutput`.

The progress of a local output is an LMDB file per worker, which `dbsp.io.progress.LocalOutputLog` keeps. `LocalOutput`
therefore implements all methods about the progress, for the doctor, backups, restores and starts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from dbsp.io import forms
from dbsp.io.connectors.kind import InputKind, OutputKind, Residence, ResumePoint, option
from dbsp.io.connectors.places import Place

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.io.embedded_steps import EmbeddedStepLog
    from dbsp.io.output_part import OutputProgress
    from dbsp.store.findings import Examined

PROGRESS = ".progress"
"""The name of the folder of the progress, in the folder with the rows that other programs read."""


def number_of(form: str) -> int:
    """Return the number of a stored format, which is the last word of its form."""
    return int(form.rpartition(" ")[2])


@dataclass(frozen=True, kw_only=True)
class LocalInput(InputKind):
    """An input whose log is the file `input` in the data folder; the step log is beside it."""

    logs_elsewhere: ClassVar[str | None] = None
    needs_one_host: ClassVar[bool] = True
    no_backup: ClassVar[tuple[str, str] | None] = None
    is_expensive_to_read: ClassVar[bool] = False
    asks_others: ClassVar[bool] = False
    steps_format: ClassVar[int] = number_of(forms.STEP_LOG)

    def open_steps(self, residence: Residence, *, create: bool = False) -> EmbeddedStepLog:
        """Open the step log in the data folder."""
        from dbsp.io.embedded_steps import EmbeddedStepLog  # noqa: PLC0415 - reading settings loads no engine

        return EmbeddedStepLog(residence.data_dir, create=create)

    def resume_steps(self, residence: Residence, at: ResumePoint) -> None:
        """Create the step log in the data folder again, without records."""
        steps = self.open_steps(residence, create=True)
        steps.resume(at.epoch, at.step, dict(at.positions))
        steps.close()

    def make_folders(self, residence: Residence, tables: Collection[Table]) -> None:
        """Do nothing: tables need no folders."""

    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Do nothing: no other system is needed."""


@dataclass(frozen=True, kw_only=True)
class LocalOutput(OutputKind):
    """An output whose progress is on this host. A subclass says where its rows are, and its `form` of the progress files."""

    needs_one_host: ClassVar[bool] = True
    no_backup: ClassVar[tuple[str, str] | None] = None
    is_expensive_to_open: ClassVar[bool] = False

    @abstractmethod
    def progress(self, residence: Residence) -> Path:
        """Return the folder with a progress file per worker."""

    def resume(self, residence: Residence, workers: Iterable[int], step: int) -> None:
        """Make each worker's progress begin at `step`."""
        for worker in workers:
            self.open(residence, worker, step, create=True).close()

    def examine(self, residence: Residence, worker: int) -> tuple[Examined, OutputProgress | None]:
        """Read one worker's progress, and all other records of its file."""
        from dbsp.io.examine import examine_output_log  # noqa: PLC0415 - reading settings loads no engine

        return examine_output_log(self.progress(residence) / str(worker), self.form, worker)

    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Do nothing: no other system is needed."""


@dataclass(frozen=True, kw_only=True)
class FolderOutput(LocalOutput):
    """A local output whose rows users read in `directory`; if the setting is empty, in a folder of the data folder."""

    directory: str = option("")

    def folder(self, residence: Residence) -> Path:
        """Return the folder of the rows; without the setting it has the kind's name."""
        return residence.path(self.directory) if self.directory else residence.data_dir / self.kind

    def folders(self, residence: Residence) -> tuple[tuple[str, Path], ...]:
        """Return the folder of the rows."""
        return (("directory", self.folder(residence)),)

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:
        """Yield the data folder, which no output may fill, and the folders of the views."""
        remedy = "set another `directory` in [output]"
        yield Place(where=f"folder={residence.data_dir}", use="the data folder", remedy=remedy, is_written=True)
        folder = self.folder(residence)
        yield Place(where=f"folder={folder}", use="the rows of the outputs", remedy=remedy, is_written=True)
        for view in names:
            yield Place(where=f"folder={folder / view}", use=f"the view {view}", remedy=remedy, is_written=True)

    def progress(self, residence: Residence) -> Path:
        """Return the folder of the progress, inside that of the rows."""
        return self.folder(residence) / PROGRESS

    def in_backup(self) -> Self:
        """Return this output with its progress in the data folder."""
        return replace(self, directory="")

    def left_out(self, residence: Residence) -> tuple[str, ...]:
        """Return the folder of the rows."""
        return (f"files that outputs wrote: folder={self.folder(residence)}",)
