"""The line in the log about somebody who was refused: the same words at every door."""

import logging

LINE = "access_refused subject=%s action=%s resource=%s source=%s request=%s reason=%s"
NONE = "none"


def log_refusal(
    log: logging.Logger, subject: str, source: str, request: str, reason: str, *, actions: str = "", resource: str = ""
) -> None:  # fmt: skip
    """``source``: the caller's address, '' where it is not known. ``actions`` and ``resource``: '' where no right was
    asked. Whoever calls this has bounded a stranger's words, and taken out what a log cannot hold.
    """
    log.warning(LINE, subject, actions or NONE, resource or NONE, source or NONE, request, reason)
