"""The demo page: what its server answers, and what a browser shows."""

import concurrent.futures
import contextlib
import http.client
import json
import threading
import urllib.parse

import numpy as np
import pytest

from albert_tf import Answerer, Classifier, FillMask, Tagger, read_pretrained
from albert_tf.inference import attention
from albert_tf.programs import demo
from albert_tf.training import manifest
from albert_tf.weights import task_heads
from tests import pages, tiny

LABELS = ("no", "yes", "perhaps")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    new = tmp_path_factory.mktemp
    return {
        "classifier": tiny.write_classifier(new("c"), labels=LABELS),
        "regression": tiny.write_classifier(new("r"), "regression", None),
        "answerer": tiny.write_answering(new("a"), "v2", threshold=99.0),
        "pretrained": tiny.write_model(new("p")),
        "spans": tiny.write_tagger(new("s"), ("B-X", "B-Y")),
        "plain": tiny.write_tagger(new("w"), ("NOUN", "VERB")),
    }


@contextlib.contextmanager
def serving(folder):
    """Serves a model's page; yields its port."""
    shown = demo.Demo(read_pretrained(folder))
    with demo.build_server(0, shown) as server:
        # A daemon, so that a session that is cut off can end.
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def port(folders):
    """The port of a classifier."""
    with serving(folders["classifier"]) as port:
        yield port


def send(port, path, body=None, **headers):
    """Returns the status, and the content: an object, or a page's text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if isinstance(body, dict):
        body = json.dumps(body)
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    if response.headers["Content-Type"] == "application/json":
        return response.status, json.loads(text)
    return response.status, text


def test_a_classifier_answers_with_bars(folders, port):
    status, found = send(port, "/answer", {"text": "w1 w2"})
    (wanted,) = Classifier(folders["classifier"])(["w1 w2"])
    assert status == 200 and not found["notes"]
    ((title, bars),) = found["groups"]
    assert title == "" and bars[0][0] == wanted["prediction"]
    assert {name for name, _ in bars} == {*LABELS}
    for name, probability in bars:
        np.testing.assert_allclose(
            probability, wanted["probabilities"][name], atol=1e-5
        )
    _, pair = send(port, "/answer", {"text": "w1", "next_text": "w2"})
    (wanted,) = Classifier(folders["classifier"])([("w1", "w2")])
    assert pair["groups"][0][1][0][0] == wanted["prediction"]


def test_the_number_of_layers_is_said(folders):
    start = read_pretrained(folders["classifier"])
    start.head.__dict__["threshold"] = 1.0  # As a file says it.
    answer = demo.Demo(start).answer({"text": "w1"})
    assert answer["notes"] == ["Answered after 1 of 2 layers."]


def test_a_regression_answers_with_a_number(folders):
    (wanted,) = Classifier(folders["regression"])(["w3"])
    found = demo.Demo(read_pretrained(folders["regression"]))
    assert found.answer({"text": "w3"}) == {
        "notes": [f"{wanted['prediction']:.4g}"]
    }


def test_an_answer_is_marked(folders):
    shown = demo.Demo(read_pretrained(folders["answerer"]))
    request = {"text": "w1", "next_text": "w2 w3 w4"}
    found = shown.answer(request)
    (wanted,) = Answerer(folders["answerer"])([("w1", "w2 w3 w4")])
    assert "".join(part for part, *_ in found["marked"]) == "w2 w3 w4"
    (marked,) = (part for part in found["marked"] if len(part) > 1)
    assert marked == [wanted["prediction"], ""] != ["", ""]
    assert found["notes"][0].startswith("An answer: ")
    shown.model.threshold = -99.0
    found = shown.answer(request)
    assert found["marked"] == [["w2 w3 w4"]]
    assert found["notes"][0].startswith("No answer: ")


def test_tags_are_marked(folders):
    text = "W1 w2, w3 w4"
    for name in ("spans", "plain"):
        model = Tagger(folders[name])
        (wanted,) = model([text])
        places = wanted.get("spans", wanted["words"])
        found = demo.Demo(read_pretrained(folders[name])).answer({"text": text})
        assert "".join(part for part, *_ in found["marked"]) == text
        marked = [part for part in found["marked"] if len(part) > 1]
        assert [part[0] for part in marked] == [
            text[place["start"] : place["end"]] for place in places
        ]
        for part, place in zip(marked, places, strict=True):
            assert part[1] == (place.get("label") or place["tag"])
            np.testing.assert_allclose(part[2], place["probability"], atol=1e-5)
        assert marked


def test_masks_and_order_are_shown(folders):
    shown = demo.Demo(read_pretrained(folders["pretrained"]))
    found = shown.answer({"text": "w1 [MASK]", "next_text": "[MASK]"})
    (wanted,) = FillMask(folders["pretrained"])(
        [("w1 [MASK]", "[MASK]")], top_k=8
    )
    titles = [title for title, _ in found["groups"]]
    assert titles == ["[MASK] 1", "[MASK] 2", "Order of the texts"]
    assert not found["notes"]
    for (_, bars), candidates in zip(
        found["groups"], wanted["masks"], strict=False
    ):
        assert [name for name, _ in bars] == list(candidates)


def test_an_order_that_was_not_trained_is_said(tmp_path):
    tiny.write_model(tmp_path)
    manifest.Manifest(str(tmp_path), {"sentence_weight": 0.0}).write()
    shown = demo.Demo(read_pretrained(tmp_path))
    assert not shown.answer({"text": "w1 [MASK]"})["notes"]
    found = shown.answer({"text": "w1 [MASK]", "next_text": "w2"})
    assert "was trained with sentence_weight=0" in found["notes"][0]


def test_attention_is_that_of_the_encoder(folders):
    start = read_pretrained(folders["pretrained"])
    shown = demo.Demo(start)
    request = {"text": "w1 [MASK] w2", "next_text": "w3"}
    found = shown.attend(request)
    tokens, probs = attention.attend(
        shown.model.model, start.tokenizer, *request.values()
    )
    config = start.config
    assert probs.shape == (2, config.num_attention_heads, 7, 7)
    np.testing.assert_allclose(probs.sum(axis=-1), 1, atol=1e-5)
    assert found["tokens"] == tokens
    assert tokens == "[CLS] w1 [MASK] w2 [SEP] w3 [SEP]".split()
    assert found["token"] == 2  # The first [MASK].
    np.testing.assert_allclose(found["layers"], probs[:, :, 2], atol=1e-4)
    assert shown.attend({"text": "w1"})["token"] == 0
    last = shown.attend({**request, "token": 6})
    np.testing.assert_allclose(last["layers"], probs[:, :, 6], atol=1e-4)


REFUSED = {
    "no text": ("/answer", {"text": " "}, 400, "The text is empty"),
    "a number": ("/answer", {"text": 3}, 400, "wanted the texts"),
    "a list": ("/answer", "[]", 400, "wanted a JSON object"),
    "no JSON": ("/answer", "{", 400, "Expecting"),
    "deep JSON": ("/answer", "[" * 50_000, 400, "nested too deeply"),
    "not UTF-8": ("/answer", b'{"text": "\xff"}', 400, "utf-8"),
    "another path": ("/other", {}, 404, "wanted one of"),
    "a megabyte": ("/answer", {"text": "w1 " * 350_000}, 413, "at most 100"),
    "no such token": ("/attention", {"text": "w1", "token": 9}, 400, "0 to 2"),
    "a long text": ("/attention", {"text": "w1 " * 40}, 400, "32 positions"),
}


@pytest.mark.parametrize(
    ("path", "body", "wanted", "says"), REFUSED.values(), ids=REFUSED
)
def test_bad_requests_are_refused(port, path, body, wanted, says):
    try:
        status, found = send(port, path, body)
    except (BrokenPipeError, ConnectionResetError):
        # The server answered before it was sent all, and closed.
        assert wanted == 413
        return
    assert status == wanted and says in found["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
def test_other_sites_are_refused(port, headers):
    for path, body in (("/", None), ("/answer", {"text": "w1"})):
        status, found = send(port, path, body, **headers)
        assert status == 403 and "Open it at" in found["error"]


def test_ten_clients_at_once_get_their_own_answers(folders, port):
    texts = [f"w{i} w{i + 1}" for i in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        found = list(
            pool.map(lambda text: send(port, "/answer", {"text": text}), texts)
        )
    wanted = Classifier(folders["classifier"])(texts)
    for (status, answer), right in zip(found, wanted, strict=True):
        assert status == 200
        name, probability = answer["groups"][0][1][0]
        np.testing.assert_allclose(
            probability, right["probabilities"][name], atol=1e-5
        )


def test_models_that_the_page_cannot_show_are_refused(folders):
    start = read_pretrained(folders["classifier"])
    start.__dict__["head"] = task_heads.TaskHead("choices")
    with pytest.raises(ValueError, match="has the head 'choices'; wanted"):
        demo.Demo(start)


def test_a_port_in_use_is_said(port):
    with pytest.raises(ValueError, match=f"--port={port} cannot be opened"):
        demo.build_server(port)


def test_the_page_loads_nothing(port):
    status, text = send(port, "/")
    assert status == 200 and "Classify a text" in text
    assert "https://" not in text and "http://" not in text


@pytest.mark.parametrize(
    ("kind", "fields", "shows"),
    [
        ("classifier", {"text": "w1 <b>w2</b>"}, [">yes<", ">[CLS]<"]),
        ("classifier", {"text": "w1 " * 40}, [">yes<", "32 positions"]),
        ("answerer", {"text": "w1", "next_text": "w2 w3"}, ["<mark>"]),
        ("answerer", {"text": "w1"}, ["The paragraph is empty"]),
        ("plain", {"text": "w1 w2"}, ["<mark", "<sub>", ">[CLS]<"]),
        ("pretrained", {"text": "w1 [MASK]"}, ["[MASK] 1", ">w1<"]),
        ("pretrained", {"text": "w1"}, ['role="alert"', "There is no [MASK]"]),
    ],
    ids=[
        "classifier",
        "long",
        "answerer",
        "empty",
        "tagger",
        "pretrained",
        "error",
    ],
)
def test_a_browser_shows_the_answer(folders, tmp_path, kind, fields, shows):
    """A link with the texts asks at once."""
    with serving(folders[kind]) as port:
        dom = pages.browse_url(
            f"http://127.0.0.1:{port}/#{urllib.parse.urlencode(fields)}",
            tmp_path,
            "--virtual-time-budget=20000",
            "--dump-dom",
        )
    for part in shows:
        assert part in dom, dom
    assert "<b>w2" not in dom


# What has the focus of the keyboard: its id, or a token's text.
FOCUS = "(document.activeElement.id || document.activeElement.textContent)"


def test_the_page_is_used_by_keys(folders, tmp_path):
    """Ctrl+Enter asks; the keyboard stays where it was after each answer."""
    with (
        serving(folders["pretrained"]) as port,
        pages.Keyboard(f"http://127.0.0.1:{port}/", tmp_path) as keyboard,
    ):
        order = []
        for _ in range(3):
            keyboard.press("Tab")
            order.append(keyboard.evaluate(FOCUS))
        assert order == ["text", "next_text", "ask"]
        keyboard.press("Tab", "Shift")
        keyboard.press("Tab", "Shift")
        assert keyboard.evaluate(FOCUS) == "text"

        keyboard.write("w1 [MASK]")
        keyboard.press("Enter")  # A line, not a question.
        assert keyboard.evaluate("find('text').value") == "w1 [MASK]\n"
        assert keyboard.evaluate("find('result').textContent") == ""
        keyboard.press("Enter", "Ctrl")
        keyboard.wait("!find('attention').hidden")
        assert "[MASK] 1" in keyboard.evaluate("find('result').textContent")
        assert keyboard.evaluate(FOCUS) == "text"

        keyboard.press("Tab")
        keyboard.press("Tab")
        keyboard.press("Enter")  # The button.
        keyboard.wait("find('result').ariaBusy === 'false'")
        assert keyboard.evaluate(FOCUS) == "ask"
        order = []
        for _ in range(3):
            keyboard.press("Tab")
            order.append(keyboard.evaluate(FOCUS))
        assert order == ["head", "[CLS]", "w1"]
        keyboard.press(" ")  # Chooses the token.
        pressed = "document.querySelector('[aria-pressed=true]').textContent"
        keyboard.wait(f"{pressed} === 'w1'")
        assert keyboard.evaluate(FOCUS) == "w1"
