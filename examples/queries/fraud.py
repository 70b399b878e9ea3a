"""Fraud: cards that are tried out, and accounts that belong to one person."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

payments = dbsp.table(
    "payments",
    {"id": dbsp.INT64, "card": dbsp.STRING, "shop": dbsp.STRING, "ts": dbsp.TIMESTAMP, "cents": dbsp.INT64},
    primary_key="id",
)
accounts = dbsp.table(
    "accounts", {"account": dbsp.INT64, "phone": dbsp.STRING, "device": dbsp.STRING}, primary_key="account"
)


@query("""
    select s.card, s.id as small, l.id as large, l.cents
    from payments s join payments l
      on s.card = l.card and s.shop <> l.shop and l.ts between s.ts and s.ts + interval 10 minutes
    where s.cents < 100 and l.cents >= 10000
""")
def card_testing() -> dbsp.Stream:
    """Which cards paid less than a euro somewhere, and within ten minutes over a hundred elsewhere?"""
    small = payments.filter(col("cents") < 100)
    large = payments.filter(col("cents") >= 10_000)
    pairs = small.interval_join(
        large, on="ts", by="card", lower=dbsp.minutes(0), upper=dbsp.minutes(10), where=col("shop") != col("shop_right")
    )
    return pairs.select("card", small="id", large="id_right", cents="cents_right")


@query("""
    with recursive
      links as (
        select a.account as a, b.account as b
        from accounts a join accounts b on a.phone = b.phone or a.device = b.device),
      known(account, person) as (
        select account, account from accounts
        union
        select links.a, known.person from links join known on links.b = known.account)
    select account, min(person) as person from known group by account
""")
def same_person() -> dbsp.Stream:
    """Which accounts are one person's: linked by a phone or a device, also over others?

    A person is named by the least account. When the account that links two groups goes, they part again.
    """

    def sharing(column: str) -> dbsp.Stream:
        return accounts.join(accounts, on=column).select(a="account", b="account_right")

    links = sharing("phone").union(sharing("device"), distinct=True)
    themselves = accounts.select("account", person="account")

    def body(known: dbsp.Stream) -> dbsp.Stream:
        told = links.join(known, on={"b": "account"}).select(account="a", person="person")
        return themselves.union(told).group_by("account").aggregate(person=dbsp.min("person"))

    persons: dbsp.Stream = dbsp.recursive({"known": {"account": dbsp.INT64, "person": dbsp.INT64}}, body)["known"]
    return persons
