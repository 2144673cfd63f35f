"""Whole programs with dejamq.sync: how they end, what Ctrl-C does, and what a fork does."""

import signal
from collections.abc import Iterator

import pytest
from dejamq_lab import Cluster
from journalled import journalled
from sync_cluster import cluster, script

pytestmark = pytest.mark.process

START = """
import asyncio, os, sys, threading
from dejamq import ConsumeFrom, ForkedProcess, Message
from dejamq.sync import Producer, PushConsumer

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece, also from threads

"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def ended(here: Cluster, text: str, timeout_s: float = 40) -> list[str]:
    """What a program said that has to end by itself, with status 0 and without a word of complaint."""
    with script(here, START + text) as program:
        out, err = program.communicate(timeout=timeout_s)
    assert (program.returncode, err) == (0, "")
    return out.split()


def closed_in_journal(here: Cluster, boot_id: str) -> bool:
    (path,) = here.journal_dir.glob(f"*{boot_id}.jsonl")
    return any(line["state"] == "closed" for line in journalled(path, "STATE"))


def test_a_program_that_leaves_its_clients_open_ends_and_they_are_closed(here: Cluster) -> None:
    (boot_id,) = ended(
        here,
        """
producer = Producer("p"); producer.start()
consumer = PushConsumer("left-open", consume_from=ConsumeFrom.FIRST_OFFSET)
handled = threading.Event()
consumer.subscribe("orders", lambda message: handled.set())
consumer.start()
producer.send(Message("orders", b"x"))
assert handled.wait(20)
say(consumer.boot_id)
""",
    )
    assert closed_in_journal(here, boot_id)


def test_a_program_that_closes_everything_leaves_one_thread_to_its_end(here: Cluster) -> None:
    assert ended(
        here,
        """
for _ in range(10):
    with Producer("p") as producer:
        producer.send(Message("orders", b"x"))
say(*(thread.name for thread in threading.enumerate() if thread.name.startswith("dejamq")))
""",
    ) == ["dejamq-loop"]


def test_ctrl_c_interrupts_a_wait_and_the_client_goes_on(here: Cluster) -> None:
    with script(
        here,
        START
        + """
producer = Producer("p"); producer.start()
try:
    say("waiting")
    producer.request(Message("nobody-answers", b"x"), 60_000)
except KeyboardInterrupt:
    say("interrupted", producer.send(Message("orders", b"y")).status.name)
producer.close()
""",
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "waiting"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=40)
    assert (out.split(), err, program.returncode) == (["interrupted", "SEND_OK"], "", 0)


def test_ctrl_c_while_a_consumer_starts_closes_it_although_its_handler_waits_for_that(here: Cluster) -> None:
    program_text = """
consumer = PushConsumer("interrupted", consume_from=ConsumeFrom.FIRST_OFFSET)
def handler(message):
    say("entered")
    while not consumer.closed:
        threading.Event().wait(0.01)
consumer.subscribe("orders", handler)
with Producer("p") as producer:
    producer.send(Message("orders", b"x"))
start = consumer._inner.start
async def start_and_wait():
    await start()
    await asyncio.Event().wait()
consumer._inner.start = start_and_wait
consumer.start()
"""
    with script(here, START + program_text) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "entered"
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=40)
    assert err.strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_serving_program(here: Cluster, number: signal.Signals) -> None:
    with script(
        here,
        START
        + f"""
consumer = PushConsumer("drained-{number.name}", consume_from=ConsumeFrom.FIRST_OFFSET)
entered, go_on = threading.Event(), threading.Event()
def handler(message):
    say("entered")
    while not consumer.closed:
        go_on.wait(0.01)
    say("finished")
consumer.subscribe("refunds", handler)
with Producer("p") as producer:
    producer.send(Message("refunds", b"x"))
consumer.run_until_stopped()
say("ended")
""",
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "entered"
        program.send_signal(number)
        out, err = program.communicate(timeout=40)
    assert (out.split()[-1], err, program.returncode) == ("ended", "", 0)
    assert out.split().count("finished") >= 1


SERVING = {
    "sync": "consumer.run_until_stopped()",
    "asyncio": "asyncio.run(consumer._inner.run_until_stopped())",
}


@pytest.mark.parametrize("kind", list(SERVING))
def test_a_second_signal_ends_the_process_though_a_plain_handler_blocks(here: Cluster, kind: str) -> None:
    program_text = f"""
import time
consumer = PushConsumer("hurried-{kind}", consume_from=ConsumeFrom.FIRST_OFFSET)
consumer.subscribe("hurried-{kind}", lambda message: (say("entered"), time.sleep(600)))
with Producer("p") as producer:
    producer.send(Message("hurried-{kind}", b"x"))
{SERVING[kind]}
say("ended")
"""
    with script(here, START + program_text) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "entered"
        program.send_signal(signal.SIGINT)
        assert program.stderr is not None
        assert program.stderr.readline().startswith(f"handlers_running group=hurried-{kind}: they get 20 s to end")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert (out.split(), program.returncode) == (["ended"], 0)
    assert err.startswith("handlers_cancelled group=hurried-")
    assert err.count("\n") == 1


def test_an_event_loop_hears_nothing_of_another_one_that_has_ended(here: Cluster) -> None:
    assert ended(
        here,
        """
import dejamq
async def one():
    consumer, came = dejamq.PushConsumer("loops", consume_from=ConsumeFrom.FIRST_OFFSET), asyncio.Event()
    async def handler(message):
        came.set()
    consumer.subscribe("orders", handler)
    async with dejamq.Producer("p") as asyncio_producer, consumer:
        await asyncio_producer.send(Message("orders", b"x"))
        await came.wait()
with Producer("p") as producer:
    for _ in range(20):
        asyncio.run(one())
    say(producer.send(Message("orders", b"x")).status.name)
""",
    ) == ["SEND_OK"]


def test_in_a_child_forked_beside_a_running_client_every_client_is_refused(here: Cluster) -> None:
    assert ended(
        here,
        """
started, unstarted = Producer("p"), Producer("p")
started.start()
started.send(Message("orders", b"x"))
child = os.fork()
if child == 0:
    for call in (lambda: started.send(Message("orders", b"x")), lambda: started.submit(Message("orders", b"x")),
                 unstarted.start, started.close, Producer("new").start):
        try:
            call()
        except ForkedProcess as error:
            say("forked")
    os._exit(0)
os.waitpid(child, 0)
say(started.send(Message("orders", b"y")).status.name)
started.close()
""",
    ) == ["forked"] * 5 + ["SEND_OK"]


def test_a_worker_forked_from_a_master_without_clients_works(here: Cluster) -> None:
    assert ended(
        here,
        """
for _ in range(2):
    child = os.fork()
    if child == 0:
        with Producer("worker") as producer:
            say(producer.send(Message("orders", b"x")).status.name)
        sys.exit(0)
    os.waitpid(child, 0)
say("master")
""",
    ) == ["SEND_OK", "SEND_OK", "master"]
