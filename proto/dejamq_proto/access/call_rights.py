"""The right that each gRPC call needs: those of dejamq.v1, whose streams the fast port serves too, and RocketMQ 5's.

Names are ``Service.Method`` of dejamq.v1, and the method alone of RocketMQ 5's service.
"""

from dejamq_proto.access.needs import (
    CREATE,
    DELETE,
    FIND,
    GET,
    LIST,
    LOOK,
    MOVE,
    PUB,
    SERVERS,
    SUB,
    UPDATE,
    USER,
    NeededRight,
    Of,
    Right,
    cluster,
    group,
    message,
    right,
    topic,
)

_SEND = right(topic(PUB, "queues[].0"), NeededRight(Of.REPLY, PUB))
_PULL = right(
    topic(SUB), group(SUB), topic(SUB, "also[].topic", optional=True), group(SUB, "also[].group", optional=True)
)
_POP = right(topic(SUB), group(SUB))
_LOCK = right(group(SUB), topic(SUB, "queues[].topic", optional=True))
_QUEUE = right(topic(LOOK, "queue.topic"))
_ROUTE = right(topic(FIND))

V1: dict[str, Right] = {
    "Send.SendStream": _SEND,
    "Send.SendOne": _SEND,
    "Send.SendBack": right(group(SUB), message(SUB, "log_offset")),
    "Send.Recall": right(topic(PUB)),
    "Pull.PullStream": _PULL,
    "Pull.PullOne": _PULL,
    "Pull.CheckFilter": right(topic(SUB), group(SUB)),
    "Pop.Receive": _POP,
    "Pop.Ack": _POP,
    "Pop.ChangeInvisible": _POP,
    "Transaction.EndTransaction": right(message(PUB, "half_log_offset")),
    "Client.ClientChannel": right(
        group(SUB, "consumers[].group", optional=True),
        topic(SUB, "consumers[].subscriptions[].topic", optional=True),
        group(MOVE, "commits.group", optional=True), topic(MOVE, "commits.queues[].topic", optional=True),
        group(LOOK, "consumer_list.group", optional=True),
    ),
    "Client.Unregister": right(group(SUB, "consumer_group", optional=True)),
    "Client.ConsumerList": right(group(LOOK)),
    "Client.QueryOffset": right(
        group(LOOK), topic(LOOK, "queue.topic"),
        group(LOOK, "also[].group", optional=True), topic(LOOK, "also[].queue.topic", optional=True),
    ),
    "Client.UpdateOffset": right(
        group(MOVE), topic(MOVE, "queue.topic"),
        group(MOVE, "also[].group", optional=True), topic(MOVE, "also[].queue.topic", optional=True),
    ),
    "Client.MaxOffset": _QUEUE,
    "Client.MinOffset": _QUEUE,
    "Client.SearchOffset": _QUEUE,
    "Client.LockBatch": _LOCK,
    "Client.UnlockBatch": _LOCK,
    "Handover.Claim": right(group(SUB), topic(SUB, "claims[].queue.topic", optional=True)),
    "Handover.Release": right(group(SUB), topic(SUB, "releases[].queue.topic", optional=True)),
    "Admin.CreateTopic": right(topic(CREATE, "topic.topic")),
    "Admin.UpdateTopic": right(topic(UPDATE)),
    "Admin.DeleteTopic": right(topic(DELETE)),
    "Admin.UpdateGroup": right(group(CREATE, "group.group")),
    "Admin.DeleteGroup": right(group(DELETE)),
    "Admin.Forbid": right(group(UPDATE), topic(GET)),
    "Admin.ResetOffsets": right(group(UPDATE), topic(LOOK)),
    "Admin.CloneOffsets": right(group(GET, "source"), group(UPDATE, "target"), topic(LOOK)),
    "Admin.ListOffsets": right(group(GET)),
    "Admin.ViewMessage": right(message(LOOK, "")),
    "Admin.QueryMessage": right(topic(LOOK)),
    "Admin.ListTopicConfigs": cluster(LIST),
    "Admin.ListGroups": cluster(LIST),
    "Admin.ListConnections": cluster(LIST),
    "Admin.ListClashes": cluster(LIST),
    "Admin.RuntimeInfo": cluster(GET),
    "Admin.Settings": cluster(GET),
    "Admin.UpdateSettings": cluster(UPDATE),
    "DeadLetters.Replay": right(group(UPDATE), NeededRight(Of.ORIGIN, PUB)),
    "Running.RunningInfo": right(group(GET)),
    "Running.ConsumeDirectly": right(group(UPDATE), message(LOOK, "message_id")),
    "Running.AnswerCommand": USER,
    "Running.Stats": cluster(GET),
    "Fast.Where": USER,
    "Replication.LogExtent": SERVERS,
    "Replication.LogDigest": SERVERS,
    "Replication.CopyLog": SERVERS,
    "Replication.CopyTable": SERVERS,
    "NameServer.RegisterBroker": SERVERS,
    "NameServer.UnregisterBroker": SERVERS,
    "NameServer.BrokerChannel": SERVERS,
    "NameServer.GetRoute": _ROUTE,
    "NameServer.GetRoutes": right(topic(FIND, "topics[]")),
    "NameServer.GetClusterInfo": cluster(LIST),
    "NameServer.ListTopics": cluster(LIST),
    "NameServer.GetConfig": cluster(GET),
    "NameServer.ListConfig": cluster(GET),
    "NameServer.PutConfig": cluster(UPDATE),
    "NameServer.DeleteConfig": cluster(UPDATE),
    "NameServer.DeleteTopic": right(topic(DELETE)),
    "NameServer.SetWritable": cluster(UPDATE),
    "NameServer.Mastership": SERVERS,
    "Access.PutUser": SERVERS,
    "Access.DeleteUser": SERVERS,
    "Access.ListUsers": SERVERS,
    "Access.PutRules": SERVERS,
    "Access.DeleteRules": SERVERS,
    "Access.ListRules": SERVERS,
}  # fmt: skip

_V2_POP = right(topic(SUB, "topic.name"), group(SUB, "group.name"))
_V2_QUEUE = right(topic(SUB, "message_queue.topic.name"), group(SUB, "group.name"))

V2: dict[str, Right] = {
    "QueryRoute": right(topic(FIND, "topic.name")),
    "QueryAssignment": _V2_POP,
    "Heartbeat": right(group(SUB, "group.name", optional=True)),
    "NotifyClientTermination": right(group(SUB, "group.name", optional=True)),
    "SendMessage": right(topic(PUB, "messages[].topic.name")),
    "ReceiveMessage": _V2_QUEUE,
    "AckMessage": _V2_POP,
    "ChangeInvisibleDuration": _V2_POP,
    "ForwardMessageToDeadLetterQueue": _V2_POP,
    "EndTransaction": right(topic(PUB, "topic.name")),
    "RecallMessage": right(topic(PUB, "topic.name")),
    "PullMessage": _V2_QUEUE,
    "UpdateOffset": _V2_QUEUE,
    "QueryOffset": right(topic(LOOK, "message_queue.topic.name")),
    "GetOffset": right(topic(LOOK, "message_queue.topic.name"), group(LOOK, "group.name")),
    "SyncLiteSubscription": right(topic(SUB, "topic.name"), group(SUB, "group.name")),
    "Telemetry": right(
        group(SUB, "settings.subscription.group.name", optional=True),
        topic(SUB, "settings.subscription.subscriptions[].topic.name", optional=True),
        topic(PUB, "settings.publishing.topics[].name", optional=True),
    ),
}
