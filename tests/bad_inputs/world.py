"""A folder with a bit of everything that programs read, and what they wrote.

All of it is tiny; see `commands.COMMANDS` for which program reads what.
"""

import json
import os
import random

from tests import tiny
from tests.bad_inputs import commands

# What makes more of the folder, in this order.
_MADE_BY = (
    "create_pretraining_data --output_file=train.tfrecord",
    "create_pretraining_data --output_file=valid.tfrecord "
    "--input_file=other_text.txt",
    "create_pretraining_data --output_file=dynamic.tfrecord --masking=dynamic",
    "run_pretraining --output_dir=pretrained",
    "run_classifier --output_dir=classifier --export_dir=serving/classifier",
    "run_squad --output_dir=squad --export_dir=serving/squad",
    "run_race --output_dir=race_out",
    "run_tagger --output_dir=tagger",
    "export_to_tfhub --export_path=hub --nowith_preprocessor",
    "convert_checkpoint --to=hf",
    "train_vocab --model_prefix=pieces/pieces",
)


def _write(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def _words(rng, least, most):
    return " ".join(rng.choices(tiny.WORDS, k=rng.randint(least, most)))


def _write_text(path, seed):
    rng = random.Random(seed)
    documents = [
        "\n".join(_words(rng, 3, 9) for _ in range(rng.randint(3, 8)))
        for _ in range(8)
    ]
    _write(path, "\n\n".join(documents) + "\n")


def _write_glue(rng):
    for name, num_rows in (("train", 12), ("dev", 6)):
        rows = [f"{_words(rng, 1, 9)}\t{i % 2}" for i in range(num_rows)]
        lines = ["sentence\tlabel", *rows]
        _write(f"glue/SST-2/{name}.tsv", "\n".join(lines) + "\n")
    rows = [f"{i}\t{_words(rng, 1, 9)}" for i in range(5)]
    _write("glue/SST-2/test.tsv", "\n".join(["index\tsentence", *rows]) + "\n")


def _make_squad(rng, is_version_2):
    paragraphs = []
    for i in range(6):
        words = rng.choices(tiny.WORDS, k=8)
        start = len(" ".join(words[:3])) + 1
        answers = [{"text": words[3], "answer_start": start}]
        qa = {"id": f"q{i}", "question": "w1 w2", "answers": answers}
        if is_version_2:
            qa["is_impossible"] = i % 2 == 0
            qa["answers"] = [] if i % 2 == 0 else answers
        paragraphs.append({"context": " ".join(words), "qas": [qa]})
    return {"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def _write_race(rng):
    for part in ("train", "dev", "test"):
        for level in ("middle", "high"):
            for i in range(2):
                passage = {
                    "id": f"{level}{i}.txt",
                    "article": _words(rng, 5, 9),
                    "questions": ["w1 _ ?", "w2 ?"],
                    "options": [tiny.WORDS[:4], tiny.WORDS[4:8]],
                    "answers": ["A", "D"],
                }
                path = f"race/RACE/{part}/{level}/{i}.txt"
                _write(path, json.dumps(passage))


def _write_tags(rng):
    sentences = [
        "".join(
            f"{word} {'B-X' if word < 'w5' else 'O'}\n"
            for word in rng.choices(tiny.WORDS, k=rng.randint(1, 9))
        )
        for _ in range(12)
    ]
    _write("tags.txt", "\n".join(sentences))


def _write_pairs(rng):
    rows = [
        f"{_words(rng, 1, 5)}\t{_words(rng, 1, 5)}\t{rng.randint(0, 5)}"
        for _ in range(12)
    ]
    lines = ["sentence1\tsentence2\tscore", *rows]
    _write("pairs.tsv", "\n".join(lines) + "\n")


def _make_grid():
    """Returns the grid of one small training."""
    records = {"max_seq_length": 16, "max_predictions_per_seq": 3}
    flags = {"num_train_steps": 2, "num_warmup_steps": 0, "train_batch_size": 4}
    return {
        "title": "t",
        "config": tiny.ONE_LAYER.to_dict(),
        "phases": [{"records": records, "flags": flags}],
        "held_out": records,
        "seeds": [1],
        "tasks": {"SST-2": {"task_name": "sst-2", "max_seq_length": 16}},
        "rows": [{"name": "one"}],
    }


def make(folder):
    """Fills a folder; it becomes the current one."""
    os.chdir(folder)
    rng = random.Random(0)
    (folder / "model").mkdir()
    tiny.write_model(folder / "model", tiny.ONE_LAYER)
    (folder / "vocab.txt").write_bytes(
        (folder / "model/vocab.txt").read_bytes()
    )
    _write_text("text.txt", seed=1)
    _write_text("other_text.txt", seed=2)
    _write_glue(rng)
    _write("v1.json", json.dumps(_make_squad(rng, False)))
    _write("v2.json", json.dumps(_make_squad(rng, True)))
    _write_race(rng)
    _write_tags(rng)
    _write_pairs(rng)
    _write("a_file", "not a folder\n")
    _write("new_words.txt", "new\nwords\n")
    _write("grid.json", json.dumps(_make_grid()))
    for command in _MADE_BY:
        status = commands.call(command)
        if status:
            raise RuntimeError(f"{command} ended with status {status}.")
