"""train_vocab: trains a vocabulary that the tokenizer reads, or refuses."""

import dataclasses
import json

import pytest

from albert_tf import ownership
from albert_tf.commands.train_vocab import TrainVocabFlags
from albert_tf.programs import train_vocab
from albert_tf.text import tokenization

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]


def write_text(folder, name="text.txt", num_lines=400):
    """Writes lines of made-up words, in both cases and with accents."""
    syllables = ["ba", "Ko", "mé", "ri", "SU", "to", "ün", "la", "ve", "pi"]
    lines = [
        " ".join(
            syllables[(i * 7 + j) % 10] + syllables[(i // (j + 1)) % 10]
            for j in range(6)
        )
        for i in range(num_lines)
    ]
    path = folder / name
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


def train(folder, **settings):
    settings = {
        "input_file": str(folder / "*.txt"),
        "model_prefix": str(folder / "out" / "vocab"),
        "vocab_size": 60,
        "num_threads": 1,
        **settings,
    }
    return train_vocab.run(TrainVocabFlags(**settings))


def pieces_of(path):
    return tokenization.build_tokenizer(spm_model_file=path).pieces


def test_a_vocabulary_is_trained_on_normalized_text(tmp_path, capsys):
    write_text(tmp_path)
    path = train(tmp_path)
    tokenizer = tokenization.build_tokenizer(spm_model_file=path)
    assert tokenizer.pieces[:13] == SPECIAL + SYMBOLS
    assert tokenizer.vocab_size == 60
    letters = set("".join(tokenizer.pieces[13:]))
    assert letters <= set("▁bakomerisutonlvp")
    listing = (tmp_path / "out" / "vocab.vocab").read_text(encoding="utf-8")
    assert [line.split("\t")[0] for line in listing.splitlines()] == (
        tokenizer.pieces
    )
    written = (tmp_path / "out" / "tokenizer_settings.json").read_text()
    settings = json.loads(written)
    assert settings == tokenizer.settings
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "tokenizer_settings.json",
        "vocab.model",
        "vocab.vocab",
    ]
    printed = capsys.readouterr().out
    assert "400 of 400 lines" in printed
    assert f"60 pieces to {path}" in printed


def test_case_and_accents_are_kept_on_request(tmp_path):
    write_text(tmp_path)
    path = train(tmp_path, do_lower_case=False, keep_accents=True)
    letters = set("".join(pieces_of(path)))
    assert {"K", "S", "é", "ü"} <= letters
    settings = tokenization.read_settings(tmp_path / "out")
    assert not settings["do_lower_case"] and settings["keep_accents"]


def test_the_seed_determines_the_sampled_lines(tmp_path):
    path = write_text(tmp_path, num_lines=3000)
    args = TrainVocabFlags(
        input_file=str(path), model_prefix="unused", input_sentence_size=140
    )

    def draw(**changes):
        drawn = dataclasses.replace(args, **changes)
        return list(train_vocab._training_text([str(path)], 3000, drawn))

    assert len(draw()) == 140
    assert draw() == draw() != draw(random_seed=1)
    assert len(draw(input_sentence_size=3000)) == 3000
    assert len(draw(input_sentence_size=9999)) == 3000


def test_a_very_long_line_is_not_lost(tmp_path):
    (tmp_path / "text.txt").write_text(
        "ba ko mu " * 3000 + "zzz " * 20 + "x" * 2500, encoding="utf-8"
    )
    path = train(tmp_path, vocab_size=26)
    assert {"z", "x"} <= set("".join(pieces_of(path)))


def test_all_files_are_read(tmp_path):
    write_text(tmp_path)
    (tmp_path / "more.txt").write_text("quick queue\n" * 50, encoding="utf-8")
    assert "q" in set("".join(pieces_of(train(tmp_path))))


def read_all(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_vocabulary_is_not_replaced(tmp_path):
    write_text(tmp_path)
    train(tmp_path)
    before = read_all(tmp_path)
    for prefix, found in (
        ("vocab", "vocab.model already exists"),
        ("other", "tokenizer_settings.json already exists"),
    ):
        with pytest.raises(ValueError, match=f"{found}.*a folder of its own"):
            train(tmp_path, model_prefix=str(tmp_path / "out" / prefix))
    (tmp_path / "w.vocab").write_text("mine")
    with pytest.raises(ValueError, match=r"w\.vocab already exists"):
        train(tmp_path, model_prefix=str(tmp_path / "w"))
    with pytest.raises(ValueError, match="wanted a path that includes"):
        train(tmp_path, model_prefix=f"{tmp_path}/")
    assert read_all(tmp_path) == {**before, "w.vocab": b"mine"}


@pytest.mark.parametrize("ending", [".model", ".vocab"])
def test_the_text_is_not_overwritten(tmp_path, ending):
    path = write_text(tmp_path, f"w{ending}")
    with pytest.raises(ValueError, match="--input_file reads"):
        train(tmp_path, input_file=str(path), model_prefix=str(tmp_path / "w"))
    assert list(tmp_path.iterdir()) == [path]


def test_the_remains_of_a_stopped_run_are_replaced(tmp_path):
    write_text(tmp_path)
    (tmp_path / "w").mkdir()
    train(tmp_path)
    whole = read_all(tmp_path)
    (tmp_path / "out" / "vocab.model").unlink()
    (tmp_path / "out" / "vocab.vocab").write_text("cut")
    train(tmp_path)
    assert read_all(tmp_path) == whole


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_what_stops_the_reading_is_what_is_raised(tmp_path, monkeypatch, kind):
    write_text(tmp_path)

    def stopped(*_):
        yield "Ko ba"
        raise kind("stopped")

    monkeypatch.setattr(train_vocab, "_training_text", stopped)
    with pytest.raises(kind, match="stopped"):
        train(tmp_path)
    assert not (tmp_path / "out").exists() or not list(
        (tmp_path / "out").glob("vocab*")
    )


def test_concurrent_runs_do_not_write_the_same_vocabulary(tmp_path):
    write_text(tmp_path)
    with ownership.owning(str(tmp_path / "out" / "vocab.model")):
        with pytest.raises(BlockingIOError, match="in use by process"):
            train(tmp_path)


def test_a_byte_order_mark_is_ignored(tmp_path):
    text = "\ufeff" + write_text(tmp_path).read_text(encoding="utf-8")
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    assert "\ufeff" not in "".join(pieces_of(train(tmp_path)))


def test_a_vocabulary_without_the_special_ids_is_not_written(
    tmp_path, monkeypatch
):
    write_text(tmp_path)
    changed = {
        **train_vocab._RELEASED_OPTIONS,
        "control_symbols": ["[CLS]", "[SEP]"],
    }
    monkeypatch.setattr(train_vocab, "_RELEASED_OPTIONS", changed)
    with pytest.raises(ValueError, match=r"first ids to .*'\('"):
        train(tmp_path)
    assert not (tmp_path / "out").exists()
