"""Models of the ALBERT paper (Lan et al., ICLR 2020), to compare with."""

from typing import NamedTuple

from albert_tf.model.config import AlbertConfig

VOCAB_SIZE = 30000
EMBEDDING_SIZE = 128  # Of every ALBERT.


class Model(NamedTuple):
    """A row of Tables 1 and 2.

    Attributes:
      name: as in the paper.
      hidden_size, num_hidden_layers, embedding_size: of the config.
      sharing: the config's `parameter_sharing`.
      millions: parameters, in millions.
      speedup: speed of training, divided by that of BERT-large.
    """

    name: str
    hidden_size: int
    num_hidden_layers: int
    embedding_size: int
    sharing: str
    millions: int
    speedup: float


MODELS = (
    Model("BERT-base", 768, 12, 768, "none", 108, 4.7),
    Model("BERT-large", 1024, 24, 1024, "none", 334, 1.0),
    Model("ALBERT-base", 768, 12, 128, "all", 12, 5.6),
    Model("ALBERT-large", 1024, 24, 128, "all", 18, 1.7),
    Model("ALBERT-xlarge", 2048, 24, 128, "all", 60, 0.6),
    Model("ALBERT-xxlarge", 4096, 12, 128, "all", 235, 0.3),
)
# Whose speedup is 1.
REFERENCE = MODELS[1]


def build_config(model: Model, **kwargs) -> AlbertConfig:
    """Returns a model's config, with heads of 64 values; kwargs change it."""
    fields = {
        "vocab_size": VOCAB_SIZE,
        "embedding_size": model.embedding_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": 4 * model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.hidden_size // 64,
        "parameter_sharing": model.sharing,
    }
    return AlbertConfig.from_dict(fields | kwargs)


def find_model(config: AlbertConfig) -> Model | None:
    """Returns the paper's model of a config's shape, or None."""
    is_other = (
        config.num_hidden_groups > 1
        or config.inner_group_num > 1
        or config.intermediate_size != 4 * config.hidden_size
        or not 30_000 <= config.vocab_size <= 31_000  # Not the Chinese ones.
    )
    if is_other:
        return None
    shape = (
        config.hidden_size,
        config.num_hidden_layers,
        config.embedding_size,
        config.parameter_sharing,
    )
    return next((model for model in MODELS if model[1:5] == shape), None)
