"""The first thing a broker's journal says: an audit finds the records of its log by it."""

from pathlib import Path

from broker_wire import Wire, a_run, records_of, running
from journalled import journalled


async def test_boot_names_the_store_host_of_the_records_also_behind_a_host_name(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    journal = tmp_path / "journal"
    settings = {"listen": f"127.0.0.1:{unused_tcp_port}", "advertise": f"localhost:{unused_tcp_port}"}
    settings |= {"journal_dir": str(journal), "journal_level": "forensic"}
    async with running(tmp_path / "store", **settings) as broker, Wire(broker.address) as wire:
        assert (await wire.send(a_run("orders", [b"x"]))).code == 0
        (stored,) = records_of(await wire.pull("orders"))
    (path,) = journal.glob("broker-*.jsonl")
    (boot,) = journalled(path, "BOOT")
    assert boot["address"] == f"{stored.store_host[0]}:{stored.store_host[1]}" == f"127.0.0.1:{unused_tcp_port}"
