"""Where tasks run: an RDD of one empty partition per worker, each with the host its layout names.

The place comes from the layout, never from where something happens to be cached: after a lost executor, cached blocks
would pull every later step to the wrong host. It stays a hint to Spark; no answer depends on it. A task that finds itself on
another host than its worker's ends at once, and Spark runs it again.
"""

from __future__ import annotations

import pickle
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.core.rdd import RDD

from dbsp.errors import UnavailableError
from dbsp.hosts import is_here

T = TypeVar("T")
_NOTHING = pickle.dumps([])


def ground_rdd(context: SparkContext, hosts: Sequence[str]) -> RDD[int]:
    """An RDD whose partition i is empty and prefers `hosts[i]`; an empty name means anywhere."""
    if not any(hosts):
        return context.parallelize([], len(hosts))
    return RDD(_placed(context, hosts, 1), context)


def seated(arrived: RDD[T], hosts: Sequence[str], senders: int) -> RDD[T]:
    """What arrives behind a shuffle, partition i at `hosts[i]`: Spark would put it anywhere.

    **Shape** each of the `senders` has sent exactly one record to each partition, which Spark then holds as one block each.

    Each block is paired with an element of an RDD that has places, and let go of it again: nothing is copied, and the pair's task
    runs where that RDD's partition wants to be.
    """
    if not any(hosts):
        return arrived
    context: Any = arrived.context
    pairs = _placed(context, hosts, senders).zip(arrived._jrdd)
    return RDD(context._jvm.PythonRDD.valueOfPair(pairs), context, arrived._jrdd_deserializer)


def _placed(context: SparkContext, hosts: Sequence[str], elements: int) -> Any:
    """A Java RDD of so many elements in each partition, of which partition i prefers `hosts[i]`."""
    jvm: Any = context._jvm
    wanted = jvm.java.util.HashMap()
    for index, host in enumerate(hosts):
        wanted.put(index, _sequence(context, _names(jvm, host)))
    nothing = jvm.java.util.Collections.nCopies(elements * len(hosts), bytearray(_NOTHING))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    scala = jvm.scala.jdk.javaapi.CollectionConverters
    placed = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
        context._jsc.sc(), _sequence(context, nothing), len(hosts), scala.asScala(wanted), tag
    )
    return jvm.org.apache.spark.api.java.JavaRDD.fromRDD(placed, tag)


def refuse_elsewhere(host: str, worker: int) -> None:
    """End a task that Spark has put on another host than its worker's: Spark runs it again.

    **Errors** `UnavailableError`, for Spark to see; who waits for the job is told when it has failed too often.
    """
    if host and not is_here(host):
        raise UnavailableError(
            f"a worker's host had no executor for its task: worker={worker} host={host} task_was_at={socket.gethostname()}",
            "see that the host and Spark's worker on it run; if they do, name the host in [layout] as Spark names it",
        )


def drain(records: Iterable[int]) -> None:
    """Read an empty partition to its end: a Python worker whose input was not read is not used again."""
    deque(records, maxlen=0)


def _names(jvm: Any, host: str) -> Any:
    """A Java list of the host, or of nothing if there is none."""
    return jvm.java.util.Collections.singletonList(host) if host else jvm.java.util.Collections.emptyList()


def _sequence(context: SparkContext, items: Any) -> Any:
    """A Scala immutable sequence of the items of a Java list."""
    jvm: Any = context._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def live_hosts(context: SparkContext) -> set[str]:
    """The hosts that have an executor now; in `local[N]` the driver is the executor."""
    status = context._jsc.sc().getExecutorMemoryStatus()
    hosts = [name.rpartition(":")[0] for name in str(status.keySet().mkString(" ")).split()]
    if not str(context.master).startswith("local["):
        hosts.remove(context.getConf().get("spark.driver.host", hosts[0]) or hosts[0])
    return set(hosts)
