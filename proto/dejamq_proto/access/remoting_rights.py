"""The right that each request of RocketMQ's remoting protocol needs, by its number.

Source: RocketMQ ``DefaultAuthorizationContextBuilder`` and the actions that its request headers declare. Requests that
name a stored message by its place are asked for the right to that message's own topic, which RocketMQ does not do.
"""

from typing import Any

from dejamq_proto.access.needs import (
    CREATE,
    DELETE,
    FIND,
    GET,
    LIST,
    LOOK,
    MOVE,
    NEVER,
    PUB,
    SERVERS,
    SUB,
    UPDATE,
    NeededRight,
    Of,
    Right,
    cluster,
    group,
    message,
    right,
    topic,
)
from dejamq_proto.remoting import access_requests, bodies, pop_requests, requests

_REPLY = right(topic(PUB), NeededRight(Of.REPLY, PUB))
_OF_CONSUMER = group(LOOK, "consumer_group")
_PULL = right(topic(SUB), group(SUB, "consumer_group"))
_ACK = right(NeededRight(Of.POPPED, SUB, ""), group(SUB, "consumer_group"))
_LOCK = right(
    group(SUB, "body.consumer_group"), topic(SUB, "body.mq_set[].topic", optional=True), body=bodies.LockBatch
)
_BEAT = right(
    group(SUB, "body.consumer_data_set[].group_name", optional=True),
    topic(SUB, "body.consumer_data_set[].subscription_data_set[].topic", optional=True),
    body=bodies.Heartbeat,
)

_TABLE: tuple[tuple[requests.RequestKind[Any], Right], ...] = (
        # name server
        (requests.GET_ROUTE, right(topic(FIND))),
        (requests.GET_CLUSTER_INFO, cluster(LIST)),
        (requests.GET_ALL_TOPICS, cluster(LIST)),
        (requests.PUT_KV_CONFIG, cluster(UPDATE)),
        (requests.GET_KV_CONFIG, cluster(GET)),
        (requests.DELETE_KV_CONFIG, cluster(UPDATE)),
        (requests.GET_KV_LIST, cluster(GET)),
        (requests.WIPE_WRITE_PERM, cluster(UPDATE)),
        (requests.ADD_WRITE_PERM, cluster(UPDATE)),
        (requests.GET_BROKER_MEMBERS, cluster(GET)),
        (requests.GET_TOPICS_BY_CLUSTER, cluster(LIST)),
        (requests.GET_SYSTEM_TOPICS_FROM_NS, cluster(LIST)),
        (requests.DELETE_TOPIC_IN_NAMESRV, right(topic(DELETE))),
        (requests.GET_NAMESRV_CONFIG, cluster(GET)),
        (requests.UPDATE_NAMESRV_CONFIG, cluster(UPDATE)),
        (requests.REGISTER_BROKER, SERVERS),
        (requests.UNREGISTER_BROKER, SERVERS),
        (requests.BROKER_HEARTBEAT, SERVERS),
        (requests.QUERY_DATA_VERSION, SERVERS),
        # sending
        (requests.SEND_MESSAGE, right(topic(PUB))),
        (requests.SEND_MESSAGE_V2, right(topic(PUB))),
        (requests.SEND_BATCH_MESSAGE, right(topic(PUB))),
        (requests.SEND_REPLY_MESSAGE, _REPLY),
        (requests.SEND_REPLY_MESSAGE_V2, _REPLY),
        (requests.RECALL_MESSAGE, right(topic(PUB))),
        (requests.SEND_BACK, right(group(SUB), message(SUB, "offset"))),
        (requests.END_TRANSACTION, right(message(PUB, "commit_log_offset"))),
        # receiving
        (requests.PULL_MESSAGE, _PULL),
        (requests.LITE_PULL_MESSAGE, _PULL),
        (pop_requests.POP_MESSAGE, _PULL),
        (pop_requests.NOTIFICATION, _PULL),
        (pop_requests.ACK_MESSAGE, _ACK),
        (pop_requests.CHANGE_INVISIBLE, _ACK),
        (
            pop_requests.BATCH_ACK_MESSAGE,
            right(NeededRight(Of.POPPED, SUB, "body.acks[]"), group(SUB, "body.acks[].group"), body=bodies.BatchAck),
        ),
        (
            pop_requests.QUERY_ASSIGNMENT,
            right(topic(SUB, "body.topic"), group(SUB, "body.consumer_group"), body=bodies.AssignmentQuestion),
        ),
        (
            pop_requests.SET_REQUEST_MODE,
            right(topic(UPDATE, "body.topic"), group(UPDATE, "body.consumer_group"), body=bodies.RequestModeBody),
        ),
        # members and offsets
        (requests.HEART_BEAT, _BEAT),
        (requests.UNREGISTER_CLIENT, right(group(SUB, "consumer_group", optional=True))),
        (requests.GET_CONSUMER_LIST, right(_OF_CONSUMER)),
        (requests.QUERY_CONSUMER_OFFSET, right(topic(LOOK), _OF_CONSUMER)),
        (requests.UPDATE_CONSUMER_OFFSET, right(topic(MOVE), group(MOVE, "consumer_group"))),
        (requests.GET_MAX_OFFSET, right(topic(LOOK))),
        (requests.GET_MIN_OFFSET, right(topic(LOOK))),
        (requests.SEARCH_OFFSET, right(topic(LOOK))),
        (requests.GET_EARLIEST_STORE_TIME, right(topic(LOOK))),
        (requests.LOCK_BATCH, _LOCK),
        (requests.UNLOCK_BATCH, _LOCK),
        (
            requests.CHECK_CLIENT_CONFIG,
            right(topic(SUB, "body.subscription_data.topic", optional=True), body=bodies.CheckClient),
        ),
        # of brokers to clients
        (requests.GET_OFFSETS_OF_CLIENT, NEVER),
        (requests.CHECK_TRANSACTION_STATE, NEVER),
        (requests.NOTIFY_CONSUMER_IDS_CHANGED, NEVER),
        (requests.PUSH_REPLY, NEVER),
        # of operators: clients and messages
        (requests.GET_OFFSETS_OF_MEMBERS, right(group(GET), topic(GET))),
        (requests.GET_RUNNING_INFO, right(group(GET, "consumer_group"))),
        (requests.CONSUME_DIRECTLY, right(group(UPDATE, "consumer_group"), message(LOOK, "msg_id"))),
        (requests.VIEW_MESSAGE, right(message(LOOK, "offset"))),
        (requests.QUERY_MESSAGE, right(topic(LOOK))),
        (requests.QUERY_QUEUE_ENTRIES, right(topic(GET))),
        (requests.RESUME_HALF_MESSAGE, cluster(UPDATE)),
        # of operators: topics and groups
        (requests.UPDATE_TOPIC, right(topic(CREATE))),
        (
            requests.UPDATE_TOPICS,
            right(topic(CREATE, "body.topic_config_list[].topic_name"), body=bodies.TopicConfigList),
        ),
        (requests.DELETE_TOPIC, right(topic(DELETE))),
        (requests.GET_TOPIC_CONFIG, right(topic(GET))),
        (requests.GET_TOPIC_STATS, right(topic(GET))),
        (requests.UPDATE_GROUP, right(group(CREATE, "body.group_name"), body=bodies.Group)),
        (requests.UPDATE_GROUPS, right(group(CREATE, "body.group_config_list[].group_name"), body=bodies.GroupConfigs)),
        (requests.DELETE_GROUP, right(group(DELETE, "group_name"))),
        (requests.GET_GROUP, right(group(GET))),
        (requests.FORBID, right(group(UPDATE), topic(GET))),
        (requests.GET_CONSUME_STATS, right(group(GET, "consumer_group"), topic(GET, optional=True))),
        (requests.GET_CONSUMER_CONNECTIONS, right(group(GET, "consumer_group"))),
        (requests.GET_PRODUCER_CONNECTIONS, right(group(GET, "producer_group"))),
        (requests.GET_TIME_SPAN, right(topic(GET), group(GET))),
        (requests.SUBSCRIPTION_OF_GROUP, right(topic(GET), group(GET))),
        (requests.TOPICS_OF_GROUP, right(group(GET))),
        (requests.WHO_CONSUMES, right(topic(GET))),
        (requests.RESET_OFFSETS, right(group(UPDATE), topic(LOOK))),
        (
            requests.CLONE_OFFSETS,
            right(group(GET, "src_group"), group(UPDATE, "dest_group"), topic(LOOK, optional=True)),
        ),
        # of operators: the broker
        (requests.GET_ALL_TOPIC_CONFIG, cluster(LIST)),
        (requests.GET_ALL_GROUPS, cluster(LIST)),
        (requests.GET_ALL_CONSUMER_OFFSET, cluster(LIST)),
        (requests.GET_ALL_DELAY_OFFSET, cluster(LIST)),
        (pop_requests.GET_ALL_REQUEST_MODES, cluster(LIST)),
        (requests.GET_ALL_PRODUCERS, cluster(LIST)),
        (requests.GET_SYSTEM_TOPICS, cluster(LIST)),
        (requests.GET_CONSUMPTION, cluster(LIST)),
        (requests.GET_RUNTIME_INFO, cluster(GET)),
        (requests.GET_BROKER_CONFIG, cluster(GET)),
        (requests.GET_HA_STATUS, cluster(GET)),
        (requests.VIEW_STATS, cluster(GET)),
        (requests.UPDATE_BROKER_CONFIG, cluster(UPDATE)),
        (requests.CLEAN_EXPIRED_QUEUES, cluster(UPDATE)),
        (requests.CLEAN_UNUSED_TOPICS, cluster(DELETE)),
        (requests.DELETE_EXPIRED_LOG, cluster(DELETE)),
        # users and rules: who may change them may do everything
        *((request, SERVERS) for request in (
            access_requests.CREATE_USER, access_requests.UPDATE_USER, access_requests.DELETE_USER,
            access_requests.GET_USER, access_requests.LIST_USERS, access_requests.CREATE_ACL,
            access_requests.UPDATE_ACL, access_requests.DELETE_ACL, access_requests.GET_ACL, access_requests.LIST_ACLS,
        )),
)  # fmt: skip
REMOTING = {request.code: needed for request, needed in _TABLE}
"""A request without a right here is refused to normal users while access control is on."""
