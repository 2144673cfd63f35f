"""Are there known vulnerabilities in the versions of constraints.txt? ``make check-deps``; it needs the network.

``pip-audit`` asks, in an environment of its own. It calls a package that its source does not know "skipped" and ends
well all the same; here that is no answer.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HOUSE = Path(__file__).parents[1]
PINNED = "pip-audit==2.10.1"
SOUND, FOUND, UNKNOWN = 0, 1, 3


def main() -> int:
    """0: none is known. 1: each is told. 3: nobody could say, for all or for some."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    made.add_argument("--constraints", type=Path, default=HOUSE / "constraints.txt", help="exact versions, one a line")
    made.add_argument("--environment", type=Path, default=HOUSE / "build" / "audit-env", help="of pip-audit")
    made.add_argument("--source", choices=("pypi", "osv"), default="pypi", help="who is asked; default pypi")
    given = made.parse_args()
    command = given.environment / "bin" / "pip-audit"
    if not command.exists() and (trouble := installed(given.environment)):
        return told(
            UNKNOWN, f"pip-audit could not be installed, so nothing was audited; is the network there? {trouble}"
        )
    ran = subprocess.run(
        [command, "-r", given.constraints, "--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json",
         "--vulnerability-service", given.source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return told(*verdict(ran.stdout, ran.stderr))


def installed(environment: Path) -> str:
    """Why not; '' when it is."""
    venv.create(environment, with_pip=True, clear=True)
    command = [str(environment / "bin" / "pip"), "install", "--quiet", "-c", str(HOUSE / "constraints.txt"), PINNED]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return last_line(ran.stderr) if ran.returncode else ""


def verdict(output: str, errors: str) -> tuple[int, str]:
    """Of what pip-audit wrote: the status, and what to say."""
    try:
        found: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return UNKNOWN, f"nothing was audited; is the network there? {last_line(errors)}"
    lines = [
        f"{one['name']} {one['version']}: {each['id']}, mended in {', '.join(each['fix_versions']) or 'no version yet'}"
        for one in found
        for each in one.get("vulns", ())
    ]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if skipped or not found:
        lines.append(f"{len(skipped)} of {len(found)} packages were not audited: the source does not answer for them")
    if len(lines) > bool(skipped or not found):
        return FOUND, "\n".join([*lines, "raise these versions in constraints.txt"])
    return (UNKNOWN, lines[0]) if lines else (SOUND, f"{len(found)} packages, no known vulnerability")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1][:300]


def told(status: int, text: str) -> int:
    print(text, file=sys.stderr if status else sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
