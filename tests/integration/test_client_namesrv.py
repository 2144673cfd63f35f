"""A client whose name server is lost while several questions are under way."""

import asyncio

from dejamq.rpc_namesrv import NameServerLink
from dejamq_proto.common_pb2 import Caller
from scripted_broker import ScriptedBroker, ScriptedNamesrv


class Somebody:
    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq)


async def test_questions_that_fail_together_at_one_name_server_all_go_to_the_next(unused_tcp_port: int) -> None:
    topics: dict[str, list[ScriptedBroker]] = {f"t{number}": [] for number in range(4)}
    namesrv = ScriptedNamesrv(topics)  # type: ignore[abstract]  # answers only what is asked here
    await namesrv.start()
    for _ in range(4):  # whichever it begins with
        link = NameServerLink([f"127.0.0.1:{unused_tcp_port}", namesrv.address], Somebody(), timeout_ms=8000)
        await asyncio.gather(*map(link.get_route, topics))
        assert link.address == namesrv.address
        await link.close()
    await namesrv.close()
