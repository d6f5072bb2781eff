"""Finds and opens pretraining records and checks them against a model."""

import collections
import contextlib
import dataclasses
import operator
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data.pretraining import (
    damage,
    dynamic,
    reading,
    records,
    salvage,
    sidecars,
)
from albert_tf.text import tokenization

# Up to this size, every record is checked before work starts.
MAX_CHECKED_BYTES = 64 << 20
_READ_AT_ONCE = 1024
# Settings of a tokenizer on which the ids of a text depend.
_TOKENIZER_KEYS = {"kind", "sha256", "do_lower_case", "keep_accents"}
# A feature of our records and the release's that training never reads.
_UNUSED_FEATURE = "token_boundary"


@dataclasses.dataclass(frozen=True)
class PretrainingRecords:
    """Record files and their contents.

    Attributes:
      files: file names, in a fixed order.
      features: the features to read, of `records.pretraining_features` or
        `records.dynamic_features`.
      limits: dict of name -> (least, most) allowed values of a feature.
      num_records: total number of records in all files.
      sidecar: the description from `sidecars.read_sidecar`, or None.
      masker: masks dynamic records; None for static ones.
      salvaged: what was skipped, if damaged records are skipped. `files` then
        has copies of the damaged files.
    """

    files: list[str]
    features: dict
    limits: dict
    num_records: int
    sidecar: dict | None
    masker: dynamic.Masker | None = None
    salvaged: salvage.Salvaged | None = None

    @property
    def sources(self) -> list[str]:
        """The names of the original files."""
        return self.salvaged.sources if self.salvaged else self.files

    @property
    def sentence_objective(self) -> str:
        """The meaning of the sentence labels: "sop", "nsp" or "none"."""
        return self.sidecar["sentence_objective"] if self.sidecar else "sop"

    @property
    def num_tokens(self) -> int:
        """The length of a sequence."""
        return self.features["input_ids"][0][0]

    @property
    def num_predictions(self) -> int:
        """The maximum number of masked tokens of a sequence."""
        if self.masker:
            return self.masker.rule.num_predictions
        return self.features["masked_lm_ids"][0][0]

    @property
    def mask_settings(self) -> dict:
        """The flags with which the records are masked; empty if unknown."""
        if self.masker:
            return dataclasses.asdict(self.masker.rule)
        return self.sidecar.get("flags", {}) if self.sidecar else {}

    def describe(self) -> dict:
        """Returns how the records are masked and what was skipped.

        A run's manifest has it; for static, undamaged records it is empty.
        """
        description = {}
        if self.masker:
            description["masking"] = dataclasses.asdict(self.masker.rule)
        if self.salvaged and self.salvaged.faults:
            description["skipped"] = self.salvaged.describe()
        return description

    def read_pass(self, batch_size: int):
        """Returns a dataset of one pass, built by `reading.build_dataset`.

        Dynamic records have the same masks in every pass and every run, so
        that results compare.
        """
        return self._build(batch_size=batch_size, is_training=False)

    def read_part(
        self, context: tf.distribute.InputContext | None = None, **kwargs
    ):
        """Returns a dataset for training, by `reading.build_dataset`.

        Args:
          context: the part of each global batch to read; None for all of it.
          **kwargs: batch_size, and how to order the records and where to
            start, as for `reading.build_dataset`.
        """
        return self._build(
            is_training=True,
            num_records=self.num_records,
            context=context,
            **kwargs,
        )

    def _build(self, **kwargs):
        return reading.build_dataset(
            self.files,
            self.features,
            limits=self.limits,
            masker=self.masker,
            **kwargs,
        )


def open_records(
    patterns: str,
    config,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    masking_changes: dict | None = None,
    salvage_folder: str | None = None,
) -> PretrainingRecords:
    """Finds record files and checks that a model can be trained on them.

    Args:
      patterns: comma-separated files or globs.
      config: an AlbertConfig.
      max_seq_length: expected number of tokens per record; None accepts any.
      max_predictions_per_seq: of static records, the expected length of the
        masked_lm_* lists, which permutation doubles; None accepts any. Of
        dynamic records, the setting that replaces the recorded one.
      masking_changes: other settings that replace those recorded for dynamic
        records, by field of `masking.MaskingRule`.
      salvage_folder: folder for copies of damaged files without their damaged
        records. None refuses damaged files.

    Raises:
      ValueError: if no record is found, if the expected sizes, the config and
        the records contradict each other, if a record is damaged, or if static
        records are to be masked.
    """
    files = sidecars.find_records(patterns)
    sidecar = sidecars.read_sidecar(files, is_strict=not salvage_folder)
    if sidecar and salvage_folder:  # The first record may be damaged.
        first_file, sizes = files[0], _described_sizes(sidecar)
    elif salvage_folder:
        first_file, sizes = _peek_intact_sizes(files)
    else:
        first_file, sizes = peek_sizes(files)
    num_tokens = sizes["input_ids"]
    if sidecar:
        check_sidecar_sizes(first_file, sidecar, sizes)
    check_size(files, "max_seq_length", max_seq_length, [num_tokens])
    if num_tokens > config.max_position_embeddings:
        raise ValueError(
            f"The records in {files[0]} have {num_tokens} tokens; the config "
            f"has max_position_embeddings {config.max_position_embeddings}. "
            "Create shorter records, or raise it."
        )
    if sidecar:
        check_vocabulary(files, sidecar["tokenizer"], config)
    changes = dict(masking_changes or {})
    if is_dynamic(sizes):
        if max_predictions_per_seq:
            changes["max_predictions"] = max_predictions_per_seq
        masker = _open_masker(first_file, sidecar, changes, config, num_tokens)
        features = records.dynamic_features(num_tokens)
    else:
        _check_is_unmasked(files, changes)
        masker = None
        features = records.pretraining_features(
            num_tokens, sizes["masked_lm_positions"]
        )
        del features[_UNUSED_FEATURE]
    limits = limits_of(config, num_tokens)
    opened = PretrainingRecords(files, features, limits, 0, sidecar, masker)
    check_predictions(opened, max_predictions_per_seq)
    if salvage_folder:
        return _check_is_masked(_salvage(opened, salvage_folder))
    damage.check_files(files, features, limits, MAX_CHECKED_BYTES)
    return _check_is_masked(_count_records(opened))


def _count_records(opened):
    if opened.sidecar:
        num_records = opened.sidecar["statistics"]["sequences"]
    else:
        num_records = sum(map(damage.count_records, opened.files))
    return dataclasses.replace(opened, num_records=num_records)


def _described_sizes(sidecar):
    """Returns what `peek_sizes` would find according to the sidecar."""
    if sidecars.masking_of(sidecar) == sidecars.DYNAMIC:
        return {"input_ids": sidecar["max_seq_length"], "segment_ends": 2}
    return {
        "input_ids": sidecar["max_seq_length"],
        "masked_lm_positions": sidecar["num_predictions"],
    }


def _salvage(opened, folder):
    """Returns records without the damaged ones."""
    salvaged = salvage.replace_damaged(
        opened.files,
        folder,
        opened.features,
        opened.limits,
        opened.sidecar and opened.sidecar["num_records"],
    )
    return dataclasses.replace(
        opened,
        files=salvaged.files,
        num_records=sum(salvaged.num_records),
        salvaged=salvaged,
    )


def is_dynamic(sizes: dict) -> bool:
    """Whether a record with features of these sizes has no masks."""
    return "masked_lm_positions" not in sizes


def _open_masker(file, sidecar, changes, config, num_tokens):
    path = sidecars.sidecar_path(file)
    if not sidecar:
        raise ValueError(
            f"The records in {file} have no masks, and their sidecar {path} "
            "is missing, which says how to mask them. Copy it, too."
        )
    masker = dynamic.Masker.from_sidecar(path, sidecar, changes)
    for name, found, wanted in (
        ("word starts", len(masker.vocabulary.is_word_start), "vocab_size"),
        ("segments", 2, "type_vocab_size"),
    ):
        fits = tokenization.fits if wanted == "vocab_size" else operator.eq
        if not fits(found, getattr(config, wanted)):
            raise ValueError(
                f"{path} describes {found} {name}; the config has {wanted} "
                f"{getattr(config, wanted)}. Does it belong to other records?"
            )
    if masker.rule.max_predictions > num_tokens:
        raise ValueError(
            f"max_predictions_per_seq is {masker.rule.max_predictions}, but "
            f"the records in {file} have {num_tokens} tokens."
        )
    return masker


def _check_is_unmasked(files, masking_changes):
    if masking_changes:
        names = ", ".join(f"`{name}`" for name in sorted(masking_changes))
        raise ValueError(
            f"{names}: the records in {files[0]} were masked when they were "
            "created. Omit them, or create records with dynamic masking "
            "(create_pretraining_data)."
        )


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


def _check_is_masked(opened):
    """Returns records; refuses them if the first have nothing to predict."""
    num_records = 0
    with naming_damage(opened):
        for batch in opened.read_pass(1).take(_READ_AT_ONCE):
            if np.any(batch["masked_lm_weights"]):
                return opened
            num_records += 1
    if num_records:
        raise ValueError(
            f"No token is masked in the first {num_records} records of "
            f"{opened.files[0]}: there is nothing to predict. Create them "
            "again with create_pretraining_data; were their words too long to "
            "be masked?"
        )
    return opened


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


def check_sidecar_sizes(file, sidecar: dict, sizes: dict):
    """Raises ValueError if the sizes of a record differ from its sidecar.

    Args:
      file: the record's file, for errors.
      sidecar: as from `sidecars.read_sidecar`.
      sizes: as from `peek_sizes`.
    """
    masking = sidecars.DYNAMIC if is_dynamic(sizes) else sidecars.STATIC
    checks = [
        ("max_seq_length", [sizes["input_ids"]]),
        ("masking", [masking]),
    ]
    if not is_dynamic(sizes):
        found = sizes["masked_lm_positions"]
        checks += [
            ("num_predictions", [found]),
            # Permutation doubles the length of the lists.
            ("max_predictions_per_seq", [found, found // 2]),
        ]
    said = {**sidecar, "masking": sidecars.masking_of(sidecar)}
    for key, wanted in checks:
        if said[key] not in wanted:
            raise ValueError(
                f"{sidecars.sidecar_path(file)} says {key} = {said[key]}; "
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
            f"{name}={wanted}, but the records in {files[0]} have "
            f"{found[0]}. Omit it, or create the records again."
        )


def check_predictions(opened: PretrainingRecords, wanted: int | None):
    """Raises ValueError if static records contradict a flag.

    Args:
      opened: the records.
      wanted: value of max_predictions_per_seq, or None.
    """
    if opened.masker:
        return
    # Permuted records have twice as many; the release wants that number.
    num_predictions = opened.features["masked_lm_positions"][0][0]
    found = [num_predictions // 2, num_predictions]
    if opened.sidecar:
        found[0] = opened.sidecar["max_predictions_per_seq"]
    check_size(opened.files, "max_predictions_per_seq", wanted, found)


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


def check_batch_size(opened: PretrainingRecords, batch_size: int):
    """Raises ValueError if a batch would contain a record more than once."""
    if batch_size > opened.num_records:
        raise ValueError(
            f"A batch of {batch_size} is larger than the training data: "
            f"{opened.num_records} records in {len(opened.files)} files, such "
            f"as {opened.files[0]}. Lower train_batch_size, or create more "
            "records."
        )


def check_held_out(
    train: PretrainingRecords,
    held_out: PretrainingRecords,
    *,
    is_sentence_scored: bool = True,
):
    """Checks that held-out records can be scored by what is trained.

    Args:
      train: the records to train on.
      held_out: the records to score on.
      is_sentence_scored: whether the sentence objective is scored.

    Raises:
      ValueError: if they share a file, or differ in vocabulary or in a
        sentence objective that is scored.
    """
    trained_on = set(map(filesystem.identity, train.sources))
    for file in held_out.sources:
        if filesystem.identity(file) in trained_on:
            raise ValueError(
                f"{file} is used for training and for evaluation. Create "
                "held-out records from other documents."
            )
    if not (train.sidecar and held_out.sidecar):
        return
    wanted, found = train.sidecar["tokenizer"], held_out.sidecar["tokenizer"]
    for key in sorted(wanted.keys() & found.keys() & _TOKENIZER_KEYS):
        if found[key] != wanted[key]:
            raise ValueError(
                f"{held_out.sources[0]} was created with {key} {found[key]}, "
                f"{train.sources[0]} with {wanted[key]}. Create the held-out "
                "records with the vocabulary and casing of the others "
                f"({wanted})."
            )
    objectives = held_out.sentence_objective, train.sentence_objective
    if is_sentence_scored and objectives[0] != objectives[1]:
        raise ValueError(
            f"{held_out.sources[0]} has the sentence objective "
            f"{objectives[0]!r}, {train.sources[0]} has {objectives[1]!r}. "
            "Create the held-out records with that of the others, or give "
            "sentence_weight=0."
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


def peek_sizes(files: list[str]) -> tuple[str, dict]:
    """Reads the sizes of the first record in some files.

    Returns:
      Its file, and a dict of feature name -> number of integers.

    Raises:
      ValueError: if there is no record, or it is not a pretraining record.
    """
    for file in files:
        serialized = damage.read_first_record(file)
        if serialized is not None:
            return file, _sizes_of(file, serialized)
    raise ValueError(f"There is no record in {files[:3]}.")


def _peek_intact_sizes(files):
    """Like `peek_sizes`, of the first record that is not damaged."""
    for file in files:
        serialized = salvage.read_first_intact(file)
        if serialized is not None:
            return file, _sizes_of(file, serialized)
    return peek_sizes(files)  # Explains what the files are instead.


def _sizes_of(file, serialized):
    sizes = damage.feature_sizes(serialized)
    is_known = "masked_lm_positions" in sizes or "segment_ends" in sizes
    if not sizes.get("input_ids") or not is_known:
        raise ValueError(
            f"{file} does not contain pretraining records: it has the "
            f"features {sorted(sizes)}. Was it created for fine-tuning?"
        )
    return sizes
