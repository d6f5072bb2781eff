"""A web server of this machine, for tests of downloads."""

import contextlib
import http.server
import os
import re
import threading
import time


class Server(http.server.ThreadingHTTPServer):
    """Serves one content, or files, and does to requests what a test wants.

    Args:
      content: what every address has, but those of `files`; None for nothing.
      files: dict from the last part of an address to its content.
    """

    def __init__(self, content=None, files=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.files, self.requests = content, files or {}, []
        self.knows_ranges, self.says_length = True, True
        self.headers: dict = {}
        self.cuts: list[int] = []  # Bytes that the next answers give.
        self.status, self.pause = None, 0.0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    @contextlib.contextmanager
    def running(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        name = os.path.basename(self.path)
        content = server.files.get(name, server.content)
        wanted = self.headers.get("Range")
        server.requests.append(wanted)
        if server.status or content is None:
            return self.send_error(server.status or 404)
        begin = 0
        if wanted and server.knows_ranges:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if begin >= len(content):
                return self.send_error(416)
        rest = content[begin:]
        self.send_response(206 if begin else 200)
        if server.says_length:
            self.send_header("Content-Length", str(len(rest)))
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        given = rest[: server.cuts.pop(0)] if server.cuts else rest
        for first in range(0, len(given), 1 << 8):
            self.wfile.write(given[first : first + (1 << 8)])
            time.sleep(server.pause)

    def log_message(self, *_):
        pass
