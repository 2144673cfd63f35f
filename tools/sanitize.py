"""Builds the C parts with AddressSanitizer and UndefinedBehaviorSanitizer and runs tests on them.

``sanitize.py DIRECTORY TEST…``: the packages with C in them are copied to DIRECTORY and compiled there. The compiled
parts in the repository stay as they are. The run fails for a failed test, a warning of gcc and a report of a sanitizer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1",
    "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
    "-Wno-cast-function-type", "-shared", "-fPIC",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("_native*.so", "__pycache__")


def native_folders(root: Path) -> list[Path]:
    """The folders with an extension. `_native.c` names its module."""
    return sorted(path.parent for path in root.glob("*/*/**/_native.c") if not path.is_relative_to(root / "build"))


def build(folder: Path, headers: list[Path]) -> None:
    """Compile the extension of a folder beside its sources. Raises CalledProcessError."""
    target = folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = [f"-I{path}" for path in (sysconfig.get_path("include"), *headers)]
    subprocess.run(["gcc", *FLAGS, *includes, *sorted(folder.glob("_native*.c")), "-o", target], check=True)


def library(name: str) -> str:
    """Where gcc has a library of its own."""
    asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def environment(copies: list[Path], reports: Path) -> dict[str, str]:
    """What the interpreter needs: the copies first, the sanitizers loaded, and each object in memory of its own.

    Leaks are not looked for: an interpreter keeps objects to its end.
    """
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, copies)),
        "LD_PRELOAD": " ".join(map(library, ("libasan.so", "libubsan.so"))),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={reports / 'address'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={reports / 'undefined'}",
    }


def copied(directory: Path) -> list[Path]:
    """Copy each package that has an extension and compile it there; gives the folders of the extensions."""
    folders = native_folders(ROOT)
    for package in {ROOT.joinpath(*folder.relative_to(ROOT).parts[:2]) for folder in folders}:
        shutil.copytree(package, directory / package.relative_to(ROOT), ignore=LEFT_OUT)
    copies = [directory / folder.relative_to(ROOT) for folder in folders]
    for folder in copies:
        build(folder, copies)
    return copies


def check_loaded(directory: Path, copies: list[Path], variables: dict[str, str]) -> None:
    """Print which extensions are imported. Raises SystemExit when one of them is not a copy."""
    modules = [".".join((*folder.relative_to(directory).parts[1:], "_native")) for folder in copies]
    code = "import importlib, sys; [print(importlib.import_module(name).__file__) for name in sys.argv[1:]]"
    command = [sys.executable, "-c", code, *modules]
    loaded = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(loaded, end="", flush=True)
    if not all(Path(line).is_relative_to(directory) for line in loaded.splitlines()):
        sys.exit("these are not the parts with the sanitizers")


def main(directory: Path, tests: list[str]) -> int:
    """Build, run the tests and print each report; gives the exit status."""
    shutil.rmtree(directory, ignore_errors=True)
    reports = directory / "reports"
    reports.mkdir(parents=True)
    copies = copied(directory)
    roots = sorted({directory / folder.relative_to(directory).parts[0] for folder in copies})
    variables = environment(roots, reports)
    check_loaded(directory, copies, variables)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    status = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    found = sorted(reports.iterdir())
    for report in found:
        print(f"{report}:\n{report.read_text(errors='replace')}", file=sys.stderr)
    return status or int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
