"""Pretraining records, found, checked against a model and opened."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from albert_tf import filesystem
from albert_tf.data.pretraining import damage, reading, records, sidecars

# Records are all looked at before work starts if they are not more.
MAX_CHECKED_BYTES = 64 << 20
_READ_AT_ONCE = 1024
# In our records and the release's; training never reads it.
_UNREAD = "token_boundary"


@dataclasses.dataclass(frozen=True)
class PretrainingRecords:
    """Record files and what they hold.

    Args:
      files: their names, sorted.
      features: those of `records.pretraining_features` that are read.
      limits: dict of name -> (least, most) of a feature's numbers.
      num_records: records in all files together.
      sidecar: what their writer said of them, or None.
    """

    files: list[str]
    features: dict
    limits: dict
    num_records: int
    sidecar: dict | None

    @property
    def sentence_objective(self) -> str:
        """What the sentence labels mean: "sop", "nsp" or "none"."""
        return self.sidecar["sentence_objective"] if self.sidecar else "sop"

    def read_pass(self, batch_size: int):
        """Returns the dataset of one pass, as `reading.build_dataset` does."""
        return reading.build_dataset(
            self.files,
            self.features,
            batch_size,
            is_training=False,
            limits=self.limits,
        )


def open_records(
    patterns: str,
    config,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
) -> PretrainingRecords:
    """Finds record files and checks that a model can be trained on them.

    Args:
      patterns: comma-separated files or globs.
      config: an AlbertConfig.
      max_seq_length: tokens that a record should have; None takes what it
        has.
      max_predictions_per_seq: likewise for the masked_lm_* lists; records
        that were permuted have twice as many.

    Raises:
      ValueError: if nothing is found, sizes, config and records contradict
        each other, or a record is damaged.
    """
    files = filesystem.expand_files(patterns)
    sidecar = sidecars.read_sidecar(files)
    first_file, num_tokens, num_predictions = peek_sizes(files)
    if sidecar:
        check_said_sizes(first_file, sidecar, num_tokens, num_predictions)
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
        num_records = sidecar["statistics"]["sequences"]
    else:
        num_records = sum(map(damage.count_records, files))
    features = records.pretraining_features(num_tokens, num_predictions)
    del features[_UNREAD]
    limits = limits_of(config, num_tokens)
    damage.check_files(files, features, limits, MAX_CHECKED_BYTES)
    return PretrainingRecords(files, features, limits, num_records, sidecar)


def limits_of(config, num_tokens: int) -> dict[str, tuple[int, int]]:
    """The least and the largest number of each feature of a record."""
    pieces, yes_or_no = (0, config.vocab_size - 1), (0, 1)
    return {
        "input_ids": pieces,
        "input_mask": yes_or_no,
        "segment_ids": (0, config.type_vocab_size - 1),
        "masked_lm_positions": (0, num_tokens - 1),
        "masked_lm_ids": pieces,
        "masked_lm_weights": yes_or_no,
        "next_sentence_labels": yes_or_no,
    }


@contextlib.contextmanager
def naming_damage(*opened: PretrainingRecords | None) -> Iterator[None]:
    """Where TensorFlow fails to read some records, says which.

    Args:
      *opened: PretrainingRecords that are read inside; None is left out.

    Raises:
      ValueError: if reading failed inside, and one of all these records is
        damaged; names its file and number.
    """
    try:
        yield
    except damage.reading_errors():
        for some in opened:
            if some:
                damage.check_files(some.files, some.features, some.limits)
        raise


def check_said_sizes(
    file, sidecar: dict, num_tokens: int, num_predictions: int
):
    """Raises ValueError if a record has other sizes than its sidecar says."""
    for key, wanted in (
        ("max_seq_length", [num_tokens]),
        ("num_predictions", [num_predictions]),
        # Half of them, where tokens were also permuted.
        ("max_predictions_per_seq", [num_predictions, num_predictions // 2]),
    ):
        if sidecar[key] not in wanted:
            raise ValueError(
                f"{sidecars.sidecar_path(file)} says {key} = {sidecar[key]}; "
                f"the records in {file} have {wanted[0]}. Was one of them "
                "edited or replaced? Make them again with "
                "create_pretraining_data.py."
            )


def check_size(
    files: list[str], name: str, wanted: int | None, found: list[int]
):
    """Raises ValueError if a flag was given and the records differ."""
    if wanted is not None and wanted not in found:
        raise ValueError(
            f"--{name}={wanted}, but the records in {files[0]} have "
            f"{found[0]}. Leave the flag out, or make the records again."
        )


def check_vocabulary(files: list[str], tokenizer: dict, config):
    """Raises ValueError if records were made with another vocabulary."""
    vocab_size = tokenizer.get("vocab_size")
    if vocab_size != config.vocab_size:
        raise ValueError(
            f"{files[0]} was made with a vocabulary of {vocab_size} pieces "
            f"({tokenizer}), the config has vocab_size {config.vocab_size}. "
            "Is it the config of another vocabulary?"
        )


def check_batch_size(opened: PretrainingRecords, batch_size: int):
    """Raises ValueError if a batch would hold records more than once."""
    if batch_size > opened.num_records:
        raise ValueError(
            f"A batch of {batch_size} is larger than the training data: "
            f"{opened.num_records} records in {len(opened.files)} files, such "
            f"as {opened.files[0]}. Lower --train_batch_size, or make more "
            "records."
        )


def check_held_out(train: PretrainingRecords, held_out: PretrainingRecords):
    """Raises ValueError if a file is for training and for evaluation."""
    trained_on = set(map(filesystem.identity, train.files))
    for file in held_out.files:
        if filesystem.identity(file) in trained_on:
            raise ValueError(
                f"{file} is named for training and for evaluation. Make "
                "held-out records from other documents."
            )


def score_best_guess(opened: PretrainingRecords) -> tuple[float, ...]:
    """What a model scores that always makes the same guess, the best one.

    It knows the held-out labels, so it is a little better than any model
    that only knows how frequent pieces are.

    Returns:
      Shares of the predictions and of the sentence labels that it hits.
    """
    pieces: collections.Counter = collections.Counter()
    labels: collections.Counter = collections.Counter()
    for batch in opened.read_pass(_READ_AT_ONCE).as_numpy_iterator():
        is_real = batch["example_weight"] > 0
        labels.update(batch["sentence_order_labels"][is_real].tolist())
        is_masked = batch["masked_lm_weights"] > 0
        pieces.update(batch["masked_lm_ids"][is_masked].tolist())
    return tuple(
        max(counts.values(), default=0) / max(counts.total(), 1)
        for counts in (pieces, labels)
    )


def count_pieces(opened: PretrainingRecords, max_records: int) -> np.ndarray:
    """Returns how often each piece is predicted, [V].

    Args:
      opened: the records.
      max_records: those that are looked at, at most, from the first on.
    """
    counts = np.zeros(opened.limits["masked_lm_ids"][1] + 1, np.int64)
    dataset = opened.read_pass(_READ_AT_ONCE)
    dataset = dataset.take(-(-max_records // _READ_AT_ONCE))
    for batch in dataset.as_numpy_iterator():
        is_masked = batch["masked_lm_weights"] > 0
        np.add.at(counts, batch["masked_lm_ids"][is_masked], 1)
    return counts


def peek_sizes(files: list[str]) -> tuple[str, int, int]:
    """Reads the first record of some files.

    Returns:
      The file it is in, the lengths of input_ids and of masked_lm_positions.

    Raises:
      ValueError: if there is no record, or it is not a pretraining record.
    """
    for file in files:
        serialized = damage.read_first_record(file)
        if serialized is None:
            continue
        sizes = damage.feature_sizes(serialized)
        if not sizes.get("input_ids") or "masked_lm_positions" not in sizes:
            raise ValueError(
                f"{file} is not of pretraining records: it has "
                f"{sorted(sizes)}. Was it made for fine-tuning?"
            )
        return file, sizes["input_ids"], sizes["masked_lm_positions"]
    raise ValueError(f"There is no record in {files[:3]}.")
