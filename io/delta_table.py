"""A view as a Delta table: its rows as they are now, or every change of it.

**Law** each commit holds whole steps and carries how far the table then is (Delta's transaction identifiers): a table that says
`next` holds what the steps below `next` have made of the view, whoever was killed when. Of two commits that begin at one position
Delta lets one through, so a writer that lost its place to another adds nothing twice.

With `keys` a row takes the place of its key's row (MERGE); without, rows are added, with their steps and weights. What other
engines do with the table (OPTIMIZE, VACUUM, reading older versions) does no harm. Left out: when to write what
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
"""The library draws its causes as a tree, in colours."""
_NEVER_IN_NAMES = re.compile(r"[ ,;{}()\n\t=`]")
_SIGNED = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip
_ANEW = "delete the table, and it is made anew; or name another `directory` in [delta]"


def delta_schema(schema: pa.Schema, view: str) -> pa.Schema:
    """The columns as a Delta table has them: unsigned integers in the next larger type that has a sign.

    **Errors** `ConfigError` for a type or a name that Delta does not have.
    """
    _refuse_names([field.name for field in schema], view)
    return pa.schema([pa.field(field.name, _delta_type(field.type, view, field.name)) for field in schema])


def _refuse_names(names: Sequence[str], view: str) -> None:
    """Those of columns, or of the fields of a struct: they must differ in more than their case."""
    there: dict[str, str] = {}
    for name in names:
        if _NEVER_IN_NAMES.search(name):
            raise ConfigError(
                f"Delta tables have no such name of a column: view={view} column={name!r}",
                "give the column another name in the view, without spaces and none of ,;{}()=`",
            )
        other = there.setdefault(name.lower(), name)
        if other != name:
            raise ConfigError(
                f"in a Delta table two columns have one name, whatever their case: view={view} columns={other!r} {name!r}",
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
            f"Delta tables have no such type: view={view} column={column} type={type_}",
            "make it a number or a text in the view, or leave the view out of `views` in [delta]",
        )
    return _SIGNED.get(type_, type_)


class DeltaTable:
    """One table. Not for several threads.

    **Errors** `UnavailableError` where it cannot be reached or written, or another writer came first: look again, go on there.
    """

    def __init__(
        self, uri: str, *, view: str, schema: pa.Schema, keys: Sequence[str], app: str, options: Mapping[str, str]
    ) -> None:
        """Nothing is opened; `schema` is that of the rows that will be written, `app` tells this pipeline from others."""
        self.uri, self.keys = uri, tuple(keys)
        self._view, self._schema, self._app = view, delta_schema(schema, view), APP_PREFIX + app
        self._options = dict(options)
        self._table: Any = None

    def position(self) -> int | None:
        """How far the table is, as it says now; None if there is none. What is written next begins there.

        **Errors** `ConfigError` for a table that this pipeline did not make, or made with other columns.
        """
        with self._reaching():
            if not deltalake.DeltaTable.is_deltatable(self.uri, self._options):
                return None
            self._table = deltalake.DeltaTable(self.uri, storage_options=self._options)
            found: int | None = self._table.transaction_version(self._app)
        if found is None:
            raise ConfigError(
                f"the table is not this pipeline's, or it was before the pipeline was restored: uri={self.uri}", _ANEW
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
        """Make the table, empty, and say how far it is."""
        with self._reaching():
            self._table = deltalake.DeltaTable.create(
                self.uri, deltalake.Schema.from_arrow(self._schema), name=self._view, storage_options=self._options,
                commit_properties=self._commit(next_),
            )  # fmt: skip

    def add(self, rows: pa.Table, next_: int) -> None:
        """Add rows; none may be given, to say how far the table is."""
        with self._reaching():
            deltalake.write_deltalake(
                self._table, self._cast(rows), mode="append", commit_properties=self._commit(next_)
            )

    def replace(self, rows: pa.Table, next_: int) -> None:
        """Put these rows in the place of all that are there."""
        with self._reaching():
            deltalake.write_deltalake(
                self._table, self._cast(rows), mode="overwrite", commit_properties=self._commit(next_)
            )

    def merge(self, rows: pa.Table, there: pa.Array, next_: int) -> None:
        """Each row takes the place of its key's row; where it is not `there`, that one goes.

        **Cost** Delta's: files with a row that changes are written anew. A null in a key is a value like others.
        """
        gone = "__gone"
        while gone in rows.column_names:
            gone += "_"
        source = self._cast(rows).append_column(gone, pc.invert(there))
        # in brackets: without, `is not distinct from` takes in the `and` behind it
        same = " and ".join(f"(t.{_quoted(key)} is not distinct from s.{_quoted(key)})" for key in self.keys)
        with self._reaching():
            merging = self._table.merge(
                source, same, source_alias="s", target_alias="t", commit_properties=self._commit(next_)
            )
            merging.when_matched_delete(f"s.{gone}").when_matched_update_all(
                except_cols=[gone]
            ).when_not_matched_insert_all(f"not s.{gone}", except_cols=[gone]).execute()

    def tidy(self, keep_hours: int) -> None:
        """Join small files, and delete those that no version of the last `keep_hours` has."""
        with self._reaching():
            if not self.keys:
                self._table.optimize.compact()
            self._table.vacuum(retention_hours=keep_hours, enforce_retention_duration=False, dry_run=False)

    def empty(self) -> pa.Table:
        """No rows."""
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
