"""Signals: what is told reaches each listener, and nobody has to listen."""

from dejamq_proto.signals import Signal


def test_without_a_listener_nothing_happens() -> None:
    signal = Signal[[int]]()
    signal.tell(1)
    assert not signal.connected


def test_the_only_listener_is_called_directly() -> None:
    signal, heard = Signal[[int]](), list[int]()
    listener = heard.append
    signal.connect(listener)
    assert signal.tell is listener
    signal.tell(1)
    assert (heard, signal.connected) == ([1], True)


def test_each_listener_is_called_in_the_order_of_connection() -> None:
    signal, heard = Signal[[str]](), list[str]()
    signal.connect(lambda word: heard.append(f"first {word}"))
    signal.connect(lambda word: heard.append(f"second {word}"))
    signal.connect(lambda word: heard.append(f"third {word}"))
    signal.tell("one")
    assert heard == ["first one", "second one", "third one"]
