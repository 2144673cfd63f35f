"""The Testcontainers class for Python: clients on the host use the container, and its faults reach them."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from compose_cluster import HOUSE, IMAGE, run, wait_until
from dejamq import ConsumeFrom, Message
from dejamq.sync import LitePullConsumer, Producer
from dejamq_lab.testcontainers import DejamqContainer
from dejamq_proto.codes import SendTimeout

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def container(image: None) -> Iterator[DejamqContainer]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image is in a registry
        with DejamqContainer(IMAGE) as container:
            yield container


def test_a_message_goes_through_the_mapped_port_and_back(container: DejamqContainer) -> None:
    with Producer("p", namesrv=container.namesrv) as producer:
        producer.send(Message("there-and-back", b"x"))
    with LitePullConsumer("c", namesrv=container.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("there-and-back")
        assert [message.body for message in consumer.poll(timeout_ms=20_000)] == [b"x"]


def test_a_lost_answer_that_the_program_tries_again_is_a_duplicate_with_its_cause(container: DejamqContainer) -> None:
    message = Message("twice", b"x")
    container.control.answer_lost("send")
    with Producer("p", namesrv=container.namesrv) as producer:
        with pytest.raises(SendTimeout):
            producer.send(message)
        producer.send(message)
    with LitePullConsumer("twice-g", namesrv=container.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("twice")
        got = 0
        while got < 2:
            got += len(consumer.poll(timeout_ms=20_000))
    (duplicate,) = container.control.duplicates("twice-g")
    assert (duplicate.cause, duplicate.identity, duplicate.message_id) == ("P1", "I2", message.message_id)


def test_a_killed_server_starts_again_at_the_same_address(container: DejamqContainer) -> None:
    container.control.kill()
    container.control.restart()
    with Producer("p", namesrv=container.namesrv) as producer:
        producer.send(Message("after", b"x"))


def test_the_example_of_the_page_runs(image: None, tmp_path: Path) -> None:
    page = (HOUSE / "docs" / "testing.md").read_text()
    (example,) = re.findall(r"```python\n([^`]*DejamqContainer\(\)[^`]*)```", page)
    script = tmp_path / "example.py"
    script.write_text(example.replace("DejamqContainer()", f'DejamqContainer("{IMAGE}")'))
    run([sys.executable, str(script)], os.environ | {"TESTCONTAINERS_RYUK_DISABLED": "true"})


def test_a_service_container_of_a_job_is_opened_by_its_environment(image: None) -> None:
    """It is given no command; the image's own is ``dejamq dev``."""
    page = (HOUSE / "docs" / "testing.md").read_text()
    variables = re.findall(r"^ +(DEJAMQ_\w+: \S+)$", page, re.MULTILINE)
    given = [part for variable in variables for part in ("-e", variable.replace(": ", "="))]
    ports = ["-p", "127.0.0.1::9877"]
    container = run(["docker", "run", "-d", *given, *ports, IMAGE]).strip()
    try:
        where = run(["docker", "port", container, "9877"]).splitlines()[0]
        wait_until(lambda: healthy(where) == "localhost:9876", "it serves")
    finally:
        run(["docker", "rm", "-f", container])


def healthy(where: str) -> str:
    """The address that clients are told, once they can connect."""
    try:
        with urlopen(f"http://{where}/health") as answer:
            return str(json.load(answer)["namesrv"])
    except OSError:
        return ""
