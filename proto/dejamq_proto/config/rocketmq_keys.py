"""Keys of RocketMQ's own files for servers: keys of its classes, and keys that its users have there all the same."""

from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("rocketmq_keys.txt")
CUSTOMARY = frozenset({
    "abortFile", "checkTransactionMessageEnable", "commercialEnable", "filterServerNums", "haSlaveFallbehindMax",
    "mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "rmqAddressServerDomain", "rmqAddressServerSubGroup",
    "storeCheckpoint", "storePathConsumeQueue", "storePathIndex", "tls.ciphers", "tls.client.authServer",
    "tls.client.keyPassword", "tls.config.file", "tls.protocols", "tls.server.authClient", "tls.test.mode.enable",
})  # fmt: skip
"""Of older versions, of system properties and of examples: RocketMQ passes over a key that it does not know."""


@cache
def keys_of(classes: tuple[str, ...]) -> frozenset[str]:
    """Every key of these classes, and the customary ones."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return CUSTOMARY | {key for name, key in pairs if name in classes}
