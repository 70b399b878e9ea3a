"""Methods of dates, times and timestamps."""

from __future__ import annotations

import datetime
from typing import Self

from dbsp.expr import dates, temporal, zones
from dbsp.expr.methods.applied import Applied


class MomentMethods(Applied):
    """Methods of dates, times and timestamps: parts, truncation, counts, zones and formats."""

    __slots__ = ()

    def year(self) -> Self:
        """Return the year."""
        return self._call(temporal.YEAR)

    def quarter(self) -> Self:
        """Return the quarter, 1 to 4."""
        return self._call(temporal.QUARTER)

    def month(self) -> Self:
        """Return the month, 1 to 12."""
        return self._call(temporal.MONTH)

    def day(self) -> Self:
        """Return the day of the month, 1 to 31."""
        return self._call(temporal.DAY)

    def day_of_week(self) -> Self:
        """Return the day of the week, 1 (Monday) to 7."""
        return self._call(temporal.DAY_OF_WEEK)

    def day_name(self) -> Self:
        """Return the English name of the day, `Monday` to `Sunday`."""
        return self._call(temporal.DAY_NAME)

    def month_name(self) -> Self:
        """Return the English name of the month, `January` to `December`."""
        return self._call(temporal.MONTH_NAME)

    def day_of_year(self) -> Self:
        """Return the day of the year, 1 to 366."""
        return self._call(temporal.DAY_OF_YEAR)

    def hour(self) -> Self:
        """Return the hour, 0 to 23."""
        return self._call(temporal.HOUR)

    def minute(self) -> Self:
        """Return the minute, 0 to 59."""
        return self._call(temporal.MINUTE)

    def second(self) -> Self:
        """Return the second, 0 to 59."""
        return self._call(temporal.SECOND)

    def truncate(self, unit: str) -> Self:
        """Return the start of the value's year, quarter, month, week, day, hour, minute, second or millisecond."""
        return self._call(temporal.TRUNCATE, options=(unit,))

    def week(self) -> Self:
        """Return the week of the ISO year, 1 to 53."""
        return self._call(temporal.WEEK)

    def iso_year(self) -> Self:
        """Return the year to which the ISO week belongs."""
        return self._call(temporal.ISO_YEAR)

    def microsecond(self) -> Self:
        """Return the microseconds of the second, 0 to 999,999."""
        return self._call(temporal.MICROSECOND)

    def epoch(self, unit: str = "second") -> Self:
        """Return the whole seconds, milliseconds or microseconds since 1970, rounded down."""
        return self._call(dates.EPOCH, options=(unit,))

    def bucket(self, size: datetime.timedelta, offset: datetime.timedelta = datetime.timedelta(0)) -> Self:
        """Return the start of the value's bucket; buckets of this size begin at 1970 plus the offset."""
        return self._call(dates.BUCKET, options=(size, offset))

    def add_months(self, count: int | Self) -> Self:
        """Return the same day `count` months later, or the last day of a shorter month.

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
        """Return the last day of the month, as a date."""
        return self._call(dates.LAST_DAY)

    def in_zone(self, zone: str | Self) -> Self:
        """Return the local time in a zone such as `Europe/Berlin`; the given time counts as UTC.

        **Cost** With a column of zones, one computation per zone. An unknown zone in a column fails its row.
        """
        return self._with(zones.IN_ZONE, zone=zone)

    def from_zone(self, zone: str | Self) -> Self:
        """Return the UTC time at which the clocks of a zone show this time.

        A time that the clocks show twice means the first. A time that they skip fails its row.
        """
        return self._with(zones.FROM_ZONE, zone=zone)

    def strftime(self, format: str) -> Self:  # noqa: A002 (the name users know)
        """Return text in a format such as `%Y-%m-%d`; fractions of a second are cut off."""
        return self._call(dates.STRFTIME, options=(format,))
