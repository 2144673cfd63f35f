"""The meaning of each cause to people, and its remedy: the words are in ``causes.toml``, by the catalogue's ids."""

from pathlib import Path

import msgspec


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``setting``: what to change, by its name here and in RocketMQ; '' when no setting helps."""

    title: str
    story: str
    change: str
    setting: str


CAUSES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, Cause])
