"""The ``dejamq`` command from its first moment on."""

import sys

BAD_USE, INTERRUPTED = 2, 130


def main() -> int:
    """Run the command of this process's arguments, and return its exit status; not 0 if its output does not arrive."""
    try:
        from dejamq_proto import standard_output
    except KeyboardInterrupt:
        return INTERRUPTED
    return standard_output.run("dejamq", _run)


def _run() -> int:
    try:
        # loading takes longer than many a command, and Ctrl-C then is answered as it is later
        from dejamq_cli.command_line import main as run
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:  # the script is there whatever extras are
        missing = (error.name or str(error)).partition(".")[0]
        if missing.startswith("dejamq"):
            raise
        print(f"dejamq: the command needs {missing}: pip install 'dejamq[cli]'", file=sys.stderr)
        return BAD_USE
    return run()


if __name__ == "__main__":
    sys.exit(main())
