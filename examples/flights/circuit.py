"""The questions asked of the flights, as a circuit: five views over five tables that change.

Every mean of whole numbers is one division of an exact sum; the mean temperature is a sum of floats that has seen hundreds
of thousands of retractions, and is still the correctly rounded sum of what remains.

The columns of the tables are those of the data set's files, and a number `id` that makes a flight a row of its own.
"""

from __future__ import annotations

import dbsp
from dbsp import FLOAT64, INT16, INT32, STRING, TIMESTAMP, avg, col, count, count_distinct, desc, when
from dbsp import max as greatest

YEAR = 2013
FLIGHTS_MIN = 100

flights = dbsp.table(
    "flights",
    {
        "id": INT32, "year": INT16, "month": INT16, "day": INT16, "dep_time": INT16, "sched_dep_time": INT16,
        "dep_delay": INT16, "arr_time": INT16, "sched_arr_time": INT16, "arr_delay": INT16, "carrier": STRING,
        "flight": INT32, "tailnum": STRING, "origin": STRING, "dest": STRING, "air_time": INT16, "distance": INT32,
        "hour": INT16, "minute": INT16, "time_hour": TIMESTAMP,
    },
    primary_key="id",
)  # fmt: skip
airlines = dbsp.table("airlines", {"carrier": STRING, "name": STRING}, primary_key="carrier")
airports = dbsp.table(
    "airports",
    {
        "faa": STRING, "name": STRING, "lat": FLOAT64, "lon": FLOAT64, "alt": INT32, "tz": INT16, "dst": STRING,
        "tzone": STRING,
    },
    primary_key="faa",
)  # fmt: skip
planes = dbsp.table(
    "planes",
    {
        "tailnum": STRING, "year": INT16, "type": STRING, "manufacturer": STRING, "model": STRING, "engines": INT16,
        "seats": INT16, "speed": INT16, "engine": STRING,
    },
    primary_key="tailnum",
)  # fmt: skip
# Of the hour that came twice when summer time ended both observations are there: local time is no key, UTC is.
weather = dbsp.table(
    "weather",
    {
        "origin": STRING, "year": INT16, "month": INT16, "day": INT16, "hour": INT16, "temp": FLOAT64,
        "dewp": FLOAT64, "humid": FLOAT64, "wind_dir": INT16, "wind_speed": FLOAT64, "wind_gust": FLOAT64,
        "precip": FLOAT64, "pressure": FLOAT64, "visib": FLOAT64, "time_hour": TIMESTAMP,
    },
    primary_key=("origin", "time_hour"),
)  # fmt: skip

departed = flights.filter(col("dep_delay").is_not_null())
arrived = flights.filter(col("arr_delay").is_not_null())

# Average and worst departure delay per airline.
delay_by_airline = (
    departed.select("carrier", "dep_delay")
    .join(airlines, on="carrier")
    .group_by("name")
    .aggregate(flights=count(), mean_delay=avg("dep_delay"), worst_delay=greatest("dep_delay"))
)

# The ten routes with the worst mean arrival delay, of those flown often enough, to airports that the list has.
worst_routes = (
    arrived.select("origin", "dest", "arr_delay")
    .group_by("origin", "dest")
    .aggregate(flights=count(), mean_delay=avg("arr_delay"))
    .filter(col("flights") >= FLIGHTS_MIN)
    .join(airports.select(dest=col("faa"), city=col("name")), on="dest")
    .top_k(10, by=desc("mean_delay"))
)

# Departure delay by the weather at the origin in the scheduled hour.
bands = weather.select(
    "origin",
    "time_hour",
    "temp",
    visibility=when(col("visib") < 1.0, "under 1 mile").when(col("visib") < 5.0, "1 to 5 miles").otherwise("clear"),
    wind=when(col("wind_speed").is_null(), "unknown")
    .when(col("wind_speed") < 10.0, "light")
    .when(col("wind_speed") < 20.0, "fresh")
    .otherwise("strong"),
    rain=when(col("precip") == 0.0, "none").when(col("precip") < 0.1, "some").otherwise("heavy"),
)
delay_by_weather = (
    departed.select("origin", "time_hour", "dep_delay")
    .join(bands, on=["origin", "time_hour"])
    .group_by("visibility", "wind", "rain")
    .aggregate(flights=count(), mean_delay=avg("dep_delay"), mean_temp=avg("temp"))
)

# Flights per plane model and the plane's age.
flights_by_model = (
    departed.select("tailnum")
    .join(planes.select("tailnum", "manufacturer", "model", age=YEAR - col("year")), on="tailnum")
    .group_by("manufacturer", "model", "age")
    .aggregate(flights=count(), planes=count_distinct("tailnum"))
)

# How many different planes and destinations each airline has.
fleet = (
    departed.select("carrier", "tailnum", "dest")
    .join(airlines, on="carrier")
    .group_by("name")
    .aggregate(planes=count_distinct("tailnum"), destinations=count_distinct("dest"))
)

circuit = dbsp.circuit(
    "flights",
    {
        "delay_by_airline": delay_by_airline,
        "worst_routes": worst_routes,
        "delay_by_weather": delay_by_weather,
        "flights_by_model": flights_by_model,
        "fleet": fleet,
    },
)
