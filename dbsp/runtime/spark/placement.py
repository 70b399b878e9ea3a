"""The hosts of tasks: an RDD of one empty partition per worker, each with the host that its layout names.

The host is that of the layout, and never that of cached blocks. After a lost executor, cached blocks would pull every
later step to the wrong host. The host is only a hint to Spark, and no result depends on it. A task on another host
than its worker's ends at once, and Spark runs it again.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.core.rdd import RDD

from dbsp.errors import NoRoomError, UnavailableError
from dbsp.hosts import is_here

T = TypeVar("T")
LOOK_S = 0.2
_NOTHING = pickle.dumps([])


def ground_rdd(context: SparkContext, hosts: Sequence[str]) -> RDD[int]:
    """Return an RDD whose partition i is empty and prefers `hosts[i]`; an empty name means any host."""
    if not any(hosts):
        return context.parallelize([], len(hosts))
    return RDD(_placed(context, hosts, 1), context)


def seated(arrived: RDD[T], hosts: Sequence[str], senders: int) -> RDD[T]:
    """Place the records after a shuffle: partition i at `hosts[i]`, because Spark would put it anywhere.

    **Shape** each of the `senders` has sent exactly one record to each partition, which Spark then holds as one block
    each.

    Each block is paired with an element of an RDD that has places, and separated from it again. Nothing is copied,
    and the pair's task runs where that RDD's partition prefers to be.
    """
    if not any(hosts):
        return arrived
    context: Any = arrived.context
    pairs = _placed(context, hosts, senders).zip(arrived._jrdd)
    return RDD(context._jvm.PythonRDD.valueOfPair(pairs), context, arrived._jrdd_deserializer)


def _placed(context: SparkContext, hosts: Sequence[str], elements: int) -> Any:
    """Return a Java RDD of `elements` elements in each partition, of which partition i prefers `hosts[i]`."""
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
    """Raise an error in a task that Spark has placed on another host than its worker's, so that Spark runs it again.

    **Errors** `UnavailableError`; the caller of the job gets it only after too many failures of the task.
    """
    if host and not is_here(host):
        raise UnavailableError(
            f"a worker's host had no executor for its task: worker={worker} host={host} task_was_at={socket.gethostname()}",
            "see that the host and Spark's worker on it run; if they do, name the host in [layout] as Spark names it",
        )


def drain(records: Iterable[int]) -> None:
    """Read an empty partition to its end, because Spark does not reuse a Python worker whose input was not read."""
    deque(records, maxlen=0)


def _names(jvm: Any, host: str) -> Any:
    """Return a Java list of the host, empty if there is none."""
    return jvm.java.util.Collections.singletonList(host) if host else jvm.java.util.Collections.emptyList()


def _sequence(context: SparkContext, items: Any) -> Any:
    """Return a Scala immutable sequence of the items of a Java list."""
    jvm: Any = context._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def await_executors(context: SparkContext, hosts: Sequence[str], limit_s: float) -> None:
    """Wait until this application has an executor, and one on each named host.

    **Errors** `NoRoomError` if it has none after `limit_s`: others have the cores or the memory.
    """
    named, end_s = set(filter(None, hosts)), time.monotonic() + limit_s
    while not ((alive := live_hosts(context)) and named <= alive):
        if time.monotonic() > end_s:
            lacking = f"hosts={sorted(named - alive)}" if named else "executors=0"
            raise NoRoomError(f"the cluster gave this application no executors in {limit_s:g} s: {lacking}")
        time.sleep(LOOK_S)  # polling Spark, which has no call that waits


def running(context: SparkContext) -> Any:
    """Return Spark's own context in the JVM; raise `UnavailableError` once it has stopped."""
    java = context._jsc
    if java is None:
        raise UnavailableError("Spark has stopped")
    return java.sc()


def live_hosts(context: SparkContext) -> set[str]:
    """Return the hosts that have an executor now; in `local[N]` the driver is the executor."""
    status = running(context).getExecutorMemoryStatus()
    hosts = [name.rpartition(":")[0] for name in str(status.keySet().mkString(" ")).split()]
    if not str(context.master).startswith("local["):
        hosts.remove(context.getConf().get("spark.driver.host", hosts[0]) or hosts[0])
    return set(hosts)
