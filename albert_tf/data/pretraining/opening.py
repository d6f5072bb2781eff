"""Opens pretraining records: finds them, checks them, reads their batches."""

import contextlib
import dataclasses
import logging
import operator
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf import errors, filesystem
from albert_tf.data.pretraining import (
    agreement,
    damage,
    dynamic,
    reading,
    records,
    sidecars,
)
from albert_tf.text import tokenization

# Up to this size, every record is checked before work starts. In larger files
# damage is found, and named, when it is read.
MAX_CHECKED_BYTES = 64 << 20
# Records in which at least one token must be masked.
_NUM_PROBED = 1024
# A feature of our records and the release's that training never reads.
_UNUSED_FEATURE = "token_boundary"


@dataclasses.dataclass(frozen=True)
class PretrainingRecords:
    """Record files that fit a model, from `open_records`.

    Attributes:
      files: file names, in a fixed order.
      features: the features to read, of `records.pretraining_features` or
        `records.dynamic_features`.
      limits: dict of name -> (least, most) allowed values of a feature.
      sidecar: the description from `sidecars.read_sidecar`, or None.
      masker: masks dynamic records; None for static ones.
      num_records: number of usable records in all files.
      damaged: error of each damaged file, if damaged records are skipped. The
        file is read up to its first damaged record.
    """

    files: list[str]
    features: dict
    limits: dict
    sidecar: dict | None
    masker: dynamic.Masker | None
    num_records: int = 0
    damaged: dict[str, records.DamagedFile] = dataclasses.field(
        default_factory=dict
    )

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
        """Returns how the records are masked and what is left out.

        A run's manifest has it; for static, undamaged records it is empty.
        """
        description = {}
        if self.masker:
            description["masking"] = dataclasses.asdict(self.masker.rule)
        if self.damaged:
            names = filesystem.name_briefly(
                [f.split("/") for f in self.damaged]
            )
            description["skipped"] = {
                name: f"record {error.num_intact + 1} and all after it"
                for name, error in zip(
                    names, self.damaged.values(), strict=True
                )
            }
        return description

    def read_pass(self, batch_size: int):
        """Returns a dataset of one pass, built by `reading.build_dataset`.

        Dynamic records have the same masks in every pass and every run, so
        that results compare.
        """
        return self._build(batch_size)

    def read_part(
        self,
        context: tf.distribute.InputContext | None = None,
        *,
        batch_size: int,
        **kwargs,
    ):
        """Returns a dataset for training, by `reading.build_dataset`.

        Args:
          context: the part of each global batch to read; None for all of it.
          batch_size: examples per global batch.
          **kwargs: fields of the `reading.Order`.
        """
        order = reading.Order(num_records=self.num_records, **kwargs)
        return self._build(batch_size, order, context=context)

    def _build(self, batch_size, order=None, **kwargs):
        return reading.build_dataset(
            self.files,
            self.features,
            batch_size,
            order,
            limits=self.limits,
            masker=self.masker,
            num_usable={f: e.num_intact for f, e in self.damaged.items()},
            **kwargs,
        )


def open_records(
    patterns: str,
    config,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    masking_changes: dict | None = None,
    skip_damaged: bool = False,
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
        records, by field of `rules.MaskingRule`.
      skip_damaged: whether a file with a damaged record is read up to it,
        instead of refused.

    Raises:
      ValueError: if no record is found, if the expected sizes, the config and
        the records contradict each other, if a record is damaged, or if static
        records are to be masked.

    Example:
      >>> import numpy as np
      >>> from albert_tf.model.config import AlbertConfig
      >>> shapes = records.pretraining_features(16, 2).items()
      >>> features = {k: np.ones([4, *x], dtype) for k, (x, dtype) in shapes}
      >>> rows = records.encode_examples(features)
      >>> _ = records.write_records("a.tfrecord", rows)
      >>> opened = open_records("*.tfrecord", AlbertConfig(vocab_size=30))
      >>> opened.num_records, opened.num_tokens, opened.num_predictions
      (4, 16, 2)
      >>> next(iter(opened.read_part(batch_size=3)))["input_ids"].shape
      TensorShape([3, 16])
    """
    files = sidecars.find_records(patterns)
    sidecar = sidecars.read_sidecar(files, is_strict=not skip_damaged)
    first_file, first = _read_first(files)
    sizes = {name: len(x.int64_list.value) for name, x in first.items()}
    num_tokens = sizes["input_ids"]
    if not sidecar:
        logging.warning(
            "%s has no %s: whether its vocabulary is the model's cannot be "
            "checked.",
            first_file,
            os.path.basename(sidecars.sidecar_path(first_file)),
        )
    if sidecar:
        agreement.check_sidecar_sizes(first_file, sidecar, sizes)
    agreement.check_size(files, "max_seq_length", max_seq_length, [num_tokens])
    agreement.check_positions(files, num_tokens, config)
    if sidecar:
        agreement.check_vocabulary(files, sidecar["tokenizer"], config)
    changes = dict(masking_changes or {})
    if agreement.is_dynamic(sizes):
        if max_predictions_per_seq:
            changes["max_predictions"] = max_predictions_per_seq
        masker = _open_masker(first_file, sidecar, changes, config, num_tokens)
        features = records.dynamic_features(num_tokens)
    else:
        agreement.check_is_unmasked(files, changes)
        masker = None
        features = records.pretraining_features(
            num_tokens, sizes["masked_lm_positions"]
        )
        del features[_UNUSED_FEATURE]
    limits = agreement.limits_of(config, num_tokens)
    if masker:
        limits["input_ids"] = 0, len(masker.vocabulary.is_word_start) - 1
    opened = PretrainingRecords(files, features, limits, sidecar, masker)
    agreement.check_predictions(opened, max_predictions_per_seq)
    opened = _count_records(opened, skip_damaged)
    # One record with a mask suffices; dynamic ones have none in the file.
    if not any(first["masked_lm_weights"].float_list.value):
        _check_is_masked(opened)
    return opened


def _read_first(files):
    """Returns the first file with a record, and the features of its first."""
    for file in files:
        serialized = damage.read_first_record(file)
        if serialized is not None:
            break
    else:
        raise ValueError(f"There is no record in {files[:3]}.")
    first = records.parse_example(serialized) or {}
    is_known = "masked_lm_positions" in first or "segment_ends" in first
    has_ids = "input_ids" in first and first["input_ids"].int64_list.value
    if not has_ids or not is_known:
        raise ValueError(
            f"{file} does not contain pretraining records: it has the "
            f"features {sorted(first)}. Was it created for fine-tuning?"
        )
    return file, first


def _count_records(opened, skip_damaged):
    """Checks the records; returns `opened` with their number."""
    files, sidecar = opened.files, opened.sidecar
    checked = opened.features, opened.limits
    if skip_damaged:
        written = sidecar and sidecar["num_records"]
        num_records, damaged = damage.count_usable(files, *checked, written)
        return dataclasses.replace(
            opened, num_records=num_records, damaged=damaged
        )
    damage.check_files(files, *checked, MAX_CHECKED_BYTES)
    if sidecar:
        num_records = sidecar["statistics"]["sequences"]
    else:
        num_records = sum(map(records.count_records, files))
    return dataclasses.replace(opened, num_records=num_records)


def _open_masker(file, sidecar, changes, config, num_tokens):
    path = sidecars.sidecar_path(file)
    if not sidecar:
        raise ValueError(
            f"The records in {file} have no masks, and their sidecar {path} "
            "is missing, which says how to mask them. Copy it, too."
        )
    masker = dynamic.Masker.from_sidecar(path, sidecar, changes)
    num_pieces = masker.vocabulary.num_pieces
    for number, name, key, fits in (
        (num_pieces, "word starts", "vocab_size", tokenization.fits),
        (2, "segments", "type_vocab_size", operator.eq),
    ):
        if not fits(number, getattr(config, key)):
            raise ValueError(
                f"{path} describes {number} {name}; the config has {key} "
                f"{getattr(config, key)}. Does it belong to other records?"
            )
    rule = masker.rule
    if rule.max_predictions > num_tokens:
        raise ValueError(
            f"max_predictions_per_seq is {rule.max_predictions}, but the "
            f"records in {file} have {num_tokens} tokens."
        )
    wanted = round(num_tokens * rule.masked_lm_prob)
    if "masked_lm_prob" in changes and rule.max_predictions < wanted * 2 / 3:
        logging.warning(
            "masked_lm_prob=%g of %d tokens are %d, but at most %d are masked: "
            "set max_predictions_per_seq=%d.",
            rule.masked_lm_prob,
            num_tokens,
            wanted,
            rule.max_predictions,
            wanted,
        )
    return masker


def _check_is_masked(opened):
    """Refuses records if the first of them have nothing to predict."""
    num_records = 0
    with naming_damage(opened):
        for batch in opened.read_pass(1).take(_NUM_PROBED):
            if np.any(batch["masked_lm_weights"]):
                return
            num_records += 1
    if num_records:
        raise ValueError(
            f"No token is masked in the first {num_records} records of "
            f"{opened.files[0]}: there is nothing to predict. Create them "
            "again with create_pretraining_data; were their words too long to "
            "be masked?"
        )


@contextlib.contextmanager
def naming_damage(*opened: PretrainingRecords | None) -> Iterator[None]:
    """Context manager: names the damaged record if TensorFlow cannot read one.

    Raises:
      ValueError: if reading failed and one of the records is damaged; names
        its file and number.
    """
    try:
        yield
    except damage.READING_ERRORS as error:
        logging.warning("%s. Is a record damaged?", errors.first_line(error))
        for group in filter(None, opened):
            files = [file for file in group.files if file not in group.damaged]
            damage.check_files(files, group.features, group.limits)
        raise
