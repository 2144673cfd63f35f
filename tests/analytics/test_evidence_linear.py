"""Lines of any length are read in linear time: a log is what others wrote, and a line may hold up to a mebibyte."""

import re
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from dejamq_analytics.evidence import client_log, go_log, server_logs

SHORT, TIMES_LONGER = 10_000, 8
MOST = TIMES_LONGER * 3
"""A quadratic pattern takes 64 times as long, a linear one 8 times."""
TOO_SHORT_S = 0.004
"""A time below this is that of the clock and of other programs."""
WORDS = re.compile(r"\(\?P<\w+>|\(\?[:>=!]|\[\^?[^\]]*\]\+*|\.\*\??|\\[Swds]\+*|[()|+]")
Read = Callable[[str], object]


def bare(part: str) -> str:
    return part.replace("\\", "").replace("?", "")


def pieces(pattern: str) -> Iterator[str]:
    """What a line may repeat: each of the pattern's words, and each beginning of it, with a letter for what varies."""
    words = [bare(part) for part in WORDS.split(pattern)]
    yield from {word for word in words if len(word) > 3}
    for end in range(1, len(words) + 1):
        for gap in ("x", "1", ""):
            yield gap.join(words[:end])


def seconds(read: Read, text: str) -> float:
    """The shortest of three: this process's own time, whatever else runs."""
    found = []
    for _ in range(3):
        began = time.process_time()
        read(text)
        found.append(time.process_time() - began)
    return min(found)


def check(read: Read, piece: str) -> None:
    long_s = seconds(read, piece * (SHORT * TIMES_LONGER // len(piece)))
    if long_s < TOO_SHORT_S:
        return
    short_s = seconds(read, piece * (SHORT // len(piece)))
    assert long_s < max(short_s, TOO_SHORT_S / MOST) * MOST, f"{short_s:.4f} s, then {long_s:.4f} s for {piece[:200]!r}"


@pytest.mark.parametrize("name", server_logs.PATTERNS)
def test_a_line_of_a_server_that_is_eight_times_as_long_takes_eight_times_as_long(name: str) -> None:
    pattern = server_logs.PATTERNS[name]
    for piece in {piece for piece in pieces(pattern) if piece}:
        check(re.compile(pattern).match, piece)


@pytest.mark.parametrize("name", client_log.PATTERNS)
def test_a_line_of_a_client_that_is_eight_times_as_long_takes_eight_times_as_long(name: str) -> None:
    pattern = client_log.PATTERNS[name]
    for piece in {piece for piece in pieces(pattern) if piece}:
        check(re.compile(pattern).match, piece)


LISTS = {
    "queues of a round": client_log.ALL_QUEUES, "brokers of a route": client_log.ROUTED, "messages": client_log.MESSAGE,
    "offsets of a reset": server_logs.RESET_TO, "offsets of a deletion": server_logs.CLEANED,
    "queue in Go": go_log.GO_QUEUE,
    "fields in Go": go_log.FIELDS,
}  # fmt: skip
ODD = ["1", "a=", 'a="', 'a="\\"', "a=\\", '"queueId":1', "queueId=1 queueOffset=1 ", "queueOffset=1 reconsumeTimes=1 "]


@pytest.mark.parametrize("name", LISTS)
def test_lists_within_a_line_are_read_in_linear_time(name: str) -> None:
    pattern = LISTS[name]
    found: set[str] = {*pieces(pattern.pattern), *ODD} - {""}
    for piece in found:
        check(partial(_all_of, pattern), piece)
        check(lambda text: _all_of(pattern, f"queueId=1 {text}"), piece)


def _all_of(pattern: re.Pattern[str], text: str) -> None:
    for _ in pattern.finditer(text):
        pass


@pytest.mark.parametrize("read", [server_logs.is_one, client_log.is_one, go_log.is_one], ids=["server", "Java", "Go"])
def test_whole_lines_of_all_words_are_read_in_linear_time(read: Read) -> None:
    for patterns in (server_logs.PATTERNS, client_log.PATTERNS):
        for pattern in patterns.values():
            check(read, " ".join(bare(part) for part in WORDS.split(pattern)) + " ")
