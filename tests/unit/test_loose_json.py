"""RocketMQ's loose JSON: what it writes is read, what no JSON of any kind is refused."""

import json

import pytest
from dejamq_proto.loose_json import as_json, loads_loose, pairs_of_field, pairs_with_object_keys


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


@pytest.mark.parametrize(
    "text",
    [
        '{1:"' + r"\"" * 500_000,
        '{1:"' + r"\"" * 500_000 + "\\",
        '{1:"' + "\\" * 500_001,
        "{" * 1_000 + " " * 500_000,
        "{" + "1" * 500_000,
    ],
)
def test_a_text_that_never_ends_is_read_once(text: str) -> None:
    """A reader that begins anew at each quote would need hours."""
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|deep"):
        loads_loose(text)


def test_what_lies_too_deep_is_refused_like_other_text() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "{1:" * 100_000):
        with pytest.raises(ValueError, match=r"deep|Expecting"):
            loads_loose(text)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ('{"t@g":{0:1,-12:3}}', {"t@g": {"0": 1, "-12": 3}}),
        ('{"m":{{"q":0,"t":"t"}:{"n":1},{"q":"ü"}:[]}}', {"m": {'{"q":0,"t":"t"}': {"n": 1}, '{"q":"ü"}': []}}),
        ('{"m":{{1:2}:{3:4}},\n"s":"{1:2}"}', {"m": {'{"1":2}': {"3": 4}}, "s": "{1:2}"}),
        ("[]", []),
    ],
)  # fmt: skip
def test_bare_keys_of_every_kind_become_texts_in_one_line_of_json(text: str, content: object) -> None:
    made = as_json(text)
    assert json.loads(made) == content
    assert b"\n" not in made


@pytest.mark.parametrize("text", ["", "{", '{"a":1', '{{"a":1}:2', "{1:2}3", "[1,]", '{{"a":1}2}', "nothing"])
def test_what_is_no_json_of_any_kind_is_not_made_json(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each parser has words of its own
        as_json(text)
