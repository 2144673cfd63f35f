"""docs/settings.md: all settings are in it, and a stale page is told."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dejamq
import dejamq_broker
import dejamq_namesrv
import pytest
import settings_page


def config_classes() -> Iterator[type[Any]]:
    """Every dataclass of clients and servers with a field that ``setting`` made."""
    for package in (dejamq, dejamq_broker, dejamq_namesrv):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "config" not in module.name:
                continue
            for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if dataclasses.is_dataclass(found) and any(
                    "rocketmq" in one.metadata for one in dataclasses.fields(found)
                ):
                    yield found


def test_every_setting_of_every_config_class_has_a_row() -> None:
    page = settings_page.page()
    classes = set(config_classes())
    assert len(classes) >= 6
    for found in classes:
        for field in dataclasses.fields(found):
            if "rocketmq" in field.metadata:
                assert f"| `{field.name}` |" in page, f"{found.__name__}: give it a section in tools/settings_page.py"


def test_a_row_says_both_names_default_unit_and_meaning() -> None:
    row = "| `max_message_size` | `maxMessageSize` | `4194304` (4 MiB) | bytes | of a body, or a batch |"
    assert row in settings_page.page()


def test_settings_of_every_client_are_told_once() -> None:
    assert settings_page.page().count("| `heartbeat_broker_interval_ms` |") == 1


@pytest.mark.parametrize(("text", "status"), [(settings_page.page(), 0), ("an older page", 1), (None, 1)])
def test_a_page_that_is_not_todays_is_told(
    text: str | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.md"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(settings_page, "PAGE", path)
    assert settings_page.main(["--check"]) == status
