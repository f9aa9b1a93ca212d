"""Each thing that can be wrong with a session is found, and nothing is found where nothing is wrong."""

import re
from dataclasses import replace
from typing import Any

import pytest

from eoslog.doctor.facts import Facts, Python
from eoslog.doctor.rules import DAEMON, LIGHT, MANAGER, Weight, findings_of

FAILS, SLOW, KNOW = Weight

VERSIONS = {
    "python": "3.11.7", "pyspark": "4.3.0", "eoslog": "0.1.0", "pyarrow": "21.0.0", "numpy": "2.3.0",
    "google-crc32c": "1.7.1",
}  # fmt: skip
OLDER = {**VERSIONS, "pyspark": "3.5.0"}
WELL = Facts(
    settings={"spark.python.daemon.module": DAEMON, MANAGER: LIGHT},
    here="/here/python",
    versions=VERSIONS,
    pythons=(Python("/there/eoslog-python", "tasks and the sources of streams", VERSIONS),),
    java="/usr/bin/java",
    acknowledges_at_once=True,
)


def with_python(**changed: Any) -> Facts:
    return replace(WELL, pythons=(replace(WELL.pythons[0], **changed),))


def with_versions(**changed: str | None) -> Facts:
    named = {name.replace("_", "-"): version for name, version in changed.items()}
    return with_python(versions={**VERSIONS, **named})


def with_setting(name: str, value: str) -> Facts:
    return replace(WELL, settings={**WELL.settings, name: value})


def test_a_session_that_is_well() -> None:
    assert findings_of(WELL) == []
    assert findings_of(with_versions(python="3.11.2")) == []
    assert findings_of(with_setting("spark.log.level", "info")) == []
    assert findings_of(with_setting("spark.speculation", "false")) == []


@pytest.mark.parametrize(
    ("facts", "weight", "what", "do"),
    [
        (
            with_python(versions={}, wrong="no such command"),
            FAILS,
            "/there/eoslog-python.*no such command",
            "/here/python",
        ),
        (with_versions(pyarrow=None), FAILS, "tasks.*has no pyarrow$", "pip install 'pyarrow>=17'"),
        (
            replace(with_versions(pyspark="3.5.0"), versions=OLDER),
            FAILS,
            "pyspark 3.5.0, which is too old",
            "'pyspark>=4.0'",
        ),
        (
            with_versions(numpy=None, google_crc32c=None),
            FAILS,
            "no numpy, no google-crc32c",
            "'numpy>=1.26' 'google",
        ),
        (with_versions(eoslog=None), FAILS, "has no eoslog", "install eoslog;"),
        (
            with_versions(python="3.12.1"),
            FAILS,
            "this is Python 3.11.7, and .*Python 3.12.1",
            "one environment",
        ),
        (with_versions(eoslog="0.2.0"), FAILS, "this is eoslog 0.1.0, and .*eoslog 0.2.0", "one environment"),
        (replace(WELL, java=None), FAILS, "no java", "JAVA_HOME"),
        (with_setting("spark.python.daemon.module", "my.daemon"), SLOW, "module=my.daemon: Python", "leave"),
        (with_setting("spark.python.use.daemon", "False"), SLOW, "use.daemon=false: Python", "leave"),
        (with_setting("spark.task.cpus", "2"), SLOW, "task.cpus=2: NumPy", "leave"),
        (with_python(has_folder=False), SLOW, "from Spark's zip", "pip install pyspark==4.3.0"),
        (with_python(command="/there/python"), SLOW, "imports everything", "PYTHON to /here/eoslog-python "),
        (with_setting("spark.python.worker.reuse", "false"), SLOW, "worker.reuse=false", "leave"),
        (replace(WELL, acknowledges_at_once=False), SLOW, "QUICKACK", "unix.domain.socket.enabled=true"),
        (with_setting("spark.log.level", "debug"), SLOW, "log.level=DEBUG", "WARN"),
        (with_setting("spark.sql.streaming.checkpointLocation", "/c"), KNOW, "does not reach", "option"),
        (with_setting(MANAGER, ""), KNOW, "local disk.*dozen processes", LIGHT),
        (with_setting("spark.speculation", "true"), KNOW, "speculation=true", "rows stay exactly once"),
    ],
)
def test_one_thing_is_wrong(facts: Facts, weight: Weight, what: str, do: str) -> None:
    (found,) = findings_of(facts)
    assert found.weight is weight
    assert re.search(what, found.what), found
    assert re.search(do, found.do), found


def test_sockets_of_the_session_need_no_acknowledgement() -> None:
    settings = {**WELL.settings, "spark.python.unix.domain.socket.enabled": "true"}
    assert findings_of(replace(WELL, settings=settings, acknowledges_at_once=False)) == []


def test_the_worst_comes_first() -> None:
    facts = replace(with_setting("spark.speculation", "true"), java=None, acknowledges_at_once=False)
    assert [found.weight for found in findings_of(facts)] == [FAILS, SLOW, Weight.KNOW]
    assert str(findings_of(facts)[0]).startswith("fails  no java")
