"""Masks dynamic records in the input pipeline, batch by batch.

The masks of a record are determined by the seed and by the record's index in
the stream of examples, which continues through the epochs.

Shapes: B batch, T tokens, P predictions.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.data.pretraining import draws, records, rules, sequences


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
        num_rows, num_tokens = batch["input_ids"].shape
        wanted = records.pretraining_features(
            num_tokens, self.rule.num_predictions
        )
        del wanted["token_boundary"]
        dtypes = {
            name: np.float32 if dtype == "float32" else np.int32
            for name, (_, dtype) in wanted.items()
        }

        def mask_arrays(indices, *arrays):
            features = dict(zip(batch, arrays, strict=True))
            source = draws.ByPosition.of_records(seed, indices)
            masked = sequences.mask_features(
                features, self.rule, self.vocabulary, source
            )
            return [masked[name].astype(dtypes[name]) for name in wanted]

        masked = tf.numpy_function(
            mask_arrays, [indices, *batch.values()], list(dtypes.values())
        )
        return {
            name: tf.ensure_shape(values, [num_rows, *wanted[name][0]])
            for name, values in zip(wanted, masked, strict=True)
        }
