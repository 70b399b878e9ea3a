"""Graphs: who may see what, and where a parcel goes next."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

grants = dbsp.table("grants", {"object": dbsp.STRING, "relation": dbsp.STRING, "subject": dbsp.STRING})
roads = dbsp.table("roads", {"a": dbsp.STRING, "b": dbsp.STRING, "km": dbsp.INT64})


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
