"""One actor in a process of its own, with a home of its own; it says on its output what happens to it."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dejamq_lab.cluster.die_with_parent import tie
from dejamq_lab.machines.rocketmq import Failed

CLIENT_LOG, GO_LOG = "rocketmq_client.log", "rocketmq-go.log"
WAIT_S = 180
LOOK_S = 0.05


class Machine:
    """Its log files are below ``home``."""

    def __init__(self, name: str, home: Path, command: list[str]) -> None:
        self.name, self.home = name, home
        home.mkdir(parents=True, exist_ok=True)
        self._said = (home / "said.txt").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=tie,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> list[str]:
        """Its lines: when in milliseconds, a word, and what it is about."""
        return (self.home / "said.txt").read_text(errors="replace").splitlines()

    def keys(self, word: str) -> list[str]:
        """Keys of the messages of which it said this word."""
        return [line.split()[2] for line in self.said() if line.split()[1:2] == [word]]

    def wait(self, *words: str, times: int = 1, within: float = WAIT_S) -> None:
        """Until so many of its lines have these words one after the other. Raises Failed."""
        pattern, deadline = re.compile(r"^\d+ " + " ".join(words) + r"\b"), time.monotonic() + within
        while True:
            over = self._process.poll() is not None or time.monotonic() > deadline
            if sum(bool(pattern.search(line)) for line in self.said()) >= times:
                return
            if over:
                raise Failed(f"{self.name} did not say {' '.join(words)} {times} times: {self.said()[-5:]}")
            time.sleep(LOOK_S)

    def log(self) -> str:
        """What RocketMQ's client has logged there."""
        return "".join(log.read_text(errors="replace") for log in self.logs())

    def logs(self) -> list[Path]:
        return [*self.home.rglob(CLIENT_LOG), *self.home.rglob(GO_LOG)]

    def tell(self, letter: str) -> None:
        """p suspends a consumer, r resumes it."""
        assert self._process.stdin is not None
        self._process.stdin.write(letter.encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still inside of the ``with``."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """In order. Raises Failed."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {WAIT_S} s: {self.said()[-5:]}") from None

    def end(self) -> None:
        """At once, if it runs."""
        if self._process.poll() is None:
            self.kill()
        if self._process.stdin:
            self._process.stdin.close()
        self._said.close()
