"""Finds and opens pretraining records and checks them against a model."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from albert_tf import filesystem
from albert_tf.data.pretraining import damage, reading, records, sidecars

# Up to this size, every record is checked before work starts.
MAX_CHECKED_BYTES = 64 << 20
_READ_AT_ONCE = 1024
# A feature of our records and the release's that training never reads.
_UNUSED_FEATURE = "token_boundary"


@dataclasses.dataclass(frozen=True)
class PretrainingRecords:
    """Record files and their contents.

    Args:
      files: sorted file names.
      features: the features of `records.pretraining_features` to read.
      limits: dict of name -> (least, most) allowed values of a feature.
      num_records: total number of records in all files.
      sidecar: the description from `sidecars.read_sidecar`, or None.
    """

    files: list[str]
    features: dict
    limits: dict
    num_records: int
    sidecar: dict | None

    @property
    def sentence_objective(self) -> str:
        """The meaning of the sentence labels: "sop", "nsp" or "none"."""
        return self.sidecar["sentence_objective"] if self.sidecar else "sop"

    def read_pass(self, batch_size: int):
        """Returns a dataset of one pass, built by `reading.build_dataset`."""
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
      max_seq_length: expected number of tokens per record; None accepts any.
      max_predictions_per_seq: expected length of the masked_lm_* lists; None
        accepts any. Records made with permutation have lists twice as long.

    Raises:
      ValueError: if no record is found, if the expected sizes, the config and
        the records contradict each other, or if a record is damaged.
    """
    files = filesystem.expand_files(patterns)
    sidecar = sidecars.read_sidecar(files)
    first_file, num_tokens, num_predictions = peek_sizes(files)
    if sidecar:
        check_sidecar_sizes(first_file, sidecar, num_tokens, num_predictions)
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
            f"The records in {files[0]} have {num_tokens} tokens; the config "
            f"has max_position_embeddings {config.max_position_embeddings}. "
            "Create shorter records, or raise it."
        )
    if sidecar:
        check_vocabulary(files, sidecar["tokenizer"], config)
        num_records = sidecar["statistics"]["sequences"]
    else:
        num_records = sum(map(damage.count_records, files))
    features = records.pretraining_features(num_tokens, num_predictions)
    del features[_UNUSED_FEATURE]
    limits = limits_of(config, num_tokens)
    damage.check_files(files, features, limits, MAX_CHECKED_BYTES)
    return PretrainingRecords(files, features, limits, num_records, sidecar)


def limits_of(config, num_tokens: int) -> dict[str, tuple[int, int]]:
    """Returns the (least, most) allowed values of each feature of a record."""
    pieces, binary = (0, config.vocab_size - 1), (0, 1)
    return {
        "input_ids": pieces,
        "input_mask": binary,
        "segment_ids": (0, config.type_vocab_size - 1),
        "masked_lm_positions": (0, num_tokens - 1),
        "masked_lm_ids": pieces,
        "masked_lm_weights": binary,
        "next_sentence_labels": binary,
    }


@contextlib.contextmanager
def naming_damage(*opened: PretrainingRecords | None) -> Iterator[None]:
    """Context manager: names the damaged record if TensorFlow cannot read one.

    Args:
      *opened: the PretrainingRecords that the context reads; None is ignored.

    Raises:
      ValueError: if reading failed and one of the records is damaged; names
        its file and number.
    """
    try:
        yield
    except damage.reading_errors():
        for group in opened:
            if group:
                damage.check_files(group.files, group.features, group.limits)
        raise


def check_sidecar_sizes(
    file, sidecar: dict, num_tokens: int, num_predictions: int
):
    """Raises ValueError if the sizes of a record differ from its sidecar."""
    for key, wanted in (
        ("max_seq_length", [num_tokens]),
        ("num_predictions", [num_predictions]),
        # Permutation doubles the length of the lists.
        ("max_predictions_per_seq", [num_predictions, num_predictions // 2]),
    ):
        if sidecar[key] not in wanted:
            raise ValueError(
                f"{sidecars.sidecar_path(file)} says {key} = {sidecar[key]}; "
                f"the records in {file} have {wanted[0]}. Was either file "
                "edited or replaced? Create the records again with "
                "create_pretraining_data.py."
            )


def check_size(
    files: list[str], name: str, wanted: int | None, found: list[int]
):
    """Raises ValueError if a flag is set and the records contradict it."""
    if wanted is not None and wanted not in found:
        raise ValueError(
            f"--{name}={wanted}, but the records in {files[0]} have "
            f"{found[0]}. Omit the flag, or create the records again."
        )


def check_vocabulary(files: list[str], tokenizer: dict, config):
    """Raises ValueError if records and config differ in vocabulary size."""
    vocab_size = tokenizer.get("vocab_size")
    if vocab_size != config.vocab_size:
        raise ValueError(
            f"{files[0]} was created with a vocabulary of {vocab_size} pieces "
            f"({tokenizer}); the config has vocab_size {config.vocab_size}. "
            "Does the config belong to another vocabulary?"
        )


def check_batch_size(opened: PretrainingRecords, batch_size: int):
    """Raises ValueError if a batch would contain a record more than once."""
    if batch_size > opened.num_records:
        raise ValueError(
            f"A batch of {batch_size} is larger than the training data: "
            f"{opened.num_records} records in {len(opened.files)} files, such "
            f"as {opened.files[0]}. Lower --train_batch_size, or create more "
            "records."
        )


def check_held_out(train: PretrainingRecords, held_out: PretrainingRecords):
    """Raises ValueError if training and evaluation share a file."""
    trained_on = set(map(filesystem.identity, train.files))
    for file in held_out.files:
        if filesystem.identity(file) in trained_on:
            raise ValueError(
                f"{file} is used for training and for evaluation. Create "
                "held-out records from other documents."
            )


def score_best_guess(opened: PretrainingRecords) -> tuple[float, ...]:
    """Returns the accuracies of the best constant guess (majority class).

    The guess is chosen on the held-out labels, so it scores slightly better
    than any model that knows only the piece frequencies.

    Returns:
      Masked-LM accuracy and sentence accuracy of the guess.
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
    """Returns how often each piece is a masked-LM label, [V].

    Args:
      opened: the records.
      max_records: only about so many records are read, from the start.
    """
    counts = np.zeros(opened.limits["masked_lm_ids"][1] + 1, np.int64)
    dataset = opened.read_pass(_READ_AT_ONCE)
    dataset = dataset.take(-(-max_records // _READ_AT_ONCE))
    for batch in dataset.as_numpy_iterator():
        is_masked = batch["masked_lm_weights"] > 0
        np.add.at(counts, batch["masked_lm_ids"][is_masked], 1)
    return counts


def peek_sizes(files: list[str]) -> tuple[str, int, int]:
    """Reads the sizes of the first record in some files.

    Returns:
      Its file, and the lengths of its input_ids and masked_lm_positions.

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
                f"{file} does not contain pretraining records: it has the "
                f"features {sorted(sizes)}. Was it created for fine-tuning?"
            )
        return file, sizes["input_ids"], sizes["masked_lm_positions"]
    raise ValueError(f"There is no record in {files[:3]}.")
