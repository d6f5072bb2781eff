"""Masks dynamic records in the input pipeline, batch by batch.

The masks of a record are determined by the seed and by the record's index in
the stream of examples, which continues through the epochs.

Shapes: B batch, T tokens, P predictions.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.data.pretraining import draws, rules, sequences

_NAMES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
)


@dataclasses.dataclass(frozen=True)
class Masker:
    """Masks batches by a rule.

    Attributes:
      rule: the `rules.MaskingRule`.
      vocabulary: the `sequences.Vocabulary` of the records.
    """

    rule: rules.MaskingRule
    vocabulary: sequences.Vocabulary

    @classmethod
    def from_sidecar(cls, path: str, sidecar: dict, changes: dict) -> "Masker":
        """Returns the masker that a sidecar describes.

        `changes` replace recorded settings, by field of the rule.

        Raises:
          ValueError: if a recorded or changed value is invalid.
        """
        try:
            rule = rules.MaskingRule(**sidecar["masking_rule"])
            vocabulary = sequences.Vocabulary.from_json(sidecar["vocabulary"])
        except (ValueError, TypeError) as error:
            reason = str(error).removesuffix(".")
            raise ValueError(
                f"{path} does not describe the masks: {reason}. Was it edited? "
                "Create the records again with create_pretraining_data.py."
            ) from error
        return cls(dataclasses.replace(rule, **changes), vocabulary)

    def mask(self, batch: dict, indices: tf.Tensor, seed: int) -> dict:
        """Masks a batch of parsed records.

        Args:
          batch: dict of the `records.dynamic_features`, as int32.
          indices: [B], index of each record in the stream.
          seed: seed of the masks.

        Returns:
          A dict of the release's features without `token_boundary`.
        """
        others = dict(batch)
        input_ids = others.pop("input_ids")
        segment_ends = others.pop("segment_ends")
        num_rows, num_tokens = input_ids.shape

        def mask_arrays(input_ids, segment_ends, indices):
            features = {"input_ids": input_ids, "segment_ends": segment_ends}
            source = draws.ByPosition.of_records(seed, indices)
            masked = sequences.mask_features(
                features, self.rule, self.vocabulary, source
            )
            return [masked[name].astype(dtypes[name]) for name in _NAMES]

        dtypes: dict[str, type] = dict.fromkeys(_NAMES, np.int32)
        dtypes["masked_lm_weights"] = np.float32
        masked = tf.numpy_function(
            mask_arrays,
            [input_ids, segment_ends, indices],
            list(dtypes.values()),
        )
        sizes = {name: num_tokens for name in _NAMES[:3]}
        return others | {
            name: tf.ensure_shape(
                values, [num_rows, sizes.get(name, self.rule.num_predictions)]
            )
            for name, values in zip(_NAMES, masked, strict=True)
        }
