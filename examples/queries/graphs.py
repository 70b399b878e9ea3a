"""Graphs: who may see what, where a parcel goes next, who works for whom, and how much a page counts."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

grants = dbsp.table("grants", {"object": dbsp.STRING, "relation": dbsp.STRING, "subject": dbsp.STRING})
roads = dbsp.table("roads", {"a": dbsp.STRING, "b": dbsp.STRING, "km": dbsp.INT64})
friends = dbsp.table("friends", {"a": dbsp.INT64, "b": dbsp.INT64})
staff = dbsp.table("staff", {"id": dbsp.INT64, "boss": dbsp.INT64, "pay": dbsp.INT64}, primary_key="id")
links = dbsp.table("links", {"source": dbsp.STRING, "target": dbsp.STRING})
ROUNDS = 2


@query("""
    with recursive may as (
      select * from grants where relation <> 'parent'
      union (
        select may.object, may.relation, g.subject
        from may join grants g on g.object = may.subject and g.relation = 'member'
        union
        select object, 'viewer', subject from may where relation = 'editor'
        union
        select g.object, may.relation, may.subject
        from may join grants g on g.subject = may.object and g.relation = 'parent' where may.relation <> 'member'))
    select distinct object, subject from may where relation = 'viewer' and subject like 'user:%'
""")
def viewers() -> dbsp.Stream:
    """Who may view what, if groups hold groups, editors may view, and what holds for a folder holds for what is in it?"""
    members = grants.filter(col("relation") == "member").select(group="object", who="subject")
    inside = grants.filter(col("relation") == "parent").select(inner="object", outer="subject")

    def follows(may: dbsp.Stream) -> dbsp.Stream:
        through_group = may.join(members, on={"subject": "group"}).select("object", "relation", subject="who")
        editors = may.filter(col("relation") == "editor").with_columns(relation=dbsp.lit("viewer"))
        above = may.filter(col("relation") != "member")
        from_folder = above.join(inside, on={"object": "outer"}).select("relation", "subject", object="inner")
        return through_group.union(editors, from_folder)

    may = dbsp.recursive(grants.filter(col("relation") != "parent"), follows)
    seen = may.filter((col("relation") == "viewer") & col("subject").starts_with("user:"))
    found: dbsp.Stream = seen.select("object", "subject").distinct()
    return found


@query("""
    with recursive ways as (
      select a, b, km, b as via, a || '>' || b as path from roads where a <> b
      union
      select w.a, r.b, w.km + r.km, w.via, w.path || '>' || r.b
      from ways w join roads r on w.b = r.a where not contains(w.path, r.b))
    select a, b, min(km) as km, arg_min(via, (km, via)) as via from ways group by a, b
""")
def next_stops() -> dbsp.Stream:
    """How far is it from everywhere to everywhere, and where does one go first?

    The recursion finds the distances; the first stop is then that of the road with the least left behind it.
    """
    real = roads.filter(col("a") != col("b"))

    def nearest(distances: dbsp.Stream) -> dbsp.Stream:
        further = distances.join(real, on={"b": "a"}).select("a", b="b_right", km=col("km") + col("km_right"))
        away = further.filter(col("a") != col("b"))
        return real.union(away).group_by("a", "b").aggregate(km=dbsp.min("km"))

    columns = {"a": dbsp.STRING, "b": dbsp.STRING, "km": dbsp.INT64}
    distances: dbsp.Stream = dbsp.recursive({"distances": columns}, nearest)["distances"]
    onward = real.join(distances.rename({"a": "stop"}), on={"b": "stop"})
    firsts = onward.select("a", via="b", b="b_right", km=col("km") + col("km_right")).filter(col("a") != col("b"))
    every = real.with_columns(via=col("b")).union(firsts)
    return every.group_by("a", "b").aggregate(km=dbsp.min("km"), via=dbsp.arg_min("via", by="km"))


@query("""
    with pairs as (select distinct least(a, b) as x, greatest(a, b) as y from friends where a <> b)
    select count(*) as triangles from pairs p join pairs q on p.y = q.x join pairs r on p.x = r.x and q.y = r.y
""")
def triangles() -> dbsp.Stream:
    """In how many triples does everyone know everyone?"""
    real = friends.filter(col("a") != col("b"))
    pairs = real.select(x=dbsp.least(col("a"), col("b")), y=dbsp.greatest(col("a"), col("b"))).distinct()
    paths = pairs.join(pairs.select(y="x", z="y"), on="y")
    return paths.join(pairs.select("x", z="y"), on=["x", "z"]).aggregate(triangles=dbsp.count())


@query("""
    with recursive above as (
      select id, boss from staff where boss is not null
      union select above.id, staff.boss from above join staff on staff.id = above.boss where staff.boss is not null)
    select a.boss, count(*) as people, sum(s.pay)::bigint as pay from above a join staff s on s.id = a.id group by a.boss
""")
def headcount() -> dbsp.Stream:
    """How many people work for whom, over all levels (even where the reports go round in a ring), and for how much?"""
    direct = staff.filter(col("boss").is_not_null()).select("id", "boss")

    def higher(above: dbsp.Stream) -> dbsp.Stream:
        return above.join(direct.select(boss="id", over="boss"), on="boss").select("id", boss="over")

    above: dbsp.Stream = dbsp.recursive(direct, higher)
    return above.join(staff.drop("boss"), on="id").group_by("boss").aggregate(people=dbsp.count(), pay=dbsp.sum("pay"))


@query("""
    with
      edges as (select distinct * from links where source is not null and target is not null),
      shares as (select *, count(*) over (partition by source) as parts from edges),
      pages as (select source as page from edges union select target from edges),
      first as (
        select page, 0.15 + 0.85 * coalesce((select sum(1 / parts) from shares where target = page), 0)::double as rank
        from pages),
      second as (
        select page, 0.15 + 0.85 * coalesce((
          select sum(first.rank / parts) from shares join first on first.page = source where target = p.page), 0)::double as rank
        from pages p)
    select * from second
""")
def page_ranks() -> dbsp.Stream:
    """How much does each page count after two rounds of PageRank? (Each round is a join and a group-by.)"""
    edges = links.filter(col("source").is_not_null() & col("target").is_not_null()).distinct()
    pages = edges.select(page="source").union(edges.select(page="target"), distinct=True)
    shares = edges.join(edges.group_by("source").aggregate(parts=dbsp.count()), on="source")
    ranks = pages.with_columns(rank=dbsp.lit(1.0))
    for _ in range(ROUNDS):
        given = shares.join(ranks, on={"source": "page"}).group_by(page=col("target"))
        sums = given.aggregate(sum=dbsp.sum(col("rank") / col("parts")))
        ranks = pages.join(sums, on="page", how="left").select("page", rank=0.15 + 0.85 * col("sum").fill_null(0.0))
    return ranks
