"""Runs that cannot go on: made of something else, damaged, or owned."""

import json

from tests.bad_inputs.fine_tuning_rows import TABLE, TASK
from tests.bad_inputs.table import (
    Row,
    append,
    copy,
    cut,
    drop_json,
    edit,
    put,
    remove,
    replace,
    set_json,
)

CONFIG = "model/albert_config.json"
CHECKPOINT = "model.ckpt-2"
DATA = ".data-00000-of-00001"


def pretraining(name, words, says, *changes, **kwargs):
    """A row that goes on to step 4 with what was trained for 2 steps."""
    command = (
        f"run_pretraining --output_dir=pretrained --num_train_steps=4 {words}"
    )
    return Row(name, command, says, changes, **kwargs)


def classifier(name, words, says, *changes, **kwargs):
    command = f"run_classifier --output_dir=classifier --train_step=4 {words}"
    return Row(name, command, says, changes, **kwargs)


def squad(name, words, says, *changes, **kwargs):
    command = f"run_squad --output_dir=squad --train_step=4 {words}"
    return Row(name, command, says, changes, **kwargs)


def race(name, words, says, *changes, **kwargs):
    command = f"run_race --output_dir=race_out --train_step=4 {words}"
    return Row(name, command, says, changes, **kwargs)


def other_task(**values):
    """A task like SST-2, of which something is else."""
    task = {**TASK, "name": "sst-2", "dev": "mine.csv", **values}
    return (
        put("task.json", task),
        put("mine.csv", TABLE),
    )


OWN_TASK = "--task_name= --task_config=task.json --data_dir=. --nodo_predict"
REFUSED = ".*refused.*--output_dir"
ASKS = ".*--accept_changes"

ROWS = [
    # Pretraining, of something else.
    *(
        pretraining(
            f"another config: {key} {value!r}",
            "",
            rf"config.{key}: was .*, is .*{value}.*{verdict}",
            set_json(CONFIG, **{key: value}),
        )
        for key, value, verdict in (
            ("num_hidden_layers", 3, REFUSED),
            ("num_attention_heads", 4, REFUSED),
            ("hidden_act", "relu", REFUSED),
            ("hidden_size", 15, REFUSED),
            ("intermediate_size", 18, REFUSED),
            ("parameter_sharing", "none", REFUSED),
            ("hidden_dropout_prob", 0.5, ASKS),
            ("attention_probs_dropout_prob", 0.5, ASKS),
        )
    ),
    *(
        pretraining(
            f"another value: {words}", words, rf"{key}: was .*, is .*{ASKS}"
        )
        for words, key in (
            ("--train_batch_size=8", "train_batch_size"),
            ("--optimizer=adamw", "optimizer.name"),
            ("--learning_rate=1e-4", "optimizer.learning_rate"),
            ("--num_warmup_steps=1", "optimizer.num_warmup_steps"),
            ("--poly_power=2", "optimizer.poly_power"),
            ("--random_seed=7", "seed"),
            ("--sentence_weight=0.5", "sentence_weight"),
            ("--shuffle_buffer=9", "shuffle_buffer"),
            ("--min_num_layers=1", "min_num_layers"),
            ("--num_sampled_pieces=9", "num_sampled_pieces"),
        )
    ),
    pretraining(
        "fewer steps than it has",
        "--num_train_steps=1",
        "was trained for 2 steps; wanted 1",
        may_write=("pretrained/checkpoint",),
    ),
    pretraining(
        "other training data",
        "--input_file=valid.tfrecord --eval_input_file=train.tfrecord",
        r"data\.\w+\..*: was .*, is .*",
    ),
    pretraining(
        "other held-out data",
        "--eval_input_file=other.tfrecord",
        rf"data.dev\..*: was .*, is .*{REFUSED}",
        copy("valid.tfrecord", "other.tfrecord"),
        append("other.tfrecord", b""),
        edit("other.tfrecord", lambda x: x + x),
    ),
    pretraining(
        "another vocabulary of equal size",
        "",
        rf"vocabulary.sha256: was .*, is .*{REFUSED}",
        replace("train.dataset.json", '"sha256": "', '"sha256": "0'),
        replace("valid.dataset.json", '"sha256": "', '"sha256": "0'),
        drop_json("train.dataset.json", "vocabulary_file"),
        drop_json("valid.dataset.json", "vocabulary_file"),
    ),
    # Pretraining, damaged or owned.
    pretraining(
        "the only checkpoint's index is cut",
        "",
        "pretrained has 1 checkpoints, none of which can be read",
        cut(f"pretrained/{CHECKPOINT}.index"),
    ),
    pretraining(
        "the newest checkpoint's data is gone",
        "",
        "pretrained has 1 checkpoints, none of which can be read",
        remove(f"pretrained/{CHECKPOINT}{DATA}"),
    ),
    pretraining(
        "another process trains there",
        "",
        "pretrained is in use by process [0-9]+",
        owned=("pretrained/",),
    ),
    # Classifier.
    classifier(
        "another task",
        "--task_name=qqp",
        rf"task.name: was .sst-2., is .qqp.{REFUSED}",
        put(
            "glue/QQP/train.tsv",
            "a\tb\tc\td\te\tf\n" + "1\t2\t3\tw1 w2\tw3\t1\n" * 8,
        ),
        copy("glue/QQP/train.tsv", "glue/QQP/dev.tsv"),
        put("glue/QQP/test.tsv", "id\ta\tb\n0\tw1\tw2\n"),
    ),
    classifier(
        "other labels",
        OWN_TASK,
        rf"task.labels: was .*, is .*{REFUSED}",
        *other_task(),
        replace("mine.csv", "\n1,", "\n2,"),
    ),
    classifier(
        "labels in another order",
        OWN_TASK,
        rf"task.labels: was .*, is .*{REFUSED}",
        *other_task(labels=["1", "0"]),
    ),
    classifier(
        "another objective",
        OWN_TASK,
        rf"task.objective: was .*, is .*{REFUSED}",
        *other_task(objective="multi_label"),
    ),
    classifier(
        "other dev data",
        "",
        rf"data.dev.*: was .*, is .*{REFUSED}",
        append("glue/SST-2/dev.tsv", b"w1 w2\t1\n"),
    ),
    classifier(
        "other training data",
        "",
        rf"data.train.*: was .*, is .*{ASKS}",
        append("glue/SST-2/train.tsv", b"w1 w2\t1\n"),
    ),
    classifier(
        "another length",
        "--max_seq_length=12",
        r"max_seq_length: was 16, is 12",
    ),
    classifier(
        "another vocabulary of equal size",
        "--vocab_file=other.txt",
        "with the vocabulary vocab.txt, which differs from other.txt",
        copy("vocab.txt", "other.txt"),
        replace("other.txt", "w7\n", "w77\n"),
    ),
    *(
        classifier(
            f"another value: {words}", words, rf"{key}: was .*, is .*{ASKS}"
        )
        for words, key in (
            ("--train_batch_size=8", "train_batch_size"),
            ("--optimizer=lamb", "optimizer.name"),
            ("--freeze_encoder", "frozen"),
            ("--random_seed=7", "seed"),
            ("--classifier_dropout=0.5", "classifier_dropout"),
            ("--hidden_dropout_prob=0.3", "config.hidden_dropout_prob"),
        )
    ),
    classifier(
        "fewer steps than it has",
        "--train_step=1",
        "was trained for 2 steps; wanted 1",
        # It may name the newest checkpoints again.
        may_write=("classifier/checkpoint",),
    ),
    classifier(
        "another process trains there",
        "",
        "classifier is in use by process",
        owned=("classifier/",),
    ),
    Row(
        "predictions of another task's model",
        f"run_classifier --output_dir=classifier --nodo_train --nodo_eval "
        f"{OWN_TASK} --do_predict",
        "task.labels: was .*, is .*refused",
        (
            *other_task(test="mine.csv"),
            replace("mine.csv", "\n1,", "\n2,"),
        ),
    ),
    # SQuAD and RACE.
    squad(
        "version 2 in a folder of version 1",
        "--squad_version=v2 --train_file=v2.json --predict_file=v2.json",
        rf"task.*: was .*, is .*{REFUSED}",
    ),
    squad(
        "other questions",
        "--predict_file=dev.json",
        rf"data.dev.*: was .*, is .*{REFUSED}",
        lambda: put(
            "dev.json", json.dumps(_without_a_paragraph(open("v1.json")))
        )(),
    ),
    squad(
        "other windows",
        "--doc_stride=3 --max_seq_length=12",
        "doc_stride: was 4, is 3.*max_seq_length: was 16, is 12",
    ),
    squad(
        "another process trains there",
        "",
        "squad is in use by process",
        owned=("squad/",),
    ),
    race(
        "other levels",
        "--high_only",
        "data.dev.examples: was 8, is 4: refused",
    ),
    race(
        "other lengths",
        "--max_qa_length=2",
        "max_qa_length: was 6, is 2: refused",
    ),
    race(
        "another process trains there",
        "",
        "race_out is in use by process",
        owned=("race_out/",),
    ),
]


def _without_a_paragraph(file):
    with file:
        found = json.load(file)
    found["data"][0]["paragraphs"].pop()
    return found
