"""One client id that several processes use: what counts as that, and what is remembered of it."""

from dejamq_broker.members.clashes import KEPT, ClashBook, ClientIdUser

A, A2, B, UNKNOWN, UNKNOWN2 = (
    ClientIdUser(1, "boot-a", "10.0.0.1:1"), ClientIdUser(2, "boot-a", "10.0.0.1:2"), ClientIdUser(3, "boot-b", "10.0.0.2:1"),
    ClientIdUser(4, "", "10.0.0.3:1"), ClientIdUser(5, "", "10.0.0.3:2"),
)  # fmt: skip


def test_two_processes_are_a_clash_and_two_connections_of_one_are_not() -> None:
    book = ClashBook()
    assert book.seen("consumer", "g", "me", [A], 1) is None
    assert book.seen("consumer", "g", "me", [A, A2], 2) is None
    assert list(book) == []
    clash = book.seen("consumer", "g", "me", [A, B], 3)
    assert clash is not None
    assert (clash.addresses, clash.boot_ids) == (["10.0.0.1:1", "10.0.0.2:1"], ["boot-a", "boot-b"])
    assert (clash.first_ms, clash.last_ms, clash.present) == (3, 3, True)


def test_connections_that_do_not_say_whose_they_are_are_each_their_own() -> None:
    assert ClashBook().seen("producer", "g", "me", [UNKNOWN, UNKNOWN2], 1) is not None


def test_it_is_news_once_and_again_after_it_was_over() -> None:
    book = ClashBook()
    assert book.seen("consumer", "g", "me", [A, B], 1) is not None
    assert book.seen("consumer", "g", "me", [A, B], 2) is None
    assert book.seen("consumer", "g", "me", [B], 3) is None
    (over,) = book
    assert (over.present, over.first_ms, over.last_ms) == (False, 1, 2)
    again = book.seen("consumer", "g", "me", [B, UNKNOWN], 4)
    assert again is not None
    assert (again.first_ms, again.last_ms) == (1, 4)
    assert again.addresses == ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]


def test_groups_and_roles_are_looked_at_apart_and_listed_in_order() -> None:
    book = ClashBook()
    for role, group in (("producer", "b"), ("consumer", "b"), ("consumer", "a")):
        assert book.seen(role, group, "me", [A, B], 1) is not None
    assert [(one.group, one.role) for one in book] == [("a", "consumer"), ("b", "consumer"), ("b", "producer")]


def test_memory_of_it_is_bounded() -> None:
    book = ClashBook()
    for number in range(KEPT + 5):
        book.seen("consumer", f"g{number:05d}", "me", [A, B], number)
    assert len(list(book)) == KEPT
    assert next(iter(book)).group == "g00005"
