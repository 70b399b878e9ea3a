"""End the application of a driver that is cut off: a standalone cluster keeps its executors' cores for it.

The master notices the end of a driver by its connection. When the driver's host has lost its power or its network, no packet
says so, and the executors wait for minutes. The message is the one that a driver sends at its own end. No public interface
of Spark sends it for another application: the master's REST server knows drivers alone, and its page may be anywhere.

Tried with Spark 4.3. Other kinds of masters notice the loss of a driver themselves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from dbsp.errors import UnavailableError


class Application:
    """The application of a Spark context."""

    def __init__(self, context: SparkContext) -> None:
        """Store the context."""
        self._context = context

    @property
    def name(self) -> str:
        """Return the name that the master has given to the application."""
        return str(self._context.applicationId)

    def end_other(self, name: str) -> None:
        """Ask the masters of the standalone cluster to end another application; unknown ones do not matter.

        **Errors** `UnavailableError` if this version of Spark has no such message.
        """
        master = str(self._context.master)
        if name in ("", self.name) or not master.startswith("spark://"):
            return
        try:
            _tell(self._context, master.removeprefix("spark://").split(","), name)
        except Py4JError as error:
            raise UnavailableError(
                f"an application of a driver that is gone could not be ended: application={name} error={error}",
                "kill it on the page of the Spark master, if it holds cores",
            ) from error


def _tell(context: SparkContext, masters: list[str], application: str) -> None:
    """Send the message over new connections: py4j cannot use the context's, because classes in their signatures are missing."""
    jvm: Any = context._jvm
    spark, conf = jvm.org.apache.spark, context._jsc.sc().conf()
    message = getattr(spark.deploy, "DeployMessages$UnregisterApplication")(application)
    nothing, defaults = (_object(jvm.scala, "None"), _object(spark, "SecurityManager"))
    security = spark.SecurityManager(conf, nothing, getattr(defaults, "$lessinit$greater$default$3")())
    calls = spark.rpc.RpcEnv.create("dbsp", conf.get("spark.driver.host"), 0, conf, security, True)
    try:
        for master in masters:
            address = spark.rpc.RpcAddress.fromSparkURL(f"spark://{master}")
            with suppress(Py4JJavaError):  # one of several masters may be away
                calls.setupEndpointRef(address, "Master").send(message)
    finally:
        calls.shutdown()


def _object(package: Any, name: str) -> Any:
    """Return a singleton of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
