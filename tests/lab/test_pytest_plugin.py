import pytest

pytestmark = pytest.mark.process

THEIR_TESTS = """
import asyncio

import pytest
from dejamq_proto.codes import RouteNotFound


def test_sync(dejamq_cluster, dejamq_topic, dejamq_group):
    assert dejamq_topic.startswith("test_sync-")
    assert dejamq_topic != dejamq_group
    assert dejamq_cluster.namesrv


async def test_asyncio(dejamq_cluster, dejamq_topic):
    from dejamq import Message

    async with dejamq_cluster.producer("p") as producer:
        await producer.send(Message(dejamq_topic, b"x"))


def test_fresh(dejamq_cluster, dejamq_fresh_cluster):
    assert dejamq_fresh_cluster.namesrv != dejamq_cluster.namesrv
    dejamq_fresh_cluster.broker("broker-a").kill()
"""


def test_the_fixtures_serve_sync_and_asyncio_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(THEIR_TESTS)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=3)


def test_loading_the_plugin_imports_nothing_else_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_ours(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("dejamq")
            ours = {name for name in sys.modules if name.split(".")[0].startswith("dejamq")}
            assert ours == {"dejamq_lab", "dejamq_lab.pytest_plugin"}
            assert "grpc" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_missing_extra_is_one_line_that_names_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        sys.modules["grpc"] = sys.modules["starlette"] = None

        def test_needs_one(dejamq_cluster):
            pass

        def test_needs_another(dejamq_server):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*the cluster fixtures need grpc: pip install 'dejamq[[]lab[]]'*"])
    result.stdout.fnmatch_lines(["*the server fixtures need *: pip install 'dejamq[[]lab,control[]]'*"])
    result.stdout.no_fnmatch_line("*During handling*")
