"""A Java virtual machine with Kafka's classes, reached by py4j: one a test process, ended with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.scenarios.apache_kafka import JARS, check
from tests.scenarios.drivers.base import Refused

_OPTIONS = [
    "-Xmx512m", "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
]  # fmt: skip


@cache
def java() -> Any:
    """The gateway's `jvm`. Raises KafkaMissing if Java or Kafka's jars are not there."""
    check()
    [bridge] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{JARS}/*", javaopts=_OPTIONS, die_on_exit=True)
    parameters = GatewayParameters(port=port, auto_convert=True)
    return JavaGateway(gateway_parameters=parameters).jvm


def refused(error: Py4JJavaError) -> Refused:
    """Kafka's name of the error at the bottom of a Java exception, or the class of an unnamed one."""
    thrown = error.java_exception
    errors, api = java().org.apache.kafka.common.protocol.Errors, "org.apache.kafka.common.errors."
    while thrown.getCause() is not None and not _named(errors, thrown):
        thrown = thrown.getCause()
    kind = str(thrown.getClass().getName())
    name = str(errors.forException(thrown).name()) if _named(errors, thrown) else kind.removeprefix(api)
    return Refused(name, str(thrown.toString()))


def _named(errors: Any, thrown: Any) -> bool:
    return str(errors.forException(thrown).name()) != "UNKNOWN_SERVER_ERROR"


class Calls:
    """Turns Java's exceptions into Refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Py4JJavaError):
            raise refused(error) from error


calls = Calls()


def properties(config: dict[str, Any]) -> Any:
    """A java.util.Properties."""
    made = java().java.util.Properties()
    for name, value in config.items():
        made.put(name, str(value).lower() if isinstance(value, bool) else str(value))
    return made


def millis(seconds: float) -> Any:
    """A java.time.Duration."""
    return java().java.time.Duration.ofMillis(int(seconds * 1000))


def future(one: Any, seconds: float) -> Any:
    """Wait for a Java future. Raises Refused."""
    with calls:
        return one.get(int(seconds * 1000), java().java.util.concurrent.TimeUnit.MILLISECONDS)


def java_map(entries: dict[Any, Any]) -> Any:
    """A java.util.HashMap."""
    made = java().java.util.HashMap()
    for key, value in entries.items():
        made.put(key, value)
    return made


def java_list(entries: Any) -> Any:
    """A java.util.ArrayList."""
    made = java().java.util.ArrayList()
    for one in entries:
        made.add(one)
    return made


def static(kind: str, name: str, argument: object) -> Any:
    """Call a static method that has a namesake of the instances, which hides it from py4j."""
    found = [
        one
        for one in java().java.lang.Class.forName(kind).getMethods()
        if one.getName() == name and one.getParameterCount() == 1
    ]
    return found[0].invoke(None, java_list([argument]).toArray())


def listed(entries: Any) -> list[Any]:
    """A Java collection as a list."""
    return list(java().java.util.ArrayList(entries))


def mapped(entries: Any) -> dict[Any, Any]:
    """A Java map as a dict."""
    return {one: entries.get(one) for one in listed(entries.keySet())}
