"""Requests of RocketMQ's clients, tools and brokers to the name server, one small handler each; the registry decides.

Source: RocketMQ ``ClientRequestProcessor``, ``DefaultRequestProcessor`` of the name server.
"""

import logging
import zlib
from collections.abc import Callable, Mapping

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.config import java_properties
from dejamq_proto.remoting import bodies, registrations, requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command
from dejamq_proto.serving.remoting import Answered, Connection, RemotingDoor

from dejamq_namesrv.registry import Registry
from dejamq_namesrv.topology import BrokerIdentity, BrokerReplicas, RegisteredTopic, TopicTableVersion

log = logging.getLogger(__name__)
NO_TOPIC = (
    "No topic route info in name server for the topic: {topic}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})
"""RocketMQ: ``NamesrvConfig.configBlackList``."""


class RegistrationSession:
    """One connection. A RocketMQ broker registers by it, and its end removes that broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def closed(self) -> None:
        """RocketMQ: BrokerHousekeepingService."""
        self._registry.channel_closed(self)

    def answered(self, command: Command) -> None:
        """A name server asks nobody."""


Handler = Callable[[RegistrationSession, Command], Answered]


def remoting_door(registry: Registry) -> RemotingDoor[RegistrationSession]:
    """The door of this registry."""

    def open_session(_: Connection[RegistrationSession]) -> RegistrationSession:
        return RegistrationSession(registry)

    return RemotingDoor(NameServerRequests(registry).handlers(), open_session)


class NameServerRequests:
    """Owned by the event loop; nothing waits."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def handlers(self) -> Mapping[int, Handler]:
        """By the numbers of their requests."""
        table = (
            (requests.GET_ROUTE, self._route), (requests.GET_CLUSTER_INFO, self._cluster_info),
            (requests.GET_ALL_TOPICS, self._topics), (requests.PUT_KV_CONFIG, self._put_config),
            (requests.GET_KV_CONFIG, self._get_config), (requests.DELETE_KV_CONFIG, self._delete_config),
            (requests.GET_KV_LIST, self._list_config), (requests.WIPE_WRITE_PERM, self._wipe_write_perm),
            (requests.ADD_WRITE_PERM, self._add_write_perm),
            (requests.GET_BROKER_MEMBERS, self._members), (requests.GET_TOPICS_BY_CLUSTER, self._topics_of),
            (requests.GET_SYSTEM_TOPICS_FROM_NS, self._system_topics),
            (requests.DELETE_TOPIC_IN_NAMESRV, self._delete_topic), (requests.REGISTER_BROKER, self._register),
            (requests.BROKER_HEARTBEAT, self._heartbeat), (requests.GET_NAMESRV_CONFIG, self._settings),
            (requests.UPDATE_NAMESRV_CONFIG, self._update_settings),
            (requests.UNREGISTER_BROKER, self._unregister), (requests.QUERY_DATA_VERSION, self._data_version),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _route(self, _: RegistrationSession, command: Command) -> Command:
        """Keys are quoted for everybody: every reader of this protocol takes that."""
        topic = requests.GET_ROUTE.read(command).topic
        try:
            route = self._registry.route(topic, "", "")
        except DejamqError as error:
            if error.code is not Code.TOPIC_NOT_EXIST:
                raise
            return answer(command, Code.TOPIC_NOT_EXIST, NO_TOPIC.format(topic=topic))
        body = bodies.TopicRouteData(
            broker_datas=list(map(_broker, route.brokers)),
            queue_datas=[
                bodies.QueueData(
                    broker_name=one.broker_name, read_queue_nums=one.read_queue_nums,
                    write_queue_nums=one.write_queue_nums, perm=one.perm, topic_sys_flag=one.topic_sys_flag,
                )
                for one in route.queues
            ],
            order_topic_conf=self._registry.order_conf(topic) or None,
        )  # fmt: skip
        return answer(command, body=bodies.write(body))

    def _cluster_info(self, _: RegistrationSession, command: Command) -> Command:
        brokers = self._registry.cluster_info("")
        clusters: dict[str, list[str]] = {}
        for one in brokers:
            clusters.setdefault(one.cluster, []).append(one.broker_name)
        body = bodies.ClusterInfo(
            broker_addr_table={one.broker_name: _broker(one) for one in brokers}, cluster_addr_table=clusters
        )
        return answer(command, body=bodies.write(body))

    def _topics(self, _: RegistrationSession, command: Command) -> Command:
        return answer(command, body=bodies.write(bodies.TopicList(topic_list=self._registry.topics())))

    def _members(self, _: RegistrationSession, command: Command) -> Command:
        """A broker and its slaves; one that is not known here has no addresses."""
        asked = requests.GET_BROKER_MEMBERS.read(command)
        wanted = asked.cluster_name, asked.broker_name
        found = (one for one in self._registry.cluster_info("") if (one.cluster, one.broker_name) == wanted)
        addresses = next((_broker(one).broker_addrs for one in found), {})
        members = bodies.BrokerMembers(
            cluster=asked.cluster_name, broker_name=asked.broker_name, broker_addrs=addresses
        )
        return answer(command, body=bodies.write(bodies.BrokerMembersFound(broker_member_group=members)))

    def _topics_of(self, _: RegistrationSession, command: Command) -> Command:
        cluster = requests.GET_TOPICS_BY_CLUSTER.read(command).cluster
        return answer(command, body=bodies.write(bodies.TopicList(topic_list=self._registry.topics(cluster))))

    def _system_topics(self, _: RegistrationSession, command: Command) -> Command:
        """Topics called as clusters and brokers. The tool asks the broker of the address for the others."""
        brokers = self._registry.cluster_info("")
        found = {one.cluster for one in brokers} | {one.broker_name for one in brokers}
        address = next((each for one in brokers for each in one.addresses.values()), None)
        return answer(command, body=bodies.write(bodies.TopicList(topic_list=sorted(found), broker_addr=address)))

    async def _put_config(self, _: RegistrationSession, command: Command) -> Command:
        item = requests.PUT_KV_CONFIG.read(command)
        await self._registry.kv.put(item.namespace, item.key, item.value)
        return answer(command)

    def _get_config(self, _: RegistrationSession, command: Command) -> Command:
        item = requests.GET_KV_CONFIG.read(command)
        try:
            value = self._registry.kv.get(item.namespace, item.key)
        except DejamqError as error:
            text = f"No config item, Namespace: {item.namespace} Key: {item.key}"
            raise DejamqError(text, code=error.code) from None
        return answer(command, fields=requests.ConfigFound(value=value))

    async def _delete_config(self, _: RegistrationSession, command: Command) -> Command:
        item = requests.DELETE_KV_CONFIG.read(command)
        await self._registry.kv.delete(item.namespace, item.key)
        return answer(command)

    def _list_config(self, _: RegistrationSession, command: Command) -> Command:
        namespace = requests.GET_KV_LIST.read(command).namespace
        values = dict(self._registry.kv.namespace(namespace))
        if not values:
            raise DejamqError(f"No config item, Namespace: {namespace}", code=Code.QUERY_NOT_FOUND)
        return answer(command, body=bodies.write(bodies.KVTable(table=values)))

    def _wipe_write_perm(self, _: RegistrationSession, command: Command) -> Command:
        count = self._registry.set_writable(requests.WIPE_WRITE_PERM.read(command).broker_name, False)
        return answer(command, fields=requests.WipedTopics(wipe_topic_count=count))

    def _add_write_perm(self, _: RegistrationSession, command: Command) -> Command:
        count = self._registry.set_writable(requests.ADD_WRITE_PERM.read(command).broker_name, True)
        return answer(command, fields=requests.AddedTopics(add_topic_count=count))

    def _delete_topic(self, _: RegistrationSession, command: Command) -> Command:
        wanted = requests.DELETE_TOPIC_IN_NAMESRV.read(command)
        brokers = [
            one.broker_name for one in self._registry.cluster_info("") if wanted.cluster_name in (None, one.cluster)
        ]
        if brokers:
            self._registry.delete_topic(wanted.topic, brokers)
        return answer(command)

    def _settings(self, _: RegistrationSession, command: Command) -> Command:
        return answer(command, body=java_properties.write(self._registry.settings.rocketmq_values()))

    def _update_settings(self, _: RegistrationSession, command: Command) -> Command:
        """All of them or, on an error, none. RocketMQ passes over what it does not know."""
        values = java_properties.read(command.body)
        if not BLACK_LIST.isdisjoint(values):
            raise DejamqError("Can not update config in black list.", code=Code.NO_PERMISSION)
        self._registry.settings.update(values)
        return answer(command)

    # RocketMQ's own brokers

    def _register(self, peer: RegistrationSession, command: Command) -> Command:
        """The broker is in the routes of RocketMQ's clients; ours do not speak with it and get none."""
        said = requests.REGISTER_BROKER.read(command)
        if said.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != said.body_crc32:
            raise DejamqError("crc32 not match", code=Code.SYSTEM_ERROR)
        told = registrations.read(command.body).topic_config_serialize_wrapper
        identity = _identity(said)
        done = self._registry.register(
            identity, [_topic(one) for one in told.topic_config_table.values()], _version(told.data_version),
            said.heartbeat_timeout_millis or 0,
        )  # fmt: skip
        self._registry.attach(peer, identity)
        order = dict(self._registry.order_topics())
        fields = requests.BrokerRegistered(master_addr=done.master_address or None)
        return answer(command, fields=fields, body=bodies.write(bodies.KVTable(table=order)) if order else b"")

    def _unregister(self, _: RegistrationSession, command: Command) -> Command:
        self._registry.unregister(_identity(requests.UNREGISTER_BROKER.read(command)))
        return answer(command)

    def _heartbeat(self, _: RegistrationSession, command: Command) -> Command:
        """Brokers that stand in for a master send it each second (RocketMQ: ``enableSlaveActingMaster``)."""
        said = requests.BROKER_HEARTBEAT.read(command)
        self._registry.beat(said.cluster_name, said.broker_addr)
        return answer(command)

    def _data_version(self, _: RegistrationSession, command: Command) -> Command:
        """Also a sign of life. A broker that is not known here has to register."""
        identity = _identity(requests.QUERY_DATA_VERSION.read(command))
        said = _version(bodies.read(command.body, bodies.DataVersion))
        known = self._registry.seen(identity)
        body = b"" if known is None else bodies.write(bodies.DataVersion(
            counter=known.counter, state_version=known.state_version, timestamp=known.timestamp_ms
        ))  # fmt: skip
        return answer(command, fields=requests.VersionChanged(changed=known != said), body=body)


def _broker(broker: BrokerReplicas) -> bodies.BrokerData:
    return bodies.BrokerData(
        cluster=broker.cluster, broker_name=broker.broker_name,
        broker_addrs={str(number): address for number, address in broker.addresses.items()},
    )  # fmt: skip


def _identity(named: requests.BrokerNamed) -> BrokerIdentity:
    return BrokerIdentity(named.cluster_name, named.broker_name, named.broker_id, named.broker_addr, foreign=True)


def _topic(config: bodies.TopicConfigBody) -> RegisteredTopic:
    return RegisteredTopic(
        config.topic_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
    )


def _version(version: bodies.DataVersion) -> TopicTableVersion:
    return TopicTableVersion(version.state_version, version.timestamp, version.counter)
