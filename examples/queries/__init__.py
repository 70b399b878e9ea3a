"""Queries from the field, each beside the SQL that says the same, kept up to date while rows come, change and go.

`tests/examples/test_queries.py` holds every one of them to its SQL.

**Example**

>>> import datetime as dt
>>> import dbsp
>>> from examples.queries import operations
>>> print(operations.unanswered.question)
Which tickets had no reply within the hour? They come when the hour is over, without any event.
>>> nine = dt.datetime(2024, 1, 1, 9, 0)
>>> with dbsp.open(operations.unanswered.circuit()) as run:
...     run.push("tickets", [{"id": 1, "queue": "post", "ts": nine}])
...     run.step(clock=nine + dbsp.minutes(30))["unanswered"].to_pylist()
...     [row["id"] for row in run.step(clock=nine + dbsp.minutes(61))["unanswered"].to_pylist()]
...     run.push("replies", [{"ticket": 1, "ts": nine + dbsp.minutes(59)}])  # it came in time, but late to us
...     [row[0] for row, weight in run.step(clock=nine + dbsp.minutes(62))["unanswered"].to_rows() if weight < 0]
[]
[1]
[1]
"""
