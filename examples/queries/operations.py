"""Operations: what did not happen in time, how long machines stood, and what a log says."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

tickets = dbsp.table("tickets", {"id": dbsp.INT64, "queue": dbsp.STRING, "ts": dbsp.TIMESTAMP}, primary_key="id")
replies = dbsp.table("replies", {"ticket": dbsp.INT64, "ts": dbsp.TIMESTAMP})
states = dbsp.table(
    "states",
    {"machine": dbsp.STRING, "ts": dbsp.TIMESTAMP, "state": dbsp.STRING},
    primary_key=["machine", "ts"],
)
logins = dbsp.table("logins", {"member": dbsp.STRING, "day": dbsp.DATE})
rules = dbsp.table("rules", {"prefix": dbsp.STRING, "owner": dbsp.STRING}, primary_key="prefix")
requests = dbsp.table("requests", {"path": dbsp.STRING})
lines = dbsp.table("lines", {"line": dbsp.STRING})
members = dbsp.table("members", {"id": dbsp.INT64, "mail": dbsp.STRING, "age": dbsp.INT64})


@query("""
    select id, queue, ts + interval 1 hour as due from tickets t
    where ts + interval 1 hour < now()
      and not exists (from replies r where r.ticket = t.id and r.ts between t.ts and t.ts + interval 1 hour)
""")
def unanswered() -> dbsp.Stream:
    """Which tickets had no reply within the hour? They come when the hour is over, without any event."""
    due = col("ts") + dbsp.hours(1)
    overdue = tickets.filter(due < dbsp.now())
    silent = overdue.interval_join(
        replies, on="ts", by={"id": "ticket"}, lower=dbsp.hours(0), upper=dbsp.hours(1), how="anti"
    )
    return silent.select("id", "queue", due=due)


@query("""
    with ends as (select *, lead(ts) over (partition by machine order by ts) as until from states)
    select machine, count(*) as times, to_microseconds(sum(epoch_us(until) - epoch_us(ts))::bigint) as lasted
    from ends where state = 'down' and until is not null group by machine
""")
def downtime() -> dbsp.Stream:
    """How often and how long was each machine down, up to the last that is known of it?"""
    ends = states.window(partition_by="machine", order_by="ts").with_columns(until=dbsp.lead("ts"))
    down = ends.filter((col("state") == "down") & col("until").is_not_null())
    return down.group_by("machine").aggregate(times=dbsp.count(), lasted=dbsp.sum(col("until") - col("ts")))


@query("""
    with
      marked as (
        select *, state is distinct from lag(state) over (partition by machine order by ts) as begins from states),
      numbered as (
        select *, count(*) filter (begins) over (partition by machine order by ts rows unbounded preceding) as spell
        from marked)
    select machine, state, min(ts) as first, max(ts) as last, count(*) as reports
    from numbered group by machine, state, spell
""")
def spells() -> dbsp.Stream:
    """From when to when did a machine report the same state? (Gaps and islands: changes are counted up.)"""
    before = states.window("machine", "ts").with_columns(before=dbsp.lag("state"))
    begins = dbsp.when(col("state").is_distinct_from(col("before")), 1).otherwise(0)
    marked = before.with_columns(begins=begins).window("machine", "ts")
    numbered = marked.with_columns(spell=dbsp.rolling(dbsp.sum("begins"), rows=(None, 0)))
    found = numbered.group_by("machine", "state", "spell")
    return found.aggregate(first=dbsp.min("ts"), last=dbsp.max("ts"), reports=dbsp.count()).drop("spell")


@query("""
    with paths as (select path, count(*) as requests from requests group by path)
    select path, requests, prefix, owner from paths join rules on starts_with(path, prefix)
    qualify row_number() over (partition by path order by length(prefix) desc) = 1
""")
def owners() -> dbsp.Stream:
    """Whose is a path, by the longest prefix that has a rule?"""
    paths = requests.group_by("path").aggregate(requests=dbsp.count())
    ruled = paths.cross_join(rules, where=col("path").starts_with(col("prefix")))
    return ruled.limit(1, by=dbsp.desc(col("prefix").length()), partition_by="path")


@query("""
    with numbered as (
      select *, row_number() over (partition by member order by day) as n from (select distinct * from logins))
    select member, min(day) as first, max(day) as last, count(*) as days
    from numbered group by member, day - n::integer having count(*) > 1
""")
def streaks() -> dbsp.Stream:
    """On which days in a row did a member log in? (Gaps and islands: days less their number agree within an island.)"""
    numbered = logins.distinct().with_row_number("n", order_by="day", partition_by="member")
    islands = numbered.group_by("member", island=col("day") - col("n") * dbsp.days(1))
    days = islands.aggregate(first=dbsp.min("day"), last=dbsp.max("day"), days=dbsp.count())
    return days.filter(col("days") > 1).drop("island")


@query(r"""
    with parsed as (
      select regexp_extract(line, '^(\S+)', 1) as host, regexp_extract(line, '"\w+ ([^ ?]+)', 1) as path,
             try_cast(regexp_extract(line, '" (\d{3}) ', 1) as bigint) as status
      from lines)
    select path, count(*) as hits, count(*) filter (status >= 500) as failed, count(distinct host) as hosts
    from parsed where status is not null group by path
""")
def failing_paths() -> dbsp.Stream:
    """Which paths of a web server fail how often, from its log as it is, with lines that are none?"""
    parsed = lines.select(
        host=col("line").regexp_extract(r"^(\S+)", 1),
        path=col("line").regexp_extract(r'"\w+ ([^ ?]+)', 1),
        status=col("line").regexp_extract(r'" (\d{3}) ', 1).try_cast(dbsp.INT64),
    )
    return (
        parsed.filter(col("status").is_not_null())
        .group_by("path")
        .aggregate(
            hits=dbsp.count(), failed=dbsp.count().where(col("status") >= 500), hosts=dbsp.count_distinct("host")
        )
    )


@query("""
    select 'no id' as problem, count(*) filter (where id is null) as times from members
    union all select 'id twice', count(id) - count(distinct id) from members
    union all select 'not a mail', count(*) filter (where not regexp_matches(mail, '^[^@]+@[^@]+[.][a-z]+$')) from members
    union all select 'age', count(*) filter (where age not between 0 and 120) from members
""")
def data_problems() -> dbsp.Stream:
    """How often is something wrong with the rows, by kind of problem, kinds that do not occur too?"""
    counts = members.aggregate(
        **{
            "no id": dbsp.count().where(col("id").is_null()),
            "ids": dbsp.count("id"),
            "different": dbsp.count_distinct("id"),
            "not a mail": dbsp.count().where(~col("mail").regexp_match("^[^@]+@[^@]+[.][a-z]+$")),
            "age": dbsp.count().where(~col("age").between(0, 120)),
        }
    )
    wide = counts.with_columns(**{"id twice": col("ids") - col("different")}).drop("ids", "different")
    return wide.unpivot(list(wide.columns), name="problem", value="times")
