"""RocketMQ's remoting frames: vectors of its own jars, clients' habits, and bytes that are no frame."""

import json
import random

import msgspec
import pytest
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.batches import HEAD, PROPERTIES_SIZE, elements
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES, BadFrame, FrameReader, answer, encode
from dejamq_proto.remoting.header import JSON, ROCKETMQ, Command

ROUTE = Command(code=105, opaque=7, version=479, ext={"topic": "orders"})
AS_JSON = bytes.fromhex("0000008400000080") + (
    b'{"code":105,"extFields":{"topic":"orders"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
AS_BINARY = bytes.fromhex(
    "0000002a01000026006900" + "01df0000000700000000" + "0000000000000011" + "0005746f706963" + "000000066f7264657273"
)


def read(data: bytes) -> list[Command]:
    """Each byte by itself."""
    reader, found = FrameReader(), []
    for at in range(len(data)):
        reader.receive(data[at : at + 1])
        while (command := reader.next_command()) is not None:
            found.append(command)
    assert reader.held == 0
    return found


def frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header


def from_json(header: object, body: bytes = b"") -> Command:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    (command,) = read((4 + len(raw) + len(body)).to_bytes(4) + len(raw).to_bytes(4) + raw + body)
    return command


@pytest.mark.parametrize(("form", "vector"), [(JSON, AS_JSON), (ROCKETMQ, AS_BINARY)], ids=["json", "binary"])
def test_a_request_is_the_bytes_that_rocketmq_makes_of_it(form: int, vector: bytes) -> None:
    assert encode(ROUTE, form) == vector
    assert read(vector) == [ROUTE]


def test_frames_are_found_wherever_the_bytes_are_cut(chance: random.Random) -> None:
    stream, reader, found = b"".join([AS_JSON, AS_BINARY] * 20), FrameReader(), 0
    while stream:
        cut = chance.randrange(1, 300)
        reader.receive(stream[:cut])
        stream = stream[cut:]
        while reader.next_command() is not None:
            found += 1
    assert found == 40


def test_numbers_and_truths_among_the_fields_become_texts_and_nulls_are_missing() -> None:
    fields = {"queueId": 3, "batch": True, "topic": "t", "nothing": None, "deep": {"a": 1}}
    command = from_json({"code": 310, "extFields": fields})
    assert command.ext == {"queueId": "3", "batch": "true", "topic": "t", "deep": '{"a":1}'}


@pytest.mark.parametrize("fields", [{}, {"extFields": None}, {"extFields": {}}], ids=["missing", "null", "empty"])
def test_a_header_without_fields_may_say_so_in_three_ways(fields: dict[str, object]) -> None:
    assert from_json({"code": 34, "opaque": 1} | fields).ext == {}


def test_a_header_may_end_with_a_newline_and_name_a_language_that_nobody_knows() -> None:
    assert from_json(b'{"code":34,"language":"COBOL","version":1}\n').language == "COBOL"


def test_a_body_is_what_follows_the_header() -> None:
    assert from_json({"code": 34}, b"\x00body").body == b"\x00body"


def test_an_empty_text_of_a_binary_header_is_none_at_all() -> None:
    raw = encode(Command(code=1, ext={"a": "", "b": "x"}), ROCKETMQ)
    assert read(raw)[0].ext == {"b": "x"}


@pytest.mark.parametrize("number", [(1 << 31) - 1, -(1 << 31)])
def test_the_number_of_a_request_may_be_any_that_java_counts_to(number: int) -> None:
    assert from_json({"code": 34, "opaque": number}).opaque == number


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x00\x00\x00\x03", "a frame of 3 bytes"),
        ((MAX_FRAME_BYTES - 3).to_bytes(4), "a frame of 16777213 bytes"),
        (bytes.fromhex("00000004 00000001"), "a header of 1 bytes"),
        (bytes.fromhex("00000005 00000001") + b"{", "a JSON header"),
        (bytes.fromhex("00000005 00000001") + b"1", "a JSON header"),
        (bytes.fromhex("00000005 05000001") + b"1", "5 is no form"),
        (bytes.fromhex("00000005 01000001") + b"1", "a binary header"),
        (frame(b'{"code":1,"opaque":2147483648}'), "a JSON header"),
        (frame(b'{"code":1,"opaque":-2147483649}'), "a JSON header"),
        (frame(b'{"code":99999999999999999999}'), "a JSON header"),
        (frame(b'{"code":1,"flag":4294967296}'), "a JSON header"),
        (frame(b'{"code":1,"remark":"\\ud800"}'), "a JSON header"),
        (frame(b'{"code":1,"extFields":{"a":"\\u12"}}'), "a JSON header"),
        (AS_BINARY[:29] + b"\x7f" + AS_BINARY[30:], "a text of 32517 bytes"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data: bytes, why: str) -> None:
    reader = FrameReader()
    reader.receive(data)
    with pytest.raises(BadFrame, match=why):
        reader.next_command()


@pytest.mark.parametrize(
    "value",
    [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"b":' * 100_000 + b"1" + b"}" * 100_000],
    ids=["never closed", "lists", "objects"],
)
def test_a_field_that_lies_too_deep_is_refused(value: bytes) -> None:
    reader = FrameReader()
    reader.receive(frame(b'{"code":1,"extFields":{"a":' + value + b"}}"))
    with pytest.raises(BadFrame, match="a JSON header cannot be read"):
        reader.next_command()


def test_a_header_that_no_client_needs_is_refused() -> None:
    reader = FrameReader()
    reader.receive(frame(b'{"code":1' + b" " * (1 << 20) + b"}"))
    with pytest.raises(BadFrame, match="a header of 1048586 bytes is announced, at most 1048576 are read"):
        reader.next_command()


def test_no_bytes_end_the_reader_with_anything_but_a_refusal(chance: random.Random) -> None:
    for _ in range(2_000):
        raw = bytearray(chance.choice((AS_JSON, AS_BINARY)))
        for _ in range(chance.randrange(1, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        reader = FrameReader()
        reader.receive(bytes(raw))
        try:
            reader.next_command()
        except BadFrame:
            pass


def test_an_answer_has_fields_that_are_texts_and_may_have_none() -> None:
    fields = requests.MessagePulled(suggest_which_broker_id=0, next_begin_offset=5, min_offset=0, max_offset=9)
    told = answer(ROUTE, Code.PULL_NOT_FOUND, "NO", fields, b"x")
    (header,) = read(encode(told))
    assert (header.code, header.opaque, header.is_answer, header.remark, header.body) == (19, 7, True, "NO", b"x")
    assert b'"nextBeginOffset":"5"' in encode(told)
    assert b'"extFields":{}' in encode(answer(ROUTE))


def test_the_letters_of_a_short_header_are_the_names_of_the_long_one() -> None:
    short = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "17", "h": "0", "m": "true"}
    read = requests.SEND_MESSAGE_V2.read(Command(code=310, ext=short | {"unknown": "1"}))
    assert (read.producer_group, read.topic, read.queue_id, read.born_timestamp, read.batch) == ("g", "t", -1, 17, True)


@pytest.mark.parametrize("ext", [{}, {"topic": "t"}, {"topic": "t", "queueId": ""}, {"topic": "t", "queueId": "x"}])
def test_a_field_that_is_missing_or_no_number_is_refused_by_its_name(ext: dict[str, str]) -> None:
    with pytest.raises(DejamqError, match="GET_MAX_OFFSET") as refused:
        requests.GET_MAX_OFFSET.read(Command(code=30, ext=ext))
    assert refused.value.code == Code.SYSTEM_ERROR


@pytest.mark.parametrize("number", ["2147483648", "99999999999999999999"])
def test_a_number_that_java_cannot_hold_is_refused(number: str) -> None:
    with pytest.raises(DejamqError):
        requests.GET_MAX_OFFSET.read(Command(code=30, ext={"topic": "t", "queueId": number}))


def test_a_route_is_json_without_blanks_and_with_quoted_keys() -> None:
    broker = bodies.BrokerData(cluster="c-1", broker_name="b-1", broker_addrs={"0": "10.0.0.1:10911"})
    queues = bodies.QueueData(broker_name="b-1", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert bodies.write(bodies.TopicRouteData(broker_datas=[broker], queue_datas=[queues])) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"b-1","cluster":"c-1",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b-1","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_a_map_with_objects_as_keys_is_written_as_fastjson_does() -> None:
    queue = bodies.MessageQueueBody(broker_name="b-1", queue_id=2, topic="orders")
    assert msgspec.json.encode({"offsetTable": bodies.with_object_keys([(queue, 5)])}) == (
        b'{"offsetTable":{{"brokerName":"b-1","queueId":2,"topic":"orders"}:5}}'
    )


def test_enums_are_read_as_names_and_as_numbers_and_numbers_as_texts() -> None:
    raw = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":0,"consumeFromWhere":4,'
        b'"subscriptionDataSet":[{"topic":"t","subString":"","subVersion":"12"}]}]}'
    )
    beat = bodies.read(raw, bodies.Heartbeat)
    assert beat.consumer_data_set is not None
    (consumer,) = beat.consumer_data_set
    assert bodies.name_of(consumer.message_model, bodies.MODELS) == "BROADCASTING"
    assert bodies.name_of(consumer.consume_from_where, bodies.STARTS) == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.subscription_data_set is not None
    assert consumer.subscription_data_set[0].sub_version == 12


def test_bare_numbers_as_keys_are_read_as_fastjson_writes_them() -> None:
    raw = b'{"brokerName":"b","cluster":"c","brokerAddrs":{0:"h:1"}}'
    assert bodies.read(raw, bodies.BrokerData).broker_addrs == {"0": "h:1"}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b'{"clientID":7}', b"\xff\xfe", b"[" * 1_000, b'{"clientID":"\\ud800"}',
        b'{"clientID":"\\u12"}', b'{"clientID":"c","more":NaN}', b'{"clientID":"c","more":' + b"{1:" * 2_000,
    ],
)  # fmt: skip
def test_a_body_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(DejamqError):
        bodies.read(raw, bodies.Heartbeat)


def element(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    size = HEAD.size + len(body) + PROPERTIES_SIZE.size + len(properties)
    head = HEAD.pack(size, 0, 0, flag, len(body))
    return head + body + PROPERTIES_SIZE.pack(len(properties)) + properties


def test_the_messages_of_a_batch_are_told_apart() -> None:
    raw = element(b"one", b"TAGS\x01a\x02", 7) + element(b"", b"") + element(b"three", b"TAGS\x01b")
    assert elements(raw) == [(7, b"one", b"TAGS\x01a\x02"), (0, b"", b""), (0, b"three", b"TAGS\x01b")]


def test_a_batch_that_is_cut_or_damaged_is_refused(chance: random.Random) -> None:
    raw = element(b"one", b"TAGS\x01a\x02") + element(b"two", b"")
    for cut in range(1, len(raw)):
        if cut != len(element(b"one", b"TAGS\x01a\x02")):
            with pytest.raises(DejamqError, match="the batch cannot be read"):
                elements(raw[:cut])
    for _ in range(500):
        damaged = bytearray(raw)
        damaged[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            elements(bytes(damaged))
        except DejamqError:
            pass
