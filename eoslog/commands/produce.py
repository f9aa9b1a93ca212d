"""`eoslog produce`: writes lines of standard input to a topic, each once, with an idempotent producer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

import click
import numpy as np
import pyarrow as pa

from eoslog.client.admin.transactions import end_txn, init_producer_id
from eoslog.client.records.produce import Producer
from eoslog.commands.output import several
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.partitioner import murmur2_partition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CHUNK_BYTES = 1 << 20
_BATCH_BYTES = 1 << 16
_TRANSACTION_MS = 60_000


@click.command()
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="The text between key and value of a line.")
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--transactional-id", metavar="ID", help="All lines in one transaction: all of them or none.")
@cluster_command
def command(
    session: CommandSession,
    topic: str,
    key_separator: str | None,
    compression: str,
    transactional_id: str | None,
) -> None:
    """Write the lines of standard input to a topic, one record each.

    Lines with a key go where Kafka's default partitioner puts them, others to all partitions in turn.
    """
    cluster, codec = session.cluster, CODECS.index(compression)
    identity = init_producer_id(cluster, transactional_id, _TRANSACTION_MS)
    begun = False
    try:
        with Producer(cluster, identity=identity, transactional_id=transactional_id) as producer:
            partitions = len(cluster.topic(topic, create=True).leaders)
            for turn, lines in enumerate(_chunks(cast(BufferedReader, sys.stdin.buffer))):
                columns = _columns(lines, key_separator)
                begun = True
                _send(producer, topic, partitions, turn, codec, *columns)
                producer.flush()  # write what has arrived before waiting for more
    except BaseException:
        if transactional_id is not None and begun:
            end_txn(cluster, transactional_id, identity, commit=False)
        raise
    if transactional_id is not None and begun:
        end_txn(cluster, transactional_id, identity, commit=True)
    session.say(f"{several(producer.records, 'record')} written to {topic}")


def _chunks(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Whole lines as they arrive, many at a time; the last one need not have a line feed."""
    rest = b""
    while data := stream.read1(_CHUNK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _columns(lines: list[bytes], separator: str | None) -> tuple[pa.Array, pa.Array]:
    """Keys and values. Raises click.ClickException for a line without the separator."""
    if separator is None:
        return pa.nulls(len(lines), pa.binary()), pa.array(lines, pa.binary())
    pairs = [line.partition(separator.encode()) for line in lines]
    for line, (_, found, _) in zip(lines, pairs, strict=True):
        if not found:
            raise click.ClickException(f"no {separator!r} in the line {line.decode(errors='replace')!r}")
    return (
        pa.array([key for key, _, _ in pairs], pa.binary()),
        pa.array([value for _, _, value in pairs], pa.binary()),
    )


def _send(
    producer: Producer, topic: str, partitions: int, turn: int, codec: int, keys: pa.Array, values: pa.Array
) -> None:
    """Encode the records of each partition, and hand them over."""
    places = murmur2_partition(keys, partitions)
    places = np.where(places < 0, turn % partitions, places)
    now_ms = int(time.time() * 1000)
    for place in np.unique(places).tolist():
        rows = pa.array(np.flatnonzero(places == place))
        batches = encode_batches(
            keys.take(rows), values.take(rows), None, now_ms, codec=codec, max_batch_bytes=_BATCH_BYTES
        )
        for batch in batches:
            producer.send(topic, place, batch)
