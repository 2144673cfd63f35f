"""The requests of RocketMQ 5's tools about users and their rules.

Source: RocketMQ ``RequestCode`` (AUTH_CREATE_USER and the following), ``UserInfo``, ``AclInfo``.
"""

from typing import Any

import msgspec

from dejamq_proto.remoting.bodies import Body
from dejamq_proto.remoting.requests import MOST_SETTINGS_BYTES, Fields, declare


class OfUser(Fields):
    username: str


class UserFilter(Fields):
    filter: str | None = None


class OfSubject(Fields):
    """``User:NAME``."""

    subject: str


class AclDeletion(OfSubject):
    """Without a resource all rules of the kind go, of both kinds without a kind."""

    policy_type: str | None = None
    resource: str | None = None


class AclFilter(Fields):
    subject_filter: str | None = None
    resource_filter: str | None = None


class UserInfo(Body):
    """``password`` is written by clients only."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntry(Body):
    """Newer tools name one resource, older ones several."""

    resource: str | None = None
    resources: list[str] | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class Policy(Body):
    policy_type: str | None = None
    entries: list[PolicyEntry] | None = None


class AclInfo(Body):
    subject: str | None = None
    policies: list[Policy] | None = None


def list_of(found: list[Any]) -> bytes:
    """As RocketMQ's tools read a list; fields that are None are left out."""
    return msgspec.json.encode([_without_none(msgspec.to_builtins(one)) for one in found])


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


CREATE_USER = declare(3001, "AUTH_CREATE_USER", OfUser, most_body=MOST_SETTINGS_BYTES)
UPDATE_USER = declare(3002, "AUTH_UPDATE_USER", OfUser, most_body=MOST_SETTINGS_BYTES)
DELETE_USER = declare(3003, "AUTH_DELETE_USER", OfUser)
GET_USER = declare(3004, "AUTH_GET_USER", OfUser)
LIST_USERS = declare(3005, "AUTH_LIST_USER", UserFilter)
CREATE_ACL = declare(3006, "AUTH_CREATE_ACL", OfSubject, most_body=MOST_SETTINGS_BYTES)
UPDATE_ACL = declare(3007, "AUTH_UPDATE_ACL", OfSubject, most_body=MOST_SETTINGS_BYTES)
DELETE_ACL = declare(3008, "AUTH_DELETE_ACL", AclDeletion)
GET_ACL = declare(3009, "AUTH_GET_ACL", OfSubject)
LIST_ACLS = declare(3010, "AUTH_LIST_ACL", AclFilter)
