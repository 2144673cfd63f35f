"""Packed bodies: three formats, the flags that name them, and what is not one of them."""

import base64
import zlib

import lz4.frame
import pytest
import zstandard
from dejamq_proto.records import compression
from dejamq_proto.records.compression import BadCompression, Compression, compress, decompress
from dejamq_proto.records.record import SYS_COMPRESSED
from hypothesis import given
from hypothesis import strategies as st

BODY = b"an order, and another order, and yet another order " * 200
KINDS = [Compression.LZ4, Compression.ZSTD, Compression.ZLIB]
MADE_BY_ROCKETMQ = {  # 5.3.3, level 5
    Compression.LZ4: "BCJNGGBwcxwAAAD/AG9yZGVyLTE3IHBhaWQ7IA8A//8zUGFpZDsgAAAAAA==",
    Compression.ZSTD: "KLUv/QBYtAAAeG9yZGVyLTE3IHBhaWQ7IAEARqSadQEAAA==",
    Compression.ZLIB: "eF7LL0pJLdI1NFcoSMxMsVbIH+WOcqnBBQBpN7+R",
}


@given(st.binary(min_size=1, max_size=5000), st.sampled_from(KINDS), st.integers(1, 9))
def test_what_is_packed_at_any_level_is_unpacked_as_it_was(body: bytes, kind: Compression, level: int) -> None:
    assert decompress(compress(body, kind, level), kind.sys_flag) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_repetitive_body_gets_smaller(kind: Compression) -> None:
    assert len(compress(BODY, kind, 5)) < len(BODY) / 5


def test_the_flags_are_rocketmqs() -> None:
    assert [kind.sys_flag for kind in KINDS] == [0x101, 0x201, 0x301]


@pytest.mark.parametrize(("kind", "packed"), MADE_BY_ROCKETMQ.items())
def test_what_rocketmqs_compressors_made_is_unpacked(kind: Compression, packed: str) -> None:
    assert decompress(base64.b64decode(packed), kind.sys_flag) == b"order-17 paid; " * 40


def test_bodies_of_other_writers_are_unpacked() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(BODY) + stream.flush()
    assert decompress(unsized, Compression.ZSTD.sys_flag) == BODY
    assert decompress(lz4.frame.compress(BODY, block_linked=True, content_checksum=True), 0x101) == BODY
    assert decompress(zlib.compress(BODY, 9), Compression.ZLIB.sys_flag) == BODY


def test_zlib_is_readable_by_every_zlib() -> None:
    assert zlib.decompress(compress(BODY, Compression.ZLIB, 5)) == BODY


def test_a_body_of_an_old_client_that_names_no_type_is_zlib() -> None:
    assert decompress(zlib.compress(BODY), SYS_COMPRESSED) == BODY


def test_a_body_without_the_flag_is_left_alone() -> None:
    assert decompress(b"plain", 0x300) == b"plain"


@pytest.mark.parametrize("kind", KINDS)
def test_damage_and_early_ends_are_told_by_name(kind: Compression) -> None:
    packed = compress(BODY, kind, 5)
    for bad in (packed[:-5], b"x" + packed, b""):
        with pytest.raises(BadCompression, match=kind.name.lower()):
            decompress(bad, kind.sys_flag)


def test_a_type_that_rocketmq_does_not_have_is_told() -> None:
    with pytest.raises(BadCompression, match="type 5"):
        decompress(b"x", 0x501)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_unpacks_to_far_more_than_it_is_does_not_fill_the_memory(
    kind: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = compress(bytes(30_000_000), kind, 5)
    assert len(bomb) < 300_000
    monkeypatch.setattr(compression, "MOST_UNPACKED", 20_000_000)
    with pytest.raises(BadCompression, match="more than 20000000 bytes"):
        decompress(bomb, kind.sys_flag)
    monkeypatch.undo()
    assert len(decompress(bomb, kind.sys_flag)) == 30_000_000
