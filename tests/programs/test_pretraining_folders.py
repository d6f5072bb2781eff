"""A pretraining folder has the vocabulary of its records."""

import dataclasses
import json
import logging
import pathlib
import re

import numpy as np
import pytest

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.commands.embed import EmbedFlags
from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.commands.fill_mask import FillMaskFlags
from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import sidecars
from albert_tf.programs import (
    create_pretraining_data,
    embed,
    export_to_tfhub,
    fill_mask,
    run_pretraining,
)
from albert_tf.weights import pretrained
from tests import tiny

# Whose case matters, and which lowercasing would make unknown.
WORDS = [word.upper() for word in tiny.WORDS]
CONFIG = dataclasses.replace(tiny.ONE_LAYER, max_position_embeddings=16)


def write_records(folder, words=WORDS, name="train"):
    """Writes records, and their vocabulary where no model looks for it."""
    path = folder / "elsewhere" / "vocab.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*tiny.SPECIAL, *words]) + "\n")
    rng = np.random.default_rng(0)
    text = "\n".join(" ".join(rng.choice(WORDS, 6)) for _ in range(30))
    (folder / "text.txt").write_text(text)
    create_pretraining_data.run(
        DataFlags(
            input_file=str(folder / "text.txt"),
            output_file=str(folder / f"{name}.tfrecord"),
            vocab_file=str(path),
            do_lower_case=False,
            max_seq_length=16,
            max_predictions_per_seq=4,
            progress=False,
        )
    )
    path.unlink()


@pytest.fixture
def args(tmp_path):
    """Flags of one step on such records."""
    write_records(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(CONFIG.to_json_string())
    return PretrainingFlags(
        albert_config_file=str(config),
        input_file=str(tmp_path / "train.tfrecord"),
        output_dir=str(tmp_path / "out"),
        train_batch_size=4,
        num_train_steps=1,
        num_warmup_steps=0,
    )


def forget_vocabulary(args):
    """Makes records as versions before wrote them."""
    path = pathlib.Path(args.input_file).with_suffix(".dataset.json")
    values = json.loads(path.read_text())
    del values[sidecars.VOCABULARY]
    sidecars.write_sidecar(str(path), values)


def test_programs_find_the_vocabulary_in_the_folder(args, tmp_path, capsys):
    run_pretraining.run(args)
    out = args.output_dir
    tokenizer = pretrained.read_pretrained(out).tokenizer
    assert tokenizer.encode("W3 w3") == [8, 1]  # Not in lower case.
    fill_mask.run(FillMaskFlags(init_checkpoint=out, text="W1 [MASK] W2"))
    assert "W1 [MASK] W2" in capsys.readouterr().out
    vectors = tmp_path / "vectors.npz"
    embed.run(
        EmbedFlags(
            init_checkpoint=out,
            input_file=str(tmp_path / "text.txt"),
            output_file=str(vectors),
        )
    )
    assert np.load(vectors)["vectors"].shape == (30, 12)
    hub = tmp_path / "hub"
    export_to_tfhub.run(
        ExportFlags(
            albert_directory=out, export_path=str(hub), with_preprocessor=False
        )
    )
    read = pretrained.read_pretrained(hub)
    assert read.tokenizer.settings == tokenizer.settings


def test_another_vocabulary_contradicts_the_folder(args, tmp_path):
    run_pretraining.run(args)
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*tiny.SPECIAL, *reversed(WORDS)]) + "\n")
    flags = FillMaskFlags(
        init_checkpoint=args.output_dir, text="[MASK]", vocab_file=str(other)
    )
    with pytest.raises(ValueError, match=r"vocabulary vocab.txt, which differ"):
        fill_mask.run(flags)


def test_records_without_a_vocabulary_take_the_start_s(args, tmp_path, caplog):
    run_pretraining.run(args)
    forget_vocabulary(args)
    later = dataclasses.replace(args, output_dir=str(tmp_path / "later"))
    run_pretraining.run(later)
    assert pretrained.read_pretrained(later.output_dir).tokenizer is None
    flags = FillMaskFlags(init_checkpoint=later.output_dir, text="[MASK]")
    with pytest.raises(ValueError, match=r"Give spm_model_file or vocab_fi"):
        fill_mask.run(flags)
    # It resumes, and learns the vocabulary when the records say it.
    write_records(tmp_path)
    run_pretraining.run(dataclasses.replace(later, num_train_steps=2))
    assert pretrained.read_pretrained(later.output_dir).tokenizer
    # The release's records have no sidecar.
    pathlib.Path(args.input_file).with_suffix(".dataset.json").unlink()
    further = dataclasses.replace(
        args,
        init_checkpoint=args.output_dir,
        output_dir=str(tmp_path / "further"),
    )
    with caplog.at_level(logging.ERROR):
        run_pretraining.run(further)
    read = pretrained.read_pretrained(further.output_dir)
    assert read.tokenizer.encode("W3 w3") == [8, 1]


def test_records_of_two_vocabularies_are_refused(args, tmp_path):
    write_records(tmp_path, [*reversed(WORDS)], "other")
    both = f"{args.input_file},{tmp_path / 'other.tfrecord'}"
    with pytest.raises(ValueError, match="says tokenizer = "):
        run_pretraining.run(dataclasses.replace(args, input_file=both))


def test_the_folder_has_a_card(args):
    run_pretraining.run(args)
    text = (pathlib.Path(args.output_dir) / "README.md").read_text()
    assert 'pipeline_tag: "fill-mask"' in text
    assert "Start: random weights.\n" in text
    assert "| data.train.records |" in text
    assert f"--input_file={args.input_file}" in text
    assert "albert fill_mask --init_checkpoint=out" in text


def test_the_python_of_the_card_works(args, monkeypatch):
    run_pretraining.run(args)
    folder = pathlib.Path(args.output_dir)
    monkeypatch.chdir(folder.parent)
    text = (folder / "README.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], names)
    (answer,) = names["results"]
    assert len(answer["masks"]) == 1
