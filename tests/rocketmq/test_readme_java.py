"""The README's program in Java, run as written against a name server and a broker of ours."""

import re
from pathlib import Path

import pytest
from java_clients import jars_of, java, output_of

README = (Path(__file__).parents[2] / "README.md").read_text()
(PROGRAM,) = re.findall(r"```java\n(.*?)```", README, re.DOTALL)
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_the_java_program_of_the_readme_sends(namesrv: str, tmp_path: Path) -> None:
    source = tmp_path / "FirstOrder.java"
    source.write_text(PROGRAM.replace("127.0.0.1:9876", namesrv))
    output = await output_of(java([jars_of("5.3.3") / "*"], tmp_path, str(source)), tmp_path)
    assert "sendStatus=SEND_OK" in output
