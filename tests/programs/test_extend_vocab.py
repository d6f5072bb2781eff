"""extend_vocab: a model gets words of a text or of a list."""

import json

import pytest

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.commands.extend_vocab import ExtendVocabFlags
from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.programs import (
    create_pretraining_data,
    extend_vocab,
    run_pretraining,
)
from albert_tf.training import manifest
from albert_tf.weights import pretrained
from tests import tiny

TEXT = "w1 w2w3 w4 w2w3\n\nw2w3, new w5 w6w7 new\nw8 w9 w6w7x\n"


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    return tiny.write_model(tmp_path / "model")


def extend(tmp_path, **settings):
    extend_vocab.run(
        ExtendVocabFlags(
            from_=str(tmp_path / "model"), to=str(tmp_path / "new"), **settings
        )
    )
    return pretrained.read_pretrained(tmp_path / "new")


def test_words_of_a_text_are_added(model, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    found = extend(
        tmp_path, input_file=str(tmp_path / "*.txt"), min_count=2, num_words=1
    )
    assert found.tokenizer.pieces[25:] == ["w2w3"]
    assert found.config.vocab_size == 26
    printed = capsys.readouterr().out
    assert "Added 1 words to 25 pieces, which is 26: w2w3 ([UNK])." in printed
    assert "The text has 13 pieces instead of 13 (+0.0%)" in printed
    assert "vocab_extended.txt" in printed
    assert not (tmp_path / "new.incomplete").exists()


def test_words_are_those_of_the_text_in_json_lines(model, tmp_path):
    rows = [{"id": "w1w2", "text": line} for line in TEXT.split("\n\n")]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    found = extend(tmp_path, input_file=f"{tmp_path}/*.jsonl", min_count=1)
    added = found.tokenizer.pieces[25:]
    assert "w2w3" in added and not {"id", "text", "w1w2"} & {*added}


def test_words_of_a_list_are_added(model, tmp_path, capsys):
    manifest.Manifest(str(model), {"trained_positions": 9}).write()
    (tmp_path / "list.txt").write_text("one\ntwo w1\n\none\n")
    found = extend(tmp_path, words_file=str(tmp_path / "list.txt"))
    assert found.tokenizer.pieces[25:] == ["one", "two"]
    printed = capsys.readouterr().out
    assert printed.startswith("Note: positions from 9 on, with which it was")
    assert "The text has" not in printed


def test_an_extended_model_is_pretrained_further(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([TEXT] * 20))
    extend(tmp_path, input_file=str(text), num_words=3)
    records = str(tmp_path / "r.tfrecord")
    create_pretraining_data.run(
        DataFlags(
            input_file=str(text),
            output_file=records,
            vocab_file=str(tmp_path / "new/vocab_extended.txt"),
            max_seq_length=16,
            max_predictions_per_seq=3,
            dupe_factor=1,
            progress=False,
        )
    )
    settings = {
        "input_file": records,
        "output_dir": str(tmp_path / "out"),
        "train_batch_size": 4,
        "num_train_steps": 2,
        "num_warmup_steps": 0,
    }
    run_pretraining.run(
        PretrainingFlags(
            **settings,
            init_checkpoint=str(tmp_path / "new"),
            albert_config_file=str(tmp_path / "new/albert_config.json"),
        )
    )
    trained = pretrained.read_pretrained(tmp_path / "out")
    assert len(trained.values["bert/embeddings/word_embeddings"]) == 28


def test_words_that_would_not_be_found_are_refused():
    extend_vocab.check_scripts(["слово"], "list.txt", "sentencepiece")
    extend_vocab.check_scripts(["word", "人 "], "list.txt", "wordpiece")
    for kind in ("sentencepiece", "wordpiece"):
        with pytest.raises(ValueError, match="list.txt has 1 words.*人工智能"):
            extend_vocab.check_scripts(["x", "人工智能"], "list.txt", kind)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "either --input_file, a text, or --words_file"),
        ({"input_file": "x", "words_file": "x"}, "either --input_file"),
        ({"input_file": "text.txt", "min_count": 9}, "--min_count"),
        ({"words_file": "old.txt"}, "splits none of them"),
        ({"words_file": "odd.txt"}, "None of the 1 words can be a piece"),
        ({"words_file": "zh.txt"}, "such as '人工智能', of scripts without"),
    ],
)
def test_nothing_is_written_without_new_words(model, tmp_path, settings, says):
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "old.txt").write_text("w1\nw2\n")
    (tmp_path / "odd.txt").write_text("w" * 300 + "\n")
    (tmp_path / "zh.txt").write_text("word\n人工智能\n")
    paths = {
        key: str(tmp_path / value) if key.endswith("file") else value
        for key, value in settings.items()
    }
    with pytest.raises(ValueError, match=says):
        extend(tmp_path, **paths)
    names = {path.name for path in tmp_path.iterdir()}
    assert not names & {"new", "new.incomplete"}
