"""Builds the architecture of an AlbertConfig in other libraries."""


def transformers_config(config):
    """Returns transformers' AlbertConfig."""
    import transformers

    return transformers.AlbertConfig(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )


def keras_hub_backbone(config, dtype):
    """Returns KerasHub's AlbertBackbone that computes in a dtype."""
    import keras_hub

    return keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=0.0,
        dtype={"float32": "float32", "bfloat16": "mixed_bfloat16"}[dtype],
    )
