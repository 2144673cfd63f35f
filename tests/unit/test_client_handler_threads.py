"""Threads of plain handlers: as many as are needed, waited for at the end of the program unless they are abandoned."""

import subprocess
import sys
import threading
import time

import pytest
from dejamq.handling.handler_threads import HandlerThreads

PROGRAM = """
import threading, time
from dejamq.handling.handler_threads import HandlerThreads
threads, entered = HandlerThreads(2, "test"), threading.Event()
def handler():
    entered.set()
    time.sleep({seconds})
    print("finished", flush=True)
threads.submit(handler)
assert entered.wait(10)
{then}
"""


def said(seconds: float, then: str) -> str:
    program = PROGRAM.format(seconds=seconds, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("then", ["pass", "threads.shutdown(wait=False)", "threads.shutdown(wait=False); del threads"])
def test_the_end_of_the_program_waits_for_a_handler(then: str) -> None:
    assert said(0.3, then) == "finished\n"


@pytest.mark.slow
@pytest.mark.parametrize("then", ["threads.abandon()", "threads.abandon(); threads.shutdown(wait=False)"])
def test_the_end_of_the_program_does_not_wait_for_an_abandoned_one(then: str) -> None:
    assert said(600, then) == ""


def test_threads_are_made_as_they_are_needed_and_end_with_the_last_work() -> None:
    threads, together = HandlerThreads(3, "few"), threading.Barrier(3)
    assert [threads.submit(threading.get_ident).result(5) for _ in range(2)]
    found = [threads.submit(together.wait, 10) for _ in range(3)]
    assert sorted(one.result(10) for one in found) == [0, 1, 2]
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("few")]
    assert len(mine) == 3
    threads.shutdown()
    assert not any(thread.is_alive() for thread in mine)
    with pytest.raises(RuntimeError, match="no more work"):
        threads.submit(print)


def test_what_has_not_begun_is_cancelled_and_what_has_ends_with_its_answer() -> None:
    threads, go_on = HandlerThreads(1, "one"), threading.Event()
    running, waiting = threads.submit(go_on.wait, 10), threads.submit(print)
    while not running.running():
        time.sleep(0.001)
    threads.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    assert running.result(10)
    assert waiting.cancelled()


def test_an_error_reaches_who_asked_and_the_thread_goes_on() -> None:
    threads = HandlerThreads(1, "errors")
    assert isinstance(threads.submit(int, "x").exception(10), ValueError)
    assert threads.submit(int, "7").result(10) == 7
    threads.shutdown()
