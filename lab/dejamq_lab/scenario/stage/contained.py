"""``python -m dejamq_lab.scenario.stage.contained COMMAND.json``: what a container runs, ``[module, argument, …]``.

A container cannot be given another command once it is made, and a slave that is promoted needs one.
"""

import json
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    module, *arguments = json.loads(Path(sys.argv[1]).read_bytes())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
