"""HTML pages in tests: what is on them, and what a browser shows."""

import collections
import html.parser
import json
import os
import shutil
import subprocess
import time

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


def start_browser(folder):
    """Returns the words of a command; the browser's files are in `folder`."""
    return [
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
    ]


def browse(path, *words):
    """As `browse_url`, of a file."""
    return browse_url(path.as_uri(), path.parent, *words)


def browse_url(url, folder, *words):
    """Opens a page without a window; returns what the browser prints.

    The page must write nothing to the browser's console, where errors are. The
    browser keeps its files in `folder`.
    """
    done = subprocess.run(
        [*start_browser(folder), *words, url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    return done.stdout


class Keyboard:
    """A browser whose page is used by keys, as a person without a mouse does.

    It speaks the DevTools protocol through a pipe: JSON messages that end with
    a zero byte. The page has the focus of the keyboard from its start.
    """

    KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
    MODIFIERS = {"": 0, "Ctrl": 2, "Meta": 4, "Shift": 8}

    def __init__(self, url, folder):
        words = [*start_browser(folder), "--remote-debugging-pipe"]
        # The browser reads descriptor 3 and writes 4.
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >&2', "sh", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._number, self._session = 0, {}
        target = self._send("Target.createTarget", url=url)["targetId"]
        session = self._send(
            "Target.attachToTarget", targetId=target, flatten=True
        )
        self._session = {"sessionId": session["sessionId"]}
        self.wait(f"location.href === {url!r}")
        self.wait("document.readyState === 'complete'")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def _send(self, method, **params):
        """Returns the result of a command; events before it are skipped."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        text = json.dumps(message | self._session)
        self._process.stdin.write(text.encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = json.loads(self._read_message())
            if answer.get("id") == self._number:
                assert "result" in answer, (method, answer)
                return answer["result"]

    def _read_message(self):
        """Returns the next message of the browser."""
        message = b""
        while (byte := self._process.stdout.read(1)) != b"\0":
            assert byte, f"the browser ended: {message}"
            message += byte
        return message

    def press(self, key, modifier=""):
        """Presses and releases a key: Tab, Enter or the space bar."""
        code, text = self.KEYS[key]
        pressed = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": self.MODIFIERS[modifier],
        }
        down = {"text": text} if text else {}
        self._send("Input.dispatchKeyEvent", type="keyDown", **pressed, **down)
        self._send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def write(self, text):
        """Types a text into what has the focus."""
        self._send("Input.insertText", text=text)

    def evaluate(self, script):
        """Returns the value of an expression in the page."""
        result = self._send(
            "Runtime.evaluate", expression=script, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script, seconds=60):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
