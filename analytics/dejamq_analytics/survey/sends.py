"""Tries of producers that wait for their answers, in the lines of one task."""

from typing import NamedTuple

from dejamq_analytics.survey.wire import JournalLine

SENDS = ("SEND_TRY", "SEND_RESULT")


class SentTry(NamedTuple):
    """A SEND_TRY as it stands."""

    line: JournalLine
    text: bytes
    file: str


class PairedSends:
    """Both readings see the same lines in the same order, so they pair the same ones."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], list[SentTry]] = {}

    def tried(self, line: JournalLine, text: memoryview, file: str) -> None:
        """Remember it."""
        self._waiting.setdefault((line.boot_id, line.request_seq), []).append(SentTry(line, bytes(text), file))

    def answered(self, line: JournalLine) -> SentTry | None:
        """The try that this SEND_RESULT is of, if it is among the lines before it and the only one of its number."""
        waiting = self._waiting.get((line.boot_id, line.request_seq), [])
        if len(waiting) != 1:
            return None
        del self._waiting[line.boot_id, line.request_seq]
        return waiting[0]

    def unanswered(self) -> list[SentTry]:
        """Sends without an answer."""
        return [sent for several in self._waiting.values() for sent in several]
