"""Journals in parts: each line is read once, whatever the parts; and an index leaves out no line that matters."""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks, index, keys, places
from dejamq_analytics.survey.chunks import Chunk, LineSpan
from dejamq_analytics.survey.index import ChunkIndex
from dejamq_analytics.survey.order import Range
from dejamq_analytics.survey.pick import Pick, Reasons, WantedLines
from dejamq_analytics.survey.wire import JournalLine, Read
from journals import History
from plain_runs import write_runs


def lines_of(directory: Path) -> list[bytes]:
    """In parts as small as ``chunks.BYTES`` says, and each of them found again by its place."""
    parts = chunks.cut([str(directory)])
    assert parts is not None
    read = [(part, span, bytes(text)) for part in parts for span, (text, _) in chunks.read(part)]
    again = [bytes(text) for part, span, _ in read for text, _ in chunks.read_some(part, [span])]
    assert again == [text for _, _, text in read]
    return again


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000, 1 << 20])
def test_each_line_is_in_one_part(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BYTES", size)
    texts = {
        "a": b'{"event":"A","seq":1}\n\n{"event":"B","seq":2}\n' + b'{"event":"C","seq":3}',
        "b": b'\n{"event":"D","seq":1}\r\n{"torn\n', "c": b"", "d": b'{"ev', "e": b"\n\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / f"consumer-{name}-{name}.jsonl").write_bytes(text)
    (tmp_path / "_part.jsonl").write_bytes(b'{"event":"HIDDEN","seq":1}\n')
    every = [line for text in texts.values() for line in text.split(b"\n") if line]
    assert lines_of(tmp_path) == every


def test_a_journal_that_was_rotated_between_the_readings_is_found_again(tmp_path: Path) -> None:
    journal = tmp_path / "broker-a-boot.jsonl"
    journal.write_bytes(b'{"event":"A","seq":1}\n')
    [part] = chunks.cut([str(tmp_path)]) or []
    [(span, _)] = chunks.read(part)
    journal.rename(tmp_path / "broker-a-boot.1.jsonl")
    journal.write_bytes(b'{"event":"Z","seq":9}\n')
    assert [bytes(text) for text, _ in chunks.read_some(part, [span])] == [b'{"event":"A","seq":1}']
    (tmp_path / "broker-a-boot.1.jsonl").unlink()
    with pytest.raises(BadInput, match="was replaced while it was read: audit a copy"):
        list(chunks.read_some(part, [span]))


def test_what_lies_elsewhere_is_not_cut(tmp_path: Path) -> None:
    assert chunks.cut([str(tmp_path), "hdfs://somewhere/journals"]) is None


def some_wanted(chance: random.Random, lines: list[JournalLine]) -> WantedLines:
    """A reason of each kind or none, about numbers that are there and such as are not."""

    def one() -> JournalLine:
        return chance.choice([line for line in lines if line.queue_offsets])

    def maybe(made: object) -> list[object]:
        return [made] * chance.randrange(2)

    where, about, asked, marked, lost = one(), one(), one(), one(), one()
    place = places.place(where.broker_name, where.topic or where.topics[0], where.queue_id)
    offset = chance.choice(where.queue_offsets) + chance.choice([0, 0, 500])
    hashed = keys.at(keys.hashed([place]), np.array([offset]))
    offsets = {about.queue_offsets[0] >> places.BLOCK}
    name = places.place(about.broker_name, about.topic or about.topics[0], about.queue_id)
    ranged = Range(marked.boot_id, name, marked.group, marked.seq - 3, marked.seq + 3, chance.randrange(2000), -1)
    return WantedLines(
        keys=np.empty(0, np.uint64), places=hashed.astype(np.uint32)[: chance.randrange(2)],
        blocks=dict([(name, offsets)] * chance.randrange(2)),
        asked={asked.boot_id: set(asked.delivery_ids[:1])}, marks={(marked.boot_id, marked.pq_id, offset)},
        groups=set(map(str, maybe(about.group))) - {""}, topics=set(map(str, maybe(about.topic))) - {""},
        ranges=[ranged], gone=dict([((lost.broker_name, lost.boot_id), 5_000)] * chance.randrange(2)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_an_index_names_every_line_that_would_be_taken(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    write_runs(History(tmp_path, "plain"), again=3, unseen=7)
    parts = chunks.cut([str(tmp_path)])
    assert parts is not None
    read = [(part, *one) for part in parts for one in chunks.read(part)]
    every = [line for _, _, (_, line) in read if line is not None]
    wanted, few = some_wanted(chance, every), 0
    for part in parts:
        mine = [(span, one) for other, span, one in read if other == part]
        spans = index.chosen(msgspec.msgpack.decode(indexed(part, mine), type=index.StoredIndex), Reasons(wanted))
        named = [one for span, one in mine if span in spans or one[1] is None]
        assert texts_of(named, wanted) == texts_of([one for _, one in mine], wanted), seed
        few += len(named) < len(mine)
    assert few, "it leaves out some"


def indexed(part: Chunk, lines: list[tuple[LineSpan, Read]]) -> bytes:
    made = ChunkIndex()
    for span, (_, line) in lines:
        if line is not None and line.event in ("DELIVER", "RESULT", "APPEND"):
            made.add(line, span)
    return made.stored(part)


def texts_of(lines: list[Read], wanted: WantedLines) -> list[str]:
    return [text for text, _ in Pick(Reasons(wanted)).taken((text, line, "file") for text, line in lines)]
