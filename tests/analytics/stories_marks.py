"""Histories of marks of ended transactions that a slave never had, and of half messages whose lines nobody will find.
They join the other stories.
"""

from dejamq_proto.journal.events import Boot, ReplicaEvent
from dejamq_proto.journal.writer import Level
from journals import History, Process
from stories import story
from stories_transactions import Bank


@story
def p7_while_a_slave_crashed(made: History) -> None:
    """The master went on all the time; its mark is gathered for seconds, and the check comes before it."""
    bank = Bank(made)
    half = bank.begin()
    bank.commit(half, from_check=False)
    slave = made.process("broker", "slave-1")
    slave.write(Boot(broker_name=bank.name, broker_id=1, address="127.0.0.1:10921", clean=False))
    bank.commit(bank.ask(half), from_check=True)
    bank.mark(half)
    bank.deliver()


def promoted(bank: Bank, log_max: int) -> None:
    """The master dies, and its slave goes on from here; it had ended cleanly to be started anew."""
    bank.broker.kill()
    bank.broker = Process(bank.made, "broker", bank.name, bank.broker.boot_id + "promoted", Level.FORENSIC)
    bank.made.processes.append(bank.broker)
    bank.broker.write(Boot(
        broker_name=bank.name, broker_id=0, address="127.0.0.1:10921", clean=True, log_max=log_max
    ))  # fmt: skip
    bank.broker.write(ReplicaEvent(broker_name=bank.name, broker_id=0, change="promoted", log_offset=log_max))


@story
def p8_of_a_slave_without_the_mark(made: History) -> None:
    """It has the committed message, and not the mark behind it."""
    bank = Bank(made)
    half = bank.begin()
    bank.commit(half, from_check=False)
    bank.mark(half, log_offset=600_000)
    promoted(bank, log_max=550_000)
    bank.commit(bank.ask(half), from_check=True)
    bank.deliver()


@story
def p8_of_a_slave_after_a_clean_restart(made: History) -> None:
    """The master was started anew with the mark in its log; its slave was far behind."""
    bank = Bank(made)
    half = bank.begin()
    bank.commit(half, from_check=False)
    bank.mark(half, log_offset=600_000)
    bank.restart(killed=False)
    promoted(bank, log_max=550_000)
    bank.commit(bank.ask(half), from_check=True)
    bank.deliver()


@story
def p7_after_a_slave_with_the_mark(made: History) -> None:
    """The program says it once more."""
    bank = Bank(made)
    half = bank.begin()
    bank.commit(half, from_check=False)
    bank.mark(half, log_offset=600_000)
    promoted(bank, log_max=700_000)
    bank.commit(half, from_check=False)
    bank.deliver()


@story
def p5_without_the_second_half(made: History) -> None:
    bank = Bank(made)
    bank.commit(bank.begin(call=1), from_check=False)
    bank.commit(bank.begin(call=2, journaled=False), from_check=False)
    bank.deliver()


@story
def p8_without_the_half_that_was_asked_about(made: History) -> None:
    bank = Bank(made)
    half = bank.begin()
    bank.commit(half, from_check=False)
    bank.restart()
    bank.commit(bank.ask(half, journaled=False), from_check=True)
    bank.deliver()


@story
def tx_without_any_half(made: History) -> None:
    bank = Bank(made)
    half = bank.begin(journaled=False)
    for _ in range(2):
        bank.commit(half, from_check=False)
    bank.deliver()
