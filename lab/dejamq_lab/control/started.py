"""A server under test, started and ended by its tests."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dejamq_proto.account import Account

from dejamq_lab.control.client import Control
from dejamq_lab.errors import ClusterFailed

READY_S, END_S, POLL_S = 60, 30, 0.02
SAID = re.compile(r"^ready dev ([^;]+);.*\ncontrol (\S+)\n", re.MULTILINE)
STEADY = {"disk_check_enable": False, "broker_fast_failure_enable": False}
"""A test means the same on a machine whose disk is nearly full, or that is busy with something else."""


class DejamqServer(Control):
    """A name server and a broker at one address of the loopback, for clients in any language.

    ``namesrv`` is for clients of RocketMQ's remoting protocol (NAMESRV_ADDR), and for dejamq's. ``endpoints`` is for
    clients of protocol v2, 5.x. Both are the same host and port. ``environment`` has them for a program under test.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, account: Account | None = None) -> None:
        """``settings`` of the broker, in either spelling; ``account`` where they switch access control on. It is not
        started.
        """
        super().__init__("", account)
        self._settings = STEADY | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.namesrv = ""

    @property
    def endpoints(self) -> str:
        """As ``namesrv``, by the name that clients of protocol v2 use."""
        return self.namesrv

    @property
    def environment(self) -> dict[str, str]:
        """What programs look for."""
        return {"NAMESRV_ADDR": self.namesrv, "DEJAMQ_NAMESRV": self.namesrv}

    def start(self) -> Self:
        """Returns when clients can connect. Raises ClusterFailed with what the server said instead."""
        self._folder = Path(tempfile.mkdtemp(prefix="dejamq-server-"))
        command = [sys.executable, "-m", "dejamq_lab.cluster.die_with_parent", str(os.getpid()), "dejamq_lab.dev"]
        command += ["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--store", str(self._folder / "store")]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        # its flags say everything, whatever this run has in its environment
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DEJAMQ_")}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        try:
            self._read_addresses()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """The server drains and ends; what it stored goes. May be called twice."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_addresses(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_S
        while True:
            said = (self._folder / "log").read_text()
            if found := SAID.search(said):
                self.namesrv, self.url = found.groups()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = said.strip().splitlines()[-1:] or ["it said nothing"]
                raise ClusterFailed(f"the server did not start: {last[0]}")
            time.sleep(POLL_S)
