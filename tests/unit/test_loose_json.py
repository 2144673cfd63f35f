"""RocketMQ's loose JSON: what it writes is read, what no JSON of any kind is refused."""

import pytest
from dejamq_proto.loose_json import loads_loose, pairs_of_field, pairs_with_object_keys


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"a":{"0":1}}', {"a": {"0": 1}}),
        ('{"a":{0:1,12:3}}', {"a": {"0": 1, "12": 3}}),
        ('{"a":{ -1 : 1 }}', {"a": {"-1": 1}}),
        ('{"{1:":"{2:3}",3:4}', {"{1:": "{2:3}", "3": 4}),
        (r'{"quote\"{1:":5, 7:{}}', {'quote"{1:': 5, "7": {}}),
    ],
)
def test_bare_number_keys_are_read_and_strings_left_alone(text: str, content: object) -> None:
    assert loads_loose(text) == content


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("{}", []),
        ("{ }", []),
        ('{{"a":1}:2}', [({"a": 1}, 2)]),
        ('{{"a":"}:,"} : 2 ,\n\t{"b":{}}:{"c":3}}', [({"a": "}:,"}, 2), ({"b": {}}, {"c": 3})]),
        ('{"plain":1}', [("plain", 1)]),
    ],
)
def test_object_keys_are_read(text: str, pairs: object) -> None:
    assert pairs_with_object_keys(text, 0) == (pairs, len(text))


def test_a_map_with_object_keys_is_found_inside_of_a_text() -> None:
    text = 'x{{"a":1}:2}y'
    assert pairs_with_object_keys(text, 1) == ([({"a": 1}, 2)], len(text) - 1)


@pytest.mark.parametrize(
    "text", ["", "[", "{", '{{"a":1}', '{{"a":1}:', '{{"a":1}:2', '{{"a":1} 2}', '{{"a":1}:2,}', "{1:"]
)
def test_what_ends_early_or_is_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting"):
        pairs_with_object_keys(text, 0)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("{}", []),
        ('{"other":{"table":{}}}', []),
        ('{"table":{{"a":1}:2}}', [({"a": 1}, 2)]),
        (' { "other":[1,{"table":3}], "table" : {{"a":1}:2} , "more":null }', [({"a": 1}, 2)]),
    ],
)
def test_a_map_with_object_keys_is_found_by_its_field(text: str, pairs: object) -> None:
    assert pairs_of_field(text, "table") == pairs


@pytest.mark.parametrize("text", ["", "[]", '{"table"', '{"table":{}', '{"table":{} "more":1}', '{"more":}'])
def test_what_is_no_object_has_no_fields(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting"):
        pairs_of_field(text, "table")
