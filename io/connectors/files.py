"""The kind "files": input files that users put into a folder per table, and files of changes per view, step and worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dbsp.errors import ConfigError
from dbsp.io import forms
from dbsp.io.connectors.kind import Residence, bounds, option, words
from dbsp.io.connectors.local import FolderOutput, LocalInput, number_of
from dbsp.io.connectors.places import Place
from dbsp.io.connectors.registry import input_kind, output_kind

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.io.examine import Spans
    from dbsp.io.file_input import FileInputLog
    from dbsp.io.file_output import FileOutputLog
    from dbsp.plan.plan import ViewSpec
    from dbsp.store.findings import Examined


@input_kind
@dataclass(frozen=True, kw_only=True)
class FilesInput(LocalInput):
    """Files in a folder per table in `directory`, listed every `look_every_s`; the ending of a file's name tells its format."""

    kind: ClassVar[str] = "files"
    stored_formats: ClassVar[Mapping[str, int]] = {
        "step log": LocalInput.steps_format, "input of files": number_of(forms.FILE_INPUT),
    }  # fmt: skip
    log_form: ClassVar[tuple[str, tuple[str, ...]] | None] = (forms.FILE_INPUT, forms.FILE_INPUT_PARTS)
    push_elsewhere: ClassVar[str | None] = "put a file into the table's folder"
    knows_ends: ClassVar[bool] = False
    no_resume: ClassVar[tuple[str, str] | None] = (
        "a pipeline that reads files cannot go on from copies of checkpoints alone",
        "only the data folder has the list of the files that were read: take backups (`coordinator backup`), and restore one",
    )

    directory: str = option("")
    look_every_s: float = option(0.5, check=bounds(0))

    def check(self) -> None:
        """Refuse a missing folder."""
        if not self.directory:
            raise ConfigError("an input of files needs a folder", 'set `directory = "landing"` in [input]')

    def open(
        self,
        residence: Residence,
        tables: Sequence[Table],
        *,
        create: bool = False,
        check: bool = False,  # noqa: ARG002 - folders are made
    ) -> FileInputLog:
        """Open the log of what was read from files."""
        from dbsp.io.file_input import FileInputLog  # noqa: PLC0415 - reading settings loads no engine

        return FileInputLog(
            residence.data_dir, tables, folder=str(residence.path(self.directory)), partitions=self.partitions,
            create=create, look_every_s=self.look_every_s, level=residence.level,
        )  # fmt: skip

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:
        """Yield the folders of the tables."""
        folder, remedy = residence.path(self.directory), "set another `directory` in [input]"
        for table in names:
            yield Place(where=f"folder={folder / table}", use=f"the table {table}", remedy=remedy, is_written=False)

    def make_folders(self, residence: Residence, tables: Collection[Table]) -> None:
        """Make the folders of new tables."""
        from dbsp.io.file_input import make_folders  # noqa: PLC0415 - reading settings loads no engine

        make_folders(residence.path(self.directory), list(tables))

    def examine(self, residence: Residence) -> tuple[Examined, Spans]:
        """Read the notes about the files, and check that the files are unchanged."""
        from dbsp.io.examine import examine_files  # noqa: PLC0415 - reading settings loads no engine

        return examine_files(residence.data_dir, residence.path(self.directory))

    def left_out(self, residence: Residence) -> tuple[str, ...]:
        """Return the folder of the files."""
        return (f"files of the input: folder={residence.path(self.directory)}",)


@output_kind
@dataclass(frozen=True, kw_only=True)
class FilesOutput(FolderOutput):
    """A file per view, step and worker in `directory`; if that is not set, in the folder `files` of the data folder."""

    kind: ClassVar[str] = "files"
    form: ClassVar[str | None] = forms.FILE_OUTPUT
    stored_formats: ClassVar[Mapping[str, int]] = {"progress of file outputs": number_of(forms.FILE_OUTPUT)}
    changes_elsewhere: ClassVar[str | None] = "look into its folder"
    retracts: ClassVar[bool] = True

    format: str = option("json", check=words("json", "arrow", "parquet"))

    def open(self, residence: Residence, worker: int, first_step: int, *, create: bool = False) -> FileOutputLog:
        """Open the worker's progress; its files are written beside it."""
        from dbsp.io.file_output import FileOutputLog  # noqa: PLC0415 - reading settings loads no engine

        return FileOutputLog(
            self.folder(residence), worker, format=self.format, first_step=first_step, create=create, level=residence.level
        )  # fmt: skip

    def no_retraction(self, before: ViewSpec, now: ViewSpec) -> str | None:
        """Refuse other columns for Parquet and Arrow, because readers take the whole folder for one table."""
        if self.format == "json" or before.schema.for_both(now.schema) is not None:
            return None
        return f"its columns changed, and all files of the format {self.format} have the same"

    def written_later(self, residence: Residence, step: int) -> Sequence[str]:
        """Return the files of later steps."""
        found = sorted(self.folder(residence).glob("*/step-*-worker-*.*"))
        return [str(path) for path in found if int(path.name.split("-")[1]) >= step]
