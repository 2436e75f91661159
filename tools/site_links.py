"""A hook of mkdocs: links from docs/ to other files of the repository become the names of those files, since a site has no such pages."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
NO_PAGE = ("docs/decisions/",)  # in the repository only: mkdocs.yml leaves them out


def rewrite(markdown, page):
    """`page`: its path inside docs/. Links to what is not there are left for mkdocs to complain about."""

    def one(match):
        text, target, _ = match.groups()
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        outside = not place.startswith("docs/") or place.startswith(NO_PAGE)
        if not outside or not (ROOT / place).exists():
            return match.group(0)
        name = text.strip("`")
        return f"`{place}`" if place.endswith(name) else f"{text} (`{place}`)"

    return LINK.sub(one, markdown)


def on_page_markdown(markdown, page, **_):
    return rewrite(markdown, page.file.src_uri)
