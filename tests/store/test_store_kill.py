"""A real process, killed with SIGKILL while it appends: what it reported is there."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_making import open_small, records_of, run_of

PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[2])
from store_making import open_small, run_of
store = open_small(sys.argv[1], clock_ms=lambda: int(time.time() * 1000))
number = 0
while True:
    run = [("T", n % 3, b"%d" % n + b"." * (n * 37 % 900)) for n in range(number, number + 17)]
    appended = store.append_run(run_of(run))
    for (topic, queue_id, _), queue_offset in zip(run, appended.queue_offsets.tolist()):
        print(number, queue_id, queue_offset, flush=queue_id == 0)
        number += 1
"""


def killed_after(directory: Path, lines: int) -> list[tuple[int, int, int]]:
    """Number, queue id, queue offset of every message that the process reported before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, directory, Path(__file__).parent], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    assert process.wait(10) == -signal.SIGKILL
    numbers = [tuple(map(int, line.split())) for line in told if line.endswith("\n")]
    return [(number, queue_id, queue_offset) for number, queue_id, queue_offset in numbers]


@pytest.mark.slow
@pytest.mark.process
def test_what_was_reported_before_the_kill_is_there_three_kills_in_a_row(tmp_path: Path) -> None:
    reported: dict[tuple[int, int], int] = {}
    for lines in (200, 1500, 700):
        for number, queue_id, queue_offset in killed_after(tmp_path, lines):
            assert (queue_id, queue_offset) not in reported
            reported[queue_id, queue_offset] = number
    store = open_small(tmp_path)
    assert not store.clean_start
    for queue_id in range(3):
        records = records_of(store, "T", queue_id)
        assert [record.queue_offset for record in records] == list(range(len(records)))
        stored = {(queue_id, record.queue_offset): int(record.body.rstrip(b".")) for record in records}
        mine = {key: number for key, number in reported.items() if key[0] == queue_id}
        assert mine.items() <= stored.items()
    ends = [store.max_offset("T", queue_id) for queue_id in range(3)]
    appended = store.append_run(run_of([("T", queue_id, b"after") for queue_id in range(3)]))
    assert appended.queue_offsets.tolist() == ends
