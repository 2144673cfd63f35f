"""All documents: links lead somewhere, named paths exist, pages keep their size."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dejamq
import pytest

HOUSE = Path(__file__).parents[2]
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=HOUSE, capture_output=True, text=True, check=False
).stdout.split()
PAGES = [HOUSE / name for name in LISTED if (HOUSE / name).exists()]
LONGEST = {"README.md": 120, "docs/performance.md": 150} | {
    str(path.relative_to(HOUSE)): 60 for path in sorted((HOUSE / "docs" / "decisions").glob("*.md"))
}
"""Lines that a page may have."""
NAMES_PATHS = ("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md")
TOP = "analytics|benchmarks|broker|cli|client|docs|lab|namesrv|proto|tests|tools"


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(text: str) -> set[str]:
    """The headings as links name them."""
    titles = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(page: Path) -> Iterator[tuple[str, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield path, anchor


@pytest.mark.parametrize("page", PAGES, ids=LISTED)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text("utf-8")), f"{path}#{anchor}"


@pytest.mark.parametrize(("name", "most"), LONGEST.items())
def test_a_page_with_a_limit_stays_within_it(name: str, most: int) -> None:
    assert len((HOUSE / name).read_text("utf-8").splitlines()) <= most


@pytest.mark.parametrize("name", NAMES_PATHS)
def test_every_path_that_a_page_names_exists(name: str) -> None:
    for path in re.findall(rf"`((?:{TOP})/[^`\s]+)`", without_code((HOUSE / name).read_text("utf-8"))):
        assert list(HOUSE.glob(path.rstrip("/"))), path


def test_the_page_of_the_sdk_names_all_public_names() -> None:
    named = re.findall(r"^::: dejamq\.(\w+)$", (HOUSE / "docs/sdk.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(name for name in dejamq.__all__ if not name.startswith("_"))
