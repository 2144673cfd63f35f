"""The kits for Java and Go, tested by their own tools against the image: `mvn test` and `go test`.

DEJAMQ_IMAGE names an image that is there already; without it one is built. `--kit java` or `--kit go` tests one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from compose_cluster import HOUSE, IMAGE, build_image, run

RUN_S = 900
KITS = ("java", "go")


def command_of(kit: str) -> Sequence[str]:
    """Testcontainers for Java speaks a newer version to the engine than an engine of before 2024 knows."""
    if kit == "go":
        return "go", "test", "-count=1", "./..."
    version = run(["docker", "version", "--format", "{{.Server.APIVersion}}"]).strip()
    return "mvn", "-q", "-B", "-Dstyle.color=never", f"-DargLine=-Dapi.version={version}", "test"


def prove(kit: str, image: str) -> bool:
    """Whether its tests pass. Testcontainers' reaper needs an image of a registry, and is not used."""
    environment = os.environ | {"DEJAMQ_IMAGE": image, "TESTCONTAINERS_RYUK_DISABLED": "true"}
    ran = subprocess.run(command_of(kit), cwd=HOUSE / "kits" / kit, env=environment, timeout=RUN_S, check=False)
    print(f"kit for {kit}: {'proved' if ran.returncode == 0 else 'FAILED'}", flush=True)
    return ran.returncode == 0


def main() -> int:
    """The exit status: 1 where a kit failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", choices=KITS, action="append")
    chosen = parser.parse_args().kit or KITS
    image = os.environ.get("DEJAMQ_IMAGE", "")
    if not image:
        build_image()
        image = IMAGE
    proved = [prove(kit, image) for kit in chosen]
    return 0 if all(proved) else 1


if __name__ == "__main__":
    sys.exit(main())
