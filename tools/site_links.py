"""A hook of mkdocs: replaces links from docs/ to other files of the repository by the files' names, since the site has no such pages."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
NO_PAGE = ("docs/decisions/",)  # mkdocs.yml leaves these out, so they are in the repository only


def rewrite(markdown, page):
    """Returns the Markdown of `page`, a path inside docs/, with links replaced. Broken links stay, so that mkdocs reports them."""

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
