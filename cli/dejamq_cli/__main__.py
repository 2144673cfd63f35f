"""The ``dejamq`` command from its first moment on."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command of this process's arguments, and return its exit status."""
    try:
        # loading takes longer than many a command, and Ctrl-C then is answered as it is later
        from dejamq_cli.command_line import main as run
    except KeyboardInterrupt:
        return INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
