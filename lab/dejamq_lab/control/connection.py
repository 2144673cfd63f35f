"""One HTTP connection of the pages, where bytes that are no request end it in silence of the log.

uvicorn answers such bytes with a 400, also while a request before them is being answered. That answer is then one too
many for its library, and each such connection writes a traceback into the log.
"""

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PageConnection(H11Protocol):
    """For ``uvicorn.Config(http=…)``. Pages take no upgrade to another protocol."""

    def send_400_response(self, msg: str) -> None:
        """Only where nothing else is being answered; else the connection ends, and that answer goes nowhere."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _should_upgrade(self) -> bool:
        return False
