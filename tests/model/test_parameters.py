"""Counts of weights: against models that were built, BERT and the paper."""

import dataclasses
import pathlib

import pytest

from albert_tf.lab import paper, summary
from albert_tf.model import heads, modeling, parameters
from albert_tf.model.config import AlbertConfig
from tests import tiny

CONFIGS = pathlib.Path(__file__).parents[2] / "configs" / "model"
# Canonical names -> parts.
NAMES = {
    "cls/predictions/": "masked LM",
    "cls/seq_relationship/": "sentence order",
    "bert/embeddings/word_embeddings": "word embeddings",
    "bert/embeddings/position_embeddings": "position embeddings",
    "bert/embeddings/token_type_embeddings": "segment embeddings",
    "bert/embeddings/LayerNorm/": "embedding norm",
    "bert/encoder/embedding_hidden_mapping_in/": "projection",
    "/attention_1/": "attention",
    "/ffn_1/": "feed-forward",
    "/LayerNorm": "layer norms",
    "bert/pooler/": "pooler",
}


def read(name):
    return AlbertConfig.from_json_file(CONFIGS / f"{name}.json")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 12},
        {"num_hidden_layers": 5, "num_hidden_groups": 3},
        {"num_hidden_layers": 3, "inner_group_num": 2},
        {"num_hidden_layers": 3, "parameter_sharing": "none"},
        {"num_hidden_layers": 3, "parameter_sharing": "attention"},
        {"parameter_sharing": "ffn", "inner_group_num": 3},
        {"type_vocab_size": 3},
    ],
)
def test_the_counts_are_those_of_the_model(changes):
    config = dataclasses.replace(tiny.CONFIG, **changes)
    wanted = dict.fromkeys(NAMES.values(), 0)
    named = modeling.named_weights(heads.AlbertForPreTraining(config))
    for name, weight in named.items():
        part = next(part for key, part in NAMES.items() if key in name)
        wanted[part] += weight.numpy().size
    assert parameters.count_parameters(config) == wanted
    num_heads = sum(wanted[part] for part in parameters.HEADS)
    assert parameters.count_encoder(config) == sum(wanted.values()) - num_heads


def test_bert_base_has_its_known_size():
    config = read("bert/base")
    counts = parameters.count_parameters(config)
    embeddings = sum(counts[part] for part in parameters.EMBEDDINGS)
    assert embeddings == 23_837_184
    layers = sum(counts[part] for part in parameters.LAYERS)
    assert layers == 85_054_464 == 12 * 7_087_872
    assert parameters.count_encoder(config) == 109_482_240
    assert embeddings / 109_482_240 == pytest.approx(0.218, abs=5e-4)
    assert summary.factorize(30522, 768, 128) == (23_440_896, 4_005_120)
    assert parameters.count_encoder(read("bert/large")) == 335_141_888


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ("base", 11_683_584),
        ("large", 17_683_968),
        ("xlarge", 58_724_864),
        ("xxlarge", 222_595_584),
    ],
)
def test_the_released_models_have_their_known_sizes(version, size, wanted):
    config = read(f"{version}/{size}")
    assert parameters.count_encoder(config) == wanted
    model = paper.find_model(config)
    assert model.name == f"ALBERT-{size}"


@pytest.mark.parametrize("model", paper.MODELS, ids=lambda m: m.name)
def test_table_1_is_reproduced(model):
    config = paper.build_config(model)
    count = parameters.count_encoder(config) / 1e6
    # The paper's 235M of xxlarge is not what its sizes give.
    wanted = 222.6 if model.name == "ALBERT-xxlarge" else model.millions
    assert count == pytest.approx(wanted, abs=1.3)
    assert paper.find_model(config) == model
    other = dataclasses.replace(config, num_hidden_layers=7)
    assert paper.find_model(other) is None


@pytest.mark.parametrize(
    ("sharing", "embedding_size", "millions"),
    [
        # Table 3.
        ("none", 64, 87),
        ("none", 128, 89),
        ("none", 256, 93),
        ("none", 768, 108),
        ("all", 64, 10),
        ("all", 128, 12),
        ("all", 256, 16),
        ("all", 768, 31),
        # Table 4.
        ("attention", 768, 83),
        ("ffn", 768, 57),
        ("attention", 128, 64),
        ("ffn", 128, 38),
    ],
)
def test_tables_3_and_4_are_reproduced(sharing, embedding_size, millions):
    config = paper.build_config(
        paper.MODELS[2],
        embedding_size=embedding_size,
        parameter_sharing=sharing,
    )
    # The paper rounds some of them up and others down.
    count = parameters.count_encoder(config) / 1e6
    assert count == pytest.approx(millions, abs=1.1)


def test_groups_are_given_up_where_layers_stop_sharing():
    config = dataclasses.replace(
        tiny.CONFIG, num_hidden_layers=4, num_hidden_groups=2
    )
    assert parameters.count_blocks(config) == (2, 2)
    assert parameters.count_blocks(parameters.share(config, "all")) == (1, 1)
    assert parameters.count_blocks(parameters.share(config, "ffn")) == (4, 1)


def test_all_layers_are_as_large_as_one_each():
    config = dataclasses.replace(
        tiny.CONFIG, num_hidden_layers=4, inner_group_num=3
    )
    counts = parameters.count_parameters(parameters.share(config, "none"))
    layers = sum(counts[part] for part in parameters.LAYERS)
    assert layers == 4 * summary.count_layer(config)
