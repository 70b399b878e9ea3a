"""The equalities for each kind of interval join alone: generated circuits meet one too seldom with a long group on a side."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbsp.zset.hashing import narrow_hash
from tests.laws.families.joins import OUTER, near
from tests.laws.relation import base
from tests.laws.test_equalities import compare, storm
from tests.pace import examples


@pytest.mark.parametrize("how", ["inner", *OUTER, "semi", "anti"])
@settings(max_examples=examples(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    keyed=st.booleans(), lower=st.integers(-3, 3), width=st.integers(0, 4), seed=st.integers(0, 2**32),
    workers=st.integers(1, 3), bits=st.sampled_from([None, None, 2]),
)  # fmt: skip
def test_interval_joins_in_storms(
    how: str, keyed: bool, lower: int, width: int, seed: int, workers: int, bits: int | None
) -> None:
    with nullcontext() if bits is None else narrow_hash(bits):
        compare(near(base("t"), base("u"), how, lower, width, keyed), storm(seed, 8), workers)
