"""Configs: what loads, what is refused and why, which layer uses what."""

import json
import pathlib

import pytest

from albert_tf.model.config import AlbertConfig

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs/model"
PATHS = sorted(CONFIGS.rglob("*.json"))
# layers, hidden size, heads, feed-forward size
SIZES = {
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
    "xlarge": (24, 2048, 16, 8192),
    "xxlarge": (12, 4096, 64, 16384),
}


def tiny(**changes):
    values = dict(vocab_size=31, hidden_size=12, num_attention_heads=3)
    return AlbertConfig.from_dict(values | changes)


@pytest.mark.parametrize(
    "path", PATHS, ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_every_config_in_the_repository_loads(path):
    AlbertConfig.from_json_file(path)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", ["v1", "v2", "zh"])
def test_released_configs_have_the_released_sizes(version, size):
    config = AlbertConfig.from_json_file(CONFIGS / version / f"{size}.json")
    layers, hidden, heads, intermediate = SIZES[size]
    if (version, size) == ("zh", "xxlarge"):
        heads = 16  # The authors found that fewer are better (issue 153).
    dropout = 0.1 if version == "v1" and size != "xxlarge" else 0
    assert config == AlbertConfig(
        vocab_size=21128 if version == "zh" else 30000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        hidden_act="relu" if version == "zh" else "gelu",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def test_base_is_the_released_file(shared):
    released = shared / "data/albert_en/albert_config.json"
    ours = CONFIGS / "v1/base.json"
    assert json.loads(ours.read_text()) == json.loads(released.read_text())


def test_every_config_that_the_release_recorded_loads(shared):
    paths = list((shared / "golden").rglob("albert_config.json"))
    assert len(paths) >= 21
    for path in paths:
        AlbertConfig.from_json_file(path)


def test_a_config_survives_a_json_round_trip(tmp_path):
    config = tiny(parameter_sharing="ffn", hidden_act=None, inner_group_num=2)
    path = tmp_path / "config.json"
    path.write_text(config.to_json_string())
    assert AlbertConfig.from_json_file(path) == config


def test_keys_without_effect_are_ignored():
    ignored = dict.fromkeys(AlbertConfig.IGNORED_KEYS, 0)
    assert tiny(**ignored) == tiny()


def test_the_error_on_a_misspelt_key_suggests_the_correct_one():
    with pytest.raises(ValueError, match="did you mean 'intermediate_size'"):
        tiny(intermediate_sizes=17)


def test_the_error_lists_keys_of_other_model_code(shared):
    path = shared / "data/zh/albert_config_base.json"
    with pytest.raises(ValueError, match=r"'ln_type'.*delete") as error:
        AlbertConfig.from_json_file(path)
    assert str(path) in str(error.value)
    assert "'directionality'" in str(error.value)


def test_a_config_without_a_vocabulary_size_is_refused():
    with pytest.raises(ValueError, match="vocab_size is missing"):
        AlbertConfig.from_dict({"hidden_size": 12})


@pytest.mark.parametrize(
    "text", ["[1, 2]", "{", '"base"', "", "\0\0", "null", "[" * 100_000]
)
def test_a_file_that_is_not_a_json_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"config\.json(: found| is not)"):
        AlbertConfig.from_json_file(path)


def test_the_error_on_a_wrong_value_names_the_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"vocab_size": 31, "hidden_size": null}')
    with pytest.raises(ValueError, match=r"config\.json is not .*size.=None"):
        AlbertConfig.from_json_file(path)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(vocab_size="31"), "vocab_size.='31'; wanted int"),
        (dict(vocab_size=True), "vocab_size.=True; wanted int"),
        (dict(hidden_size=0), "hidden_size.=0; wanted at least 1"),
        (dict(num_hidden_layers=2.0), "num_hidden_layers.=2.0; wanted int"),
        (dict(hidden_size=13), "13 is not a multiple of num_attention_heads 3"),
        (dict(hidden_act="swish"), "hidden_act.='swish'; .*'gelu'"),
        (dict(hidden_dropout_prob=1), "hidden_dropout_prob.=1; .* below 1"),
        (
            dict(hidden_dropout_prob="0.1"),
            "hidden_dropout_prob.='0.1'; wanted float",
        ),
        (dict(attention_probs_dropout_prob=-0.1), "dropout_prob.=-0.1; "),
        (dict(initializer_range=0), "initializer_range.=0; wanted above 0"),
        (dict(initializer_range=float("nan")), "initializer_range.=nan"),
        (dict(initializer_range=float("inf")), "initializer_range.=inf"),
        (dict(hidden_dropout_prob=float("nan")), "dropout_prob.=nan"),
        (dict(hidden_dropout_prob=10**400), "dropout_prob.=10{79};"),
        (dict(num_hidden_layers=10**5), "layers.=100000; .* at most 1000"),
        (
            dict(num_hidden_layers=400, inner_group_num=3),
            "400 layers of 3 blocks are 1200 blocks",
        ),
        (dict(hidden_size=3 * 10**9), "hidden_size.=3000000000; .* 65536"),
        (dict(vocab_size=10**400), "vocab_size.=10{79};"),
        (dict(hidden_size=[12]), "hidden_size.=.12.; wanted int"),
        (dict(hidden_act=["gelu"]), "hidden_act.=.'gelu'.; wanted"),
        (dict(num_hidden_layers=2, num_hidden_groups=3), "only 2 layers"),
        (dict(parameter_sharing="some"), "parameter_sharing.='some'; wanted"),
        (dict(parameter_sharing="ffn", num_hidden_groups=2), "needs 1 group"),
    ],
)
def test_the_error_on_a_wrong_value_names_the_field(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_groups_have_equal_numbers_of_consecutive_layers():
    config = tiny(num_hidden_layers=7, num_hidden_groups=3)
    groups = [0, 0, 0, 1, 1, 2, 2]
    assert [config.attention_group(n) for n in range(7)] == groups
    assert [config.ffn_group(n) for n in range(7)] == groups


def test_group_indices_are_exact_where_floats_are_not():
    config = tiny(num_hidden_layers=22, num_hidden_groups=22)
    assert [config.attention_group(n) for n in range(22)] == list(range(22))


@pytest.mark.parametrize(
    "sharing, attention, ffn",
    [
        ("all", [0, 0, 0], [0, 0, 0]),
        ("attention", [0, 0, 0], [0, 1, 2]),
        ("ffn", [0, 1, 2], [0, 0, 0]),
        ("none", [0, 1, 2], [0, 1, 2]),
    ],
)
def test_an_unshared_sub_layer_has_separate_weights(sharing, attention, ffn):
    config = tiny(num_hidden_layers=3, parameter_sharing=sharing)
    assert [config.attention_group(n) for n in range(3)] == attention
    assert [config.ffn_group(n) for n in range(3)] == ffn


@pytest.mark.parametrize(
    ("given", "usual", "chosen"),
    [(None, 512, 64), (None, 48, 48), (64, 512, 64), (7, 512, 7)],
)
def test_a_length_that_is_not_given_fits_the_model(given, usual, chosen):
    config = AlbertConfig(vocab_size=7, max_position_embeddings=64)
    assert config.choose_length(given, usual) == chosen


def test_a_length_above_the_positions_is_refused():
    config = AlbertConfig(vocab_size=7, max_position_embeddings=64)
    with pytest.raises(ValueError, match="seq_length=65, .* 64 positions"):
        config.choose_length(65, name="seq_length")
