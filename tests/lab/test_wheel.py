"""A wheel of this source, installed where there is no checkout. `prove_dist.py` does it with every Python, in full."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import typer
from distribution import PROJECT, Installed, metadata, problems_of_wheel, run, sources

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without compiled parts, which take as long as all the rest. No index is asked: what builds is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    source = sources(folder / "source")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], source, DEJAMQ_PURE_PYTHON="1")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, and what it depends on from this environment, where dejamq is the checkout: that is not looked at."""
    folder = tmp_path_factory.mktemp("installed")
    made = Installed(folder / "environment", folder / "work")
    made.work.mkdir()
    run([sys.executable, "-m", "venv", "--without-pip", made.environment], folder)
    pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet", "--no-deps", "--no-index"]
    run([*map(str, pip), "--no-compile", "--disable-pip-version-check", wheel], folder)
    site = next((made.environment / "lib").glob("python*/site-packages"))
    others = {str(Path(module.__file__ or "").parents[1]) for module in (msgspec, pytest, typer)}
    (site / "others.pth").write_text("\n".join(sorted(others)), encoding="utf-8")
    return made


def test_a_wheel_has_all_that_runs_and_nothing_of_a_checkout(wheel: Path) -> None:
    assert problems_of_wheel(wheel) == []


def test_a_wheel_names_the_extras_and_no_address(wheel: Path) -> None:
    told = metadata(wheel).partition("\n\n")[0]
    for extra in PROJECT["project"]["optional-dependencies"]:
        assert f"Provides-Extra: {extra}\n" in told
    assert "://" not in told


def test_what_is_installed_tells_the_version_of_the_project(installed: Installed) -> None:
    installed.is_this_version()


def test_an_installed_dev_server_takes_and_gives_a_message(installed: Installed) -> None:
    installed.send_and_consume()


def test_a_test_uses_the_fixtures_of_an_installed_plugin(installed: Installed) -> None:
    installed.run_fixtures()


def test_a_command_without_its_extra_names_it_in_one_line(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')\n", encoding="utf-8")
    code = "import os; os.dup2(1, 2); from dejamq_cli.__main__ import main; print(main())"
    said = installed.run(installed.python, "-c", code, PYTHONPATH=str(tmp_path))
    assert said == "dejamq: the command needs typer: pip install 'dejamq[cli]'\n2\n"
