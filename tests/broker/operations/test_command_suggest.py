"""`eoslog acls suggest`: the rights of a query, by its options; what it prints can be typed."""

import json
import shlex

import pytest
from click.testing import CliRunner, Result

from eoslog.cli import main
from tests.broker.operations.run_command import document, run
from tests.broker.security.acl_site import Site
from tests.broker.security.securitykit import ADMIN

COPY = (
    "--source", "subscribe=orders", "--sink", "topic=orders_copy", "--sink", "transactional.id=to/copy",
    "--sink", "two.phase.commit=require",
)  # fmt: skip


def suggest(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["acls", "suggest", *arguments])


def test_the_rights_of_a_query_as_a_table() -> None:
    result = suggest(*COPY)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["RESOURCE", "PATTERN", "NAME", "OPERATIONS", "WHY"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["topic", "literal", "orders", "read"],
        ["topic", "literal", "orders_copy", "write"],
        ["transactional-id", "literal", "to%2Fcopy", "write"],
        ["transactional-id", "prefixed", "to%2Fcopy/", "write,two-phase-commit"],
        ["group", "literal", "to%2Fcopy", "read"],
        ["topic", "literal", "__consumer_offsets", "read"],
        ["group", "literal", "to%2Fcopy/offsets", "read"],
    ]


def test_another_topic_for_decisions_needs_the_right_instead() -> None:
    lines = suggest(*COPY, "--sink", "decision.topic=decisions").stdout.splitlines()
    assert ["topic", "literal", "decisions", "read"] in [line.split()[:4] for line in lines]
    assert "__consumer_offsets" not in "".join(lines)


def test_as_a_document() -> None:
    found = json.loads(suggest("--json", *COPY[:-2], "--sink", "kafka.group.id=g").stdout)
    assert found["rights"][0] == {
        "resource": "topic", "pattern": "literal", "name": "orders", "operations": ["read"],
        "why": "the source",
    }  # fmt: skip
    assert "group" in {right["resource"] for right in found["rights"]}
    (note,) = found["notes"]
    assert "two.phase.commit=auto" in note


def test_what_options_cannot_tell_is_a_note_on_standard_error() -> None:
    result = suggest("--sink", "transactional.id=copy")
    assert result.stderr.startswith("Note: each row names its topic")


def test_commands_that_can_be_typed() -> None:
    result = suggest("--principal", "User:alice", "--as", "commands", *COPY)
    commands = result.stdout.splitlines()
    assert commands[0] == "eoslog acls add --principal User:alice --operation read --topic orders"
    assert commands[3] == (
        "eoslog acls add --principal User:alice --operation write --operation two-phase-commit "
        "--transactional-id to%2Fcopy/ --prefixed"
    )
    with Site(**{"super.users": f"User:{ADMIN};User:ANONYMOUS"}) as site:
        for command in commands:
            program, *arguments = shlex.split(command)
            assert (program, run(site.broker, *arguments).exit_code) == ("eoslog", 0)
        rows = document(site.broker, "acls", "list", "--principal", "User:alice")
    wanted = json.loads(suggest("--json", *COPY).stdout)["rights"]
    assert sorted((r["resource"], r["pattern"], r["name"], r["operation"]) for r in rows) == sorted(
        (r["resource"], r["pattern"], r["name"], operation) for r in wanted for operation in r["operations"]
    )


def test_lines_for_kafka_s_own_tool() -> None:
    broker = ("--sink", "kafka.bootstrap.servers=kafka.example.org:9093")
    result = suggest("--principal", "User:alice smith", "--as", "kafka", *COPY, *broker)
    start = (
        "kafka-acls.sh --bootstrap-server kafka.example.org:9093 --add --allow-principal 'User:alice smith' "
    )
    lines = result.stdout.splitlines()
    assert lines[0] == start + "--operation Read --topic orders"
    assert lines[3] == (
        start + "--operation Write --operation TwoPhaseCommit --transactional-id to%2Fcopy/ "
        "--resource-pattern-type prefixed"
    )
    pattern = suggest("--principal", "User:a", "--as", "kafka", "--source", "subscribePattern=.*")
    assert pattern.stdout.rstrip().endswith("--topic '*'")


def test_a_batch_has_its_own_options_and_rights() -> None:
    write = ("--sink", "topic=t", "--sink", "write.token=job-1")
    assert json.loads(suggest("--batch", "--json", *write).stdout)["rights"][1]["name"] == "eoslog-write:"
    assert suggest("--json", *write).exit_code == 2  # a stream has no such option


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give --source or --sink"),
        (("--source", "subscribe"), "give NAME=VALUE"),
        (("--source", "subscrib=orders"), "subscribe"),
        (("--source", "startingOffsets=earliest"), "nothing to read"),
        (("--sink", "topic=t"), "give transactional.id"),
        (("--source", "subscribe=t", "--as", "kafka"), "--principal"),
        (("--source", "subscribe=t", "--as", "kafka", "--json", "--principal", "User:a"), "either"),
        (("--source", "subscribe=t", "--principal", "a"), "give TYPE:NAME"),
    ],
)
def test_what_makes_no_sense(arguments: tuple[str, ...], says: str) -> None:
    result = suggest(*arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_a_secret_is_not_shown() -> None:
    secret = "open-sesame"
    given = ("--source", "subscribe=t", "--source", f"kafka.sasl.password={secret}")
    result = suggest("--principal", "User:a", "--as", "kafka", *given)
    assert result.exit_code == 2 and secret not in result.output
