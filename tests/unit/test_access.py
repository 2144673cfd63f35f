"""Users, rules and decisions; the file that keeps them; RocketMQ 4's plain_acl.yml."""

import asyncio
from pathlib import Path

import pytest
from dejamq_proto.access.admission import address_of
from dejamq_proto.access.book import Book, Contents, change_file, read_contents, write_contents
from dejamq_proto.access.changes import created, deleted, rule_of, ruled, unruled, updated
from dejamq_proto.access.decisions import decide
from dejamq_proto.access.model import Action, Resource, ResourceType, Rule, RuleEffect, Status, User, UserType
from dejamq_proto.access.needs import SERVER, popped_topic, topic_resource
from dejamq_proto.access.plain_acl import is_of, read_plain_acl
from dejamq_proto.access.settings import AccessConfig, guard_of, warn_if_open
from dejamq_proto.account import Account, account_of
from dejamq_proto.codes import ConfigError, DejamqError

ALICE = User("alice", "alice-secret")
ORDERS = Resource(ResourceType.TOPIC, "orders")


def may(*rules: Rule, action: Action = Action.PUB, resource: Resource = ORDERS, address: str = "10.0.0.1") -> bool:
    return decide(ALICE, rules, resource, frozenset({action}), address).allowed


def rule(resource: str, *actions: Action, deny: bool = False, sources: tuple[str, ...] = ()) -> Rule:
    return Rule("alice", resource, actions or (Action.ALL,), RuleEffect.DENY if deny else RuleEffect.ALLOW, sources)


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    assert not may()
    assert not may(rule("Topic:order", Action.PUB))
    assert not may(rule("Group:orders", Action.PUB))
    assert not may(rule("Topic:orders", Action.SUB))


def test_names_prefixes_kinds_and_everything_can_be_allowed() -> None:
    for resource in ("Topic:orders", "Topic:ord*", "Topic:*", "*"):
        assert may(rule(resource, Action.PUB)), resource


def test_the_most_exact_rule_counts_and_a_denial_before_its_opposite() -> None:
    assert not may(rule("Topic:*"), rule("Topic:orders", deny=True))
    assert may(rule("Topic:*", deny=True), rule("Topic:orders"))
    assert not may(rule("Topic:ord*"), rule("Topic:orde*", deny=True))
    assert not may(rule("Topic:orders"), rule("Topic:orders", deny=True))
    assert not may(rule("*"), rule("Topic:*", deny=True))


def test_a_denial_of_one_action_leaves_the_others() -> None:
    rules = rule("Topic:*"), rule("Topic:orders", Action.PUB, deny=True)
    assert not may(*rules)
    assert may(*rules, action=Action.SUB)


def test_a_rule_for_a_network_is_for_that_network_alone() -> None:
    near = rule("Topic:orders", sources=("10.0.0.0/8", "::1"))
    assert may(near)
    assert not may(near, address="192.0.2.1")
    assert may(near, address="::1")
    assert not may(near, address="no address")


@pytest.mark.parametrize(("peer", "address"), [
    ("ipv4:10.0.0.7:5000", "10.0.0.7"), ("ipv6:%5B::1%5D:5000", "::1"), ("ipv6:[::1]:5000", "::1"),
    ("ipv6:%5B::ffff:10.0.0.7%5D:5000", "10.0.0.7"), ("unix:", ""),
])  # fmt: skip
def test_an_address_of_ipv4_at_a_listener_for_both_is_one_of_its_network(peer: str, address: str) -> None:
    """A denial for the network would not be for it otherwise."""
    assert address_of(peer) == address
    assert may(rule("Topic:orders", sources=("10.0.0.0/8",)), address=address_of(peer)) == (address == "10.0.0.7")


def test_no_rule_opens_what_servers_keep_for_themselves() -> None:
    assert not may(rule("*"), resource=SERVER)
    assert decide(User("root", "root-secret", UserType.SUPER), (), SERVER, frozenset(), "").allowed


@pytest.mark.parametrize(("name", "resource"), [
    ("orders", "Topic:orders"), ("%RETRY%pay", "Group:pay"), ("%DLQ%pay", "Group:pay"), ("%RETRY%", "Group:"),
    ("SCHEDULE_TOPIC_XXXX", "Server:"), ("RMQ_SYS_TRANS_HALF_TOPIC", "Server:"), ("rmq_sys_wheel_timer", "Server:"),
    ("RMQ_SYS_TRACE_TOPIC", "Topic:RMQ_SYS_TRACE_TOPIC"), ("TBW102", "Topic:TBW102"),
])  # fmt: skip
def test_a_topic_is_its_own_its_groups_or_the_servers(name: str, resource: str) -> None:
    assert str(topic_resource(name)) == resource


def test_the_retry_topic_of_a_pop_is_the_topic_only_for_its_own_group() -> None:
    assert popped_topic("%RETRY%pay_orders", "pay") == "orders"
    assert popped_topic("%RETRY%pay+orders", "pay") == "orders"
    assert popped_topic("%RETRY%pay_orders", "other") == "%RETRY%pay_orders"
    assert popped_topic("%RETRY%pay_orders", "") == "%RETRY%pay_orders"


# The file.


def test_the_file_is_for_its_owner_alone_and_one_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "access.json"
    write_contents(file, Contents((ALICE,)))
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_contents(file) == Contents((ALICE,))
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_contents(file)


@pytest.mark.parametrize("content", [
    b"", b"[]", b"{", b'{"users":[{"username":"a"}]}', b'{"users":[{"username":"a b","secret":"123456"}]}',
    b'{"users":[{"username":"a","secret":"12"}]}', b'{"users":[{"username":"a","secret":"\xff"}]}',
    b'{"rules":[{"username":"a","resource":"*","actions":["Pub"]}]}',
])  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused_and_never_taken_for_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "access.json"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=str(file)):
        read_contents(file)


async def test_a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "access.json"
    write_contents(file, Contents((ALICE,)))
    book = Book(file)
    book.load()
    following = asyncio.create_task(book.follow())
    bob = User("bob", "bob-secret")
    write_contents(file, Contents((ALICE, bob)))
    async with asyncio.timeout(20):
        while book.user("bob") is None:
            await asyncio.sleep(0.05)
        file.write_bytes(b"{")
        while "access_not_read" not in caplog.text:
            await asyncio.sleep(0.05)
    assert book.user("alice") == ALICE
    caplog.clear()
    file.unlink()
    async with asyncio.timeout(20):
        while "access_not_read" not in caplog.text:
            await asyncio.sleep(0.05)
    assert book.user("alice") == ALICE
    following.cancel()


async def test_two_servers_with_one_file_lose_no_change(tmp_path: Path) -> None:
    books = [Book(tmp_path / "access.json") for _ in range(2)]
    await asyncio.gather(*(book.change(created(f"user-{n}", "a-secret")) for n, book in enumerate(books * 5)))
    names = {user.username for user in read_contents(tmp_path / "access.json").users}
    assert names == {f"user-{n}" for n in range(10)}


def test_changes_are_made_as_they_are_told(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    change_file(file, created("root", "root-secret", "super"))
    change_file(file, created("alice", "alice-secret"))
    change_file(file, updated("alice", status="disable"))
    change_file(file, ruled([rule_of("alice", "Topic:orders", ["pub", "SUB"], "allow")]))
    after = change_file(file, ruled([rule_of("alice", "Topic:orders", ["any"], "deny", ["10.0.0.0/8"])]))
    assert after.users[-1] == User("alice", "alice-secret", user_status=Status.DISABLE)
    assert after.rules == (rule("Topic:orders", deny=True, sources=("10.0.0.0/8",)),)
    assert change_file(file, unruled("alice")).rules == ()
    assert [user.username for user in change_file(file, deleted("alice")).users] == ["root"]


def test_the_last_super_user_stays(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    change_file(file, created("root", "root-secret", "Super"))
    for change in (deleted("root"), updated("root", status="disable"), updated("root", user_type="Normal")):
        with pytest.raises(DejamqError, match="last super user"):
            change_file(file, change)


@pytest.mark.parametrize(("change", "words"), [
    (created("a b", "secret-1"), "may hold only"), (created("alice", "short"), "6 to 256"),
    (created("alice", "secret-1", "King"), "none of Super"), (updated("nobody"), "no user is named"),
    (deleted("nobody"), "no user is named"), (ruled([rule("Topic:orders")]), "create the user first"),
    (unruled("nobody"), "no such rule"),
])  # fmt: skip
def test_a_change_that_cannot_be_is_refused_with_the_reason(tmp_path: Path, change: object, words: str) -> None:
    with pytest.raises(DejamqError, match=words):
        change_file(tmp_path / "access.json", change)  # type: ignore[arg-type]
    assert not (tmp_path / "access.json").exists()


@pytest.mark.parametrize("resource", ["orders", "Topic:", "Queue:a", "Topic:a*b", "Topic:a b", "", "Server:"])
def test_a_resource_that_is_none_is_refused(tmp_path: Path, resource: str) -> None:
    file = tmp_path / "access.json"
    change_file(file, created("alice", "alice-secret"))
    with pytest.raises(DejamqError, match="is not Topic:NAME"):
        change_file(file, ruled([rule(resource)]))


# RocketMQ 4's file.

PLAIN = """
globalWhiteRemoteAddresses:
- 10.10.*.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  - groupA=DENY
  - groupB=PUB|SUB
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
"""


def test_plain_acl_is_read_as_rocketmq_4_means_it(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN)
    plain = read_plain_acl(file)
    account, admin = plain.users
    assert (account, admin.user_type) == (User("RocketMQ", "12345678"), UserType.SUPER)

    def allowed(kind: ResourceType, name: str, action: Action) -> bool:
        return decide(account, plain.rules, Resource(kind, name), frozenset({action}), "").allowed

    assert allowed(ResourceType.TOPIC, "topicB", Action.PUB)
    assert allowed(ResourceType.TOPIC, "topicC", Action.SUB)
    assert not allowed(ResourceType.TOPIC, "topicC", Action.PUB)
    assert not allowed(ResourceType.TOPIC, "topicA", Action.SUB)
    assert not allowed(ResourceType.TOPIC, "another", Action.SUB)
    assert allowed(ResourceType.GROUP, "another", Action.SUB)
    assert not allowed(ResourceType.GROUP, "groupA", Action.SUB)
    assert not allowed(ResourceType.TOPIC, "topicB", Action.DELETE)
    assert plain.trusts("10.10.3.4")
    assert not plain.trusts("10.11.3.4")
    assert plain.trusts("192.168.0.7", "RocketMQ")
    assert not plain.trusts("192.168.0.7", "rocketmq2")


def test_a_permission_for_a_retry_topic_in_plain_acl_is_its_groups(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [{accessKey: a, secretKey: a-secret, topicPerms: ['%RETRY%orders=SUB']}]")
    assert [rule.resource for rule in read_plain_acl(file).rules] == ["Group:orders"]


@pytest.mark.parametrize("text", [
    "accounts: 7", "accounts: [{accessKey: a}]", "accounts: [",
    "accounts: [{accessKey: a, secretKey: b-secret, topicPerms: [x]}]",
    "accounts: [{accessKey: a, secretKey: b-secret, defaultTopicPerm: ALL}]",
    "accounts: [{accessKey: a, secretKey: '', admin: true}]", "accounts: [{accessKey: '', secretKey: b-secret}]",
])  # fmt: skip
def test_a_plain_acl_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="plain_acl"):
        read_plain_acl(file)


@pytest.mark.parametrize(("pattern", "fits", "fits_not"), [
    ("10.0.0.1", "10.0.0.1", "10.0.0.2"), ("10.0.*.*", "10.0.9.9", "10.1.9.9"), ("10.0.1-9.*", "10.0.5.1", "10.0.10.1"),
    ("10.0.0.{1,3}", "10.0.0.3", "10.0.0.2"), ("10.0.0.1,10.0.0.2", "10.0.0.2", "10.0.0.3"),
    ("10.0.0.0/8", "10.200.0.1", "11.0.0.1"), ("*", "::1", ""),
])  # fmt: skip
def test_addresses_fit_rocketmqs_patterns(pattern: str, fits: str, fits_not: str) -> None:
    assert is_of(fits, pattern)
    assert not is_of(fits_not, pattern) or pattern == "*"


# Settings and keys.


def test_a_server_without_access_control_has_no_guard_and_one_without_users_does_not_start(tmp_path: Path) -> None:
    assert guard_of(AccessConfig(), tmp_path, "c") is None
    with pytest.raises(ConfigError, match="dejamq user create"):
        guard_of(AccessConfig(acl_enable=True), tmp_path, "c")
    with pytest.raises(ConfigError, match="needs access_file"):
        guard_of(AccessConfig(acl_enable=True), None, "c")


@pytest.mark.parametrize(("listen", "warns"), [
    ("127.0.0.1:1", False), ("[::1]:1", False), ("localhost:1", False), ("0.0.0.0:1", True), ("[::]:1", True),
    ("broker-a:1", True),
])  # fmt: skip
def test_a_server_that_strangers_reach_warns_once_when_it_asks_nobody(
    listen: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_open(AccessConfig(), listen)
    assert ("access_open" in caplog.text) == warns
    caplog.clear()
    warn_if_open(AccessConfig(acl_enable=True), listen)
    assert not caplog.text


def test_one_key_without_the_other_is_refused_and_no_repr_tells_a_secret() -> None:
    with pytest.raises(ConfigError, match="secret_key is missing"):
        account_of("alice", None)
    with pytest.raises(ConfigError, match="access_key is missing"):
        account_of("", "alice-secret")
    assert "alice-secret" not in repr(Account("alice", "alice-secret")) + repr(ALICE)
