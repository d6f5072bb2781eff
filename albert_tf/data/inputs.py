"""Pretraining records, found, checked against a model and opened."""

import collections
import dataclasses

import tensorflow as tf

from albert_tf import filesystem, records


@dataclasses.dataclass(frozen=True)
class PretrainingRecords:
    """Record files and what they hold.

    Args:
      files: their names, sorted.
      features: as `records.pretraining_features` gives them.
      num_records: records in all files together.
      sidecar: what their writer said of them, or None.
    """

    files: list[str]
    features: dict
    num_records: int
    sidecar: dict | None

    @property
    def sentence_objective(self):
        """What the sentence labels mean: "sop", "nsp" or "none"."""
        return self.sidecar["sentence_objective"] if self.sidecar else "sop"


def open_records(
    patterns, config, *, max_seq_length=None, max_predictions_per_seq=None
):
    """Finds record files and checks that a model can be trained on them.

    Args:
      patterns: comma-separated files or globs.
      config: an AlbertConfig.
      max_seq_length: tokens that a record should have; None takes what it
        has.
      max_predictions_per_seq: likewise for the masked_lm_* lists; records
        that were permuted have twice as many.

    Returns:
      PretrainingRecords.

    Raises:
      ValueError: if nothing is found, or sizes, config and records
        contradict each other.
    """
    files = filesystem.expand_files(patterns)
    sidecar = records.read_sidecar(files)
    num_tokens, num_predictions = peek_sizes(files)
    check_size(files, "max_seq_length", max_seq_length, [num_tokens])
    check_size(
        files,
        "max_predictions_per_seq",
        max_predictions_per_seq,
        [sidecar["max_predictions_per_seq"]]
        if sidecar
        else [num_predictions, num_predictions // 2],
    )
    if num_tokens > config.max_position_embeddings:
        raise ValueError(
            f"The records in {files[0]} have {num_tokens} tokens, the config "
            f"max_position_embeddings {config.max_position_embeddings}. Make "
            "shorter records or raise it."
        )
    if sidecar:
        check_vocabulary(files, sidecar["tokenizer"], config)
    return PretrainingRecords(
        files,
        records.pretraining_features(num_tokens, num_predictions),
        sidecar["statistics"]["sequences"] if sidecar else count(files),
        sidecar,
    )


def check_size(files, name, wanted, found):
    """Raises ValueError if a flag was given and the records differ."""
    if wanted is not None and wanted not in found:
        raise ValueError(
            f"--{name}={wanted}, but the records in {files[0]} have "
            f"{found[0]}. Leave the flag out, or make the records again."
        )


def check_vocabulary(files, tokenizer, config):
    """Raises ValueError if records were made with another vocabulary."""
    if tokenizer["vocab_size"] != config.vocab_size:
        raise ValueError(
            f"{files[0]} was made with a vocabulary of "
            f"{tokenizer['vocab_size']} pieces ({tokenizer}), the config has "
            f"vocab_size {config.vocab_size}. Is it the config of another "
            "vocabulary?"
        )


def check_held_out(train, held_out):
    """Raises ValueError if a file is for training and for evaluation."""
    if both := sorted(set(train.files) & set(held_out.files)):
        raise ValueError(
            f"{both[0]} is named for training and for evaluation. Make "
            "held-out records from other documents."
        )


def score_best_guess(opened):
    """What a model scores that always makes the same guess, the best one.

    It knows the held-out labels, so it is a little better than any model
    that only knows how frequent pieces are.

    Args:
      opened: PretrainingRecords.

    Returns:
      Shares of the predictions and of the sentence labels that it hits.
    """
    pieces, labels = collections.Counter(), collections.Counter()
    for batch in records.build_dataset(
        opened.files, opened.features, 1024, is_training=False
    ).as_numpy_iterator():
        is_real = batch["example_weight"] > 0
        labels.update(batch["sentence_order_labels"][is_real].tolist())
        is_masked = batch["masked_lm_weights"] > 0
        pieces.update(batch["masked_lm_ids"][is_masked].tolist())
    return tuple(
        max(counts.values(), default=0) / max(counts.total(), 1)
        for counts in (pieces, labels)
    )


def peek_sizes(files):
    """Reads the first record of some files.

    Returns:
      The lengths of input_ids and of masked_lm_positions.

    Raises:
      ValueError: if there is no record, or it is not a pretraining record.
    """
    for serialized in tf.data.TFRecordDataset(files).take(1):
        example = tf.train.Example.FromString(serialized.numpy())
        sizes = {
            name: len(feature.int64_list.value)
            for name, feature in example.features.feature.items()
        }
        if not sizes.get("input_ids") or "masked_lm_positions" not in sizes:
            raise ValueError(
                f"{files[0]} is not of pretraining records: it has "
                f"{sorted(sizes)}. Was it made for fine-tuning?"
            )
        return sizes["input_ids"], sizes["masked_lm_positions"]
    raise ValueError(f"There is no record in {files[:3]}.")


def count(files):
    """Counts the records of files that nothing is known about."""
    return sum(1 for _ in tf.data.TFRecordDataset(files))
