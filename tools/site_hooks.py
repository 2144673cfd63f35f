"""Hooks of mkdocs: pages that stand outside ``docs/``, and links between all pages of the checkout.

The documents are read in a checkout too. So their links are those of the checkout, and become the site's here.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "license.md",
    "benchmarks/README.md": "benchmarks.md",
    "broker/dejamq_broker/store/FORMAT.md": "format.md",
    "examples/README.md": "examples/index.md",
}
"""By its path in the checkout: the path of its page in the site."""
PROGRAMS = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in sorted((ROOT / "examples").glob("*.py"))}
"""The same for programs, which are shown as they are."""
PAGES = OUTSIDE | PROGRAMS
SOURCES = {page: path for path, page in OUTSIDE.items()}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")


FROM_ELSEWHERE = re.compile(r"""(?:src|<link[^>]*href)=["'](?:https?:)?//[^"']*""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside ``docs/``."""
    for path, page in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if path in PROGRAMS:
            text = f"# {PurePosixPath(path).name}\n\n```python\n{text}```\n"
        elif not path.endswith(".md"):
            text = f"# {PurePosixPath(path).name.capitalize()}\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links of the checkout into links of the site. One that leads nowhere stays, and mkdocs tells of it."""
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")
    return LINK.sub(lambda link: linked(link[1], source, place), markdown)


def linked(target: str, source: str, place: str) -> str:
    """``target`` as the file ``source`` names it, seen from the page ``place``."""
    path = os.path.normpath(PurePosixPath(source).parent / target)
    inside = path.removeprefix("docs/") if path.startswith("docs/") else None
    page = PAGES.get(path, inside)
    return target if page is None else os.path.relpath(page, PurePosixPath(place).parent)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Refuse a page that would load something from another server. Raises PluginError."""
    if found := FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output
