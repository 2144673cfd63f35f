"""What all container tests share: one image, built once."""

import pytest
from compose_cluster import build_image


@pytest.fixture(scope="session")
def image() -> None:
    build_image()
