"""How far a master's slaves are, and whether enough of them count."""

from dejamq_broker.replication.slave_progress import SlavePosition, SlaveTable


def table(needed: int, *acknowledged: int, max_gap: int = 1000) -> SlaveTable:
    made = SlaveTable(needed, max_gap)
    for number, log_offset in enumerate(acknowledged, 1):
        made.add(number, SlavePosition(number, f"boot-{number}", f"h:{number}", log_offset))
    return made


def test_what_one_slave_has_is_confirmed_when_one_is_needed() -> None:
    assert table(1, 100, 300, 200).confirmed == 300


def test_what_all_slaves_have_is_confirmed_when_all_are_needed() -> None:
    assert table(3, 100, 300, 200).confirmed == 100


def test_nothing_is_confirmed_with_too_few_slaves() -> None:
    assert table(2, 100).confirmed == -1
    assert table(1).confirmed == -1


def test_a_slave_that_left_confirms_nothing_any_more() -> None:
    slaves = table(1, 100, 300)
    slaves.remove(2)
    assert slaves.confirmed == 100
    assert slaves.remove(2) is None


def test_an_acknowledgement_does_not_go_back() -> None:
    slaves = table(1, 100)
    slaves.acknowledge(1, 50)
    assert slaves.confirmed == 100
    slaves.acknowledge("nobody", 500)
    assert slaves.confirmed == 100


def test_a_slave_that_is_too_far_behind_is_not_waited_for() -> None:
    assert table(1, 100).available(1099)
    assert not table(1, 100).available(1100)
    assert table(1, 100, 500).available(1100)
    assert not table(2, 100, 500).available(1100)
    assert not table(1).available(0)


def test_slaves_are_told_by_id() -> None:
    slaves = SlaveTable(0, 1)
    for broker_id in (3, 1, 2):
        slaves.add(broker_id, SlavePosition(broker_id, "", "", 0))
    assert [slave.broker_id for slave in slaves.slaves()] == [1, 2, 3]
