"""The id by which a message is known when it is sent again, and its hash, by which windows keep it.

The id is the text of DEDUP_ID. A message without it may say DEDUP_BY=UNIQ_KEY, and then its client-made id counts. The
two kinds never meet. Messages of transactions have none: they are ended by their place.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from dejamq_proto import names
from dejamq_proto.native import id_hashes
from dejamq_proto.records.run import BadRun, parse, properties_of

Hashes = npt.NDArray[np.uint64]
"""Of each record of a run; 0 for one that has no id."""

BY_UNIQUE_KEY = "UNIQ_KEY"
SEED = secrets.randbits(64)
"""Of this process alone: nobody outside can choose ids whose hashes are equal."""


def id_of(properties: Mapping[str, str]) -> str:
    """Kind and id; nothing for a message without one."""
    if properties.get(names.PROPERTY_TRANSACTION):
        return ""
    if given := properties.get(names.PROPERTY_DEDUP_ID):
        return f"I{given}"
    key = properties.get(names.PROPERTY_UNIQUE_KEY)
    return f"K{key}" if key and properties.get(names.PROPERTY_DEDUP_BY) == BY_UNIQUE_KEY else ""


def hashes_of(data: bytes | memoryview, sizes: npt.NDArray[np.integer[Any]]) -> Hashes | None:
    """Of records of these sizes, with IPv4 hosts; None where the data are no such records."""
    found = id_hashes(data, np.ascontiguousarray(sizes, "<u4"), SEED)
    if found is not None:
        return np.frombuffer(found, "<u8")
    try:
        run = parse(data, sizes)
    except BadRun:
        return None
    ids = [id_of(properties_of(run, number)) for number in range(len(run))]
    return np.array([hash((SEED, one)) % (1 << 64) or 1 if one else 0 for one in ids], "<u8")
