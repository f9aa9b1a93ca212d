"""The broker's options: names, defaults, limits, and where their values come from."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eoslog.broker.config import BrokerConfig, ConfigError, option_sections, option_table
from eoslog.broker.config.config_def import rule_of
from eoslog.broker.config.kafka_options import COPIES, TABLE, foreign, kafka_names
from eoslog.broker.config.option_sources import ALIASES, HIDDEN, gather, meaning, read_properties, shown
from eoslog.broker.config.topics import SCALED, TOPIC_CONFIGS, TopicOptions
from eoslog.broker.log.log_settings import LogSettings
from eoslog.cli import COMMANDS, main


def test_defaults_are_kafka_s_where_kafka_has_them() -> None:
    options = {option.metadata["name"]: option.default for option in option_table().values()}
    expected = {
        "auto.create.topics.enable": True,
        "num.partitions": 1,
        "message.max.bytes": 1048588,
        "log.segment.bytes": 1073741824,
        "log.index.interval.bytes": 4096,
        "transaction.max.timeout.ms": 900000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
        "transactional.id.expiration.ms": 604800000,
        "producer.id.expiration.ms": 86400000,
        "group.min.session.timeout.ms": 6000,
        "group.max.session.timeout.ms": 1800000,
        "socket.request.max.bytes": 104857600,
        "offset.metadata.max.bytes": 4096,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "flush.mode": "fsync",
    }
    assert {name: options[name] for name in expected} == expected


def test_every_option_has_a_name_of_its_own_and_a_meaning() -> None:
    options = [option for section in option_sections().values() for option in fields(section)]
    names = [option.metadata["name"] for option in options]
    assert len(set(names)) == len(names)
    assert all(option.metadata["meaning"] for option in options)
    assert {line.synonym for line in TOPIC_CONFIGS.values() if line.synonym} <= option_table().keys()


def test_options_are_read_by_name() -> None:
    config = BrokerConfig.from_options(
        {"num.partitions": "3", "auto.create.topics.enable": "FALSE", "flush.mode": "os", "log.dirs": "/d"}
    )
    topics, storage = config.topics, config.storage
    assert (topics.num_partitions, topics.auto_create_topics, storage.flush, storage.log_dirs) == (
        3,
        False,
        "os",
        "/d",
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("no.such.option", "1", "unknown option no.such.option; known are .*num.partitions"),
        ("num.partitions", "many", "num.partitions=many: must be a whole number"),
        ("num.partitions", "0", "num.partitions=0: must be between 1 and"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: must be true or false"),
        ("flush.mode", "never", "flush.mode=never: must be fsync or os"),
        (
            "log.message.timestamp.type",
            "x",
            "log.message.timestamp.type=x: must be CreateTime or LogAppendTime",
        ),
        ("listen.port", "70000", "listen.port=70000: must be between 0 and 65535"),
    ],
)
def test_wrong_options_are_named(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BrokerConfig.from_options({name: text})


def test_a_topic_s_configs_come_before_the_broker_s() -> None:
    config = BrokerConfig(topics=TopicOptions(segment_bytes=5000, message_max_bytes=70))
    settings = LogSettings.of(config, {"max.message.bytes": "80", "message.timestamp.type": "LogAppendTime"})
    assert (settings.segment_bytes, settings.max_message_bytes, settings.log_append_time) == (5000, 80, True)
    assert LogSettings.of(BrokerConfig(), {}) == LogSettings()


# -- where values come from ----------------------------------------------------------------------
# Options from a file, from settings and from flags: who wins, what is unknown, what must be refused.


def properties(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def broker(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["broker", *arguments])


def refusal(settings: list[str], file: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        gather(file, settings, {})
    return str(caught.value)


def test_flags_win_over_settings_which_win_over_the_file(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitions=2\nnode.id=2\nflush.mode=os\n")
    found = gather(file, ["num.partitions=3", "node.id=3"], {"node.id": "4"})
    config = found.config()
    assert (config.network.node_id, config.topics.num_partitions, config.storage.flush) == (4, 3, "os")
    assert found.origins == {"node.id": "the command line", "num.partitions": "--config", "flush.mode": file}


def test_the_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = "# one\n! two\nnum.partitions : 2\nnode.id 7\nlog.dirs=/a\\\n   /b\nflush.mode=\\u006fs  \n\n"
    wanted = {"num.partitions": "2", "node.id": "7", "log.dirs": "/a/b", "flush.mode": "os"}
    assert read_properties(properties(tmp_path, text)) == wanted


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal([], str(tmp_path / "none"))
    (tmp_path / "latin1").write_bytes(b"node.id=\xff\n")
    assert "latin1 cannot be read" in refusal([], str(tmp_path / "latin1"))


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    assert refusal(["num.partition=3"]).startswith(
        "--config: unknown option num.partition; did you mean num.partitions"
    )
    assert "--help" in refusal(["nothing.like.it.at.all=3"])


def test_all_problems_are_told_at_once() -> None:
    text = refusal(["num.partition=3", "authorizer.class=x", "config.providers=file"])
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    "setting",
    [
        "metadata.log.min.isr=2",
        "remote.log.storage.system.enable=true",
        "config.providers=file",
        "principal.builder.class=com.example.Builder",
        "create.topic.policy.class.name=com.example.Policy",
        "log.dirs=/a,/b",
    ],
)
def test_what_would_weaken_a_promise_is_refused(setting: str) -> None:
    assert setting.partition("=")[0] in refusal([setting])


def test_a_harmless_value_of_it_is_passed_over() -> None:
    settings = ["client.quota.callback.class=", "remote.log.storage.system.enable=false"]
    found = gather(None, [*settings, "num.io.threads=8", "process.roles=broker"], {})
    assert found.options == {}
    assert len(found.warnings) == 4


def test_what_is_an_option_here_is_not_in_the_table_of_what_is_none() -> None:
    options = {*option_table(), *SCALED, *ALIASES}
    names = {name for line in TABLE for name in line.names} - {*COPIES}
    assert not names & options


def test_a_policy_of_moves_between_protocols_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for policy in ("bidirectional", "upgrade", "downgrade", "disabled"):
        file.write_text(f"group.consumer.migration.policy={policy}\n")
        found = gather(str(file), [], {})
        assert found.options == {}
        why = "groups with members do not move between protocols here"
        assert found.warnings == [f"{file}: group.consumer.migration.policy is ignored: {why}"]


def test_more_copies_than_there_are_is_said() -> None:
    found = gather(None, ["default.replication.factor=3", "min.insync.replicas=1"], {})
    assert found.warnings == ["--config: default.replication.factor=3, but one broker keeps one copy"]


def test_a_server_properties_of_kafka_is_taken(tmp_path: Path) -> None:
    """The options of a combined node, as Kafka's documentation sets one up (KRaft)."""
    text = """
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        inter.broker.listener.name=PLAINTEXT
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        log.dirs=/var/lib/log
        num.recovery.threads.per.data.dir=2
        offsets.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.retention.check.interval.ms=300000
    """
    found = gather(properties(tmp_path, text), [], {})
    config = found.config()
    assert (config.network.listeners, config.storage.log_dirs) == ("PLAINTEXT://:9092", "/var/lib/log")
    assert len(found.warnings) == 11, found.warnings


def test_another_name_of_the_same_thing() -> None:
    assert gather(None, ["broker.id=7"], {}).options == {"node.id": "7"}
    assert gather(None, ["log.dir=/a"], {"log.dirs": "/b"}).config().storage.log_dirs == "/b"


def test_a_later_source_wins_by_whatever_name(tmp_path: Path) -> None:
    file = properties(tmp_path, "log.retention.ms=5000\n")
    assert gather(file, ["log.retention.hours=1"], {}).options == {"log.retention.hours": "1"}


def test_no_line_of_the_table_is_hidden_by_one_before_it() -> None:
    for line in TABLE:
        for name in line.names:
            first = foreign(name.replace("*", "x"))
            assert first is not None
            assert first is line or not line.refused, f"{name} would be passed over, not refused"


def test_a_quorum_of_one_leaves_its_listener_out() -> None:
    listeners = "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"
    found = gather(None, ["controller.listener.names=CONTROLLER", listeners], {})
    assert found.options == {"listeners": "PLAINTEXT://:9092"}


def test_secrets_are_hidden() -> None:
    secrets = {name for name, field in option_table().items() if rule_of(field).secret and "*" not in name}
    config = gather(None, [f"{name}=swordfish" for name in secrets], {}).config()
    values = shown(config)
    assert {values[name] for name in secrets} <= {HIDDEN}
    assert "swordfish" not in str(values)


def test_check_config(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitions=2\nnum.io.threads=8\n")
    done = broker("--check-config", "--config-file", file, "--data", "/nowhere")
    assert done.exit_code == 0
    assert f"num.partitions=2  # {file}" in done.output
    assert "log.dirs=/nowhere  # the command line" in done.output
    assert "num.io.threads is ignored" in done.output
    wrong = broker("--check-config", "--config", "num.partitions=none")
    assert wrong.exit_code == 1
    assert "--config: num.partitions=none: must be a whole number" in wrong.output


def test_two_ways_to_say_where_to_listen() -> None:
    """Neither may win silently: one of them could be the listener that asks for passwords."""
    both = broker("--check-config", "--listen", "127.0.0.1:0", "--config", "listeners=SSL://:9093")
    assert (both.exit_code, "leave one out" in both.output) == (1, True)
    one = broker("--check-config", "--listen", "127.0.0.1:9192")
    assert "listen.port=9192  # the command line" in one.output
    assert "--listen 9192: give HOST:PORT" in broker("--check-config", "--listen", "9192").output


def test_help_names_every_option() -> None:
    done = broker("--help")
    assert done.exit_code == 0
    missing = [name for name in option_table() if name not in done.output]
    assert not missing


def test_help_names_every_command() -> None:
    done = CliRunner().invoke(main, ["--help"])
    assert all(name in done.output for name in COMMANDS)


def test_what_is_ignored_is_kept_to_be_shown() -> None:
    gathered = gather(None, ["num.io.threads=8", "log.retention.hours=5"], {"log.dirs": "/nowhere"})
    config = gathered.config()
    assert config.given == {"log.retention.ms", "log.dirs"}
    assert config.ignored == {"num.io.threads": "8"}


def test_each_option_of_kafka_is_ours_or_in_the_table() -> None:
    """The tables of what Kafka has and of what it means here must not drift apart."""
    for name in kafka_names():
        assert name not in option_table()
        assert foreign(name) is not None or meaning(name) != name, name
