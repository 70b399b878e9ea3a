"""DuckDB's answers to the same questions, computed afresh from the files, to hold the views against.

The rows are those that the tables hold in the end: every flight of the files but the cancelled ones, once the year is
over. Nothing of the engine is used.
Means of whole numbers are one division of exact sums in both, so they must be equal to the bit. DuckDB's own sum of
floats depends on the order of the rows; there it only collects the values, and `statistics.mean` divides their exact sum.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa

QUERIES = {
    "delay_by_airline": """
        select name, count(*) as flights, avg(dep_delay) as mean_delay, max(dep_delay) as worst_delay
        from departed join airlines using (carrier) group by name
    """,
    "worst_routes": """
        select origin, dest, flights, mean_delay, name as city
        from (select origin, dest, count(*) as flights, avg(arr_delay) as mean_delay
              from departed where arr_delay is not null group by origin, dest)
        join airports on faa = dest
        where flights >= 100
        order by mean_delay desc, origin, dest, flights, city limit 10
    """,
    "delay_by_weather": """
        select
            case when visib < 1 then 'under 1 mile' when visib < 5 then '1 to 5 miles' else 'clear' end as visibility,
            case when wind_speed is null then 'unknown' when wind_speed < 10 then 'light'
                 when wind_speed < 20 then 'fresh' else 'strong' end as wind,
            case when precip = 0 then 'none' when precip < 0.1 then 'some' else 'heavy' end as rain,
            count(*) as flights, avg(dep_delay) as mean_delay, list(temp) filter (temp is not null) as mean_temp
        from departed join weather using (origin, time_hour) group by all
    """,
    "flights_by_model": """
        select manufacturer, model, 2013 - planes.year as age, count(*) as flights,
               count(distinct tailnum) as planes
        from departed join planes using (tailnum) group by all
    """,
    "fleet": """
        select name, count(distinct tailnum) as planes, count(distinct dest) as destinations
        from departed join airlines using (carrier) group by name
    """,
}
MEANS_OF_FLOATS = {"delay_by_weather": "mean_temp"}


def recompute(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Every view, from the rows that the tables hold."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute("create view departed as select * from flights where dep_time is not null")
        views = {name: connection.sql(query).to_arrow_table() for name, query in QUERIES.items()}
    return {name: _with_exact_means(name, view) for name, view in views.items()}


def _with_exact_means(name: str, view: pa.Table) -> pa.Table:
    column = MEANS_OF_FLOATS.get(name)
    if column is None:
        return view
    means = [statistics.mean(values) if values else None for values in view[column].to_pylist()]
    return view.set_column(view.schema.get_field_index(column), column, pa.array(means, pa.float64()))


def differences(view: pa.Table, expected: pa.Table) -> list[str]:
    """What differs between a view and the recomputation, as lines; none if they hold the same rows, to the bit."""
    if set(view.column_names) != set(expected.column_names):
        return [f"columns: {view.column_names} instead of {expected.column_names}"]
    ours, theirs = _rows(view), _rows(expected.select(view.column_names))
    surplus = [f"not expected: {row}" for row in sorted((ours - theirs).elements(), key=repr)]
    return surplus + [f"missing: {row}" for row in sorted((theirs - ours).elements(), key=repr)]


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
