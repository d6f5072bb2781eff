"""Files that make a Hugging Face folder one of sentence-transformers.

`SentenceTransformer(folder)` loads it, without trusting code of the folder.
"""

import os

from albert_tf import filesystem
from albert_tf.weights.task_heads import VECTORS, TaskHead

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
TOKENIZER_FILE = "tokenizer_config.json"
MAX_LENGTH = 1 << 20
POOLING = "1_Pooling"
# Our poolings -> theirs. It has none of all tokens but [CLS] and [SEP].
POOLINGS = {
    "mean_all": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
}
_PREFIX = "sentence_transformers.models."


def write_files(
    folder: filesystem.Path, head: TaskHead, hidden_size: int, max_length: int
) -> None:
    """Writes what a folder of transformers lacks, for a head of vectors.

    `max_length` is the maximum length of a text, in tokens.
    """
    modules = [("0", "", "Transformer"), ("1", POOLING, "Pooling")]
    if head.is_normalized:
        modules.append(("2", "2_Normalize", "Normalize"))
    described: dict[str, object] = {
        MODULES_FILE: [
            {"idx": i, "name": name, "path": path, "type": f"{_PREFIX}{kind}"}
            for i, (name, path, kind) in enumerate(modules)
        ],
        LENGTH_FILE: {"max_seq_length": max_length, "do_lower_case": False},
        SETTINGS_FILE: {"prompts": {}, "similarity_fn_name": "cosine"},
        f"{POOLING}/config.json": {
            "word_embedding_dimension": hidden_size,
            **{
                theirs: ours == head.pooling
                for ours, theirs in POOLINGS.items()
            },
        },
    }
    for name, content in described.items():
        filesystem.write_json(os.path.join(folder, name), content)


def check_pooling(head: TaskHead | None) -> None:
    """Raises ValueError if sentence-transformers has no such pooling."""
    if head and head.kind == VECTORS and head.pooling not in POOLINGS:
        raise ValueError(
            f"The pooling is {head.pooling!r}, which sentence-transformers "
            f"does not have; wanted one of {[*POOLINGS]}."
        )


def read_head(folder: filesystem.Path, num_positions: int) -> TaskHead | None:
    """Returns the head of vectors of a folder, or None if it has no modules.

    `num_positions` is the number of the model's positions.

    Raises:
      ValueError: if it has other modules than an encoder and a pooling.
    """
    path = os.path.join(folder, MODULES_FILE)
    if not filesystem.exists(path):
        return None
    # The file has a list, which is no object.
    content = b'{"modules": %b}' % filesystem.read_file(path)
    modules = filesystem.parse_json(content, path)["modules"]
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds == ["Transformer"]:
        return None  # A CrossEncoder is a classifier of transformers.
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in (
        [],
        ["Normalize"],
    ):
        raise ValueError(
            f"{path} has the modules {kinds}; wanted Transformer, Pooling and "
            "maybe Normalize."
        )
    file = os.path.join(folder, modules[1]["path"], "config.json")
    modes = _list_modes(filesystem.read_json(file))
    known = {theirs: ours for ours, theirs in POOLINGS.items()}
    if len(modes) != 1 or modes[0] not in known:
        raise ValueError(
            f"{file} has {modes or 'no pooling'}; wanted one of {[*known]}."
        )
    return TaskHead(
        VECTORS,
        lengths=read_lengths(folder, num_positions),
        pooling=known[modes[0]],
        is_normalized="Normalize" in kinds,
    )


def _list_modes(described):
    """Returns the names of the poolings that the module's file turns on."""
    if "pooling_mode" in described:  # Of version 6.
        modes = described["pooling_mode"]
        modes = [modes] if isinstance(modes, str) else modes
        names = {"mean": "pooling_mode_mean_tokens"}
        names["cls"] = "pooling_mode_cls_token"
        return [names.get(mode, mode) for mode in modes]
    return [
        name
        for name, value in described.items()
        if name.startswith("pooling_mode_") and value is True
    ]


def read_lengths(folder: filesystem.Path, num_positions: int) -> dict[str, int]:
    """Returns `max_seq_length` of a folder, if one of its files has it.

    The files may allow more tokens than the model has positions.
    """
    for name, key in (
        (LENGTH_FILE, "max_seq_length"),
        (TOKENIZER_FILE, "model_max_length"),
    ):
        path = os.path.join(folder, name)
        length = filesystem.exists(path) and filesystem.read_json(path).get(key)
        # Without a limit, transformers writes 1e30.
        if length and length <= MAX_LENGTH:
            return {"max_seq_length": min(int(length), num_positions)}
    return {}
