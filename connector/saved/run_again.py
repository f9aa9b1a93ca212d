"""Decided batches that Spark runs again for their state alone, after a restore: whether they run equally.

Spark has the saved batch's entry of the offset log, so it runs that one exactly as before. The following ones
get the same rows, and Spark plans the rest anew: the watermark, and the time of the batch. If that makes a
difference, the state is another one than that of the rows that were written, and rows would be lost or
doubled later. So batches are compared with what they were; and operators that are known for it are refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eoslog.client.admin.topics import topic_configs
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.spark_logs import Planned, is_eoslog
from eoslog.connector.commit.faults import RunsDifferently
from eoslog.connector.commit.task_reports import Decided, Report
from eoslog.connector.options.sink_options import SinkOptions, StateOptions
from eoslog.connector.saved.state_files import DecidedBatch
from eoslog.errors import OptionError, UnknownTopic

UNFINISHED = "restoring"
"""The note in a checkpoint that is being restored."""
_DECIDED = "decided"
"""The note of the batches that were decided since the restored one was saved, which it includes."""
_REPEATABLE = {"stateStoreSave", "sessionWindowStateStoreSaveExec", "dedupe", "dedupeWithinWatermark"}
_WITH_TIMERS = {"transformWithStateExec", "transformWithStateInPySparkExec", "transformWithStateInPandasExec"}


def note_decided(checkpoint: Checkpoint, batches: Mapping[int, DecidedBatch]) -> None:
    """Note the batches that will be run again."""
    if batches:
        said = {number: batch.text() for number, batch in batches.items()}
        checkpoint.note(_DECIDED, json.dumps({"version": 1, "batches": said}))
    else:
        checkpoint.forget(_DECIDED)


def is_run_again(checkpoint: Checkpoint, batch_id: int) -> bool:
    """Whether a restored checkpoint runs this decided batch again, and knows what it was. Raises
    CheckpointUnreadable."""
    return batch_id in _decided(checkpoint)


def check_restored(checkpoint: Checkpoint) -> None:
    """Raise CheckpointUnreadable if the checkpoint is not whole because a restore was interrupted."""
    if checkpoint.noted(UNFINISHED) is not None:
        raise CheckpointUnreadable(
            checkpoint.location,
            "it was being restored, and that was interrupted",
            "restore it again; if it cannot be, remove this folder, and do as NotRestorable says",
        )


def check_equal_run(options: SinkOptions, reports: Sequence[Report | None], batch_id: int) -> None:
    """Check a batch that was run again with what it was. Raises RunsDifferently unless that is accepted. One
    whose lost rows are written again is compared by its decision (check_replay)."""
    found = [report for report in reports if isinstance(report, Decided)]
    if not found or found[0].stamp.lost or options.checkpoint_location is None:
        return
    checkpoint = Checkpoint.at(options.checkpoint_location)
    then = _decided(checkpoint).get(batch_id)
    if then is None:
        return
    by_partition = {report.partition: report for report in found}
    now = DecidedBatch(
        checkpoint.content(f"offsets/{batch_id}").decode(),
        tuple(by_partition[partition].rows for partition in sorted(by_partition)),
        tuple(c for p in sorted(by_partition) if (c := by_partition[p].checksum) is not None),
    )
    difference = differs(then, now)
    if difference is None or (word := f"runs-differently:{batch_id}") in options.accepted:
        return
    raise RunsDifferently(
        f"batch {batch_id} was decided, is run again after a restore, for its state alone, and is not what "
        f"it was: {difference}. With this state rows could be lost or doubled. {RunsDifferently.advice} If "
        f"the difference does not matter to you, set {to_accept(word, options.accepted)}"
    )


def differs(then: DecidedBatch, now: DecidedBatch) -> str | None:
    """How two runs of a batch differ. None: they do not. Checksums are compared if both have them."""
    marks = [_watermark(one.planned) for one in (then, now)]
    if marks[0] != marks[1]:
        return f"its watermark is {marks[1]} ms, and was {marks[0]}"
    if then.rows != now.rows:
        return f"its tasks have {now.rows} rows, and had {then.rows}"
    if then.checksums and now.checksums and then.checksums != now.checksums:
        wrong = [p for p, (a, b) in enumerate(zip(then.checksums, now.checksums, strict=False)) if a != b]
        return f"its partitions {wrong} have other rows"
    return None


def check_operators(checkpoint: Checkpoint, every: int) -> None:
    """Raise OptionError if the query has an operator whose batches may not run again equally. Raises
    CheckpointUnreadable."""
    if every == 1:
        return
    for number in checkpoint.names("state"):
        folder = f"state/{number}/_metadata"
        for name in (f"{folder}/{one}" for one in _metadata_files(checkpoint, folder)):
            obstacle = _obstacle(checkpoint.content(name).decode())
            if obstacle is not None:
                raise OptionError(
                    f"state.every.batches={every}: the query has the operator {obstacle}: its batches may "
                    "not run again as they were. Set state.every.batches to 1: then only the last one is"
                )


def _metadata_files(checkpoint: Checkpoint, folder: str) -> list[str]:
    newer = [name for name in checkpoint.names(f"{folder}/v2") if name.isdecimal()]
    return [f"v2/{max(newer, key=int)}"] if newer else ["metadata"]


def _obstacle(text: str) -> str | None:
    said = json.loads(text.partition("\n")[2])
    operator = str(said["operatorInfo"]["operatorName"])
    if operator in _REPEATABLE:
        return None
    if operator in _WITH_TIMERS:
        properties: Any = said.get("operatorPropertiesJson") or "{}"
        mode = (json.loads(properties) if isinstance(properties, str) else properties).get("timeMode")
        return None if mode in ("None", "EventTime") else f"{operator} with time mode {mode}"
    return operator


def _decided(checkpoint: Checkpoint) -> dict[int, DecidedBatch]:
    text = checkpoint.noted(_DECIDED)
    if text is None:
        return {}
    try:
        found = json.loads(text)["batches"].items()
        return {int(number): DecidedBatch.parse(one) for number, one in found}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointUnreadable(
            checkpoint.location, f"eoslog/{_DECIDED} cannot be read: {error}", RESTORE
        ) from error


def _watermark(planned: str) -> object:
    return json.loads(planned.splitlines()[1]).get("batchWatermarkMs")


_POLICY = "cleanup.policy"
_CREATE = "make one with cleanup.policy=compact (eoslog topics create)"


def check_state_topic(cluster: Cluster, state: StateOptions, planned: Planned) -> None:
    """Raise OptionError unless the topic keeps the newest record of each key for ever, and Spark can run the
    batches between two saves again. Raises KafkaError, RetriesExhausted."""
    others = [text for text in planned.sources if not is_eoslog(text)]
    if others and state.every > 1:
        raise OptionError(
            f"state.every.batches={state.every}: the query reads from another source than eoslog, which "
            "cannot plan the batches between two saves again as they were: set state.every.batches to 1"
        )
    try:
        cluster.describe(state.topic)
    except UnknownTopic as error:
        raise OptionError(f"state.topic={state.topic}: there is no such topic: {_CREATE}") from error
    policy = topic_configs(cluster, [state.topic], [_POLICY])[state.topic].get(_POLICY, "")
    if policy != "compact":
        raise OptionError(
            f"state.topic={state.topic}: its cleanup.policy is {policy}, so state would expire: {_CREATE}"
        )
