"""The head that tags words: named entities, parts of speech.

Shapes: B batch, T tokens, H hidden_size, C tags.
"""

import keras
import tensorflow as tf

from albert_tf.model import heads


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTagger(heads.AlbertModel):
    """The encoder with the logits of a tag at each token.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`),
    it returns `logits` [B, T, C] float32.

    Args:
      config: an AlbertConfig.
      num_labels: number of tags, C.
      dropout_prob: rate of the dropout before the logits, independent of the
        config's rates.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertTagger(config, num_labels=5)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> model(features)["logits"].shape
      TensorShape([2, 7, 5])

    Source: transformers' AlbertForTokenClassification; the names of the
    weights are those of the release's classifier.
    """

    saved_arguments = ("num_labels", "dropout_prob")
    metric_names = ["accuracy"]
    uses_pooler = False

    def __init__(
        self, config, *, num_labels, dropout_prob=0.1, dtype=None, **kwargs
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        self.num_labels = num_labels
        self.dropout_prob = dropout_prob
        self.output_layer = heads.Logits(
            "", num_labels, config, dtype=self.dtype_policy
        )

    def call(self, features, training=False, seed=None):
        x = self.encode(features, training, seed)["sequence_output"]
        dropout = self.build_head_dropout(training, seed)
        return {"logits": self.output_layer(dropout(x, self.dropout_prob))}

    def ratios(self, features, training=False, seed=None):
        """See `AlbertModel`; `tag_ids` are [B, T] integers below C.

        A negative one is of a token that is not scored, such as padding.
        """
        logits = self(features, training=training, seed=seed)["logits"]
        labels = features["tag_ids"]
        rows = heads.row_weights(features)[:, tf.newaxis]  # [B, 1]
        weights = tf.cast(labels >= 0, tf.float32) * rows  # [B, T]
        loss, accuracy = heads.classification_ratios(
            logits, tf.maximum(labels, 0), weights
        )
        return {"loss": loss, "accuracy": accuracy}
