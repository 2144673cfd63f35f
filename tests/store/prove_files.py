"""``python tests/store/prove_files.py``: a million damaged files to every reader of files, in bounded memory.

An input is a real file with one to four changes. It is read or refused in words; anything else is a fault, whose input
is kept in ``tests/data/hostile_files`` for the tests.
"""

import argparse
import hashlib
import logging
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from file_readers import Reader, read_as, readers
from hostile_bytes import damaged

CORPUS = Path(__file__).parent.parent / "data" / "hostile_files"
MOST_MIB = 200
SLOW_S = 20


def attack(reader: Reader, inputs: int, seed: int, folder: Path) -> Counter[str]:
    """Ends by kind. Raises AssertionError that names the seed."""
    ends = Counter[str]()
    for number in range(inputs):
        source = random.Random(f"{reader.name} {seed + number}")
        data = damaged(source.choice(reader.seeds), source, text=reader.text)
        began = time.process_time()
        try:
            ends[read_as(reader, data, folder)] += 1
        except Exception as error:
            kept(reader, data)
            raise AssertionError(f"{reader.name}, seed {seed + number}: {error!r} for {data[:300]!r}") from error
        took = time.process_time() - began
        assert took < SLOW_S, f"{reader.name}, seed {seed + number}: {took:.1f} s for {len(data)} bytes"
    return ends


def kept(reader: Reader, data: bytes) -> None:
    CORPUS.mkdir(exist_ok=True)
    name = f"{reader.name.replace(' ', '_').replace(',', '')}-{hashlib.sha256(data).hexdigest()[:8]}"
    (CORPUS / name).write_bytes(data)


def resident_mib() -> float:
    """The most that this process has ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged files to every reader of files.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="to each reader")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="of the first input")
    parser.add_argument("--reader", help="only readers with this in their name")
    parser.add_argument("--seconds", type=float, default=0, help="go to the next reader after so long; 0: never")
    options = parser.parse_args()
    logging.disable()
    failed, before = False, resident_mib()
    print(f"{options.inputs} inputs to each reader, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="files-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for place, reader in enumerate(readers()):
            if options.reader and options.reader not in reader.name:
                continue
            own = Path(folder) / str(place)
            own.mkdir()
            began, ends = time.monotonic(), Counter[str]()
            try:
                while ends.total() < options.inputs:
                    many = min(1000, options.inputs - ends.total())
                    ends += attack(reader, many, options.seed + ends.total(), own)
                    if options.seconds and time.monotonic() - began > options.seconds:
                        break
            except AssertionError as failure:
                print(f"FAILED: {failure}", file=sys.stderr, flush=True)
                failed = True
            counts = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
            print(f"{reader.name}: {ends.total()} inputs, {time.monotonic() - began:.0f} s: {counts}", flush=True)
    grown = resident_mib() - before
    print(f"memory grew by {grown:.0f} MiB at most")
    if grown > MOST_MIB:
        print(f"FAILED: more than {MOST_MIB} MiB", file=sys.stderr)
    return int(failed or grown > MOST_MIB)


if __name__ == "__main__":
    sys.exit(main())
