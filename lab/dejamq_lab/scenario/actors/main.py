"""``python -m dejamq_lab.scenario.actors.main PART.json``: an actor as a process, led by its standard input.

A command is a line ``{"id": 1, "do": "send", "arguments": {…}}``; its answer one ``{"id": 1, "value": …}`` or
``{"id": 1, "error": "…"}``. Commands run side by side. At the end of the input, and on SIGTERM, the client is closed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.codes import DejamqError
from dejamq_proto.serving.server import wait_for_signal

from dejamq_lab.scenario.actors.performer import ActorPart, Performer
from dejamq_lab.scenario.script.steps import Send


class ActorCommand(msgspec.Struct, frozen=True):
    """One line of input."""

    id: int
    do: str
    arguments: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of output."""

    id: int
    value: int | None = None
    error: str = ""


async def perform(performer: Performer, command: ActorCommand) -> int | None:
    """Do one command. Raises what the client raises."""
    arguments = command.arguments
    match command.do:
        case "send":
            return await performer.send(msgspec.convert(arguments["step"], Send), arguments["first"])
        case "sent":
            return await performer.sent()
        case "owned":
            return performer.owned()
        case "release":
            performer.release()
        case "call":
            await performer.call(arguments["method"], arguments["arguments"])
        case "start":
            await performer.start()
        case "close":
            await performer.close()
        case _:
            raise ValueError(f"no command {command.do!r}")
    return None


async def main(part: ActorPart) -> None:
    performer = Performer(part)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _say(Answer(0))
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(wait_for_signal()), tasks.create_task(_obey(reader, performer, tasks))]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await performer.end()


async def _obey(reader: asyncio.StreamReader, performer: Performer, tasks: asyncio.TaskGroup) -> None:
    while line := await reader.readline():
        tasks.create_task(_answer(performer, msgspec.json.decode(line, type=ActorCommand)))


async def _answer(performer: Performer, command: ActorCommand) -> None:
    try:
        _say(Answer(command.id, value=await perform(performer, command)))
    except (DejamqError, ValueError, RuntimeError) as error:
        _say(Answer(command.id, error=str(error) or repr(error)))


def _say(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ActorPart)))
