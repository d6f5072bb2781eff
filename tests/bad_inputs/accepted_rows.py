"""What looks odd and has to work."""

import fnmatch
import json
import os
import pathlib

import numpy as np

from albert_tf.text import tokenization
from albert_tf.training import results_file
from albert_tf.weights import checkpoints, huggingface, new_pieces
from tests.bad_inputs.pretraining_rows import drop_feature
from tests.bad_inputs.table import (
    Accepted,
    append,
    copy,
    cut,
    edit,
    link,
    put,
    remove,
    set_json,
)

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
ODD = "a[1]*?"
NEWEST, DATA = "pretrained/model.ckpt-2", ".data-00000-of-00001"


def _ids_are_those_of_the_file():
    lines = pathlib.Path("new/submit_results.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == ["41", "7", "12"]
    for name in ("SST-2.tsv", "test_results.tsv"):
        assert pathlib.Path("new", name).exists()


def _every_line_is_whole():
    text = pathlib.Path("pretrained/metrics.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    assert steps == sorted(steps) and steps[-1] == 3
    results = results_file.read_results("pretrained")
    assert [result["global_step"] for result in results] == [0, 2, 3]


def _one_checkpoint_is_left():
    names = fnmatch.filter(os.listdir(f"{ODD}/out"), "model.ckpt-[0-9]*.index")
    assert names == ["model.ckpt-2.index"]


def _nothing_unfinished_is_left():
    names = os.listdir("serving/classifier")
    assert len(names) == 2 and all(map(str.isdecimal, names)), names


def _long_paragraph():
    words = "w1 w2 w3 w4 w5 w6 w7 w8 " * 43_000
    qa = {"id": "a", "question": "w1"}
    content = {"data": [{"paragraphs": [{"context": words, "qas": [qa]}]}]}
    put("long.json", content)()


def _bert_records():
    """Records without what only ALBERT's have, and without description."""
    drop_feature("token_boundary")()
    remove("valid.dataset.json")()


def _write_tokenizer():
    tokenizer = tokenization.build_tokenizer(
        spm_model_file="pieces/pieces.model", do_lower_case=False
    )
    os.mkdir("json")
    huggingface.write_tokenizer("json", tokenizer, 32)


def _records_have_32_tokens():
    sidecar = json.loads(pathlib.Path("made.dataset.json").read_text())
    assert sidecar["max_seq_length"] == 32


def _records_are_cased():
    sidecar = json.loads(pathlib.Path("made.dataset.json").read_text())
    assert sidecar["tokenizer"]["do_lower_case"] is False


def _pad_rows():
    """The model with 32 rows for 25 pieces."""
    copy("model", "padded")()
    prefix = "padded/model.ckpt-best"
    values = checkpoints.read_checkpoint(prefix)
    for name in new_pieces.ROWS_OF_PIECES:
        width = [(0, 7)] + [(0, 0)] * (values[name].ndim - 1)
        values[name] = np.pad(values[name], width)
    checkpoints.write_checkpoint(prefix, values)
    set_json("padded/albert_config.json", vocab_size=32)()


# Without a length, on a model of 32 positions. What is printed or written.
_FINE_TUNING = (
    "--init_checkpoint=model --output_dir=new --train_batch_size=4 "
    "--train_step=2 --warmup_step=0"
)
_WITHOUT_LENGTH = (
    (
        f"run_classifier {_FINE_TUNING} --data_dir=glue --do_train --do_eval "
        "--flagfile=configs/glue/sst-2.flags --train_step=2 --warmup_step=0 "
        "--train_batch_size=4",
        "",
    ),
    (
        f"run_squad {_FINE_TUNING} --train_file=v1.json --predict_file=v1.json "
        "--do_train --do_predict --flagfile=configs/squad/v1.flags "
        "--train_step=2 --train_batch_size=4",
        "",
    ),
    (
        f"run_race {_FINE_TUNING} --data_dir=race "
        "--flagfile=configs/race.flags --train_step=2 --warmup_step=0 "
        "--train_batch_size=4",
        "",
    ),
    (
        "embed --init_checkpoint=model --input_file=text.txt "
        "--output_file=new.npz",
        "truncated to 32 tokens",
    ),
    (
        "answer --init_checkpoint=serving/squad --question=w1 "
        "--paragraph='w2 w3 w4'",
        "%",
    ),
    (
        "layers --init_checkpoint=model --input_file=text.txt "
        "--num_sequences=1 --json_file=new.json",
        "",
    ),
)

ROWS = [
    Accepted(
        "the command of the release's README",
        "run_pretraining --do_train --do_eval --eval_input_file=",
        "(?i)nothing.*(held out|evaluated)",
        writes=("new/model.ckpt-2.index",),
    ),
    Accepted(
        "a folder named like a pattern, with records of BERT's format",
        f"run_pretraining --input_file='{ODD}/t.tfrecord' "
        f"--output_dir='{ODD}/out' --save_checkpoints_steps=1 "
        "--keep_checkpoint_max=1",
        changes=(
            _bert_records,
            copy("train.tfrecord", f"{ODD}/t.tfrecord"),
            copy("train.tfrecord", "a1/t.tfrecord"),
        ),
        check=_one_checkpoint_is_left,
    ),
    Accepted(
        "a folder named like a pattern, fine-tuning",
        f"run_classifier --data_dir='{ODD}/glue' "
        f"--init_checkpoint='{ODD}/model' --output_dir='{ODD}/out' "
        f"--cached_dir='{ODD}/cache' "
        f"--export_dir='{ODD}/served'",
        changes=(copy("glue", f"{ODD}/glue"), copy("model", f"{ODD}/model")),
        writes=(f"{ODD}/out/SST-2.tsv", f"{ODD}/served"),
    ),
    Accepted(
        "a folder named like a pattern, RACE",
        f"run_race --data_dir='{ODD}' --nodo_train --nodo_predict "
        "--init_checkpoint=race_out/model.ckpt-best",
        changes=(copy("race/RACE", f"{ODD}/RACE"),),
        writes=("new/eval_results.txt",),
    ),
    Accepted(
        "a folder named like a pattern",
        f"create_pretraining_data --input_file='{ODD}/text.txt' "
        f"--output_file='{ODD}/made.tfrecord' --num_shards=2 --num_workers=2",
        changes=(copy("text.txt", f"{ODD}/text.txt"),),
        writes=(
            f"{ODD}/made-00000-of-00002.tfrecord",
            f"{ODD}/made.dataset.json",
        ),
    ),
    Accepted(
        "a folder named like a pattern",
        f"convert_checkpoint --from='{ODD}/model' --to='{ODD}/hf'",
        changes=(copy("model", f"{ODD}/model"),),
        writes=(f"{ODD}/hf/model.safetensors",),
    ),
    Accepted(
        "a folder named like a pattern",
        f"extend_vocab --from='{ODD}/model' --to='{ODD}/new'",
        changes=(copy("model", f"{ODD}/model"),),
        writes=(f"{ODD}/new/vocab_extended.txt",),
    ),
    Accepted(
        "a folder named like a pattern",
        f"embed --input_file='{ODD}/text.txt' --output_file='{ODD}/v.jsonl'",
        changes=(copy("text.txt", f"{ODD}/text.txt"),),
        writes=(f"{ODD}/v.jsonl",),
    ),
    Accepted(
        "a folder named like a pattern",
        f"train_vocab --input_file='{ODD}/text.txt' --model_prefix='{ODD}/w'",
        changes=(copy("text.txt", f"{ODD}/text.txt"),),
        writes=(f"{ODD}/w.model", f"{ODD}/w.vocab"),
    ),
    Accepted(
        "lines that a full disk has torn, and changes that are asked for",
        "run_pretraining --output_dir=pretrained --num_train_steps=3 "
        "--train_batch_size=8 --random_seed=7 --accept_changes",
        "train_batch_size: was 4, is 8.*seed: was 12345, is 7"
        "|seed: was 12345, is 7.*train_batch_size: was 4, is 8",
        changes=(
            append("pretrained/metrics.jsonl", b'{"split": "train", "st'),
            edit(
                "pretrained/eval_results.txt",
                lambda x: x + b"***** Eval results *****\nloss = 3.1\nmas",
            ),
            append("pretrained/eval_results.txt", bytes(50)),
            # A process that is gone owns nothing.
            put("pretrained/.lock", "process 1 on a host: run_pretraining.py"),
            put("pretrained/model.ckpt-9.writing-7.index", "torn"),
        ),
        writes=("pretrained/model.ckpt-3.index",),
        check=_every_line_is_whole,
    ),
    Accepted(
        "the newest checkpoint is cut",
        "run_pretraining --output_dir=pretrained --num_train_steps=3",
        "Resuming from pretrained/model.ckpt-1.*model.ckpt-2 cannot be read",
        changes=(
            copy(f"{NEWEST}.index", "pretrained/model.ckpt-1.index"),
            copy(f"{NEWEST}{DATA}", f"pretrained/model.ckpt-1{DATA}"),
            cut(f"{NEWEST}{DATA}"),
        ),
        writes=("pretrained/model.ckpt-3.index",),
    ),
    Accepted(
        "a test table in another order",
        "run_classifier --nodo_train --nodo_eval "
        "--init_checkpoint=classifier/model.ckpt-best",
        changes=(
            put(
                "glue/SST-2/test.tsv",
                "index\tsentence\n41\tw1\n7\tw2 w3\n12\tw4\n",
            ),
        ),
        check=_ids_are_those_of_the_file,
    ),
    Accepted(
        "a paragraph of a million characters",
        "run_squad --nodo_train --predict_file=long.json --squad_version=v1 "
        "--init_checkpoint=squad/model.ckpt-best --max_seq_length=32 "
        "--doc_stride=25 --predict_batch_size=512",
        changes=(_long_paragraph,),
        writes=("new/predictions.json",),
    ),
    Accepted(
        "text with Windows' ends of lines, a mark, and stray bytes",
        "create_pretraining_data",
        "2 characters are not UTF-8",
        changes=(
            edit(
                "text.txt",
                lambda x: (
                    b"\xef\xbb\xbf" + x.replace(b"\n", b"\r\n") + b"\xff\xfe"
                ),
            ),
        ),
        writes=("made.tfrecord", "made.dataset.json"),
    ),
    Accepted(
        "notes of a creation with other settings",
        "create_pretraining_data",
        changes=(put(".made.unfinished/state.json", '{"fingerprint": "x'),),
        writes=("made.dataset.json",),
    ),
    Accepted(
        "what a killed export left",
        "run_classifier --nodo_train --nodo_eval "
        "--init_checkpoint=classifier/model.ckpt-best "
        "--export_dir=serving/classifier",
        changes=(
            put("serving/classifier/temp-17000/saved_model.pb", "torn"),
            put("serving/classifier/temp-17000/variables/x", "torn"),
        ),
        check=_nothing_unfinished_is_left,
    ),
    Accepted(
        "a place that is there and empty",
        "convert_checkpoint",
        changes=(lambda: os.mkdir("new"),),
        writes=("new/model.safetensors",),
    ),
    Accepted(
        "blank lines",
        "embed --output_file=v.jsonl",
        changes=(put("text.txt", "\nw1\n\n\n"),),
        writes=("v.jsonl",),
    ),
    Accepted(
        "a torn line",
        "plot_metrics",
        changes=(
            append("pretrained/metrics.jsonl", b'{"split": "train", "st'),
        ),
        writes=("new.svg",),
    ),
    Accepted(
        "a folder of versions",
        "embed --init_checkpoint=versions",
        "versions has numbered models. The newest is used: versions/10",
        changes=(copy("hub", "versions/9"), copy("hub", "versions/10")),
        writes=("new.npz",),
    ),
    Accepted(
        "a training folder of transformers",
        "run_classifier --init_checkpoint=trained",
        "from trained/checkpoint-10; new: output_bias.*The newest is used",
        changes=(
            copy("hf", "trained/checkpoint-9"),
            copy("hf", "trained/checkpoint-10"),
            put("trained/checkpoint-10/optimizer.pt", b"x"),
        ),
    ),
    Accepted(
        "more rows than pieces",
        "run_classifier --init_checkpoint=padded",
        "new: output_bias",
        changes=(_pad_rows,),
        writes=("new/model.ckpt-2.index",),
    ),
    Accepted(
        "a tokenizer.json as vocabulary",
        "create_pretraining_data --spm_model_file=json/tokenizer.json",
        changes=(_write_tokenizer,),
        writes=("made.tfrecord",),
        check=_records_are_cased,
    ),
    Accepted(
        "records for the model beside the vocabulary, without a length",
        "bare create_pretraining_data --input_file=text.txt "
        "--vocab_file=model/vocab.txt --output_file=made.tfrecord",
        check=_records_have_32_tokens,
    ),
    *(
        Accepted(
            f"{command.split()[0]} without a length",
            f"bare {command}",
            says,
            changes=(link(str(CONFIGS), "configs"),),
        )
        for command, says in _WITHOUT_LENGTH
    ),
]
