"""Methods of dates, times and timestamps."""

from __future__ import annotations

import datetime
from typing import Self

from dbsp.expr import dates, temporal, zones
from dbsp.expr.methods.applied import Applied


class MomentMethods(Applied):
    """Parts, cutting, counting."""

    __slots__ = ()

    def year(self) -> Self:
        """The year."""
        return self._call(temporal.YEAR)

    def quarter(self) -> Self:
        """1 to 4."""
        return self._call(temporal.QUARTER)

    def month(self) -> Self:
        """1 to 12."""
        return self._call(temporal.MONTH)

    def day(self) -> Self:
        """Day of the month, 1 to 31."""
        return self._call(temporal.DAY)

    def day_of_week(self) -> Self:
        """1 (Monday) to 7."""
        return self._call(temporal.DAY_OF_WEEK)

    def day_name(self) -> Self:
        """`Monday` to `Sunday`."""
        return self._call(temporal.DAY_NAME)

    def month_name(self) -> Self:
        """`January` to `December`."""
        return self._call(temporal.MONTH_NAME)

    def day_of_year(self) -> Self:
        """1 to 366."""
        return self._call(temporal.DAY_OF_YEAR)

    def hour(self) -> Self:
        """0 to 23."""
        return self._call(temporal.HOUR)

    def minute(self) -> Self:
        """0 to 59."""
        return self._call(temporal.MINUTE)

    def second(self) -> Self:
        """0 to 59."""
        return self._call(temporal.SECOND)

    def truncate(self, unit: str) -> Self:
        """The start of its year, quarter, month, week, day, hour, minute, second or millisecond."""
        return self._call(temporal.TRUNCATE, options=(unit,))

    def week(self) -> Self:
        """Week of the ISO year, 1 to 53."""
        return self._call(temporal.WEEK)

    def iso_year(self) -> Self:
        """The year that its ISO week belongs to."""
        return self._call(temporal.ISO_YEAR)

    def microsecond(self) -> Self:
        """Of the second, 0 to 999,999."""
        return self._call(temporal.MICROSECOND)

    def epoch(self, unit: str = "second") -> Self:
        """Whole seconds, milliseconds or microseconds since 1970, rounded down."""
        return self._call(dates.EPOCH, options=(unit,))

    def bucket(self, size: datetime.timedelta, offset: datetime.timedelta = datetime.timedelta(0)) -> Self:
        """The start of its bucket, where buckets of this size begin at 1970 plus the offset."""
        return self._call(dates.BUCKET, options=(size, offset))

    def add_months(self, count: int | Self) -> Self:
        """The same day so many months later, or the last day of a month that is shorter.

        **Example**

        >>> import dbsp
        >>> contracts = dbsp.table("contracts", {"start": dbsp.DATE, "months": dbsp.INT64})
        >>> ends = contracts.select(end=dbsp.col("start").add_months(dbsp.col("months")))
        >>> with dbsp.open(dbsp.circuit("demo", {"ends": ends})) as run:
        ...     run.push("contracts", [{"start": "2024-01-31", "months": 1}])
        ...     print(run.step()["ends"].to_rows())
        ...     run.delete("contracts", [{"start": "2024-01-31", "months": 1}])
        ...     print(run.step()["ends"].to_rows())
        [((datetime.date(2024, 2, 29),), 1)]
        [((datetime.date(2024, 2, 29),), -1)]
        """
        return self._with(dates.ADD_MONTHS, count=count)

    def last_day(self) -> Self:
        """The last day of its month, as a date."""
        return self._call(dates.LAST_DAY)

    def in_zone(self, zone: str | Self) -> Self:
        """What the clocks of a zone such as `Europe/Berlin` show at this time, which is taken as UTC.

        **Cost** Of a column of zones: a computation per zone. A zone that does not exist fails its row.
        """
        return self._with(zones.IN_ZONE, zone=zone)

    def from_zone(self, zone: str | Self) -> Self:
        """The UTC time at which the clocks of a zone show this; the first of two; a time that they skip fails its row."""
        return self._with(zones.FROM_ZONE, zone=zone)

    def strftime(self, format: str) -> Self:  # noqa: A002 (the name users know)
        """As text in a format such as `%Y-%m-%d`; fractions of a second are cut off."""
        return self._call(dates.STRFTIME, options=(format,))
