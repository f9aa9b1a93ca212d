"""The formats of Spark's checkpoint, pure: as Spark 4.3 writes them, damaged, and of a later Spark."""

import json

import pytest

from eoslog.connector.checkpoint.spark_logs import FormatError, Planned, check_commit, is_eoslog, with_ends

V2 = 'v2\n{"batchWatermarkMs":0,"conf":{},"sourceMetadataInfo":{}}\n'
ORDERS = '{"t":{"0":5,"1":7},"cluster-id:c":{}}'
SINK = {"sinkName": "s", "commitOffset": "-", "providerName": "p", "apiVersion": "v2", "isActive": True}


def test_version_2_has_a_name_for_each_source_and_version_1_its_number() -> None:
    named = Planned.parse(7, f"{V2}orders:{ORDERS}\nnone_yet:-\nrates:17")
    assert named.by_name == {"orders": ORDERS, "rates": "17"}
    assert named.names == ("orders", "none_yet", "rates")
    assert named.topic_offsets() == {("t", 0): 5, ("t", 1): 7}
    assert Planned.parse(7, f"v1\n\n{ORDERS}\n-").by_name == {"0": ORDERS}
    assert Planned.parse(7, f"v1\n{{}}\n{ORDERS}").names == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "version is ''.*damaged"),
        ("v1", "ends after its version"),
        ("v2", "ends after its version"),
        ("v3\n{}\norders:{}", "'v3', and eoslog knows v1, v2: a later Spark"),
        ("1\n{}\n-", "damaged"),
        ("v2\n{}", "no sources"),
        ("v2\n\norders:-", "settings '' cannot be read"),
        ("v2\n[]\norders:-", r"settings are '\[\]'"),
        ('v2\n{"conf":\norders:-', "settings"),
        (f"{V2}orders", "names no source"),
        (f"{V2}:-", "names no source"),
        (f"{V2}orders:-\norders:{ORDERS}", "two lines"),
        (f'{V2}orders:{{"t":{{"0":5', "offsets .* cannot be read"),
        ('v1\n{}\n{"t":{"0":5', "offsets .* cannot be read"),
        ('v1\n{"conf":\n-', "settings"),
    ],
)
def test_a_file_of_the_offset_log_that_is_damaged_or_too_new(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        Planned.parse(7, text)


@pytest.mark.parametrize(
    "text",
    [
        "v1\n{}",
        "v1",
        'v1\n{"nextBatchWatermarkMs":233}',
        'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]}}',
        f"v3\n{json.dumps({'nextBatchWatermarkMs': 0, 'sinkMetadataMap': {'s': SINK}})}",
        f"v3\n{json.dumps({'sinkMetadataMap': {'s': SINK, 'former': SINK | {'isActive': False}}})}",
    ],
)
def test_files_of_the_commit_log(text: str) -> None:
    check_commit(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "damaged"),
        ("v4\n{}", "'v4', and eoslog knows v1, v2, v3: a later Spark"),
        ("v2", "settings"),
        ('v2\n{"nextBatch', "settings"),
        ("v3\n{}", "0 of its sinks are active"),
        ('v3\n{"sinkMetadataMap":[]}', "0 of its sinks are active"),
        (f"v3\n{json.dumps({'sinkMetadataMap': {'s': SINK, 't': SINK}})}", "2 of its sinks are active"),
    ],
)
def test_a_file_of_the_commit_log_that_is_damaged_or_too_new(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        check_commit(text)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (ORDERS, True),
        ('{"t":{"0":5},"topic-id:t:x":{}}', True),
        ('{"t":{"0":5}}', False),
        ("-", False),
        ("5", False),
    ],
)
def test_whose_offsets_they_are(text: str, ours: bool) -> None:
    assert is_eoslog(text) is ours


def test_where_the_sources_of_a_first_batch_began() -> None:
    """Together; a source that does not say it counts with its end."""
    says, silent = '{"t":{"0":9,"1":4},"began-at:t:2:0-1":{}}', '{"t":{"0":1},"u":{"0":5}}'
    found = Planned.parse(0, "\n".join(("v1", "{}", says, silent, "-")))
    assert found.beginnings() == {("t", 0): 1, ("t", 1): 2, ("u", 0): 5}
    assert found.topic_offsets() == {("t", 0): 1, ("t", 1): 4, ("u", 0): 5}


def test_other_ends_leave_the_rest_of_a_file_as_it_is() -> None:
    assert with_ends(f"{V2}orders:{ORDERS}\nrates:17", ["{}", "17"]) == f"{V2}orders:{{}}\nrates:17"
    assert with_ends(f"v1\n{{}}\n{ORDERS}\n-", ["{}", "-"]) == "v1\n{}\n{}\n-"
