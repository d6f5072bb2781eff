"""Bad inputs of what writes models: exports and conversions."""

import numpy as np

from albert_tf.weights import checkpoints
from tests.bad_inputs.fine_tuning_rows import member, pack
from tests.bad_inputs.table import (
    Row,
    append,
    copy,
    cut,
    put,
    remove,
    rows_of_flags,
    set_json,
)

DEEP = "[" * 100_000
BEST = "model/model.ckpt-best"


def hub(name, words, says, *changes, **kwargs):
    command = f"export_to_tfhub --nowith_preprocessor {words}"
    return Row(name, command, says, changes, **kwargs)


def convert(name, words, says, *changes, **kwargs):
    return Row(name, f"convert_checkpoint {words}", says, changes, **kwargs)


def set_weight(prefix, value, name="bert/encoder/embedding_hidden_mapping_in"):
    """A change: sets one number of a weight of a checkpoint."""

    def change():
        values = checkpoints.read_checkpoint(prefix)
        values[f"{name}/kernel"][0, 0] = value
        checkpoints.write_checkpoint(prefix, values)

    return change


def drop_weight(prefix, name):
    def change():
        values = checkpoints.read_checkpoint(prefix)
        del values[name]
        checkpoints.write_checkpoint(prefix, values)

    return change


def add_group():
    values = checkpoints.read_checkpoint(BEST)
    more = {n.replace("group_0", "group_1"): v for n, v in values.items()}
    checkpoints.write_checkpoint(BEST, values | more)


def edit_safetensors(function):
    """A change: lets a function change the weights of the folder `hf`."""

    def change():
        import safetensors.numpy

        path = "hf/model.safetensors"
        arrays = safetensors.numpy.load_file(path)
        function(arrays)
        safetensors.numpy.save_file(arrays, path)

    return change


WORDS = "albert.embeddings.word_embeddings.weight"


def as_integers(arrays):
    arrays[WORDS] = (100 * arrays[WORDS]).astype(np.int32)


def with_nan(arrays):
    arrays[WORDS][0, 0] = np.nan


def without_pooler(arrays):
    for part in ("weight", "bias"):
        del arrays[f"albert.pooler.{part}"]


def untied(arrays):
    arrays["predictions.decoder.weight"] = arrays[WORDS] + 1


ROWS = [
    # The encoder for TF Hub.
    hub("no model", "--albert_directory=", "--albert_directory is empty"),
    hub("no such model", "--albert_directory=no", "no.index does not exist"),
    hub(
        "a model without a pooler",
        "--albert_directory=hf",
        "hf has no pooler.*pooled_output would be noise",
        edit_safetensors(without_pooler),
    ),
    hub("no place", "--export_path=", "--export_path is empty"),
    hub(
        "a place that is a file",
        "--export_path=a_file",
        "a_file already exists",
    ),
    hub("a place in a file", "--export_path=a_file/new", "a_file.*file"),
    hub("a place that is taken", "--export_path=glue", "glue already exists"),
    hub(
        "a place that another process writes to",
        "",
        "in use by process",
        owned=("new.export",),
    ),
    Row(
        "the preprocessor's place is taken",
        "export_to_tfhub",
        "new_preprocess already exists",
        (put("new_preprocess/notes.txt", "mine"),),
    ),
    Row(
        "longer sequences than positions",
        "export_to_tfhub --seq_length=33",
        "--seq_length=33.*32 positions",
    ),
    hub(
        "weights that are NaN",
        "",
        "model.ckpt-best: .*mapping_in/kernel contains NaN or infinity",
        set_weight(BEST, np.nan),
    ),
    hub(
        "weights that are infinite",
        "",
        "model.ckpt-best: .*mapping_in/kernel contains NaN or infinity",
        set_weight(BEST, np.inf),
    ),
    hub(
        "a weight that is missing",
        "",
        "model.ckpt-best lacks 1 of .*query/kernel",
        drop_weight(
            BEST,
            "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/"
            "query/kernel",
        ),
    ),
    hub(
        "no config",
        "",
        "Give --albert_config_file",
        remove("model/albert_config.json"),
    ),
    hub(
        "no vocabulary",
        "",
        "--spm_model_file or --vocab_file",
        remove("model/vocab.txt"),
    ),
    hub(
        "a config of more layers than weights",
        "",
        "model.ckpt-best lacks .*group_1",
        set_json(
            "model/albert_config.json",
            num_hidden_layers=3,
            num_hidden_groups=3,
        ),
    ),
    hub(
        "a vocabulary of another size",
        "--vocab_file=vocab.txt",
        "26 pieces, the model 25",
        append("vocab.txt", b"w20\n"),
    ),
    hub(
        "a model whose data is cut",
        "",
        "model.ckpt-best cannot be read",
        cut(f"{BEST}.data-00000-of-00001"),
    ),
    *rows_of_flags("export_to_tfhub", "seq_length 0 2 -1"),
    # SavedModels of fine-tuned models.
    Row(
        "an export of NaN",
        "run_classifier --nodo_train --nodo_eval --nodo_predict "
        "--init_checkpoint=classifier/model.ckpt-best --export_dir=served "
        "--do_predict",
        "embedding_hidden_mapping_in.*contains NaN or infinity",
        (set_weight("classifier/model.ckpt-best", np.nan),),
        may_write=("new", "new/*"),
    ),
    Row(
        "export_dir is a file",
        "run_classifier --export_dir=a_file",
        "a_file cannot be a folder",
    ),
    Row(
        "export_dir is in a file",
        "run_squad --export_dir=a_file/served",
        "a_file cannot be a folder",
    ),
    Row(
        "export_text_dir where nothing can be written",
        "run_classifier --export_text_dir=/proc/served",
        "/proc/served.*(no such|denied)",
    ),
    Row(
        "two exports in one folder",
        "run_classifier --export_dir=served --export_text_dir=served",
        "would serve only the newer model",
    ),
    Row(
        "a compact export without a place",
        "run_classifier --export_compact",
        "--export_compact needs --export_dir or --export_text_dir",
    ),
    # Conversions.
    convert("no model", "--from=", "--from is empty"),
    convert("no such model", "--from=no", "no.index does not exist"),
    convert(
        "another file of a folder",
        "--from=hf/typo.safetensors",
        "typo.safetensors does not exist; hf has .'model.safetensors'",
    ),
    convert(
        "weights of PyTorch",
        "--from=hf/pytorch_model.bin",
        "pytorch_model.bin is not a model; .*save_pretrained",
        put("hf/pytorch_model.bin", b"x"),
    ),
    convert(
        "fewer groups than the weights have",
        "",
        "layers that the config has not",
        add_group,
    ),
    convert("no place", "--to=", "--to is empty"),
    convert("a place that is a file", "--to=a_file", "a_file.*file"),
    convert("a remote place", "--to=ram://x/y", "wanted a local folder"),
    convert("a place that is taken", "--to=glue", "glue is not empty"),
    convert("a model over itself", "--to=model", "model is not empty"),
    convert(
        "a place that another process writes to",
        "",
        "in use by process",
        owned=("new",),
    ),
    convert("no such format", "--format=onnx", "--format=onnx"),
    convert("slots for Hugging Face", "--keep_slots", "--keep_slots"),
    convert(
        "weights that are NaN",
        "",
        "embedding_hidden_mapping_in.*contains NaN or infinity",
        set_weight(BEST, np.nan),
    ),
    convert(
        "relative positions",
        "--from=hf --format=own",
        "config.json.*position_embedding_type.*relative_key",
        set_json("hf/config.json", position_embedding_type="relative_key"),
    ),
    convert(
        "a model of another kind",
        "--from=hf --format=own",
        "config.json.*'bert'",
        set_json("hf/config.json", model_type="bert"),
    ),
    convert(
        "another activation",
        "--from=hf --format=own",
        "config.json has hidden_act 'silu'",
        set_json("hf/config.json", hidden_act="silu"),
    ),
    convert(
        "another epsilon",
        "--from=hf --format=own",
        "config.json has layer_norm_eps 0.001",
        set_json("hf/config.json", layer_norm_eps=1e-3),
    ),
    convert(
        "an epsilon that is a word",
        "--from=hf --format=own",
        "config.json.*layer_norm_eps",
        set_json("hf/config.json", layer_norm_eps="small"),
    ),
    convert(
        "sizes that are words",
        "--from=hf --format=own",
        "config.json.*hidden_size",
        set_json("hf/config.json", hidden_size="12"),
    ),
    convert(
        "a kind that is a list",
        "--from=hf --format=own",
        "config.json",
        set_json("hf/config.json", model_type=["albert"]),
    ),
    convert(
        "integers as weights",
        "--from=hf --format=own",
        "model.safetensors has .*word_embeddings.weight of int32",
        edit_safetensors(as_integers),
    ),
    convert(
        "NaN in safetensors",
        "--from=hf --format=own",
        "word_embeddings.*contains NaN or infinity",
        edit_safetensors(with_nan),
    ),
    convert(
        "weights that are not tied",
        "--from=hf --format=own",
        "predictions.decoder.weight differs from",
        edit_safetensors(untied),
    ),
    convert(
        "a weight that is missing",
        "--from=hf --format=own",
        "model.safetensors lacks 1 weights of the encoder",
        edit_safetensors(lambda arrays: arrays.pop(WORDS)),
    ),
    convert(
        "safetensors that are cut",
        "--from=hf --format=own",
        "model.safetensors cannot be read",
        cut("hf/model.safetensors"),
    ),
    convert(
        "safetensors that are empty",
        "--from=hf --format=own",
        "model.safetensors cannot be read",
        put("hf/model.safetensors", b""),
    ),
    convert(
        "a pointer of Git LFS",
        "--from=hf --format=own",
        "model.safetensors cannot be read.*Git LFS",
        put("hf/model.safetensors", "version https://git-lfs.github.com/spec"),
    ),
    convert(
        "safetensors with a header nested too deeply",
        "--from=hf --format=own",
        "model.safetensors",
        put(
            "hf/model.safetensors",
            len(DEEP).to_bytes(8, "little") + DEEP.encode(),
        ),
    ),
    convert(
        "no weights",
        "--from=hf --format=own",
        "model.safetensors does not exist",
        remove("hf/model.safetensors"),
    ),
    convert(
        "a module whose variables are cut",
        "--from=hub --format=own",
        "hub/variables/variables cannot be read.*cut off",
        cut("hub/variables/variables.data-00000-of-00001"),
    ),
    convert(
        "a module without variables",
        "--from=hub --format=own",
        "hub/variables",
        remove("hub/variables"),
    ),
    convert(
        "a SavedModel that is no encoder",
        "--from=serving_copy --format=own",
        "serving_copy",
        put("serving_copy/saved_model.pb", b"text"),
    ),
    convert(
        "an archive with a link",
        "--from=m.tar",
        "m.tar contains 'a.index'.*Nothing was unpacked",
        pack("m.tar", (member("a.index", b"2", "/etc/passwd"), b"")),
    ),
    convert(
        "another config than the weights'",
        "--albert_config_file=c.json",
        r"model.ckpt-best: .*bias is \(12,\), the model's is \(15,\)",
        copy("model/albert_config.json", "c.json"),
        set_json("c.json", hidden_size=15),
    ),
]
