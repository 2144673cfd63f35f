"""A lease as master that ends while something is done."""

import pytest
from dejamq_broker.writing.record_writer import RecordWriter
from dejamq_proto.codes import DejamqError

OVER = "the lease is over now"


def lease_ends(writer: RecordWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are stored, and nobody may be told that they last."""

    def confirm() -> None:
        raise DejamqError(OVER)

    monkeypatch.setattr(writer, "confirm", confirm)
