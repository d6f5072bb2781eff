"""Serves a page on which one model can be tried.

The page is demo.html. It sends the fields of a form as JSON to /answer, and
shows what comes back: `notes` (texts), `marked` (a text in parts: a part, and
for a marked one its label, "" for none, and maybe its probability) and `groups`
of bars (title, and pairs of a name and a probability). /attention returns
`tokens` and, for the `token` with an index (by default the first [MASK], or
[CLS]), `layers`: for each layer and head its attention to all tokens.
"""

import contextlib
import functools
import http.server
import json
import pathlib
import secrets
import string
import threading
from typing import Any

from albert_tf import filesystem
from albert_tf.inference import attention, masks
from albert_tf.inference.answerer import Answerer
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.tagger import Tagger
from albert_tf.model import heads
from albert_tf.programs import models

HOST = "127.0.0.1"
MAX_BYTES = 100_000  # Of a request.
MAX_SECONDS = 30  # In which a request must arrive.
MAX_BARS = 8
_PAGE = string.Template(
    pathlib.Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
)
TEXT = ("text", "Text")
NEXT_TEXT = ("next_text", "Second text, for a model of pairs")
PARAGRAPH = ("next_text", "Paragraph")


def run(args):
    """Serves the page until it is interrupted."""
    with build_server(args.port) as server:  # Before the model is read.
        demo = Demo(models.read_checkpoint(args))
        server.RequestHandlerClass = functools.partial(Handler, demo)
        port = server.server_address[1]
        print(
            f"{demo.title}: http://{HOST}:{port} (Ctrl-C ends it)", flush=True
        )
        server.serve_forever()


class Demo:
    """A model that answers the requests of the page, one at a time.

    Args:
      start: a `Pretrained`: fine-tuned by run_classifier, run_squad or
        run_tagger, or pretrained.

    Raises:
      ValueError: if it is another model.
    """

    def __init__(self, start):
        kind = start.head.kind if start.head else None
        self.model: Any
        if kind in heads.OBJECTIVES:
            self.title = "Classify a text"
            is_single = start.head.has_pairs is False
            self.fields = [TEXT] if is_single else [TEXT, NEXT_TEXT]
            self.model, self._answer = Classifier(start), self._classify
        elif kind in ("spans", "conditional_spans"):
            self.title = "Ask about a paragraph"
            self.fields = [("text", "Question"), PARAGRAPH]
            self.model, self._answer = Answerer(start), self._find
        elif kind == "tags":
            self.title, self.fields = "Tag words", [TEXT]
            self.model, self._answer = Tagger(start), self._tag
        elif kind is None:
            self.title = "Fill masks"
            self.fields = [TEXT, ("next_text", "Next text, may be empty")]
            self.model, self._answer = masks.FillMask(start), self._fill
        else:
            raise ValueError(
                f"{start.source} has the head {kind!r}; wanted a model of "
                "run_classifier, run_squad, run_tagger or run_pretraining."
            )
        self.source = start.source
        self._lock = threading.Lock()

    def answer(self, request: dict) -> dict:
        """Returns the answer to the page's form.

        Raises:
          ValueError: if a field is missing or no text, or of the model.
        """
        with self._lock:
            return self._answer(*read_texts(request))

    def attend(self, request: dict) -> dict:
        """Returns the tokens of a text and the attention of one of them.

        Raises:
          ValueError: if the text is too long, or has no such token.
        """
        texts, index = read_texts(request), request.get("token")
        with self._lock:
            tokens, probs = attention.attend(
                self.model.model, self.model.tokenizer, *texts
            )
        if index is None:
            is_masked = masks.MASK in tokens
            index = tokens.index(masks.MASK) if is_masked else 0
        if type(index) is not int or not 0 <= index < len(tokens):
            raise ValueError(
                f"token={index!r:.80}; wanted 0 to {len(tokens) - 1}."
            )
        return {
            "tokens": tokens,
            "token": index,
            "layers": probs[:, :, index].round(4).tolist(),
        }

    def _classify(self, text, next_text):
        (found,) = self.model([(text, next_text) if next_text else text])
        notes = []
        if "num_layers" in found:
            count = self.model.model.config.num_hidden_layers
            notes.append(
                f"Answered after {found['num_layers']} of {count} layers."
            )
        if "probabilities" not in found:
            return {"notes": [f"{found['prediction']:.4g}", *notes]}
        ranked = sorted(found["probabilities"].items(), key=lambda x: -x[1])
        return {"notes": notes, "groups": [["", ranked[:MAX_BARS]]]}

    def _find(self, question, paragraph):
        if not paragraph.strip():
            raise ValueError("The paragraph is empty.")
        (found,) = self.model([(question, paragraph)])
        notes = []
        if "null_odds" in found:
            has_answer = "An answer" if found["prediction"] else "No answer"
            notes.append(
                f"{has_answer}: the no-answer score is {found['null_odds']:.2f}"
                f", the threshold {self.model.threshold:.2f}."
            )
        best = found["answers"][0]
        marks = [(best["start"], best["end"], "")] * bool(found["prediction"])
        bars = [[x["text"], x["probability"]] for x in found["answers"]]
        return {
            "notes": notes,
            "marked": mark(paragraph, marks),
            "groups": [["Candidates", bars[:MAX_BARS]]],
        }

    def _tag(self, text, _):
        (found,) = self.model([text])
        marks = [
            (part["start"], part["end"], name, part["probability"])
            for part in found.get("spans", found["words"])
            for name in [part.get("label") or part["tag"]]
        ]
        return {"marked": mark(text, marks)}

    def _fill(self, text, next_text):
        (found,) = self.model(
            [(text, next_text) if next_text else text], top_k=MAX_BARS
        )
        groups = [
            [f"[MASK] {number}", list(candidates.items())]
            for number, candidates in enumerate(found["masks"], start=1)
        ]
        notes = []
        if "in_order" in found:
            order = found["in_order"]
            bars = [["in order", order], ["swapped", 1 - order]]
            groups.append(["Order of the texts", bars])
            notes = [self.model.order_remark] * bool(self.model.order_remark)
        return {"notes": notes, "groups": groups}


def mark(text, marks):
    """Returns the parts of a text, as for the page.

    Args:
      text: a text.
      marks: tuples of the start and the end of a marked part, and what follows
        it: its label and maybe its probability.
    """
    parts, last = [], 0
    for start, end, *more in marks:
        parts += [[text[last:start]], [text[start:end], *more]]
        last = end
    return [part for part in [*parts, [text[last:]]] if part[0]]


def read_texts(request):
    """Returns the two texts of a request; the second may be empty.

    Raises:
      ValueError: if they are no texts, or the first is empty.
    """
    texts = [request.get("text"), request.get("next_text", "")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("wanted the texts `text` and `next_text`.")
    if not texts[0].strip():
        raise ValueError("The text is empty.")
    return texts


def build_server(port, demo=None):
    """Returns a server of the page of a `Demo`, on this machine alone.

    Raises:
      ValueError: if the port is in use.
    """
    try:
        return http.server.ThreadingHTTPServer(
            (HOST, port), functools.partial(Handler, demo)
        )
    except OSError as error:
        raise ValueError(
            f"--port={port} cannot be opened: {error.strerror}. Give another, "
            "or 0 for any free one."
        ) from error


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests of the page."""

    timeout = MAX_SECONDS
    server_version = "albert_tf"
    sys_version = ""

    def __init__(self, demo, *args):
        self.demo = demo
        super().__init__(*args)

    def do_GET(self):
        """Sends the page."""
        if not self._is_from_here():
            return
        if self.path != "/":
            self._send(404, {"error": "There is only /."})
            return
        nonce = secrets.token_urlsafe(16)
        names = filesystem.folder_of(self.demo.source) or self.demo.source
        described = {
            "title": self.demo.title,
            "source": names,
            "fields": self.demo.fields,
        }
        content = json.dumps(described).replace("<", "\\u003c")
        page = _PAGE.substitute(nonce=nonce, model=content)
        policy = (
            "default-src 'none'; connect-src 'self'; "
            f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._write(
            200,
            page.encode(),
            {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": policy,
            },
        )

    def do_POST(self):
        """Sends the model's answer to a form."""
        if not self._is_from_here():
            return
        paths = {"/answer": self.demo.answer, "/attention": self.demo.attend}
        function = paths.get(self.path)
        if function is None:
            self._send(404, {"error": f"wanted one of {list(paths)}."})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BYTES:
            self.close_connection = True  # The rest is not read.
            message = f"The texts have {length or 'unknown'} bytes; wanted at "
            self._send(413, {"error": f"{message}most {MAX_BYTES:,}."})
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
            if not isinstance(request, dict):
                raise ValueError("wanted a JSON object.")
            self._send(200, function(request))
        except ValueError as error:
            self._send(400, {"error": str(error)})
        except RecursionError:
            self._send(400, {"error": "The JSON is nested too deeply."})

    def _is_from_here(self):
        """Refuses what another site's page sends through the browser."""
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        origin = self.headers.get("Origin")
        sent_to = f"http://{self.headers.get('Host')}"
        if host in (HOST, "localhost") and origin in (None, sent_to):
            return True
        self.close_connection = True
        self._send(403, {"error": f"Open it at http://{HOST}."})
        return False

    def _send(self, status, content):
        body = json.dumps(content, ensure_ascii=False).encode()
        self._write(status, body, {"Content-Type": "application/json"})

    def _write(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        with contextlib.suppress(ConnectionError):  # The page was closed.
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args):
        """Says nothing of each request."""
