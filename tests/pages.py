"""HTML pages in tests: what is on them, and what a browser shows."""

import collections
import html.parser
import os
import shutil
import subprocess

import pytest

VOID = {"meta"}


class Page(html.parser.HTMLParser):
    """What is on a page; its elements must be closed as they were opened.

    Attributes:
      tags: how often each is there.
      ids: of all elements.
      links: values of attributes that name something to load or to go to.
      tables: by the section's id, lists of rows, which are lists of texts.
      text: of all sections.
    """

    def __init__(self, content):
        super().__init__()
        self.tags, self.ids, self.links = collections.Counter(), [], []
        self.tables, self.text, self.open = {}, "", []
        self.section = self.cell = None
        self.feed(content)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [
            value
            for name, value in attrs.items()
            if name.removeprefix("xlink:") in ("href", "src")
        ]
        if tag == "section":
            self.section = attrs["id"]
        elif tag == "table":
            self.tables.setdefault(self.section, []).append([])
        elif tag == "tr":
            self.tables[self.section][-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""
        assert not [name for name in attrs if name.startswith("on")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.tables[self.section][-1][-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        self.text += data
        if self.cell is not None:
            self.cell += data


def find_browser():
    """Returns the path of a Chromium; skips the test where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    reason = "needs a browser: apt-get install chromium, or playwright's"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    with playwright.sync_playwright() as started:
        path = started.chromium.executable_path
    return path if os.path.exists(path) else pytest.skip(reason)


def browse(path, *words):
    """As `browse_url`, of a file."""
    return browse_url(path.as_uri(), path.parent, *words)


def browse_url(url, folder, *words):
    """Opens a page without a window; returns what the browser prints.

    The page must write nothing to the browser's console, where errors are. The
    browser keeps its files in `folder`.
    """
    done = subprocess.run(
        [
            find_browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            # No connections but those of the page.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'browser'}",
            *words,
            url,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    return done.stdout
