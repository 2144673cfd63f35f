"""A container of dejamq for tests in Python, on Testcontainers: ``pip install 'dejamq[testcontainers]'``.

with DejamqContainer() as mq:
    producer = Producer("shop", namesrv=mq.namesrv)
    mq.control.answer_lost("send")
"""

import time
from typing import Self

from dejamq_proto.codes import DejamqError
from testcontainers.core.container import DockerContainer

from dejamq_lab.control.client import Control
from dejamq_lab.errors import ClusterFailed

PORT, CONTROL_PORT = 9876, 9877
READY_S, POLL_S = 120, 0.2


class DejamqContainer(DockerContainer):
    """A name server and a broker, ready when ``start`` returns. Clients on the host are told the mapped port.

    ``namesrv`` is for clients of RocketMQ's remoting protocol (NAMESRV_ADDR), and for dejamq's. ``endpoints`` is for
    clients of protocol v2. ``control`` has the faults and ``duplicates``.
    """

    def __init__(self, image: str = "dejamq:local") -> None:
        super().__init__(image)
        self.with_exposed_ports(PORT, CONTROL_PORT)
        self.with_command(f"dev --listen=0.0.0.0:{PORT} --control=0.0.0.0:{CONTROL_PORT}")

    @property
    def namesrv(self) -> str:
        """The address on the host."""
        return self._mapped(PORT)

    @property
    def endpoints(self) -> str:
        """As ``namesrv``, by the name that clients of protocol v2 use."""
        return self.namesrv

    @property
    def control(self) -> Control:
        """Faults as methods."""
        return Control(f"http://{self._mapped(CONTROL_PORT)}")

    def start(self) -> Self:
        """Raises ClusterFailed with what the container said, where it does not become ready."""
        super().start()
        try:
            self._advertise()
        except BaseException:
            self.stop()
            raise
        return self

    def _advertise(self) -> None:
        """A published port is known only now, and a container takes connections before its server does."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.control.advertise(self.namesrv)
            except DejamqError as error:
                if time.monotonic() < deadline and self.status != "exited":
                    time.sleep(POLL_S)
                    continue
                said = b"".join(self.get_logs()).decode("utf-8", "replace").strip()
                raise ClusterFailed(f"dejamq is not ready ({error}); its container said: {said}") from None
            return

    def _mapped(self, port: int) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"
