"""Checks that records agree with their sidecar, a config and each other.

Each check is made before work starts: training on records of another
vocabulary or objective would not fail, but learn nothing.
"""

import logging

from albert_tf import filesystem
from albert_tf.data.pretraining import sidecars
from albert_tf.text import tokenization


def is_dynamic(sizes: dict) -> bool:
    """Whether a record with features of these sizes has no masks."""
    return "masked_lm_positions" not in sizes


def limits_of(config, num_tokens: int) -> dict[str, tuple[int, int]]:
    """Returns the (least, most) allowed values of each feature of a record."""
    pieces, binary = (0, config.vocab_size - 1), (0, 1)
    return {
        "input_ids": pieces,
        "input_mask": binary,
        "segment_ids": (0, config.type_vocab_size - 1),
        "segment_ends": (0, num_tokens),
        "masked_lm_positions": (0, num_tokens - 1),
        "masked_lm_ids": pieces,
        "masked_lm_weights": binary,
        "next_sentence_labels": binary,
    }


def check_sidecar_sizes(file: str, sidecar: dict, sizes: dict):
    """Raises ValueError if a record's number of values contradicts a sidecar.

    `sizes` is a dict of feature name -> number of integers.
    """
    masking = sidecars.DYNAMIC if is_dynamic(sizes) else sidecars.STATIC
    checks = [("max_seq_length", [sizes["input_ids"]]), ("masking", [masking])]
    if not is_dynamic(sizes):
        num_listed = sizes["masked_lm_positions"]
        checks += [
            ("num_predictions", [num_listed]),
            # Permutation doubles the length of the lists.
            ("max_predictions_per_seq", [num_listed, num_listed // 2]),
        ]
    for key, wanted in checks:
        if sidecar[key] not in wanted:
            raise ValueError(
                f"{sidecars.sidecar_path(file)} says {key} = {sidecar[key]}; "
                f"the records in {file} have {wanted[0]}. Was either file "
                "edited or replaced? Create the records again with "
                "create_pretraining_data.py."
            )


def check_size(
    files: list[str], name: str, wanted: int | None, sizes: list[int]
):
    """Raises ValueError if a flag is set and the records contradict it."""
    if wanted is not None and wanted not in sizes:
        raise ValueError(
            f"{name}={wanted}, but the records in {files[0]} have "
            f"{sizes[0]}. Omit it, or create the records again."
        )


def check_positions(files: list[str], num_tokens: int, config):
    """Raises ValueError if records are longer than a model's sequences."""
    if num_tokens > config.max_position_embeddings:
        raise ValueError(
            f"The records in {files[0]} have {num_tokens} tokens; the config "
            f"has max_position_embeddings {config.max_position_embeddings}. "
            "Create shorter records, or raise it."
        )


def check_predictions(opened, wanted: int | None):
    """Checks that static records have the wanted max_predictions_per_seq."""
    if opened.masker:
        return
    # Permuted records have twice as many; the release wants that number.
    num_predictions = opened.features["masked_lm_positions"][0][0]
    sizes = [num_predictions // 2, num_predictions]
    if opened.sidecar:
        sizes[0] = opened.sidecar["max_predictions_per_seq"]
    check_size(opened.files, "max_predictions_per_seq", wanted, sizes)


def check_vocabulary(files: list[str], tokenizer: dict, config):
    """Raises ValueError if records and config differ in vocabulary size."""
    vocab_size = tokenizer.get("vocab_size")
    is_size = isinstance(vocab_size, int)
    if not is_size or not tokenization.fits(vocab_size, config.vocab_size):
        raise ValueError(
            f"{files[0]} was created with a vocabulary of {vocab_size} pieces "
            f"({tokenizer}); the config has vocab_size {config.vocab_size}. "
            "Does the config belong to another vocabulary?"
        )


def check_is_unmasked(files: list[str], masking_changes: dict):
    """Raises ValueError if static records are to be masked in another way."""
    if masking_changes:
        names = ", ".join(f"`{name}`" for name in sorted(masking_changes))
        raise ValueError(
            f"{names}: the records in {files[0]} were masked when they were "
            "created. Omit them, or create records with dynamic masking "
            "(create_pretraining_data)."
        )


def check_batch_size(opened, batch_size: int):
    """Raises ValueError if a batch would contain a record more than once."""
    if batch_size > opened.num_records:
        raise ValueError(
            f"A batch of {batch_size} is larger than the training data: "
            f"{opened.num_records} records in {len(opened.files)} files, such "
            f"as {opened.files[0]}. Lower train_batch_size, or create more "
            "records."
        )


def check_held_out(train, held_out, sentence_weight: float = 1.0):
    """Checks that held-out records can be scored by what is trained.

    Args:
      train: the `opening.PretrainingRecords` to train on.
      held_out: the `opening.PretrainingRecords` to score on.
      sentence_weight: factor of the sentence loss.

    Raises:
      ValueError: if they share a file, or differ in vocabulary or in a
        sentence objective that is trained.
    """
    trained_on = set(map(filesystem.identity, train.files))
    for file in held_out.files:
        if filesystem.identity(file) in trained_on:
            raise ValueError(
                f"{file} is used for training and for evaluation. Create "
                "held-out records from other documents."
            )
    if held_out.num_tokens > train.num_tokens:
        logging.warning(
            "Held-out sequences have %d tokens, those of training %d: later "
            "positions are not trained here. Create held-out records with "
            "max_seq_length=%d.",
            held_out.num_tokens,
            train.num_tokens,
            train.num_tokens,
        )
    if not (train.sidecar and held_out.sidecar):
        return
    wanted, own = train.sidecar["tokenizer"], held_out.sidecar["tokenizer"]
    for key in sorted(wanted.keys() & tokenization.take_identity(own).keys()):
        if own[key] != wanted[key]:
            raise ValueError(
                f"{held_out.files[0]} was created with {key} {own[key]}, "
                f"{train.files[0]} with {wanted[key]}. Create the held-out "
                "records with the vocabulary and casing of the others "
                f"({wanted})."
            )
    scored, trained = held_out.sentence_objective, train.sentence_objective
    if sentence_weight > 0 and scored != trained:
        raise ValueError(
            f"{held_out.files[0]} has the sentence objective "
            f"{scored!r}, {train.files[0]} has {trained!r}. "
            "Create the held-out records with that of the others, or give "
            "sentence_weight=0."
        )
    _warn_of_same_text(train.sidecar, held_out.sidecar)


def _warn_of_same_text(*described):
    """Warns if the records of two sidecars seem to be of the same text."""
    names = "input_documents", "input_tokens"
    train, held_out = (
        [sidecar["statistics"].get(name) for name in names]
        for sidecar in described
    )
    if train == held_out and None not in train:
        logging.warning(
            "Training and held-out records are both of %s documents with %s "
            "tokens. Are they of the same text? Then scores say nothing of "
            "other text.",
            *train,
        )
