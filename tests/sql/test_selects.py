"""SELECTs with one thing each that the random ones do not have, equal to DuckDB's at every step."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pytest

import dbsp
from tests.sql.playing import Life, Row, Step, circuit_with, differences

TABLES = {
    "t": dbsp.table("t", {"id": dbsp.INT64, "k": dbsp.STRING, "a": dbsp.INT64, "b": dbsp.INT64}),
    "u": dbsp.table("u", {"k": dbsp.STRING, "c": dbsp.INT64, "a": dbsp.INT64}),
}

SELECTS = [
    "select * from t join u using (k)",
    "select * from t left join u using (k, a)",
    "select * from t right join u using (k)",
    "select * from t full join u using (k)",
    "select k, t.k as tk, u.k as uk from t full join u using (k)",
    "select t.k, u.k from t right join u on t.k = u.k and t.b > 0",
    "select u.*, t.id from t right join u on t.k = u.k",
    "select z.id, c from t as z left join (t join u using (k)) on z.id = t.id",
    "select t.*, u.* from t join u using (k)",
    "select u.*, t.* from t full join u using (k, a)",
    "select a, k, t.a + u.a as s from t left join u using (k, a) where t.k is not null group by all",
    "select id, k, c from (select id, k from t) as x left join (select k, c from u where c > 0) as y using (k)",
    "select t.id from t join u using (k) join t as z using (k) where z.a = u.c",
    "select * from t semi join u using (k)",
    "select t.id from t anti join u on t.k = u.k and u.c > 1",
    "select t.id, u.c from t, u where t.a < u.c",
    "select t.id, u.c from t cross join u where t.k = u.k or t.a is null",
    "select t.id, x.c, y.c as d from t join u as x on t.k = x.k and t.a > x.c left join u as y on y.k = t.k",
    "select t.id, t.b, u.c from t full join u on t.k = u.k where t.b > 0",
    "select t.id, x.n from t left join u on true left join (select count(*) as n from u) as x on t.b < 0",
    "select a.id, b.id, c.c from t a, t b, u c where a.k = b.k and b.a = c.c and a.id <> b.id",
    "select id from t a where exists (select 1 from t b where b.k = a.k and b.id <> a.id)",
    "select id from t a where not exists (select 1 from t b where b.k = a.k and b.b > a.b)",
    "select id, a in (select c from u) as i, a not in (select c from u where c is not null) as n from t",
    "select id, case when exists (select 1 from u where u.k = t.k) then 1 else 0 end as e from t",
    "select id from t where a = 1 or a not in (select c from u)",
    "select id from t where (a, k) in (select c, k from u)",
    "select id from t where a in (select c from u where u.k = t.k) or b > 1",
    "select id from t where a not in (select c from u where u.k = t.k)",
    "select id, a in (select c from u where u.k = t.k) as m from t",
    "select id from t where a in (select max(c) from u group by k)",
    "select id, (select count(*) from u where u.k = t.k) as n, (select sum(c) from u) as s from t",
    "select id, (select sum(c) + count(*) from u where u.k = t.k and u.c > 0) as n from t",
    "select id from t where b > (select avg(b) from t as i where i.k = t.k)",
    "select k from t group by k having count(*) > (select count(*) from u where u.k = t.k)",
    "select k, count(*) from t group by k having k in (select k from u)",
    "select k, count(*) as n from t group by k having exists (select 1 from u where u.k < t.k)"
    " and not exists (select 1 from u where c > 2)",
    "select k, sum(a) as s, s * 2 as d from t group by k having s > 0",
    "select id, a in (select c from u) as m from t where m",
    "select id, a not in (select c from u where c is not null) as m from t where m or b > 0",
    "select id, (select max(c) from u where u.k = t.k) as m from t where m > 0",
    "select k, a in (select c from u) as m from t group by k, a having m",
    "select a in (select c from u) as m, count(*) as n, count(*) filter (where not m) as f from t group by m",
    "select id, (select count(*) filter (where c in (select a from t)) from u where u.k = t.k) as n from t",
    "select id, (select sum(case when c in (select a from t) then 1 else 0 end) from u where u.k = t.k) as n from t",
    "select id, (select max(c in (select a from t)) from u where u.k = t.k) as n from t",
    "select id from t as p where (a > 0) in (select c in (select a from t) from u where u.k = p.k)",
    "select distinct on (a in (select c from u)) a, id from t order by id, a, k, b",
    "select distinct on (m) id, a in (select c from u) as m from t order by id, m, k, b, a",
    "select distinct on (1) k, id from t order by k, id",
    "select distinct on (sum(b)) k, sum(b) as s from t group by k order by k",
    "select id, row_number() over w as n from t window w as (partition by a in (select c from u) order by id, k, a, b)",
    "select * from t join u on t.k = u.k",
    "select * exclude (a) from t, u where t.k = u.k and t.a = u.a",
    "select k, k_1, c from (select * from (select id, k from t) as x join u on x.k = u.k)",
    "select * from t as x join t as y on x.id = y.id join u on y.k = u.k",
    "select y.*, x.k from t as x join t as y on x.id = y.id and x.k = y.k",
    "select a + 1 as n, n * 2 as m from t where n > 1",
    "select k as kk, count(*) as n from t group by kk",
    "select k, a, sum(b) as s from t group by all",
    "select 3 as c, sum(a) as s from t where a > 100 group by all",
    "select substr('', 1, 1) as c, a % 2 as m, max(k) as s from t group by all",
    "select 'x' as c from t where a > 0 group by all",
    "select a % null as x, a // null as y, null / a as z, null // a as w, -(null) + a as v, pow(null, 2) as p from t",
    "select id from t where (null % 3) is null and (null // 2) is null and cast(null / 2 as bigint) is null and a > 0",
    "select 2 ** 3 as x, 0 ** -1 as y, 10 ** 400 as z, 7 / 2 as h from t",
    "select k, a, count(*) as n, grouping(k, a) as g from t group by cube (k, a)",
    "select k, a, count(*) as n from t group by grouping sets ((k), (a), ())",
    "select k, grouping(k) as g, count(*) as n from t group by rollup (k)",
    "select k, count(*) as n from t group by grouping sets ((k, a), (k))",
    "select 1 as c, count(*) as n from t group by rollup (c)",
    "select 1 as c, 1 as d, true as e, a + 1 as v, count(*) as n from t group by rollup (c, a)",
    "select 'x' as c, k, count(*) as n from t group by cube (1, 2) having count(*) > 0",
    "select upper('x') as c, k, count(*) as n, grouping(c) as g from t group by grouping sets ((c, k), (k), ())",
    "select k, sum(a) as b from t group by k having b > 1",
    "select k, percentile_cont(0.25) within group (order by b desc) as c, percentile_disc(0) within group (order by b desc) as d,"
    " -percentile_disc(0.5) within group (order by -b) as m from t group by k",
    "select id from t where 1.5 in (select c from u) or 1 in (select c from u where u.k = t.k)",
    "select id from t where a in (1.0, 2) or a in (300, null)",
    "select count(*) as n, sum(a) as s, min(k) as m from t where a > 100",
    "select count(distinct a) as n, sum(distinct b) as s, count(*) filter (where b > 0) as f from t",
    "select k, median(b) as m, stddev(b) as s, bool_and(b > 0) as y, string_agg(k, '-') as g from t group by k",
    "select k, arg_max(a, id) as f, first(b order by id) as g, count_if(b > 0) as c from t where id is not null group by k",
    "select k, quantile_cont(b, 0.25) as q, percentile_cont(0.5) within group (order by b) as m from t group by k",
    "select k, max(b) - min(b) as r, sum(b) / count(*) as m from t group by k",
    "select sum(n) as s from (select k, count(*) as n from t group by k)",
    "select distinct k, a from t",
    "select distinct on (k) k, id, b from t order by k, b desc, id",
    "select k, b from t order by a, id limit 2",
    "select k, b from t order by b desc nulls first, k, a limit 3 offset 1",
    "select k, sum(b) as s from t group by k order by s, k limit 2",
    "select id, sum(sum(b)) over (order by id) as s from t group by id",
    "select k, count(*) as n, rank() over (order by count(*) desc) as r from t group by k",
    "select id, row_number() over w as n, lag(b, 2, 0) over w as l from t window w as (partition by k order by id)",
    "select id, b from t qualify row_number() over (partition by k order by b desc, id) <= 2",
    "select id, sum(b) over (partition by k) as s, max(b) over () as m, b * 100 / sum(b) over (partition by k) > 1 as p from t",
    "select id, sum(b) over (order by id range between 100 preceding and current row) as s from t",
    "select id, avg(b) over (order by id rows between 1 preceding and 1 following) as s from t",
    "select id, first_value(b) over (partition by k order by id) as f from t",
    "select id, last_value(b) over (order by id rows between unbounded preceding and unbounded following) as l from t",
    "select id, sum(b) over (order by a, k) as s, count(*) over (partition by a order by k desc) as n from t",
    "select id, sum(b) over (order by a / 2) as s, max(b) over (order by a::decimal(9, 1) desc nulls first, b) as m from t",
    "select id, count(*) over (order by k, b range between current row and unbounded following) as n,"
    " avg(b) over (partition by a order by k range between current row and current row) as m from t",
    "select id, string_agg(k, '-') over (partition by a order by id) as g from t where id is not null",
    "select id, string_agg(k, '-') over (order by id desc rows between 2 preceding and 1 following) as g from t",
    "select id, group_concat(k) filter (where b > 0) over (order by a nulls first, id desc, k) as g from t",
    "select id, string_agg(k, '-' order by k desc) over (order by id) as g from t",
    "select id, listagg(distinct k, '-') over (order by k) as d from t",
    "select id, string_agg(k, '+') over w as g from t"
    " window w as (partition by a order by b, id rows between unbounded preceding and unbounded following)",
    "select id, array_to_string(array_agg(k) over (order by id range 200 preceding), '-') as g from t where k > ''",
    "select id, array_to_string(list(k) over (partition by a order by b desc, id), '-') as g from t where k is not null",
    "select k, string_agg(k, '-') over (order by count(*), k desc) as g from t group by k",
    "select id, ntile(2) over (order by id) as n, percent_rank() over (order by a) as p from t",
    "select id, array_agg(a) over (partition by k order by id desc, a, b rows between unbounded preceding and current row)"
    " as l from t",
    "select id, string_agg(k, '-') over w as s, string_agg(k, '') filter (where a > 0) over w as f,"
    " array_agg(distinct b order by b) over w as d from t window w as"
    " (order by b desc, id, k, a rows between 1 preceding and 2 following)",
    "with g as (select k, sum(b) as s from t group by k), h as (select max(s) as m from g) select k from g, h where s = m",
    "with t as (select k, c as a from u) select * from t",
    "with recursive r as (select a as x from t union select x + 1 from r where x < 4) select x from r",
    "with recursive r(x, y) as (select a, c from u union select r.x, u.c from r join u on r.y = u.a) select * from r",
    "(select k from t union select k from u) except select k from t where a = 1",
    "select k, a from t intersect all select k, c from u",
    "select k, a from t except all select k, c from u",
    "(select a from t order by a, id limit 2) union all (select c from u)",
    "select a as x from t union all select c from u order by x limit 3",
    "select * exclude (id, b) replace (a + 1 as a) from t",
    "select id, unnest(generate_series(1, a)) as n from t where a is not null",
    "select id, x.n from t, unnest(generate_series(0, a)) as x(n)",
    "select id, n, o from t, unnest(generate_series(0, a)) with ordinality as x(n, o)",
    "select id, n, x.ordinality from t, unnest(generate_series(0, a)) with ordinality as x(n)",
    "select id, x.range, y.y from t, range(a) as x, unnest([1, null]) as y where x.range < 2",
    "select id, n from t left join unnest(range(a, 0, -1)) as x(n) on true",
    "select * from t, range(2) with ordinality as x(n, o)",
    "select t.id, x.n from t join range(a) as x(n) on x.n > 0 and x.n < t.b",
    "select a.id, b.id, x.n from t as a, t as b, range(a.a) as x(n) where a.id = b.id",
    "select r.*, range.range from range(2) as r, range(3)",
    "select * from (range(3) as a(n) join range(2) as b(m) on a.n = b.m)",
    "with recursive t(a) as (select 1 union select t.a + v.x from t join (values (1)) as v(x) on t.a < 3) select a from t",
    "select n from range(3, 0) as x(n) union all select n from range(3, 0, -1) as x(n) union all select * from range(0)",
    "select 1 as one, 'x' as k, date '2024-01-31' + interval 1 month as d",
    "select count(*) as n, sum(1) as s, (select max(a) from t) as m where 1 < 2",
    "select 2 as a where false union all select 1.5 union all (values (3), (3))",
    "values (1, 'a', 1.5, null), (null, null, 2, date '2024-01-31'), (2, '', 0.25, null)",
    "values (3), (1), (2), (1) order by 1 desc limit 2",
    "select t.*, name from t left join (values ('x', 'one'), ('y', 'two'), ('x', 'three')) as v(k, name) using (k)",
    "select v.a, count(t.id) as n from (values (0), (1), (7), (null)) as v(a) left join t on t.a = v.a group by 1",
    "select id from t where a in (values (0), (1)) and b not in (select * from (values (2), (3)))",
    "select id, a in (values (0), (null)) as m, a + (select 3) as s, (values (7)) as v, exists (select 1) as e from t",
    "with v(k) as (values ('x'), ('w')) select k from v except select k from t",
    "with recursive r(x) as (select 0 union select x + d from r join (values (1), (2)) as s(d) on x + d < 7) select x from r",
    "with recursive t(a) as (values (1) union select a + 1 from t where a < 4) select a from t",
    "select a.n, b.n from range(3) as a(n), generate_series(2, 0, -1) as b(n) where a.n < b.n",
    "select row_number() over (order by n) as r, n from (values (2), (1), (1)) as v(n)",
    "select id, [1, 2, 3][2] as e, ['x', null] as m, [date '2024-01-31'] as d, len([1, 2]) as n, list_sort([2, 1]) as s,"
    " list_contains([1, 2], 2) as c from t",
    "select id, list_filter([a, b, null], lambda x: x > id % 3) as f, list_transform([a, b], lambda x, i: x * i + a) as m from t",
    "select id, list_filter([[a], [b, null], null], lambda l: len(list_filter(l, lambda x: x > a)) > 0) as f from t",
    "select id, list_transform(case when a > 0 then [[a, null], null, [b]] end, lambda l: len(list_filter(l, lambda x:"
    " x is null))) as n from t",
    "select id, list_filter([a, b], lambda x: false) as e,"
    " list_transform(list_filter([a], lambda x: x > 1), lambda x: {'x': x, 'k': k}) as s from t",
    "select list_filter([a, b], lambda x: x > 0) as l, count(*) as n, list_transform(l, lambda x: x + 1) as m from t group by l",
    "select a, list_transform(list_sort(array_agg(b)), lambda x, i: x * i + a) as m from t group by a",
    "select j.id, x from (select * from t join u using (k)) as j, unnest(list_transform([b, c], lambda y: y * c)) as v(x)"
    " where len(list_filter([b, c], lambda y: y > 0)) > 1",
    "select id from t where k like 'x%' and not (a = 1 and b > 0)",
    "select id from t where (a > 0) is not true",
    "select concat(k, cast(null as bigint), '-') as c, concat_ws('-', k, null, cast(null as date), a) as w from t",
    "select s.v.x as x from (select {'x': a, 'y': k} as v from t) as s",
    "select T.ID as Id, K from T",
]


@pytest.mark.parametrize("text", SELECTS)
def test_a_select_equals_duckdb_at_every_step(text: str, oracle: duckdb.DuckDBPyConnection) -> None:
    circuit = circuit_with({"v": dbsp.sql(text, **TABLES)}, TABLES["t"])
    for seed in (1, 2, 3):
        for ours, theirs in differences(circuit, text, Life(life(Random(seed)), workers=seed), oracle):
            assert ours == theirs


def life(chance: Random) -> tuple[Step, ...]:
    """What comes and goes in each step; only what is there goes."""
    held: dict[str, list[Row]] = {name: [] for name in TABLES}
    found = []
    for _ in range(4):
        changes = []
        for _ in range(chance.randrange(1, 9)):
            table = chance.choice("tu")
            goes = bool(held[table]) and chance.random() < 0.35
            row = held[table].pop(chance.randrange(len(held[table]))) if goes else a_row(chance, table)
            if not goes:
                held[table].append(row)
            changes.append((table, row, not goes))
        found.append(Step(tuple(changes)))
    return tuple(found)


def a_row(chance: Random, table: str) -> Row:
    """A row, whose `id` is one of its own in `t`."""

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.25 else value

    k, small = maybe(chance.choice("xyz")), maybe(chance.randrange(3))
    if table == "u":
        return k, small, maybe(chance.randrange(3))
    return chance.randrange(1000), k, small, maybe(chance.randrange(-3, 4))
