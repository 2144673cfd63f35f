"""Histories of transactions, each with a known truth; they join those of ``stories``."""

import json
from typing import NamedTuple

from dejamq_proto.journal.events import Append, Boot, EndTransaction, ProgressFlush, Tx
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import HALF_TOPIC
from journals import TOPIC, History, Process
from stories import story, story_of


class Half(NamedTuple):
    """A half message by its places."""

    queue_offset: int

    @property
    def log_offset(self) -> int:
        return self.queue_offset * 1000

    @property
    def ref(self) -> str:
        return f"{self.queue_offset}:{self.log_offset}"


class Bank:
    """A broker and a producer of transactions of one message."""

    def __init__(self, made: History, level: Level = Level.FORENSIC) -> None:
        self.made, self.producer = made, made.producer()
        self.broker = made.broker(level=level)
        self.name = self.broker.name
        self.key = made.key(1)
        self._halves = self._finals = self._requests = 0

    def _append(self, origin: str, topic: str, offset: int, log_offset: int, **more: object) -> None:
        self.broker.write(Append(
            origin=origin, broker_name=self.name, topics=[topic], queue_ids=[0], queue_index=[0],
            queue_offsets=[offset], log_offsets=[log_offset], unique_keys=[self.key], **more,  # type: ignore[arg-type]
        ))  # fmt: skip

    def begin(self, call: int = 1, try_no: int = 1, told: bool = True, *, journaled: bool = True) -> Half:
        """The producer sends a half message."""
        self._requests += 1
        if told:
            self.producer.send(self.key, request=self._requests, call=call, try_no=try_no, broker=self.broker)
        half = Half(self._halves)
        self._halves += 1
        if not journaled:
            self.broker.skip_lines(1)
            return half
        self._append("tx_half", HALF_TOPIC, half.queue_offset, half.log_offset,
                     client_boot_id=self.producer.boot_id, request_seq=self._requests)  # fmt: skip
        return half

    def ask(self, half: Half, *, journaled: bool = True) -> Half:
        """A round stores it anew."""
        again = Half(self._halves)
        self._halves += 1
        if not journaled:
            self.broker.skip_lines(1)
            return again
        self._append("tx_check", HALF_TOPIC, again.queue_offset, again.log_offset, origin_refs=[half.ref])
        return again

    def commit(self, half: Half, *, from_check: bool, told: bool = True) -> None:
        """The producer says so, and the broker does it."""
        self._requests += 1
        places = {"half_queue_offset": half.queue_offset, "half_log_offset": half.log_offset}
        named = {"group": "shop", "broker_name": self.name, "unique_key": self.key, "from_check": from_check}
        self.producer.write(Tx(state="commit", request_seq=self._requests, **named, **places))  # type: ignore[arg-type]
        self._append("tx_final", TOPIC, self._finals, 500_000 + self._finals, group="shop", origin_refs=[half.ref],
                     client_boot_id=self.producer.boot_id, request_seq=self._requests)  # fmt: skip
        self._finals += 1
        if told:
            self.broker.write(EndTransaction(
                state="commit", outcome="committed", client_boot_id=self.producer.boot_id, request_seq=self._requests,
                **named, **places,  # type: ignore[arg-type]
            ))  # fmt: skip

    def mark(self, half: Half, log_offset: int = 600_000) -> None:
        progress = json.dumps({"half_offsets": [half.queue_offset], "log_offset": log_offset})
        self.broker.write(ProgressFlush(broker_name=self.name, service="transaction_op", progress=progress))

    def restart(self, *, killed: bool = True, log_max: int = 10_000_000) -> None:
        if killed:
            self.broker.kill()
        else:
            self.broker.close()
        made = Process(self.made, "broker", self.name, self.broker.boot_id + "again", Level.FORENSIC)
        self.made.processes.append(made)
        self.broker = made
        made.write(Boot(
            broker_name=self.name, broker_id=0, address="127.0.0.1:10911", clean=not killed, log_max=log_max
        ))  # fmt: skip

    def deliver(self) -> None:
        """A consumer gets everything that was committed."""
        consumer = self.made.consumer("c1")
        queue = consumer.open_queue(0, broker_name=self.name)
        for offset in range(self._finals):
            consumer.handle(queue, offset, offset + 1, key=self.key, broker_name=self.name, log_offset=500_000 + offset)
        consumer.close()
        self.producer.close()


@story
def tx_once(made: History) -> None:
    """Asked about twice and committed once: nothing is wrong."""
    bank = Bank(made)
    half = bank.ask(bank.ask(bank.begin()))
    bank.commit(half, from_check=True)
    bank.mark(half)
    bank.restart()
    bank.deliver()


def committed_late(made: History, *, told: bool = True, delivered: bool = True) -> None:
    """The program says it when the broker has asked, and was answered."""
    bank = Bank(made)
    half = bank.begin()
    bank.commit(bank.ask(half), from_check=True, told=told)
    bank.commit(half, from_check=False)
    if delivered:
        bank.deliver()
    else:
        bank.producer.close()


story_of("p7-late", committed_late)
story_of("p7-undelivered", committed_late, delivered=False)
story_of("tx-without-an-end", committed_late, told=False)


@story
def p7_two_checks(made: History) -> None:
    bank = Bank(made)
    once = bank.ask(bank.begin())
    twice = bank.ask(once)
    bank.commit(once, from_check=True)
    bank.commit(twice, from_check=True)
    bank.deliver()


@story
def p7_same_commit(made: History) -> None:
    bank = Bank(made)
    half = bank.begin()
    for _ in range(2):
        bank.commit(half, from_check=False)
    bank.deliver()


@story
def p7_half_twice(made: History) -> None:
    """The first try's answer was lost, so the half message was sent again; the first one is asked about."""
    bank = Bank(made)
    lost = bank.begin()
    bank.producer.send_result(1, "connection_lost", definite=False)
    kept = bank.begin(try_no=2)
    bank.commit(kept, from_check=False)
    bank.commit(bank.ask(lost), from_check=True)
    bank.deliver()


@story
def p7_after_a_clean_restart(made: History) -> None:
    bank = Bank(made)
    half = bank.begin()
    again = bank.ask(half)
    bank.commit(again, from_check=True)
    bank.mark(again)
    bank.restart(killed=False)
    bank.commit(half, from_check=False)
    bank.deliver()


@story
def p7_asked_before_the_crash(made: History) -> None:
    """The mark was lost, too, but of a half message that had been stored anew before: that one is asked about."""
    bank = Bank(made)
    half = bank.begin()
    again = bank.ask(half)
    bank.commit(half, from_check=False)
    bank.restart()
    bank.commit(again, from_check=True)
    bank.deliver()


def crashed(
    made: History, *, level: Level = Level.FORENSIC, hole: bool = False, marked_at: int = 0, log_max: int = 10_000_000,
    asked: bool = True,
) -> None:  # fmt: skip
    """The broker did the commit and crashes; ``asked``: it asks and does it again, else the program says it again."""
    bank = Bank(made, level)
    half = bank.begin()
    bank.commit(half, from_check=False)
    if marked_at:
        bank.mark(half, log_offset=marked_at)
    if hole:
        bank.broker.skip_lines(1)
        bank.broker.fault(bank.broker, "none")
    bank.restart(log_max=log_max)
    bank.commit(bank.ask(half) if asked else half, from_check=asked)
    bank.deliver()


story_of("p8", crashed)

# The mark was stored, and lost with the end of the log.
story_of("p8-after-a-power-loss", crashed, marked_at=700_000, log_max=700_000)

story_of("p8-with-a-hole", crashed, hole=True)
story_of("p8-at-level-audit", crashed, level=Level.AUDIT)
story_of("p7-although-marked", crashed, marked_at=600_000, asked=False)


@story
def p8_of_a_check(made: History) -> None:
    bank = Bank(made)
    half = bank.ask(bank.begin())
    bank.commit(half, from_check=True)
    bank.restart()
    bank.commit(bank.ask(bank.ask(half)), from_check=True)
    bank.deliver()


@story
def p5_in_two_transactions(made: History) -> None:
    bank = Bank(made)
    for call in (1, 2):
        bank.commit(bank.begin(call=call), from_check=False)
    bank.deliver()


@story
def tx_halves_of_an_unknown_producer(made: History) -> None:
    bank = Bank(made)
    for _ in range(2):
        bank.commit(bank.begin(told=False), from_check=False)
    bank.deliver()
