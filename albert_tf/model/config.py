"""The architecture of a model: the released JSON as a frozen dataclass.

Field names are the JSON's keys. Each key of a file must be a field or one of
`IGNORED_KEYS`; any other key is an error, because a misspelt key would
silently train another model.
"""

import collections
import dataclasses
import difflib
import json
from typing import ClassVar, Literal

from albert_tf import filesystem, settings
from albert_tf.settings import setting

CONFIG_FILE = "albert_config.json"
Sharing = Literal["all", "attention", "ffn", "none"]
# Each use of a layer is a separate part of the graph, so more than a few
# hundred take longer to compile than to train.
MAX_LAYERS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """Sizes and rates of an encoder, validated on construction.

    Args:
      vocab_size: number of pieces in the vocabulary.
      embedding_size: width of the embeddings, E.
      hidden_size: width of the layers, H.
      num_hidden_layers: number of layers; each use of shared weights counts.
      num_hidden_groups: number of groups of layers that share weights.
      num_attention_heads: number of heads, of size H / num_attention_heads.
      intermediate_size: inner width of the feed-forward sub-layer.
      inner_group_num: number of blocks with separate weights in each layer.
      hidden_act: "gelu" (the tanh form), "relu", "tanh", "linear" or None.
      hidden_dropout_prob: dropout rate of hidden values.
      attention_probs_dropout_prob: dropout rate of attention probabilities.
      max_position_embeddings: maximum number of tokens in a sequence.
      type_vocab_size: number of segments, usually 2 (A and B).
      initializer_range: standard deviation of the truncated normal.
      parameter_sharing: which sub-layers share weights across layers: "all"
        (as the release), "attention", "ffn" or "none" (as BERT).

    Raises:
      ValueError: if a value has the wrong type, is out of range or contradicts
        another.

    Example:
      >>> config = AlbertConfig(vocab_size=30000, num_hidden_layers=3)
      >>> config.to_dict()["hidden_size"]
      4096
      >>> AlbertConfig.from_dict({"vocab_size": 9, "hidden_sizes": 64})
      Traceback (most recent call last):
      ValueError: unknown keys 'hidden_sizes' (did you mean 'hidden_size'?)...

    Source: modeling.py, `AlbertConfig`; the paper's Table 4 for
    `parameter_sharing`, which the release does not have.
    """

    # Larger sizes are typing errors: the largest released model has 4096 and
    # 16384, and larger models would not fit into memory.
    vocab_size: int = setting(required=True, at_least=1, at_most=10_000_000)
    embedding_size: int = setting(128, at_least=1, at_most=65_536)
    hidden_size: int = setting(4096, at_least=1, at_most=65_536)
    num_hidden_layers: int = setting(12, at_least=1, at_most=MAX_LAYERS)
    num_hidden_groups: int = setting(1, at_least=1, at_most=MAX_LAYERS)
    num_attention_heads: int = setting(64, at_least=1, at_most=65_536)
    intermediate_size: int = setting(16384, at_least=1, at_most=1_048_576)
    inner_group_num: int = setting(1, at_least=1, at_most=MAX_LAYERS)
    hidden_act: Literal["gelu", "relu", "tanh", "linear", None] = "gelu"
    hidden_dropout_prob: float = setting(0.0, at_least=0, below=1)
    attention_probs_dropout_prob: float = setting(0.0, at_least=0, below=1)
    max_position_embeddings: int = setting(512, at_least=1, at_most=1_048_576)
    type_vocab_size: int = setting(2, at_least=1, at_most=65_536)
    initializer_range: float = setting(0.02, above=0, at_most=1000)
    parameter_sharing: Sharing = "all"

    # Keys of released files that do not affect the computation.
    IGNORED_KEYS: ClassVar[frozenset[str]] = frozenset(
        {
            "net_structure_type",
            "gap_size",
            "num_memory_blocks",
            "layers_to_keep",
            "down_scale_factor",
            "classifier_dropout_prob",  # Written by Hugging Face transformers.
        }
    )

    def __post_init__(self):
        # In quotes, as a key of JSON: programs have flags of some names.
        settings.check(self, '"{}"'.format)
        self._check_division()

    def _check_division(self):
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}, so the heads "
                "cannot have equal sizes. Was only one of the two changed (the "
                "default is 64 heads)?"
            )
        num_blocks = self.num_hidden_layers * self.inner_group_num
        if num_blocks > MAX_LAYERS:
            raise ValueError(
                f"{self.num_hidden_layers} layers of {self.inner_group_num} "
                f"blocks are {num_blocks} blocks, but may be at most "
                f"{MAX_LAYERS}: each is compiled separately."
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups}, but there are "
                f"only {self.num_hidden_layers} layers to divide among the "
                "groups."
            )
        if self.parameter_sharing != "all" and self.num_hidden_groups != 1:
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups} and "
                f"parameter_sharing is {self.parameter_sharing!r}: groups need "
                'parameter_sharing "all", any other sharing needs 1 group.'
            )

    @classmethod
    def from_dict(cls, values: dict) -> "AlbertConfig":
        """Builds a config from a dict with the released JSON's keys.

        Args:
          values: dict of fields; keys in `IGNORED_KEYS` are ignored.

        Raises:
          ValueError: if a key is unknown, `vocab_size` is missing or a value
            is invalid.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = values.keys() - known - cls.IGNORED_KEYS
        if unknown:
            raise ValueError(_describe_unknown(unknown, known))
        if "vocab_size" not in values:
            raise ValueError(
                f"vocab_size is missing; found {sorted(values)}. Set it to the "
                "number of pieces in the vocabulary (30000 for 30k-clean)."
            )
        return cls(**{k: v for k, v in values.items() if k in known})

    @classmethod
    def from_json_file(cls, path: filesystem.Path) -> "AlbertConfig":
        """Reads a config file such as the released albert_config.json.

        Raises:
          FileNotFoundError: if there is no such file.
          ValueError: if it is not a JSON object, or not a valid config; the
            message names the file.
        """
        values = filesystem.read_json(path)
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(
                f"{path} is not a model config: {error}"
            ) from error

    def to_dict(self) -> dict:
        """Returns all fields by their JSON keys."""
        return dataclasses.asdict(self)

    def to_json_string(self) -> str:
        """Returns the fields as JSON text, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def choose_length(
        self, given: int | None, usual: int = 512, name: str = "max_seq_length"
    ) -> int:
        """Returns the number of tokens of a sequence.

        Args:
          given: the number asked for, or None.
          usual: the number if none is given and the model has the positions.
          name: the argument's name, for the message.

        Raises:
          ValueError: if the model has fewer positions than `given`.
        """
        positions = self.max_position_embeddings
        if given is not None and given > positions:
            raise ValueError(
                f"{name}={given}, but the model has {positions} positions. "
                f"Lower it, omit it for {min(usual, positions)}, or give a "
                "config with more (max_position_embeddings)."
            )
        return min(usual, positions) if given is None else given

    def attention_group(self, layer: int) -> int:
        """Returns the group index of a layer's attention weights.

        Source: modeling.py, whose float division assigns some layers to the
        wrong group (first at 22 layers in 22 groups); here it is exact.
        """
        return self._group(layer, "attention")

    def ffn_group(self, layer: int) -> int:
        """Returns the group index of a layer's feed-forward weights."""
        return self._group(layer, "ffn")

    def count_uses(self) -> dict[tuple[int, int], int]:
        """Returns how many layers use each pair of attention and ffn group."""
        return collections.Counter(
            (self.attention_group(layer), self.ffn_group(layer))
            for layer in range(self.num_hidden_layers)
        )

    def _group(self, layer, sub_layer):
        if self.parameter_sharing in ("all", sub_layer):
            return layer * self.num_hidden_groups // self.num_hidden_layers
        return layer


def _describe_unknown(unknown, known):
    """Lists unknown keys, with the most similar known key of each."""
    names = []
    for key in sorted(unknown):
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        names.append(f"{key!r}{hint}")
    return (
        f"unknown keys {', '.join(names)}; known: {sorted(known)}. Correct "
        "misspelt keys, and delete keys of other model code."
    )
