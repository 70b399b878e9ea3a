"""Where tasks run: an RDD of one empty partition per worker, each with the host its layout names.

The place comes from the layout, never from where something happens to be cached: after a lost executor, cached blocks
would pull every later step to the wrong host. It stays a hint to Spark; no answer depends on it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import RDD

_NOTHING = pickle.dumps([])


def ground_rdd(context: SparkContext, hosts: Sequence[str]) -> RDD[int]:
    """An RDD whose partition i is empty and prefers `hosts[i]`; an empty name means anywhere."""
    if not any(hosts):
        return context.parallelize([], len(hosts))
    jvm: Any = context._jvm
    places = [jvm.scala.Tuple2(bytearray(_NOTHING), _sequence(context, [host] if host else [])) for host in hosts]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    placed = context._jsc.sc().makeRDD(_sequence(context, places), tag)
    java = jvm.org.apache.spark.api.java.JavaRDD.fromRDD(placed, tag)
    return RDD(java, context)


def drain(records: Iterable[int]) -> None:
    """Read an empty partition to its end: a Python worker whose input was not read is not used again."""
    deque(records, maxlen=0)


def _sequence(context: SparkContext, items: list[object]) -> Any:
    """A Scala immutable sequence of the items."""
    jvm: Any = context._jvm
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()


def live_hosts(context: SparkContext) -> set[str]:
    """The hosts that have an executor now; in `local[N]` the driver is the executor."""
    status = context._jsc.sc().getExecutorMemoryStatus()
    hosts = [name.rpartition(":")[0] for name in str(status.keySet().mkString(" ")).split()]
    if not str(context.master).startswith("local["):
        hosts.remove(context.getConf().get("spark.driver.host", hosts[0]) or hosts[0])
    return set(hosts)
