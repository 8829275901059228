"""A hook of mkdocs: README is the site's home page, and pages find it there.

Links of README to files that are no pages, such as CONTRIBUTING.md, lose their target: the site has
no copy of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

README = Path(__file__).parents[1] / "README.md"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)]*)\)")


def _on_site(link: re.Match[str]) -> str:
    text, target = link.groups()
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')})"
    return link[0] if target.startswith(("http", "#")) else text


def on_files(files: Files, *, config: Any) -> Files:
    """Add README as `index.md`."""
    text = LINK.sub(_on_site, README.read_text()).replace("](docs/pictures/", "](pictures/")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to README at the home page."""
    return markdown.replace("](../README.md", "](index.md")
