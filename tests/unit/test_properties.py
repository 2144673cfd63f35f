"""Files of RocketMQ's servers, read as Java reads them."""

import pytest
from dejamq_proto.codes import ConfigError
from dejamq_proto.config import java_properties


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("key=value", "value"),
        ("  key = value  ", "value"),
        ("key:value", "value"),
        ("key : value", "value"),
        ("key value", "value"),
        ("key\tvalue", "value"),
        ("key==value", "=value"),
        ("key", ""),
        ("key=", ""),
        ("key=a\\\n   b", "ab"),
        ("key=a\\\n   # b", "a# b"),
        ("key=a\\\\\nother=b", "a\\"),
        ("key=a\\", "a"),
        ("key=\\u00e9\\u4e2d", "é中"),
        ("key=\\ud83d\\ude00", "😀"),
        ("key=a\\ud83d", "a\ufffd"),
        ("key=a\\tb\\:c\\qd", "a\tb:cqd"),
        ("\\u006bey=value", "value"),
        ("! no\n# no\n\nkey=value", "value"),
        ("key=value # no comment", "value # no comment"),
        ("key=1\nkey=2", "2"),
        ("key=1\rother=2\r\nmore=3", "1"),
        ("\ufeffkey=value", "value"),
        ("key=Straße", "Straße"),
    ],
)
def test_a_line_is_read_as_java_reads_it(text: str, value: str) -> None:
    assert java_properties.read(text.encode())["key"] == value


def test_separators_that_are_escaped_belong_to_the_key() -> None:
    assert java_properties.read(rb"a\=b\:c\ d = e") == {"a=b:c d": "e"}


def test_a_value_of_any_number_of_lines_is_read_once() -> None:
    assert java_properties.read(b"a=" + b"x\\\n" * 1_000_000) == {"a": "x" * 1_000_000}


def test_what_is_no_utf_8_is_iso_8859_1() -> None:
    assert java_properties.read("key=Straße".encode("iso-8859-1")) == {"key": "Straße"}


def test_comments_may_be_in_any_encoding() -> None:
    assert java_properties.read("# 刷盘\n".encode("gbk") + "key=é".encode()) == {"key": "é"}


def test_an_escape_without_its_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\\u12' has a \\u without four hexadecimal digits"):
        java_properties.read(b"key=" + b"x" * 1_000 + rb"\u12")
