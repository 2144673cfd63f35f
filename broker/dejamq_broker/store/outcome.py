"""How the store's commands end: exit statuses, and the last word to a reader that went away."""

import os
import sys

WHOLE, DAMAGED, BAD_USE, CANNOT_TELL, INTERRUPTED = 0, 1, 2, 3, 130


def close_stdout() -> None:
    """After a broken pipe: what is still buffered goes nowhere, and the interpreter's last flush is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
