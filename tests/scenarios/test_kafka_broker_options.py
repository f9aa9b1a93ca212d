"""`sasl.*`, `ssl.*` and `listener.name.*` while a broker runs (KIP-226): the bundled broker and Apache Kafka
answer to the same requests, in the same run. Not part of the plain test run: `make test-broker-options`.

The cases and the differences that are meant are in `broker_option_cases`. A difference has to be told there,
and each one told there has to be one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.broker.config.network import LIMITS
from tests.broker.security.stores import Stores, lives, serial
from tests.scenarios.broker_option_cases import (
    CASES,
    FACTS,
    REFUSED_HERE,
    SECRET,
    START_FACTS,
    TAKEN_HERE,
    TLS,
    Case,
)
from tests.scenarios.broker_option_site import DELETE, EVERY, OWN, SET, SOURCES, Subject, both, settings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

NONE = "NONE"
Told = dict[str, dict[str, Any] | None]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Subject, Subject]]:
    with both(tmp_path_factory.mktemp("options")) as pair:
        yield pair


def filled(case: Case, stores: Stores) -> Case:
    """The case with the paths of this broker's files."""

    def path(value: str | None) -> str | None:
        return stores(value[1:-1]) if value and value.startswith("{") else value

    return Case(case.resource, tuple((name, how, path(value)) for name, how, value in case.changes))


def told(subject: Subject, names: list[str]) -> dict[str, Told]:
    """What is said of these options, of this broker and of all; paths of files without their folder."""
    return {
        resource: {name: _plain(subject, found.get(name)) for name in names}
        for resource in (OWN, EVERY)
        for found in [subject.described(resource, names)]
    }


def _plain(subject: Subject, one: dict[str, Any] | None) -> dict[str, Any] | None:
    if one is None:
        return None
    folder = f"{subject.stores.directory}/"
    return {
        "value": one["value"] and one["value"].replace(folder, ""),
        "source": SOURCES[one["config_source"]],
        "sensitive": one["is_sensitive"],
        "read_only": one["read_only"],
        "type": one["config_type"],
        "synonyms": [
            (other["name"], other["value"] and other["value"].replace(folder, ""), SOURCES[other["source"]])
            for other in one["synonyms"]
        ],
    }


def answered(subject: Subject, case: Case) -> tuple[str, dict[str, Told]]:
    """The error's name and what is told then. What was refused has changed nothing; the rest is undone."""
    case = filled(case, subject.stores)
    names = [name for name, _, _ in case.changes]
    before = told(subject, names)
    code = subject.alter(case.resource, *case.changes)
    after = told(subject, names)
    if code != NONE:
        assert after == before, f"{subject.name}: {case.title} is {code}, and has changed something"
        return code, after
    assert subject.alter(case.resource, *((name, DELETE, None) for name in names)) == NONE
    assert told(subject, names) == before, f"{subject.name}: {case.title} cannot be undone"
    return code, after


def differing(theirs: dict[str, Told], ours: dict[str, Told]) -> dict[tuple[str, str], str]:
    """(option, fact) -> both answers, where they are not the same."""
    return {
        (name, fact): f"{resource or 'every broker'}: kafka {one.get(fact)!r}, eoslog {other.get(fact)!r}"
        for resource, options in theirs.items()
        for name, (one, other) in {
            name: (found or {}, ours[resource][name] or {}) for name, found in options.items()
        }.items()
        for fact in sorted(one.keys() | other.keys())
        if one.get(fact) != other.get(fact)
    }


def test_both_take_and_refuse_the_same(subjects: tuple[Subject, Subject]) -> None:
    codes: dict[str, tuple[str, str]] = {}
    facts: dict[tuple[str, str], str] = {}
    for case in CASES:
        (theirs, after), (ours, after_ours) = (answered(subject, case) for subject in subjects)
        codes[case.title] = theirs, ours
        if theirs == ours == NONE:
            facts |= differing(after, after_ours)
    refused = {title for title, (theirs, ours) in codes.items() if theirs == NONE != ours}
    taken = {title for title, (theirs, ours) in codes.items() if theirs != NONE == ours}
    others = {title: pair for title, pair in codes.items() if pair[0] != pair[1] and NONE not in pair}
    for title, (theirs, ours) in codes.items():
        if theirs != ours:
            print(f"{title}: kafka {theirs}, eoslog {ours}")
    for key, answers in facts.items():
        print(*key, answers)
    assert (refused, taken, others) == (set(REFUSED_HERE), set(TAKEN_HERE), {})
    assert facts.keys() == FACTS.keys()


def test_what_the_start_gave_is_told_alike(subjects: tuple[Subject, Subject]) -> None:
    names = sorted(settings(subjects[0].stores))
    theirs, ours = (told(subject, names) for subject in subjects)
    facts = differing(theirs, ours)
    for key, answers in facts.items():
        print(*key, answers)
    assert facts.keys() == START_FACTS.keys()


def test_a_whole_resource_is_replaced(subjects: tuple[Subject, Subject]) -> None:
    most, rate, key = (TLS + name for name in (*LIMITS, "ssl.keystore.location"))
    for subject in subjects:
        before = told(subject, [most, rate, key])
        assert subject.replace(OWN, {most: "5", key: subject.stores("missing")}) == "INVALID_REQUEST"
        assert subject.replace(EVERY, {key: subject.stores("renewed")}) == "INVALID_REQUEST"
        assert subject.alter(OWN, (most, SET, "5"), validate_only=True) == NONE
        assert subject.alter(OWN, (most, SET, "0"), validate_only=True) == "INVALID_REQUEST"
        assert told(subject, [most, rate, key]) == before
        assert subject.replace(OWN, {most: "5", rate: "6"}) == NONE
        assert subject.replace(OWN, {most: "7"}) == NONE
        found = subject.described(OWN, [most, rate])
        assert (found[most]["value"], rate in found) == ("7", False)
        assert subject.replace(OWN, {}) == NONE
        assert told(subject, [most, rate, key]) == before


def test_secrets_are_never_told(subjects: tuple[Subject, Subject]) -> None:
    for subject in subjects:
        for resource in (OWN, EVERY):
            assert SECRET not in repr(subject.described(resource))
            assert "carol-password" not in repr(subject.described(resource))


def test_a_key_store_changes_for_new_connections(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "ssl.keystore.location"
    for subject in subjects:
        with subject.tls() as old:
            before = serial(old)
            assert subject.alter(OWN, (option, SET, subject.stores("garbage"))) == "INVALID_REQUEST"
            with subject.tls() as same:
                assert serial(same) == before
            assert subject.alter(OWN, (option, SET, subject.stores("renewed"))) == NONE
            with subject.tls() as new:
                assert serial(new) != before and lives(new) and lives(old)
        subject.restart()
        with subject.tls() as again:
            assert serial(again) != before, f"{subject.name} has forgotten it"
        assert subject.alter(OWN, (option, DELETE, None)) == NONE
        with subject.tls() as last:
            assert serial(last) == before


def test_an_authority_that_is_removed_is_trusted_no_more(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "ssl.truststore.location"
    for subject in subjects:
        assert subject.lets_in("alice") and not subject.lets_in("bob")
        assert subject.alter(OWN, (option, SET, subject.stores("both"))) == NONE
        with subject.tls("bob") as old:
            assert subject.lets_in("alice")
            assert subject.alter(OWN, (option, SET, subject.stores("second"))) == NONE
            assert not subject.lets_in("alice") and subject.lets_in("bob")
            assert subject.alter(OWN, (option, DELETE, None)) == NONE
            assert subject.lets_in("alice") and not subject.lets_in("bob") and lives(old)


def test_a_listener_has_its_own_limit_of_connections(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "max.connections"
    for subject in subjects:
        for resource in (OWN, EVERY):
            with subject.tls() as first:
                assert subject.alter(resource, (option, SET, "1")) == NONE
                assert not subject.lets_in() and lives(first)
                assert subject.alter(resource, (option, DELETE, None)) == NONE
                assert subject.lets_in()
