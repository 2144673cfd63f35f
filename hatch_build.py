"""Compiles what is in C when dejamq is installed; without a C compiler, or with DEJAMQ_PURE_PYTHON=1, it is left out.

Hatchling calls it for wheels and for editable installations; ``make setup`` installs again when a C source changed.
What was compiled before is never taken for what is compiled now: it may be another source's, or another machine's.
"""

import os
from pathlib import Path
from sysconfig import get_config_var
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
PACKAGES = (ROOT / "proto" / "dejamq_proto" / "native", ROOT / "client" / "dejamq" / "native")
"""Each with one extension, of all C files in it; the first has the headers that are of both."""


def compile_native(package: Path) -> Path:
    """Put the extension beside its sources; gives where it is. Raises BaseError, CCompilerError."""
    sources = sorted(map(str, package.glob("_native*.c")))
    shared = [str(PACKAGES[0])]
    extension = Extension("_native", sources, include_dirs=shared, extra_compile_args=["-O2", "-fvisibility=hidden"])
    with TemporaryDirectory() as directory:
        command = build_ext(Distribution({"name": "dejamq", "ext_modules": [extension]}))
        command.build_lib, command.build_temp = str(package), directory
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(extension.name))


def remove_compiled() -> None:
    """All or none is there: a program has both extensions or goes without. Those of other Pythons are theirs."""
    for package in PACKAGES:
        (package / f"_native{get_config_var('EXT_SUFFIX')}").unlink(missing_ok=True)


class NativeHook(BuildHookInterface[Any]):
    """What hatchling asks before it packs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the extensions in the wheel, which is then one of this platform; without them it is one of any."""
        remove_compiled()
        if os.environ.get("DEJAMQ_PURE_PYTHON"):
            return
        try:
            compiled = [compile_native(package) for package in PACKAGES]
        except (BaseError, CCompilerError) as error:
            remove_compiled()
            self.app.display_warning(f"dejamq goes without its compiled parts: {error}")
            return
        build_data["artifacts"] += [each.relative_to(ROOT).as_posix() for each in compiled]
        build_data["pure_python"], build_data["infer_tag"] = False, True
