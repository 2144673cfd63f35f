import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process


async def run(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_namesrv", *arguments, stdout=PIPE, stderr=PIPE
    )


async def failed(*arguments: str) -> tuple[int | None, str]:
    process = await run(*arguments)
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_it_says_when_it_is_ready_and_ends_cleanly_on_sigterm() -> None:
    process = await run("--listen", "127.0.0.1:0", "--set", "name=namesrv-7")
    assert process.stdout is not None
    ready = (await process.stdout.readline()).decode().split()
    assert ready[:3] == ["ready", "namesrv", "namesrv-7"]
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    lines = errors.decode().splitlines()
    assert process.returncode == 0
    assert [line.split(" event=")[1].split(" ")[0] for line in lines] == [
        "starting", "setting", "setting", "settings_default", "journal",
    ]  # fmt: skip
    assert "name=listen value=127.0.0.1:0 default=127.0.0.1:9876" in lines[1]


async def test_a_port_in_use_is_one_line_and_status_1() -> None:
    holder = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = holder.sockets[0].getsockname()[1]
    status, errors = await failed("--listen", f"127.0.0.1:{port}")
    holder.close()
    await holder.wait_closed()
    assert status == 1
    assert errors.startswith("dejamq-namesrv: cannot listen on")
    assert len(errors.splitlines()) == 1


async def test_a_setting_that_does_not_exist_is_one_line_and_status_2() -> None:
    status, errors = await failed("--set", "scan_interval=5")
    assert status == 2
    assert errors.startswith("dejamq-namesrv: unknown setting 'scan_interval'")
    assert len(errors.splitlines()) == 1
