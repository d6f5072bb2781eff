"""Bad inputs of run_pretraining.py: flags, configs, records, descriptions."""

import gzip
import hashlib
import os

import tensorflow as tf

from tests.bad_inputs.table import (
    Row,
    append,
    copy,
    cut,
    drop_json,
    edit,
    edit_json,
    link,
    put,
    remove,
    replace,
    rows_of_flags,
    set_json,
)

PROGRAM = "run_pretraining"
CONFIG = "model/albert_config.json"
RECORDS = "train.tfrecord"
SIDECAR = "train.dataset.json"
DYNAMIC = "--input_file=dynamic.tfrecord"
DYNAMIC_SIDECAR = "dynamic.dataset.json"
DEEP = "[" * 100_000


def row(name, words, says, *changes, **kwargs):
    return Row(name, f"{PROGRAM} {words}", says, changes, **kwargs)


def edit_examples(path, function, *, is_described=False):
    """A change: lets a function change the list of a file's examples.

    Unless its description stays, only reading the records can tell.
    """

    def change():
        if not is_described:
            os.remove(path.replace(".tfrecord", ".dataset.json"))
        examples = [
            tf.train.Example.FromString(serialized.numpy())
            for serialized in tf.data.TFRecordDataset(path)
        ]
        function(examples)
        with tf.io.TFRecordWriter(path) as writer:
            for example in examples:
                writer.write(example.SerializeToString())

    return change


def set_value(
    name, value, *, number=4, place=1, path=RECORDS, is_described=False
):
    """A change: sets one value of one feature of one record."""

    def function(examples):
        feature = examples[number].features.feature[name]
        values = getattr(feature, feature.WhichOneof("kind")).value
        values[place] = value

    return edit_examples(path, function, is_described=is_described)


def _add_30(example):
    values = example.features.feature["input_ids"].int64_list.value
    values[:] = [value + 30 for value in values]


def drop_feature(name, number=None):
    """A change: removes a feature, of one record or of all."""

    def function(examples):
        for i, example in enumerate(examples):
            if number in (None, i):
                del example.features.feature[name]

    return edit_examples(RECORDS, function)


def lengthen(name):
    """A change: adds a value to a feature of record 4."""

    def function(examples):
        examples[4].features.feature[name].int64_list.value.append(1)

    return edit_examples(RECORDS, function)


def drop_records(path=RECORDS):
    """A change: cuts a file at a record's end."""
    return edit_examples(
        path, lambda examples: examples.__delitem__(-1), is_described=True
    )


def as_floats():
    """A change: stores the ids of record 4 as numbers with a point."""

    def function(examples):
        feature = examples[4].features.feature["input_ids"]
        values = list(feature.int64_list.value)
        feature.float_list.value.extend(values)

    return edit_examples(RECORDS, function)


def flip_byte(path, place):
    """A change: turns one byte of a file over."""

    def function(content):
        content = bytearray(content)
        content[place] ^= 0xFF
        return bytes(content)

    return edit(path, function)


def describe_shards():
    """A change: makes the copied description one of two equal files."""

    def function(found):
        for name in ("num_records", "num_bytes"):
            found[name] = 2 * found[name]
        found["files"] = [f"t-0000{i}-of-00002.tfrecord" for i in range(2)]

    return edit_json("many/t.dataset.json", function)


def _change_vocabulary():
    replace("model/vocab.txt", "w7", "w77")()
    with open("model/vocab.txt", "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    set_json("model/tokenizer_settings.json", sha256=found)()


def without_masks(path):
    """A change: lets the records have nothing to predict."""

    def function(examples):
        for example in examples:
            weights = example.features.feature["masked_lm_weights"]
            values = weights.float_list.value
            values[:] = [0] * len(values)

    return edit_examples(path, function, is_described=True)


RECORD_4 = r"train.tfrecord, record [45]: "
SHARDS = (
    copy(RECORDS, "many/t-00000-of-00002.tfrecord"),
    copy("valid.tfrecord", "many/t-00001-of-00002.tfrecord"),
)

ROWS = [
    # Flags.
    row("nothing to do", "--nodo_train --nodo_eval", "nothing to do"),
    row("no records", "--input_file=", "--do_train needs --input_file"),
    row(
        "evaluation alone without records",
        "--nodo_train --eval_input_file=",
        "--do_eval needs --eval_input_file, held-out records",
    ),
    row(
        "the same records for training and evaluation",
        f"--eval_input_file={RECORDS}",
        "train.tfrecord is used for training and for evaluation",
    ),
    row(
        "the same records for training and evaluation, by a link",
        "--eval_input_file=same.tfrecord",
        "same.tfrecord is used for training and for evaluation",
        link(RECORDS, "same.tfrecord"),
        copy("train.dataset.json", "same.dataset.json"),
        replace("same.dataset.json", "train.tfrecord", "same.tfrecord"),
    ),
    row(
        "masking while training",
        "--masked_lm_budget=0.1",
        "masked_lm_budget is not implemented",
    ),
    row(
        "workers without addresses",
        "--distribution=multi_worker",
        "needs the environment variable TF_CONFIG",
    ),
    row(
        "workers that only evaluate",
        "--distribution=multi_worker --nodo_train --do_eval",
        "multi_worker needs --do_train",
    ),
    row(
        "LAMB's rate for AdamW",
        "--learning_rate=auto --optimizer=adamw",
        "auto is a rule for --optimizer=lamb",
    ),
    row("a rate in words", "--learning_rate=fast", "learning_rate.*fast"),
    row(
        "a batch of unequal parts",
        "--gradient_accumulation_steps=3",
        "train_batch_size=4 .* times --gradient_accumulation_steps=3; use 3",
    ),
    row(
        "local records for a TPU elsewhere",
        "--use_tpu --tpu_name=grpc://10.0.0.2:8470",
        "is a local path; wanted gs://",
    ),
    *(
        row(
            f"--{flag} with static records",
            f"--{flag}",
            f"--{flag.split('=')[0]}: .*train.tfrecord were masked.*dynamic",
        )
        for flag in (
            "masked_lm_prob=0.2",
            "ngram=3",
            "favor_shorter_ngram=true",
            "do_whole_word_mask=false",
            "do_permutation",
        )
    ),
    row(
        "more predictions than tokens",
        f"{DYNAMIC} --max_predictions_per_seq=17",
        "max_predictions_per_seq is 17, .*dynamic.tfrecord have 16 tokens",
    ),
    row(
        "as many steps of warmup as steps",
        # Refused before anything is read.
        "--num_warmup_steps=2 --input_file=no",
        "num_train_steps=2 .*num_warmup_steps=2",
    ),
    row(
        "more steps of warmup than steps",
        "--num_warmup_steps=3125",
        "num_train_steps=2 .*num_warmup_steps=3125",
    ),
    row(
        "warmup begins after the end",
        "--start_warmup_step=2",
        "num_train_steps=2 .*start_warmup_step=2",
    ),
    row(
        "warmup ends after the end",
        "--start_warmup_step=1 --num_warmup_steps=1",
        "num_train_steps=2 .*start_warmup_step=1",
    ),
    row(
        "a name of a TPU without a TPU",
        "--tpu_name=local",
        "--tpu_name=local is for --distribution=tpu",
    ),
    row(
        "two distributions",
        "--use_tpu --distribution=mirrored",
        "--use_tpu contradicts --distribution=mirrored. Give one",
    ),
    row(
        "a batch that replicas cannot share",
        "--distribution=mirrored --train_batch_size=5",
        "--train_batch_size=5.*multiple.*2 replicas",
    ),
    row("a TPU here", "--use_tpu", "No TPU at 'local'"),
    row(
        "a TPU that does not answer",
        "--use_tpu --tpu_name=grpc://127.0.0.1:1 --input_file=gs://bucket/a "
        "--eval_input_file=gs://bucket/b",
        "No TPU at 'grpc://127.0.0.1:1'",
    ),
    row(
        "a hundred million steps, and a loss that is not finite",
        "--num_train_steps=100000000 --learning_rate=1e38 --nodo_eval "
        "--optimizer=adamw",
        "At step .*the loss is .*newest checkpoint",
        may_write=("new", "new/*"),
    ),
    row("no output_dir", "--output_dir=", "--output_dir is empty"),
    row("an empty start", "--init_checkpoint=", "--init_checkpoint is empty"),
    row(
        "a local output_dir for a TPU elsewhere",
        "--use_tpu --tpu_name=a-pod --input_file=gs://a/b --eval_input_file=",
        "--output_dir=.* is a local path; wanted gs://",
    ),
    row("a blank output_dir", "'--output_dir= '", "--output_dir is empty"),
    Row(
        "no flags at all",
        "bare run_pretraining",
        "Please give --output_dir.*--albert_config_file",
    ),
    row("no such flag", "--num_train_step=3", "num_train_step"),
    row("a stray word", "--do_train False", "Write --flag=value.*'False'"),
    row(
        "two places for the same output",
        "",
        "new is in use by process",
        owned=("new/",),
    ),
    *rows_of_flags(
        PROGRAM,
        """
        learning_rate -1 nan inf x
        train_batch_size 0 -4 1000000000 1.5
        eval_batch_size 0 -1 1000000000
        num_train_steps 0 -1
        num_warmup_steps -1
        start_warmup_step -1
        save_checkpoints_steps 0 -1
        keep_checkpoint_max -1 -3
        iterations_per_loop 0 -1
        log_every_steps 0 -1
        max_eval_steps -1
        num_sampled_pieces 0 -1
        sentence_weight -1 nan
        poly_power -1 nan
        masked_lm_budget nan -1
        masked_lm_prob 0 1.5 nan
        ngram 0 101 1.5
        random_seed -1 1000000000000
        shuffle_buffer 0 -1
        num_tpu_cores -1
        max_seq_length 0 -16
        max_predictions_per_seq 0 -3
        damaged_records maybe
        optimizer sgd
        distribution many
        compute_dtype float64
        """,
    ),
    # Places.
    row(
        "output_dir is a file",
        "--output_dir=a_file",
        "a_file cannot be a folder",
    ),
    row(
        "output_dir is in a file",
        "--output_dir=a_file/out",
        "a_file/out cannot be a folder",
    ),
    row(
        "records without masks",
        "",
        "No token is masked in .* records of train.tfrecord",
        without_masks(RECORDS),
    ),
    row(
        "held-out records without masks",
        "",
        "No token is masked in .* records of valid.tfrecord",
        without_masks("valid.tfrecord"),
    ),
    row("no such records", "--input_file=no*.tfrecord", "No file matches"),
    row("the records are a folder", "--input_file=glue", "glue is a folder"),
    row(
        "one pattern of two matches nothing",
        f"--input_file={RECORDS},no*",
        "No file matches 'no",
    ),
    # The model's config.
    row("no such config", "--albert_config_file=no.json", "no.json"),
    row(
        "the config is a folder", "--albert_config_file=model", "model.*folder"
    ),
    *(
        row(
            f"the config is {name}",
            "",
            f"albert_config.json.*{says}",
            put(CONFIG, content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("zeros", bytes(100), "not JSON: it is empty"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("a number", "7", "int"),
            ("not UTF-8", b'{"vocab_size": "\xff"}', "utf-8"),
            ("nested too deeply", DEEP, "nested too deeply"),
            ("without vocab_size", "{}", "vocab_size is missing"),
        )
    ),
    row(
        "the config is cut",
        "",
        "albert_config.json.*not JSON.*truncated",
        cut(CONFIG),
    ),
    row(
        "the config is half a surrogate pair",
        "",
        "albert_config.json.*surrogate",
        set_json(CONFIG, net_structure_type="\ud800"),
    ),
    *(
        row(
            f"the config says {name}={value!r}",
            "",
            f"albert_config.json.*{says or name}",
            set_json(CONFIG, **{name: value}),
        )
        for name, value, says in (
            ("hidden_sizes", 12, "did you mean 'hidden_size'"),
            ("hidden_size", "12", None),
            ("hidden_size", 0, None),
            ("hidden_size", 13, "num_attention_heads"),
            ("hidden_size", 10**12, None),
            ("num_hidden_layers", 100_000, None),
            ("num_hidden_layers", -1, None),
            ("num_hidden_groups", 3, None),
            ("inner_group_num", 10**9, None),
            ("hidden_act", "swish", None),
            ("hidden_dropout_prob", 1.0, None),
            ("hidden_dropout_prob", float("nan"), None),
            ("initializer_range", 0, None),
            ("initializer_range", float("inf"), None),
            ("parameter_sharing", "some", None),
        )
    ),
    row(
        "a config of fewer segments",
        "",
        r"train.tfrecord, record 1: segment_ids\[9\] is 1, wanted 0 to 0",
        set_json(CONFIG, type_vocab_size=1),
    ),
    row(
        "a config of another vocabulary",
        "",
        "vocabulary of 25 pieces.*vocab_size 26",
        set_json(CONFIG, vocab_size=26),
    ),
    row(
        "a config of shorter sequences",
        "",
        "16 tokens.*max_position_embeddings 8",
        set_json(CONFIG, max_position_embeddings=8),
    ),
    # Records.
    row("other lengths", "--max_seq_length=17", "max_seq_length=17.*have 16"),
    row(
        "other numbers of predictions",
        "--max_predictions_per_seq=4",
        "max_predictions_per_seq=4.*have 3",
    ),
    row("empty records", "", "train.tfrecord", put(RECORDS, b"")),
    row("records are text", "", "train.tfrecord", copy("text.txt", RECORDS)),
    row(
        "records are compressed",
        "",
        "train.tfrecord is compressed.*gunzip",
        edit(RECORDS, gzip.compress),
        remove(SIDECAR),
    ),
    row("the records are cut in a record", "", "train.tfrecord", cut(RECORDS)),
    row(
        "the records' last byte is missing",
        "",
        "train.tfrecord",
        edit(RECORDS, lambda x: x[:-1]),
    ),
    row(
        "zeros behind the records",
        "",
        "train.tfrecord",
        append(RECORDS, bytes(100)),
    ),
    *(
        row(
            f"a byte is flipped at {place}",
            "",
            "train.tfrecord",
            flip_byte(RECORDS, place),
        )
        for place in (0, 9, 20, 1000, -1, -30)
    ),
    row(
        "a byte of the held-out records is flipped",
        "",
        "valid.tfrecord",
        flip_byte("valid.tfrecord", 1000),
    ),
    row(
        "the held-out records are cut",
        "",
        "valid.tfrecord",
        cut("valid.tfrecord"),
    ),
    row(
        "records of fine-tuning",
        "",
        "train.tfrecord does not contain pretraining.*for fine-tuning",
        drop_feature("masked_lm_positions"),
    ),
    *(
        row(
            f"one record lacks {name}",
            "",
            f"{RECORD_4}.*{name}",
            drop_feature(name, 4),
        )
        for name in ("input_ids", "segment_ids", "masked_lm_weights")
    ),
    row(
        "all records lack their labels",
        "",
        "train.tfrecord.*next_sentence_labels",
        drop_feature("next_sentence_labels"),
    ),
    *(
        row(
            f"a list {name} is too long",
            "",
            f"{RECORD_4}.*{name}",
            lengthen(name),
        )
        for name in ("input_ids", "masked_lm_ids", "next_sentence_labels")
    ),
    row("ids with a point", "", f"{RECORD_4}.*input_ids", as_floats()),
    *(
        row(
            f"{name} has {value}",
            "",
            f"{RECORD_4}.*{name}",
            set_value(name, value, place=place),
        )
        for name, value, place in (
            ("input_ids", 25, 1),
            ("input_ids", -1, 1),
            ("input_ids", 2**32 + 5, 1),
            ("input_mask", 7, 1),
            ("input_mask", -1, 1),
            ("segment_ids", 2, 1),
            ("segment_ids", -1, 1),
            ("masked_lm_ids", 25, 0),
            ("masked_lm_ids", 2**32 + 5, 0),
            ("masked_lm_positions", 16, 0),
            ("masked_lm_positions", -1, 0),
            ("masked_lm_weights", float("nan"), 0),
            ("masked_lm_weights", -1.0, 0),
            ("next_sentence_labels", 2, 0),
            ("next_sentence_labels", -1, 0),
        )
    ),
    row(
        "an id out of range in the held-out records",
        "",
        "valid.tfrecord, record [45]: .*input_ids",
        set_value("input_ids", 25, path="valid.tfrecord"),
    ),
    # Descriptions of records.
    *(
        row(
            f"the description is {name}",
            "",
            f"train.dataset.json.*{says}",
            put(SIDECAR, content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("zeros", bytes(100), "not JSON: it is empty"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("an empty object", "{}", "format"),
            ("nested too deeply", DEEP, "nested too deeply"),
        )
    ),
    row("the description is cut", "", "train.dataset.json", cut(SIDECAR)),
    *(
        row(
            f"the description lacks {name}",
            "",
            f"train.dataset.json.*{name}",
            drop_json(SIDECAR, name),
        )
        for name in (
            "format",
            "files",
            "num_records",
            "max_seq_length",
            "max_predictions_per_seq",
            "sentence_objective",
            "tokenizer",
            "statistics",
        )
    ),
    *(
        row(
            f"the description says {name} {value!r}",
            "",
            f"train.dataset.json.*{says or name}",
            set_json(SIDECAR, **{name: value}),
        )
        for name, value, says in (
            ("format", 99, None),
            ("num_records", [7], "says 7"),
            ("num_records", [10**12], "says 1000000000000"),
            ("num_records", [-3], "count the records"),
            ("num_records", [], "count the records"),
            ("num_records", "x", None),
            ("files", "train.tfrecord", None),
            ("files", [7], "names 1 files"),
            ("max_seq_length", 17, None),
            ("max_predictions_per_seq", 4, None),
            ("num_predictions", 4, None),
            ("sentence_objective", "xyz", None),
            ("tokenizer", 3, None),
        )
    ),
    *(
        row(
            f"the first record is damaged at {place}, where damage is skipped",
            "--damaged_records=skip",
            "train.tfrecord, record 1: the data do not match their checksum",
            flip_byte(RECORDS, place),
        )
        for place in (0, 15)
    ),
    row(
        "a text instead of records, where damage is skipped",
        "--damaged_records=skip",
        "train.tfrecord is not a TFRecord file.*Is it text",
        put(RECORDS, b"This is no record.\n" * 99),
    ),
    row(
        "records of another vocabulary, where damage is skipped",
        f"{DYNAMIC} --damaged_records=skip",
        "dynamic.tfrecord, record 1: input_ids.*wanted 0 to 24",
        edit_examples(
            "dynamic.tfrecord",
            lambda examples: [_add_30(example) for example in examples],
            is_described=True,
        ),
    ),
    row(
        "dynamic records without a description",
        DYNAMIC,
        "dynamic.tfrecord have no masks, .*dynamic.dataset.json is missing",
        remove(DYNAMIC_SIDECAR),
    ),
    row(
        "dynamic and static records together",
        f"{DYNAMIC},{RECORDS}",
        "train.dataset.json says masking_rule = None",
    ),
    row(
        "static records with a dynamic description",
        "",
        "train.dataset.json says masking = dynamic; .*have static",
        set_json(SIDECAR, masking="dynamic", masking_rule={}, vocabulary={}),
    ),
    row(
        "dynamic records with an id out of range",
        DYNAMIC,
        r"dynamic.tfrecord, record 5: input_ids.*25",
        set_value("input_ids", 25, path="dynamic.tfrecord", is_described=True),
    ),
    *(
        row(
            f"the description says {name} {value!r}",
            DYNAMIC,
            f"{DYNAMIC_SIDECAR}.*{says}",
            set_json(DYNAMIC_SIDECAR, **{name: value}),
        )
        for name, value, says in (
            ("masking", "both", "masking = 'both'"),
            ("masking", "static", "masking = static"),
            ("masking_rule", [], "masking_rule of type dict"),
            ("masking_rule", {"ngram": -1}, "ngram=-1; wanted at least 1"),
            ("masking_rule", {"ngrams": 3}, "ngrams"),
            ("vocabulary", None, "vocabulary of type dict"),
            ("vocabulary", {"vocab_size": 25}, "lacks a value"),
        )
    ),
    row(
        "a file of the description is gone",
        "--input_file='many/*.tfrecord'",
        "t.dataset.json describes 2 files.*t-00001-of-00002.tfrecord",
        *SHARDS,
        copy(SIDECAR, "many/t.dataset.json"),
        describe_shards(),
        remove("many/t-00001-of-00002.tfrecord"),
    ),
    row(
        "a file that the description does not know",
        "--input_file='many/*.tfrecord'",
        "t.dataset.json does not list",
        *SHARDS,
        copy(SIDECAR, "many/t.dataset.json"),
        set_json("many/t.dataset.json", files=["t-00000-of-00002.tfrecord"]),
    ),
    row(
        "the description's tokenizer says nothing",
        "",
        "train.tfrecord was created with a vocabulary of None",
        set_json(SIDECAR, tokenizer={}),
        drop_json(SIDECAR, "vocabulary_file"),
    ),
    row(
        "the description's vocabulary is another than its tokenizer says",
        "",
        "vocabulary in train.dataset.json has SHA-256 .* its tokenizer says",
        set_json(SIDECAR, tokenizer={}),
    ),
    row(
        "the records are cut at a record's end",
        "",
        "train.tfrecord has .*train.dataset.json says",
        drop_records(),
    ),
    row(
        "records with an edited description are cut at a record's end",
        "",
        "train.tfrecord has .* records; train.dataset.json says",
        drop_records(),
        drop_json(SIDECAR, "digest"),
    ),
    row(
        "the held-out records are cut at a record's end",
        "",
        "valid.tfrecord has .*valid.dataset.json says",
        drop_records("valid.tfrecord"),
    ),
    row(
        "an empty shard that should not be",
        "--input_file='many/*.tfrecord'",
        "t-00001-of-00002.tfrecord has 0 .*t.dataset.json says",
        *SHARDS,
        put("many/t-00001-of-00002.tfrecord", b""),
        copy(SIDECAR, "many/t.dataset.json"),
        describe_shards(),
    ),
    row(
        "records with and without a description",
        f"--input_file={RECORDS},old.tfrecord",
        "old.tfrecord has no sidecar.*move the .*files away",
        copy("valid.tfrecord", "old.tfrecord"),
    ),
    row(
        "records of two objectives",
        f"--input_file={RECORDS},valid.tfrecord --eval_input_file= --nodo_eval",
        "valid.dataset.json says sentence_objective = nsp, but train",
        set_json("valid.dataset.json", sentence_objective="nsp"),
    ),
    row(
        "records of a creation that was stopped",
        "--input_file='many/*.tfrecord'",
        "many/t-00001.* belongs to an unfinished set.*to resume",
        *SHARDS,
        put("many/.t.unfinished/state.json", "{}"),
    ),
    row(
        "held-out records of a creation that was stopped",
        "--eval_input_file='many/*.tfrecord'",
        "many/t-00001.* belongs to an unfinished set.*to resume",
        *SHARDS,
        put("many/.t.unfinished/state.json", "{}"),
    ),
    row(
        "a batch that is larger than the data",
        "--train_batch_size=100000",
        "batch of 100000 is larger.*46 records",
    ),
    row(
        "another vocabulary than the model's",
        "--init_checkpoint=model",
        "with the vocabulary vocab.txt, which differs from",
        _change_vocabulary,
    ),
    # The model to begin with.
    row(
        "group 0 of no model",
        "--init_from_group0",
        "--init_from_group0 needs --init_checkpoint",
    ),
    row(
        "initial values and a model",
        # Refused before anything is read.
        "--initialization=neighbors --init_checkpoint=no --input_file=no",
        "neighbors .*, but no was given .*or set --initialization=release",
    ),
    row("no such model", "--init_checkpoint=no", "no.index does not exist"),
    row(
        "a model of other sizes",
        "--init_checkpoint=model",
        r"model.ckpt-best: .*bias is \(12,\), the model's is \(15,\)",
        copy(CONFIG, "c.json"),
        set_json(CONFIG, hidden_size=15, intermediate_size=18),
    ),
    row(
        "a model whose data is cut",
        "--init_checkpoint=model",
        "model.ckpt-best cannot be read",
        cut("model/model.ckpt-best.data-00000-of-00001"),
    ),
    row(
        "a model whose index is cut",
        "--init_checkpoint=model",
        "model.ckpt-best cannot be read",
        cut("model/model.ckpt-best.index"),
    ),
    row(
        "a model without data",
        "--init_checkpoint=model",
        "model.ckpt-best cannot be read",
        remove("model/model.ckpt-best.data-00000-of-00001"),
    ),
    row(
        "a model whose index is text",
        "--init_checkpoint=model",
        "model.ckpt-best cannot be read",
        put("model/model.ckpt-best.index", "text"),
    ),
]
