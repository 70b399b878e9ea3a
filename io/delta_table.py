"""A view as a Delta table: its current rows, or all its changes.

**Law** Each commit has whole steps and records the table's position (Delta's transaction identifiers). A table whose
position is `next` has exactly the view's changes of the steps below `next`, whatever process is killed when. Of two
commits that begin at one position Delta accepts one, so a writer that was replaced adds nothing twice.

With `keys` a row replaces the row of its key (MERGE). Without, rows are added, with their steps and weights. Other
engines may maintain the table (OPTIMIZE, VACUUM) and read older versions. Left out: the schedule of writes
(`dbsp.coordinator.running.delta_tables`). Source: the Delta protocol, "Transaction Identifiers"; docs/design/0028.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import ConfigError, UnavailableError
from dbsp.zset.schema import is_list, is_struct

APP_PREFIX = "dbsp-"
STORY_CHARS_MAX = 600
_ADORNED = re.compile(r"\x1b\[[0-9;]*m|↳")
"""The colours and tree marks with which the library prints the causes of an error."""
_NEVER_IN_NAMES = re.compile(r"[ ,;{}()\n\t=`]")
_SIGNED = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip
_ANEW = "delete the table, and the pipeline creates it again; or set another `directory` in [delta]"


def delta_schema(schema: pa.Schema, view: str) -> pa.Schema:
    """Return the schema of the Delta table: unsigned integers become the next larger signed type.

    **Errors** `ConfigError` for a type or a name that Delta does not have.
    """
    _refuse_names([field.name for field in schema], view)
    return pa.schema([pa.field(field.name, _delta_type(field.type, view, field.name)) for field in schema])


def _refuse_names(names: Sequence[str], view: str) -> None:
    """Raise a `ConfigError` for names that Delta forbids, or that differ in case only."""
    there: dict[str, str] = {}
    for name in names:
        if _NEVER_IN_NAMES.search(name):
            raise ConfigError(
                f"a Delta table cannot have a column of this name: view={view} column={name!r}",
                "give the column another name in the view, without spaces and none of ,;{}()=`",
            )
        other = there.setdefault(name.lower(), name)
        if other != name:
            raise ConfigError(
                f"two columns of a Delta table differ in case only: view={view} columns={other!r} {name!r}",
                "give one of them another name in the view (`weight` and `step` are the table's own if the view has no key)",
            )


def _delta_type(type_: pa.DataType, view: str, column: str) -> pa.DataType:
    if is_list(type_):
        return pa.list_(_delta_type(type_.value_type, view, column))
    if is_struct(type_):
        _refuse_names([field.name for field in type_], view)
        return pa.struct([pa.field(field.name, _delta_type(field.type, view, column)) for field in type_])
    if pa.types.is_duration(type_) or pa.types.is_time(type_):
        raise ConfigError(
            f"Delta has no such type: view={view} column={column} type={type_}",
            "make it a number or a text in the view, or leave the view out of `views` in [delta]",
        )
    return _SIGNED.get(type_, type_)


class DeltaTable:
    """A Delta table of one view, for one thread.

    **Errors** `UnavailableError` if the table cannot be reached or written, or another writer has committed first.
    Read the position again and continue there.
    """

    def __init__(
        self, uri: str, *, view: str, schema: pa.Schema, keys: Sequence[str], app: str, options: Mapping[str, str]
    ) -> None:
        """Store the settings; `schema` is the schema of the written rows, `app` names this pipeline in the table."""
        self.uri, self.keys = uri, tuple(keys)
        self._view, self._schema, self._app = view, delta_schema(schema, view), APP_PREFIX + app
        self._options = dict(options)
        self._table: Any = None

    def position(self) -> int | None:
        """Read the table's position, which is the next step to write; None if there is no table.

        **Errors** `ConfigError` for a table that this pipeline did not make, or made with other columns.
        """
        with self._reaching():
            if not deltalake.DeltaTable.is_deltatable(self.uri, self._options):
                return None
            self._table = deltalake.DeltaTable(self.uri, storage_options=self._options)
            found: int | None = self._table.transaction_version(self._app)
        if found is None:
            raise ConfigError(
                f"the Delta table belongs to another pipeline, or to this one before it was restored: uri={self.uri}",
                _ANEW,
            )
        self._refuse_other_columns()
        return found

    def _refuse_other_columns(self) -> None:
        wanted = deltalake.Schema.from_arrow(self._schema)
        theirs = {field.name: field.type for field in self._table.schema().fields}
        ours = {field.name: field.type for field in wanted.fields}
        if theirs != ours:
            names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            raise ConfigError(f"the table has other columns: uri={self.uri} columns={', '.join(names)}", _ANEW)

    def create(self, next_: int) -> None:
        """Create the empty table with position `next_`."""
        with self._reaching():
            self._table = deltalake.DeltaTable.create(
                self.uri, deltalake.Schema.from_arrow(self._schema), name=self._view, storage_options=self._options,
                commit_properties=self._commit(next_),
            )  # fmt: skip

    def add(self, rows: pa.Table, next_: int) -> None:
        """Append rows and set the position; there may be no rows."""
        with self._reaching():
            deltalake.write_deltalake(
                self._table, self._cast(rows), mode="append", commit_properties=self._commit(next_)
            )

    def replace(self, rows: pa.Table, next_: int) -> None:
        """Replace all rows of the table by these, and set the position."""
        with self._reaching():
            deltalake.write_deltalake(
                self._table, self._cast(rows), mode="overwrite", commit_properties=self._commit(next_)
            )

    def merge(self, rows: pa.Table, there: pa.Array, next_: int) -> None:
        """Replace the row of each key; delete the key's row where `there` is false.

        **Cost** Delta's: it rewrites each file with a changed row. A null in a key equals another null.
        """
        gone = "__gone"
        while gone in rows.column_names:
            gone += "_"
        source = self._cast(rows).append_column(gone, pc.invert(there))
        # in brackets: otherwise `is not distinct from` binds the following `and`
        same = " and ".join(f"(t.{_quoted(key)} is not distinct from s.{_quoted(key)})" for key in self.keys)
        with self._reaching():
            merging = self._table.merge(
                source, same, source_alias="s", target_alias="t", commit_properties=self._commit(next_)
            )
            merging.when_matched_delete(f"s.{gone}").when_matched_update_all(
                except_cols=[gone]
            ).when_not_matched_insert_all(f"not s.{gone}", except_cols=[gone]).execute()

    def tidy(self, keep_hours: int) -> None:
        """Compact small files, unless the table has keys, and delete old files.

        A file is deleted if no version of the last `keep_hours` uses it.
        """
        with self._reaching():
            if not self.keys:
                self._table.optimize.compact()
            self._table.vacuum(retention_hours=keep_hours, enforce_retention_duration=False, dry_run=False)

    def empty(self) -> pa.Table:
        """Return a table without rows."""
        return self._schema.empty_table()

    def _cast(self, rows: pa.Table) -> pa.Table:
        return rows.cast(self._schema)

    def _commit(self, next_: int) -> Any:
        mark = deltalake.Transaction(self._app, next_)
        return deltalake.CommitProperties(app_transactions=[mark], custom_metadata={"dbsp.next_step": str(next_)})

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (deltalake.exceptions.DeltaError, OSError) as error:
            story = " ".join(_ADORNED.sub(" ", str(error)).split())[:STORY_CHARS_MAX]
            raise UnavailableError(f"the Delta table cannot be written: uri={self.uri} error={story}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
