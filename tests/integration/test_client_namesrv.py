"""A client whose name server is lost while several questions are under way."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from dejamq import RouteNotFound
from dejamq.net.namesrv import NameServerLink
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.namesrv_pb2 import GetRoutesRequest, GetRoutesResponse, RouteAnswer
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


class NewNamesrv(ScriptedNamesrv):
    """Answers several questions at once, as it is told for each topic."""

    def __init__(self, codes: dict[str, int]) -> None:
        super().__init__({"alone": []})
        self.codes, self.calls = codes, list[Sequence[str]]()

    async def GetRoutes(self, request: GetRoutesRequest, _: Any) -> GetRoutesResponse:
        self.calls.append(tuple(request.topics))
        told = [RouteAnswer(code=self.codes[topic], remark=topic) for topic in request.topics]
        return GetRoutesResponse(answers=told)


@asynccontextmanager
async def linked(namesrv: ScriptedNamesrv) -> AsyncIterator[NameServerLink]:
    await namesrv.start()
    link = NameServerLink([namesrv.address], Somebody(), timeout_ms=8000)
    try:
        yield link
    finally:
        await link.close()
        await namesrv.close()


async def test_questions_of_one_turn_are_one_call_and_a_lonely_one_is_its_own() -> None:
    codes = {"here": 0, "gone": int(Code.TOPIC_NOT_EXIST), "broken": int(Code.SYSTEM_ERROR)}
    namesrv = NewNamesrv(codes)  # type: ignore[abstract]  # answers only what is asked here
    async with linked(namesrv) as link:
        here, gone, broken = await asyncio.gather(*map(link.get_route, codes), return_exceptions=True)
        await link.get_route("alone")
    assert (namesrv.calls, [request.topic for request in namesrv.asked]) == ([("here", "gone", "broken")], ["alone"])
    assert not isinstance(here, BaseException)
    assert isinstance(gone, RouteNotFound)
    assert isinstance(broken, DejamqError)
    assert broken.code == Code.SYSTEM_ERROR


async def test_a_name_server_that_knows_no_such_call_is_asked_for_each_topic() -> None:
    topics: dict[str, list[ScriptedBroker]] = {"t0": [], "t1": []}
    namesrv = ScriptedNamesrv(topics)  # type: ignore[abstract]  # answers only what is asked here
    async with linked(namesrv) as link:
        await asyncio.gather(*map(link.get_route, topics))
    assert [request.topic for request in namesrv.asked] == ["t0", "t1"]


async def test_one_question_that_is_given_up_leaves_the_others_of_its_call_alone() -> None:
    namesrv = NewNamesrv({"a": 0, "b": 0, "c": 0})  # type: ignore[abstract]  # answers only what is asked here
    async with linked(namesrv) as link:
        given_up, *others = (asyncio.ensure_future(link.get_route(topic)) for topic in "abc")
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(*others)
        with pytest.raises(asyncio.CancelledError):
            await given_up
    assert namesrv.calls == [("b", "c")]


async def test_a_question_under_way_ends_with_the_link() -> None:
    namesrv = NewNamesrv({})  # type: ignore[abstract]  # answers only what is asked here
    async with linked(namesrv) as link:
        asked = asyncio.ensure_future(link.get_route("alone"))
        await asyncio.sleep(0)
        await link.close()
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_a_name_server_that_answers_too_few_questions_counts_as_one_that_does_not_answer() -> None:
    class Forgetful(NewNamesrv):
        async def GetRoutes(self, request: GetRoutesRequest, _: Any) -> GetRoutesResponse:
            return GetRoutesResponse(answers=[RouteAnswer()])

    async with linked(Forgetful({})) as link:  # type: ignore[abstract]  # answers only what is asked here
        questions = asyncio.gather(*map(link.get_route, ("here", "there")), return_exceptions=True)
        failures = await asyncio.wait_for(questions, 20)
    assert [type(failure) for failure in failures] == [BrokerUnavailable] * 2
    assert "1 answers to 2 questions" in str(failures[0])
