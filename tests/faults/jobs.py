"""Small jobs of each program.

A job works in its own folder, by relative paths, so that even the flags it
writes down are equal in each trial.
"""

import dataclasses
import json
import random

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.programs import create_pretraining_data
from tests import tiny, tiny_records
from tests.programs import (
    classifier_runs,
    test_run_embedding,
    test_run_pretraining,
    test_run_race,
    test_run_squad,
    test_run_tagger,
)

try:
    # Before any fork, so that each can load what text_export writes.
    from albert_tf.export import text_serving
except ImportError:
    text_serving = None

SHORT_TRAINING = (
    "--train_batch_size=8",
    "--eval_batch_size=8",
    "--learning_rate=3e-2",
    "--log_every_steps=3",
    "--save_checkpoints_steps=3",
    "--keep_checkpoint_max=2",
    "--iterations_per_loop=2",
)
FINE_TUNING = (
    *SHORT_TRAINING,
    "--init_checkpoint=../../inputs/model",
    "--output_dir=out",
    "--cached_dir=cache",
    "--do_train",
    "--do_predict",
    "--predict_batch_size=8",
    "--train_step=9",
    "--warmup_step=2",
    "--attention_probs_dropout_prob=0.1",
)
_FILES = " ".join(
    f"--{flag}_file=../../inputs/{name}.{{ending}}"
    for flag, name in (("train", "train"), ("dev", "dev"), ("predict", "test"))
)


@dataclasses.dataclass(frozen=True)
class Job:
    """A command line, and what is known of its program.

    Attributes:
      words: see `processes.start`.
      refused_when_done: what the program says, with exit status 1, where all
        is done already; None for one that then ends well.
      is_slow: whether it starts processes that import TensorFlow.
      num_workers: number of processes that train together; the first is the
        chief.
    """

    words: tuple
    refused_when_done: str | None = None
    is_slow: bool = False
    num_workers: int = 1


_DATA = Job(
    (
        "create_pretraining_data.py",
        "--input_file=../../inputs/text.txt",
        "--output_file=out/a.tfrecord",
        "--vocab_file=../../inputs/vocab.txt",
        "--num_shards=3",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
        "--dupe_factor=30",
    )
)

_PRETRAINING = Job(
    (
        "run_pretraining.py",
        *SHORT_TRAINING,
        "--albert_config_file=../../inputs/albert_config.json",
        "--input_file=../../inputs/train.tfrecord",
        "--eval_input_file=../../inputs/valid.tfrecord",
        "--output_dir=out",
        "--do_eval",
        "--num_train_steps=9",
        "--num_warmup_steps=2",
    )
)

JOBS = {
    "create_pretraining_data": _DATA,
    "run_classifier": Job(
        (
            "run_classifier.py",
            *FINE_TUNING,
            "--data_dir=../../inputs/glue",
            "--task_name=sst-2",
            "--do_eval",
            "--max_seq_length=16",
            "--bucket_lengths=",
            "--export_dir=export",
        )
    ),
    "run_pretraining": _PRETRAINING,
    "export_to_tfhub": Job(
        (
            "export_to_tfhub.py",
            "--albert_directory=../../inputs/model",
            "--export_path=hub/albert",
            "--seq_length=16",
            f"--with_preprocessor={bool(text_serving)}",
        ),
        refused_when_done="already exists",
    ),
    "run_squad": Job(
        (
            "run_squad.py",
            *FINE_TUNING,
            "--train_file=../../inputs/train2.json",
            "--predict_file=../../inputs/dev2.json",
            "--squad_version=v2",
            "--max_seq_length=20",
            "--doc_stride=8",
            "--max_query_length=4",
            "--bucket_lengths=",
        )
    ),
    "convert_checkpoint": Job(
        (
            *("albert_tf", "convert_checkpoint"),
            "--from=../../inputs/model",
            "--to=hf",
            "--format=hf",
        ),
        refused_when_done="is not empty",
    ),
    "run_pretraining+workers": dataclasses.replace(
        _PRETRAINING,
        words=(*_PRETRAINING.words, "--distribution=multi_worker"),
        num_workers=2,
    ),
    "run_pretraining+parts": dataclasses.replace(
        _PRETRAINING,
        words=(
            *_PRETRAINING.words,
            "--gradient_accumulation_steps=2",
            "--remat",
        ),
    ),
    "create_pretraining_data+workers": dataclasses.replace(
        _DATA, words=(*_DATA.words, "--num_workers=2")
    ),
    "run_pretraining+dynamic": Job(
        (
            "run_pretraining.py",
            *SHORT_TRAINING,
            "--albert_config_file=../../inputs/model/albert_config.json",
            "--input_file=../../inputs/dynamic.tfrecord",
            "--output_dir=out",
            "--ngram=2",
            "--num_train_steps=9",
            "--num_warmup_steps=2",
        )
    ),
    "run_race": Job(
        (
            "run_race.py",
            *FINE_TUNING,
            "--data_dir=../../inputs",
            "--max_seq_length=24",
            "--max_qa_length=8",
            "--bucket_lengths=",
        )
    ),
    "run_tagger": Job(
        (
            "run_tagger.py",
            *FINE_TUNING,
            *_FILES.format(ending="txt").split(),
            "--do_eval",
            "--max_seq_length=12",
            "--bucket_lengths=8",
            "--export_dir=export",
        )
    ),
    "run_embedding": Job(
        (
            "run_embedding.py",
            *FINE_TUNING,
            *_FILES.format(ending="tsv").split(),
            "--do_eval",
            "--max_seq_length=12",
            "--bucket_lengths=8",
            "--gradient_accumulation_steps=2",
            "--export_dir=export",
        )
    ),
    "run_glue": Job(
        (
            *("albert_tf", "run_glue"),
            "--data_dir=../../inputs/glue",
            "--output_dir=glue",
            "--init_checkpoint=../../inputs/model",
            "--extra_flags="
            + " ".join(
                (
                    *SHORT_TRAINING,
                    "--train_step=6",
                    "--warmup_step=1",
                    "--max_seq_length=16",
                )
            ),
        ),
        is_slow=True,
    ),
}


def write_inputs(folder):
    """Writes what all jobs read. It runs TensorFlow's operations."""
    model = folder / "model"
    model.mkdir(parents=True)
    tiny.write_model(model)
    _write_text(folder)
    (folder / "albert_config.json").write_text(
        json.dumps(
            {
                **test_run_pretraining.CONFIG,
                "hidden_dropout_prob": 0.1,
                "attention_probs_dropout_prob": 0.1,
            }
        )
    )
    tiny_records.write(folder / "train.tfrecord", 20)
    tiny_records.write(folder / "valid.tfrecord", 7, seed=1)
    create_pretraining_data.run(
        DataFlags(
            input_file=str(folder / "text.txt"),
            output_file=str(folder / "dynamic.tfrecord"),
            vocab_file=str(folder / "vocab.txt"),
            masking="dynamic",
            max_seq_length=16,
            max_predictions_per_seq=3,
            dupe_factor=1,
            progress=False,
        )
    )
    _write_glue(folder / "glue")
    for name, num_paragraphs in (("train2", 40), ("dev2", 11)):
        content = test_run_squad.make_squad(
            num_paragraphs, with_impossible=True
        )
        (folder / f"{name}.json").write_text(json.dumps(content))
    for name, num_passages in (("train", 10), ("dev", 3), ("test", 4)):
        test_run_race.write_passages(folder / "RACE" / name, num_passages)
    for name, count in (("train", 40), ("dev", 9), ("test", 5)):
        test_run_tagger.write_sentences(folder / f"{name}.txt", count)
        test_run_embedding.write_pairs(folder / f"{name}.tsv", 2 * count)


def _write_text(folder):
    """A text of 30 documents, and its vocabulary."""
    rng = random.Random(0)
    documents = [
        "\n".join(
            " ".join(rng.choices(tiny.WORDS, k=rng.randint(1, 15)))
            for _ in range(rng.randint(2, 20))
        )
        for _ in range(30)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    words = [*tiny.SPECIAL, *tiny.WORDS]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


def _write_glue(folder):
    """The tables of SST-2 and of WNLI."""
    (folder / "WNLI").mkdir(parents=True)
    for seed, (split, num_rows) in enumerate(
        (("train", 60), ("dev", 21), ("test", 9))
    ):
        rows = classifier_runs.make_rows(num_rows, seed)
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for i, (text, label) in enumerate(rows):
            given = "" if split == "test" else f"\t{label}"
            lines.append(f"{i}\t{text}\tw1 w2{given}")
        (folder / "WNLI" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
        header = "sentence\tlabel"
        if split == "test":
            header = "index\tsentence"
            rows = [(str(i), text) for i, (text, _) in enumerate(rows)]
        path = folder / "SST-2" / f"{split}.tsv"
        classifier_runs.write_table(path, rows, header)
