"""The codecs: what we write any client can read, what any client writes we read, and nothing fills memory."""

import gzip
import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import compression
from eoslog.protocol.compression import CODECS, CompressionError, compress, decompress
from tests.protocol import oracle

GZIP, SNAPPY, LZ4, ZSTD = (CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd"))

noise = random.Random(0).randbytes(150_000)
text = b"".join(b"line %d of some text; " % (i * i) for i in range(9_000))  # more than three blocks of 64 KiB
SAMPLES = {"empty": b"", "byte": b"x", "noise": noise, "text": text, "both": noise[:70_000] + text}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", range(5))
def test_round_trip(codec: int, name: str) -> None:
    data = SAMPLES[name]
    assert decompress(codec, compress(codec, [data])) == data
    assert (
        decompress(codec, compress(codec, [data[:10], bytearray(data[10:50]), memoryview(data)[50:]])) == data
    )


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_others_can_read_what_we_write(codec: int, name: str) -> None:
    """The oracle reads as strictly as the Java client: snappy-java's framing, independent LZ4 blocks."""
    assert oracle.UNWRAP[codec](compress(codec, [SAMPLES[name]])) == SAMPLES[name]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_text_shrinks(codec: int) -> None:
    assert len(compress(codec, [text])) < len(text) / 2


def arrow(name: str) -> Callable[[bytes], bytes]:
    """As the C libraries under librdkafka compress: raw snappy, linked LZ4 blocks, zstd with its size."""
    return lambda data: bytes(pa.Codec(name).compress(data, asbytes=True))


def streamed_zstd(data: bytes) -> bytes:
    """Without the content's size in front, as the Java client's streams write it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


FORMS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip in two members": (GZIP, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "raw snappy": (SNAPPY, arrow("snappy")),
    "raw snappy of literals": (SNAPPY, oracle.wrap_snappy),
    "framed snappy": (SNAPPY, oracle.wrap_xerial),
    "lz4 of linked blocks": (LZ4, arrow("lz4")),
    "lz4 of stored blocks": (LZ4, oracle.wrap_lz4),
    "zstd with its size": (ZSTD, arrow("zstd")),
    "zstd without its size": (ZSTD, streamed_zstd),
    "zstd of raw blocks": (ZSTD, oracle.wrap_zstd),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", FORMS)
def test_we_can_read_what_others_write(form: str, name: str) -> None:
    codec, wrap = FORMS[form]
    assert decompress(codec, wrap(SAMPLES[name])) == SAMPLES[name]
    assert decompress(codec, memoryview(bytearray(wrap(SAMPLES[name])))) == SAMPLES[name]


def test_a_lz4_frame_of_linked_blocks_is_not_what_we_write() -> None:
    """pyarrow's frames would be refused by Kafka's LZ4 reader: this is why we make our own."""
    with pytest.raises(oracle.Broken, match="depend"):
        oracle.unwrap_lz4(arrow("lz4")(text))


@pytest.mark.parametrize("form", FORMS)
def test_output_is_bounded(form: str) -> None:
    codec, wrap = FORMS[form]
    data = bytes(1_000_000)
    assert decompress(codec, wrap(data), max_size=len(data)) == data
    for limit in (len(data) - 1, 1000, 0):
        with pytest.raises(CompressionError, match="more than"):
            decompress(codec, wrap(data), max_size=limit)


def test_plain_sections_are_bounded_too() -> None:
    with pytest.raises(CompressionError, match="more than"):
        decompress(0, b"abc", max_size=2)


def test_a_snappy_block_that_claims_to_be_huge_costs_nothing() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(CompressionError):
            decompress(SNAPPY, claim + b"\0a")


@pytest.mark.parametrize("form", FORMS)
def test_cut_input_is_refused(form: str) -> None:
    codec, wrap = FORMS[form]
    data = wrap(text[:3000])
    for end in [*range(40), *range(len(data) - 30, len(data))]:
        if oracle_accepts_cut(form, data, end):
            continue
        with pytest.raises(CompressionError):
            decompress(codec, data[:end])


def oracle_accepts_cut(form: str, data: bytes, end: int) -> bool:
    """Forms made of pieces are whole after each piece: only the records' structure tells the difference."""
    if form == "gzip in two members":
        return end == len(gzip.compress(text[:9]))
    return form == "framed snappy" and end in {16, *framed_ends(data)}


def framed_ends(data: bytes) -> list[int]:
    ends, pos = [], 16
    while pos < len(data):
        pos += 4 + int.from_bytes(data[pos : pos + 4], "big")
        ends.append(pos)
    return ends


@settings(deadline=None)
@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_nothing_else(codec: int, garbage: bytes) -> None:
    for data in (garbage, compress(codec, [text[:100]])[:20] + garbage, compression._XERIAL_HEADER + garbage):
        try:
            result = decompress(codec, data, 10_000)
        except CompressionError as error:
            assert "more than" in str(error) or "damaged" in str(error)
        else:
            assert len(result) <= 10_000


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(CompressionError, match="unknown"):
        compress(codec, [b""])
    with pytest.raises(CompressionError, match="unknown"):
        decompress(codec, b"")


def test_names_and_numbers() -> None:
    assert CODECS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert compression.NAMES[3] == "lz4"
