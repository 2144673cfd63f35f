"""A server with access control and all doors, as ``dejamq dev`` has them, and requests of every kind made up for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
from broker_wire import broker_config
from dejamq import Message, Producer
from dejamq_broker.app import Broker
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.access.book import Contents, write_contents
from dejamq_proto.access.model import Action, Rule, User, UserType
from dejamq_proto.access.needs import NeededRight, Of, Right
from dejamq_proto.account import Account, v2_proof
from dejamq_proto.names import reply_topic

TOPIC, GROUP, CLUSTER = "orders", "billing", "DefaultCluster"
SECRETS = {name: f"{name}-keeps-this-secret" for name in ("root", "inner", "fitting", "stranger")}
ACCOUNTS = {name: Account(name, secret) for name, secret in SECRETS.items()}
WRONG = Account("fitting", "this-is-not-the-secret")
ELSEWHERE = tuple(Rule("stranger", f"{kind}:elsewhere*", (Action.ALL,)) for kind in ("Topic", "Group", "Cluster"))
USERS = (
    User("root", SECRETS["root"], UserType.SUPER), User("inner", SECRETS["inner"], UserType.INNER),
    User("fitting", SECRETS["fitting"]), User("stranger", SECRETS["stranger"]),
)  # fmt: skip
TOLD = ("has no permission", "give the keys")
"""What a refusal of access control says; others may have the same code."""


class Site:
    """``offset`` and ``message_id`` are of a stored message of the topic."""

    def __init__(self, broker: Broker, offset: int, message_id: str) -> None:
        self.broker, self.offset, self.message_id = broker, offset, message_id
        self.address = broker.address

    async def allow(self, *rules: Rule) -> None:
        """These are all the rules of ``fitting`` from now on."""
        guard = self.broker.guard
        assert guard is not None
        await guard.book.change(lambda contents: Contents(contents.users, (*ELSEWHERE, *rules)))


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[Site]:
    """One message is in the topic when it begins."""
    file = directory / "access.json"
    write_contents(file, Contents(USERS, ELSEWHERE))
    config = broker_config(
        directory / "store", acl_enable=True, access_file=str(file), journal_dir=str(directory / "journal"),
        journal_level="forensic", **settings,
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    try:
        root = ACCOUNTS["root"]
        async with Producer("makers", namesrv=broker.address, access_key="root", secret_key=root.secret_key) as made:
            sent = await made.send(Message(TOPIC, b"body", keys=["k"]), timeout_ms=30_000)
        assert sent.offset_message_id is not None
        yield Site(broker, int(sent.offset_message_id[-16:], 16), sent.offset_message_id)
    finally:
        await broker.close()


def rules_for(needed: Right) -> list[Rule]:
    """One for each need, each with one action."""
    kinds = {
        Of.TOPIC: f"Topic:{TOPIC}", Of.GROUP: f"Group:{GROUP}", Of.MESSAGE: f"Topic:{TOPIC}",
        Of.CLUSTER: f"Cluster:{CLUSTER}", Of.POPPED: f"Topic:{TOPIC}", Of.ORIGIN: f"Topic:{TOPIC}",
        Of.REPLY: f"Topic:{reply_topic(CLUSTER)}",
    }  # fmt: skip
    found: dict[str, set[Action]] = {}
    for need in needed.needs:
        if need.of is not Of.SERVER:
            found.setdefault(kinds[need.of], set()).add(min(need.actions))
    return [Rule("fitting", resource, tuple(sorted(actions))) for resource, actions in found.items()]


def for_servers(needed: Right) -> bool:
    return any(need.of is Of.SERVER for need in needed.needs)


def counted(needed: Right) -> list[NeededRight]:
    """Needs without which the made-up request must be refused: it names what they are about."""
    return [need for need in needed.needs if need.of not in (Of.SERVER, Of.ORIGIN)]


def text_for(name: str, site: Site) -> str:
    """A value for a field, by its name."""
    low = name.lower()
    if low in ("msgid", "msg_id", "message_id"):
        return site.message_id
    if low == "topic" or low.endswith("topic") or low in ("topics", "topic_name", "topicname", "t"):
        return TOPIC
    if "group" in low or low in ("source", "target", "c"):
        return GROUP
    if "cluster" in low:
        return CLUSTER
    return "1"


def header_for(kind: type[msgspec.Struct], site: Site) -> dict[str, str]:
    """Every field of a remoting header."""
    made: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in ("offset", "commitLogOffset"):
            made[field.encode_name] = str(site.offset)
        elif field.encode_name == "suspendTimeoutMillis":
            made[field.encode_name] = "0"
        elif _is(field.type, bool):
            made[field.encode_name] = "false"
        elif _is(field.type, int):
            made[field.encode_name] = "0"
        else:
            made[field.encode_name] = text_for(field.encode_name, site)
    return made


def body_for(kind: Any, site: Site, name: str = "") -> Any:
    """A value of this kind in which every name is filled in."""
    options = [one for one in get_args(kind) if one is not type(None)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {each.encode_name: body_for(each.type, site, each.name) for each in msgspec.structs.fields(kind)}
    origin = getattr(kind, "__origin__", None)
    if origin is list:
        return [body_for(options[0], site, name)]
    if origin is dict:
        return {}
    if options:
        return body_for(options[0], site, name)
    if kind is bool:
        return False
    if kind in (int, float):
        return 0
    return text_for(name, site) if kind is str else None


def _is(kind: Any, wanted: type) -> bool:
    return kind is wanted or any(_is(one, wanted) for one in get_args(kind) if one is not type(None))


def filled(message: Any, site: Site, depth: int = 0) -> Any:
    """A protobuf message in which every name, at every place, is filled in."""
    taken: set[str] = set()
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if field.name in ("caller", "endpoints") or (oneof and not oneof.name.startswith("_") and oneof.name in taken):
            continue
        if oneof:
            taken.add(oneof.name)
        repeated = getattr(field, "is_repeated", False)
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            if depth < 4 and "google.protobuf" not in field.message_type.full_name:
                inner = getattr(message, field.name)
                filled(inner.add() if repeated else inner, site, depth + 1)
                if not repeated:
                    inner.SetInParent()
        elif field.cpp_type == field.CPPTYPE_STRING and field.type != field.TYPE_BYTES:
            owner = message.DESCRIPTOR.name
            text = _resource_name(message, site, field.name) if owner == "Resource" else text_for(field.name, site)
            getattr(message, field.name).append(text) if repeated else setattr(message, field.name, text)
        elif field.name in ("log_offset", "half_log_offset"):
            setattr(message, field.name, site.offset)
        elif field.name == "to_topic":
            setattr(message, field.name, False)
    return message


def _resource_name(message: Any, site: Site, name: str) -> str:
    return "" if name == "resource_namespace" else TOPIC


def v2_headers(account: Account | None) -> tuple[tuple[str, str], ...]:
    """As Python's client of RocketMQ 5 signs."""
    who = (("x-mq-client-id", f"client-of-{account}"),)
    if account is None:
        return who
    date = "20261128T000000Z"
    proof = v2_proof(account.secret_key, date)
    name = f"{account.access_key}/cn/Rocketmq"
    told = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={proof}"
    return (*who, ("x-mq-date-time", date), ("authorization", told))
