"""The encoder and the pretraining heads, against the release and itself."""

import dataclasses
import gc
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import execution, heads, layers, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.model.dropout import build_dropout
from albert_tf.weights import checkpoints
from tests import recorded, tiny

TINY = AlbertConfig(**{**tiny.SIZES, "num_hidden_layers": 4})
BASE = {
    "vocab_size": 30000,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
# The release computed on one thread with einsum; float32 sums in another
# order differ by up to 2.5e-5 where values reach 8.
TOLERANCE = 3e-5


def features(config=TINY, batch_size=2, num_tokens=7, num_predictions=3):
    rng = np.random.default_rng(3)
    shape = (batch_size, num_tokens)
    return {
        "input_ids": rng.integers(5, config.vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": rng.integers(0, 2, shape, np.int32),
        "masked_lm_positions": np.tile(
            np.arange(1, num_predictions + 1, dtype=np.int32), (batch_size, 1)
        ),
        "masked_lm_ids": rng.integers(
            5, config.vocab_size, (batch_size, num_predictions), np.int32
        ),
        "masked_lm_weights": np.ones((batch_size, num_predictions), np.float32),
        "sentence_order_labels": np.arange(batch_size, dtype=np.int32) % 2,
    }


def encode(encoder, batch, **kwargs):
    return encoder(
        batch["input_ids"], batch["input_mask"], batch["segment_ids"], **kwargs
    )


def randomize(layer, seed=0):
    """Sets every weight, including norms and biases, to a random value."""
    rng = np.random.default_rng(seed)
    for name, weight in modeling.named_weights(layer).items():
        center = 1.0 if name.endswith("gamma") else 0.0
        weight.assign(center + 0.2 * rng.standard_normal(weight.shape))


@pytest.fixture
def encoder():
    encoder = modeling.AlbertEncoder(TINY)
    randomize(encoder)
    return encoder


# Against the release


@pytest.mark.parametrize("name", "ABCDEFGH")
def test_every_output_and_gradient_is_the_releases(golden, name):
    folder = golden(f"model/{name}")
    config = AlbertConfig.from_json_file(folder / "albert_config.json")
    model = heads.AlbertForPreTraining(config)
    weights = modeling.named_weights(model)
    values = checkpoints.read_checkpoint(folder / "model.ckpt-best")
    checkpoints.restore(weights, values, folder)
    assert set(values) == {*weights, "global_step"}
    batch = recorded.read(folder / "inputs.npz")
    labels = batch.pop("next_sentence_labels")
    batch["sentence_order_labels"] = labels.reshape(-1)
    wanted = recorded.read(folder / "outputs.npz")

    encoded = encode(model.encoder, batch)
    found = {
        f"encoder_layer_{i:02}": layer
        for i, layer in enumerate(encoded["all_encoder_layers"])
    }
    found |= {
        key: encoded[key]
        for key in ("embedding_output", "sequence_output", "pooled_output")
    }
    with tf.GradientTape() as tape:
        ratios = model.ratios(batch)
        losses = {
            name: ratios[name].total
            / (ratios[name].weight + ratios[name].epsilon)
            for name in model.loss_scales
        }
        found["total_loss"] = sum(losses.values())
    gradients = tape.gradient(
        found["total_loss"], {n: w.value for n, w in weights.items()}
    )
    logits = model(batch)
    vocabulary = [-1, config.vocab_size]
    found |= losses | {
        "masked_lm_log_probs": tf.reshape(
            tf.nn.log_softmax(logits["masked_lm_logits"]), vocabulary
        ),
        "sentence_order_log_probs": tf.nn.log_softmax(
            logits["sentence_order_logits"]
        ),
    }
    for key, value in found.items():
        recorded.check(value, wanted[key], TOLERANCE, name=key)
    layers = [key for key in wanted if key.startswith("encoder_layer_")]
    assert len(layers) == len(encoded["all_encoder_layers"])
    wanted = recorded.read(folder / "grads.npz")
    for key, value in gradients.items():
        value = tf.convert_to_tensor(value)
        recorded.check(value, wanted[key], TOLERANCE / 10, name=key)


@pytest.mark.parametrize("name", "ACH")
def test_default_mask_and_segments_match_the_release(golden, name):
    folder = golden(f"model/{name}")
    config = AlbertConfig.from_json_file(folder / "albert_config.json")
    encoder = modeling.AlbertEncoder(config)
    checkpoints.restore(
        modeling.named_weights(encoder),
        checkpoints.read_checkpoint(folder / "model.ckpt-best"),
        folder,
    )
    outputs = encoder(recorded.read(folder / "inputs.npz")["input_ids"])
    wanted = recorded.read(folder / "outputs_nomask.npz")
    for key in ("sequence_output", "pooled_output"):
        recorded.check(outputs[key], wanted[key], TOLERANCE, name=key)


def test_a_checkpoint_without_a_skipped_group_is_an_error(golden):
    # 22 layers in 22 groups: the release used group 14 twice, 15 never.
    folder = golden("model/I")
    config = AlbertConfig.from_json_file(folder / "albert_config.json")
    model = heads.AlbertForPreTraining(config)
    values = checkpoints.read_checkpoint(folder / "model.ckpt-best")
    with pytest.raises(ValueError, match=r"lacks 16 of .*group_15"):
        checkpoints.restore(modeling.named_weights(model), values, folder)


def test_names_equal_those_of_the_released_checkpoint(shared):
    lines = (shared / "data/albert_en/variables.txt").read_text().splitlines()
    # "name [sizes] dtype", and a line of totals.
    wanted = {
        line.split(" ")[0]: tuple(json.loads(line[line.index("[") :][:-8]))
        for line in lines
        if line.endswith("float32")
    }
    config = shared / "data" / "albert_en" / "albert_config.json"
    model = heads.AlbertForPreTraining(AlbertConfig.from_json_file(config))
    found = {
        name: tuple(weight.shape)
        for name, weight in modeling.named_weights(model).items()
    }
    assert found == wanted


# Sizes of the paper


@pytest.fixture
def count(monkeypatch):
    """Counts parameters of an encoder by the prefix of their names."""
    # Random initialization would take most of the time and memory.
    monkeypatch.setattr(
        keras.initializers, "TruncatedNormal", lambda stddev: "zeros"
    )

    def count(config, *parts):
        weights = modeling.named_weights(modeling.AlbertEncoder(config))
        sizes = {name: int(np.prod(w.shape)) for name, w in weights.items()}
        del weights
        gc.collect()
        return [
            sum(size for name, size in sizes.items() if name.startswith(part))
            for part in parts
        ]

    return count


@pytest.mark.parametrize(
    ("sharing", "layers", "total_128", "total_768"),
    [
        ("all", 7_087_872, 12, 31),
        ("attention", 59_051_520, 64, 83),
        ("ffn", 33_090_816, 38, 57),
        ("none", 85_054_464, 89, 108),
    ],
)
def test_numbers_of_parameters_match_the_papers_table_4(
    count, sharing, layers, total_128, total_768
):
    for size, millions in ((128, total_128), (768, total_768)):
        config = AlbertConfig(
            **BASE, embedding_size=size, parameter_sharing=sharing
        )
        parts = "bert/", "bert/encoder/transformer/", "bert/pooler"
        total, in_layers, pooler = count(config, *parts)
        assert in_layers == layers
        # The paper excludes the pooler: its BERT-base has 108M.
        assert abs((total - pooler) / 1e6 - millions) < 1


def test_base_has_the_released_number_of_parameters(count):
    assert count(AlbertConfig(**BASE), "bert/") == [11_683_584]


def test_bert_base_is_a_config(count):
    config = AlbertConfig.from_json_file("configs/model/bert/base.json")
    assert count(config, "bert/") == [109_482_240]


# An encoder's invariants


def test_padding_does_not_change_real_tokens(encoder):
    batch = features()
    batch["input_mask"][:, 4:] = 0
    before = encode(encoder, batch)["sequence_output"]
    batch["input_ids"][:, 4:] = 30
    after = encode(encoder, batch)["sequence_output"]
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)


def test_layers_agree_with_naive_numpy(encoder):
    batch = features()
    batch["input_mask"][1, 5:] = 0
    w = {
        name: weight.numpy()
        for name, weight in modeling.named_weights(encoder).items()
    }
    prefix = "bert/encoder/transformer/group_0/inner_group_0/"

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        return x * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def gelu(x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def attend(x, mask):
        q, k, v = (
            dense(x, f"{prefix}attention_1/self/{n}").reshape(-1, 3, 4)
            for n in ("query", "key", "value")
        )
        scores = np.einsum("qnd,knd->nqk", q, k) / 2 - 10000 * (1 - mask)
        probs = np.exp(scores - scores.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        return np.einsum("nqk,knd->qnd", probs, v).reshape(-1, 12)

    layers = encode(encoder, batch)["all_encoder_layers"]
    for row in range(2):
        x = w["bert/embeddings/word_embeddings"][batch["input_ids"][row]]
        x = x + w["bert/embeddings/position_embeddings"][:7]
        segments = batch["segment_ids"][row]
        x = x + w["bert/embeddings/token_type_embeddings"][segments]
        x = norm(x, "bert/embeddings/LayerNorm")
        x = dense(x, "bert/encoder/embedding_hidden_mapping_in")
        for layer in layers:
            a = attend(x, batch["input_mask"][row])
            a = dense(a, f"{prefix}attention_1/output/dense")
            x = norm(x + a, f"{prefix}LayerNorm")
            f = gelu(dense(x, f"{prefix}ffn_1/intermediate/dense"))
            f = dense(f, f"{prefix}ffn_1/intermediate/output/dense")
            x = norm(x + f, f"{prefix}LayerNorm_1")
            np.testing.assert_allclose(layer[row], x, atol=2e-5)


@pytest.mark.parametrize(
    ("sharing", "moved"),
    [("all", [0, 1, 2, 3]), ("none", [2, 3]), ("attention", [2, 3])],
)
def test_a_layer_uses_its_own_feed_forward_unless_shared(sharing, moved):
    config = AlbertConfig.from_dict(
        {**TINY.to_dict(), "parameter_sharing": sharing}
    )
    encoder = modeling.AlbertEncoder(config)
    randomize(encoder)
    before = encode(encoder, features())["all_encoder_layers"]
    group = 0 if sharing == "all" else 2
    name = f"transformer/group_{group}/inner_group_0/ffn_1/intermediate/dense"
    weight = modeling.named_weights(encoder)[f"bert/encoder/{name}/kernel"]
    weight.assign(weight * 2)
    after = encode(encoder, features())["all_encoder_layers"]
    changed = [
        i
        for i in range(4)
        if np.abs(before[i].numpy() - after[i].numpy()).max() > 1e-4
    ]
    assert changed == moved


@pytest.mark.parametrize("choice", ["constant_kernels", "recompute_layers"])
def test_layers_that_are_not_kept_are_none(encoder, choice):
    ids = keras.Input([None], dtype="int32")
    model = keras.Model(ids, encoder(ids, training=True)["pooled_output"])
    wanted = encode(encoder, features())["all_encoder_layers"]
    with execution.using(execution.Execution(**{choice: True})):
        outputs = encode(encoder, features(), training=True)
        pooled = model(features()["input_ids"])
    *others, last = outputs["all_encoder_layers"]
    assert others == [None] * (len(wanted) - 1)
    assert last.shape == wanted[-1].shape
    # Keras finds outputs by their place.
    assert pooled.shape == outputs["pooled_output"].shape


@pytest.mark.parametrize("is_built", [False, True])
def test_weights_without_a_name_are_refused(is_built):
    class Own(heads.AlbertModel):
        def __init__(self):
            super().__init__(TINY)
            # They have no weights.
            self.drop = keras.layers.Dropout(0.1)
            self.join = keras.layers.Concatenate()
            self.dense = keras.layers.Dense(2)

    model = Own()
    message = "layer dense.* is not built"
    if is_built:
        model.dense.build([None, 12])
        message = "dense.*kernel has no name"
    with pytest.raises(ValueError, match=f"{message}.* Use heads.Logits"):
        modeling.named_weights(model)
    model.trainable = False
    assert len(model.get_config()["frozen"]) == len(model.encoder.weights)


def test_a_too_long_input_is_refused(encoder):
    with pytest.raises(ValueError, match="12 tokens, the model has 11"):
        encoder(np.ones((2, 12), np.int32))


def test_unknown_sizes_are_supported(encoder):
    spec = tf.TensorSpec([None, None], tf.int32)
    call = tf.function(encoder, input_signature=[spec])
    ids = features()["input_ids"]
    np.testing.assert_allclose(
        call(ids)["sequence_output"],
        encoder(ids)["sequence_output"],
        atol=1e-6,
    )


def test_bfloat16_is_close_to_float32():
    encoders = [
        modeling.AlbertEncoder(TINY, dtype=dtype)
        for dtype in ("float32", "mixed_bfloat16")
    ]
    for encoder in encoders:
        randomize(encoder)
    exact, rough = (encode(e, features()) for e in encoders)
    assert rough["sequence_output"].dtype == tf.bfloat16
    np.testing.assert_allclose(
        tf.cast(rough["sequence_output"], tf.float32),
        exact["sequence_output"],
        atol=0.1,
    )
    weights = modeling.named_weights(encoders[1]).values()
    assert {weight.dtype for weight in weights} == {"float32"}


def test_an_encoder_is_rebuilt_from_its_config(encoder):
    copy = modeling.AlbertEncoder.from_config(encoder.get_config())
    assert copy.config == encoder.config
    model = heads.AlbertForPreTraining(TINY, sentence_weight=0.0)
    copy = heads.AlbertForPreTraining.from_config(model.get_config())
    assert copy.loss_scales == {"masked_lm_loss": 1.0}


def test_a_keras_model_trains_the_encoder(encoder):
    ids = keras.Input([7], dtype="int32")
    model = keras.Sequential(
        [ids, PooledOutput(encoder), keras.layers.Dense(2)]
    )
    model.compile("sgd", "mse")
    before = encoder.embeddings.word.numpy().copy()
    model.fit(features()["input_ids"], np.ones((2, 2)), verbose=0)
    assert np.abs(encoder.embeddings.word.numpy() - before).max() > 0


@pytest.mark.parametrize("part", [(), ("encoder",), ("encoder", "pooler")])
def test_what_is_frozen_stays_frozen_in_a_copy(part):
    model = heads.AlbertClassifier(TINY, num_labels=2)
    frozen = model
    for name in part:
        frozen = getattr(frozen, name)
    frozen.trainable = False
    model.output_layer.output_bias.trainable = True
    if part == ("encoder",):
        model.encoder.pooler.trainable = True
    copy = heads.AlbertClassifier.from_config(model.get_config())
    wanted = {n: w.trainable for n, w in modeling.named_weights(model).items()}
    found = {n: w.trainable for n, w in modeling.named_weights(copy).items()}
    assert found == wanted and not all(found.values())
    with pytest.raises(ValueError, match="layer.trainable = False"):
        heads.AlbertClassifier(TINY, num_labels=2, trainable=False)


def test_a_frozen_encoder_is_not_trained_after_saving(tmp_path):
    encoder = modeling.AlbertEncoder(TINY)
    encoder.trainable = False
    ids = keras.Input([None])  # Float, as is Sequential's.
    pooled = encoder(ids)["pooled_output"]
    model = keras.Model(ids, keras.layers.Dense(2)(pooled))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(model.trainable_weights) == len(loaded.trainable_weights) == 2
    with pytest.raises(TypeError, match=r"Call encoder\(\*\*features\)"):
        encoder(features())


class PooledOutput(keras.layers.Layer):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def call(self, ids, training=False):
        return self.encoder(ids, training=training)["pooled_output"]


# Dropout

SITES = 1 + 4 * 3  # Embeddings, and three in each layer.


@pytest.mark.parametrize(
    ("rate", "sites"),
    [
        ("hidden_dropout_prob", 1 + 4 * 2),
        ("attention_probs_dropout_prob", 4),
    ],
)
def test_each_dropout_rate_applies_at_each_of_its_sites(
    monkeypatch, rate, sites
):
    seeds = []

    def stateless_dropout(x, rate, seed):
        seeds.append(tuple(seed.numpy()))
        return x

    monkeypatch.setattr(
        tf.nn.experimental, "stateless_dropout", stateless_dropout
    )
    config = AlbertConfig.from_dict({**TINY.to_dict(), rate: 0.5})
    encoder = modeling.AlbertEncoder(config)
    encode(encoder, features(), training=True, seed=[1, 2])
    assert len(set(seeds)) == len(seeds) == sites
    encode(encoder, features(), training=False)
    assert len(seeds) == sites


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5])
def test_dropout_in_bfloat16_has_its_rate_and_keeps_the_mean(rate):
    x = tf.random.stateless_uniform([1 << 21], [3, 4]) + 0.5
    dropout = build_dropout(True, tf.constant([1, 2]))
    y = tf.cast(dropout(tf.cast(x, tf.bfloat16), rate), tf.float32)
    dropped = np.mean(y.numpy() == 0)
    # Six standard deviations.
    np.testing.assert_allclose(
        dropped, rate, atol=6 * (rate * (1 - rate) / len(x)) ** 0.5
    )
    # A scale of less than 2^-8, half a step of bfloat16, is rounded away.
    np.testing.assert_allclose(
        np.mean(y.numpy(), dtype=np.float64), np.mean(x), rtol=1.2e-3
    )
    wanted = build_dropout(True, tf.constant([1, 2]))(x, rate)
    np.testing.assert_array_equal(y.numpy() == 0, wanted.numpy() == 0)


def test_the_seed_determines_dropout():
    config = AlbertConfig.from_dict(
        {**TINY.to_dict(), "hidden_dropout_prob": 0.5}
    )
    encoder = modeling.AlbertEncoder(config)

    def pooled(**kwargs):
        outputs = encode(encoder, features(), training=True, **kwargs)
        return outputs["pooled_output"].numpy().tolist()

    assert pooled(seed=[1, 2]) == pooled(seed=[1, 2])
    assert pooled(seed=[1, 2]) != pooled(seed=[1, 3])
    assert pooled() != pooled()


# Heads


def test_padded_rows_and_predictions_are_ignored():
    model = heads.AlbertForPreTraining(TINY)
    randomize(model)
    batch = features()
    batch["masked_lm_weights"][1, 2] = 0
    wanted = model.ratios(batch)
    padded = {
        name: np.concatenate([value, np.zeros_like(value)])
        for name, value in batch.items()
    }
    padded["example_weight"] = np.array([1, 1, 0, 0], np.float32)
    # Rows of weight 0 must not count even if their predictions have weight.
    padded["masked_lm_weights"][2:] = 1
    found = model.ratios(padded)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)
    assert wanted["masked_lm_accuracy"].weight == 5
    assert wanted["sentence_order_accuracy"].weight == 2


def test_without_a_sentence_loss_its_weights_get_no_gradient():
    model = heads.AlbertForPreTraining(TINY, sentence_weight=0.0)
    with tf.GradientTape() as tape:
        ratios = model.ratios(features())
        loss = ratios["masked_lm_loss"].total
    weights = modeling.named_weights(model)
    gradients = tape.gradient(loss, {n: w.value for n, w in weights.items()})
    assert sorted(n for n, g in gradients.items() if g is None) == [
        "bert/pooler/dense/bias",
        "bert/pooler/dense/kernel",
        "cls/seq_relationship/output_bias",
        "cls/seq_relationship/output_weights",
    ]


@pytest.mark.parametrize("policy", layers.POLICIES.values())
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"parameter_sharing": "attention"},
        {"parameter_sharing": "none", "embedding_size": 12},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "options",
    [{}, {"bfloat16_softmax": True}, {"onednn": True}],
    ids=str,
)
def test_constant_kernels_give_the_same_outputs(settings, policy, options):
    config = dataclasses.replace(TINY, **settings)
    encoder = modeling.AlbertEncoder(config, dtype=policy)
    batch = features()
    batch["input_mask"][1, 3:] = 0
    call = tf.function(lambda: encode(encoder, batch))
    chosen = execution.Execution(constant_kernels=True, **options)
    with execution.using(chosen):
        found = call()
    wanted = encode(encoder, batch)
    for name in ("sequence_output", "pooled_output", "embedding_output"):
        np.testing.assert_allclose(
            *(tf.cast(x[name], tf.float32) for x in (found, wanted)),
            atol=3e-2 if policy == "mixed_bfloat16" else 1e-5,
        )


def test_a_shared_kernel_is_one_constant_with_its_traced_values():
    encoder = modeling.AlbertEncoder(TINY)
    call = tf.function(lambda: encode(encoder, features())["pooled_output"])
    with execution.using(execution.Execution(constant_kernels=True)):
        traced = call.get_concrete_function()
    before = traced()
    sizes = [
        len(node.attr["value"].tensor.tensor_content)
        for function in traced.graph.as_graph_def().library.function
        for node in function.node_def
    ]
    # In the loop's body: query, key and value; attention output; two of the
    # feed-forward sub-layer.
    hidden, inner = TINY.hidden_size, TINY.intermediate_size
    shared = [3 * hidden**2, hidden**2, hidden * inner, hidden * inner]
    assert sorted(s // 4 for s in sizes if s > 100) == sorted(shared)
    for weight in encoder.weights:
        if weight.canonical_name.endswith("kernel"):
            weight.assign(weight * 2.0)
    np.testing.assert_array_equal(traced(), before)
    assert np.abs(encode(encoder, features())["pooled_output"] - before).max()
    assert not execution.current().constant_kernels


@pytest.mark.parametrize("policy", layers.POLICIES.values())
def test_training_gives_every_weight_a_gradient(policy):
    model = heads.AlbertForPreTraining(TINY, dtype=policy)
    weights = modeling.named_weights(model)

    @tf.function
    def differentiate():
        with tf.GradientTape() as tape:
            ratios = model.ratios(
                features(), training=True, seed=tf.constant([1, 2])
            )
            loss = sum(ratios[name].total for name in model.loss_scales)
        return tape.gradient(loss, {n: w.value for n, w in weights.items()})

    for name, gradient in differentiate().items():
        assert gradient is not None, name
        # Adding a constant to all scores of a row has no effect.
        if not name.endswith("self/key/bias"):
            assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, name


@pytest.mark.parametrize("changes", [{}, {"inner_group_num": 2}])
def test_all_layers_are_found_without_lists_in_lists(changes):
    """Before version 3.15, Keras saves no others."""
    encoder = modeling.AlbertEncoder(dataclasses.replace(TINY, **changes))
    found, left = set(), [encoder]
    while left:
        layer = left.pop()
        found |= set(map(id, layer._trainable_variables))
        for value in vars(layer).values():
            items = value if isinstance(value, list) else [value]
            left += [x for x in items if isinstance(x, keras.layers.Layer)]
    assert found == set(map(id, encoder.trainable_variables))
