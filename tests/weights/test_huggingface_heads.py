"""Fine-tuned models go to Hugging Face's form and back with their heads."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf.commands.inspect_checkpoint import InspectFlags
from albert_tf.model import heads, modeling, span_heads, tag_heads
from albert_tf.programs import inspect_checkpoint
from albert_tf.weights import (
    checkpoints,
    initialization,
    pretrained,
    task_heads,
)
from albert_tf.weights.safetensor_files import WEIGHTS_FILE
from albert_tf.weights.task_heads import TaskHead
from tests import tiny
from tests.weights.test_huggingface import inputs, rewrite
from tests.weights.test_pretrained import TINY, convert

NAMES = ("no", "maybe", "yes")
# A head, its number of outputs, and what transformers calls its model.
HEADS = {
    "classes": (TaskHead("classes", NAMES), 3, "SequenceClassification"),
    "unnamed": (TaskHead("classes"), 2, "SequenceClassification"),
    "multi_label": (
        TaskHead("multi_label", NAMES),
        3,
        "SequenceClassification",
    ),
    "regression": (TaskHead("regression"), 1, "SequenceClassification"),
    "choices": (TaskHead("choices"), 1, "MultipleChoice"),
    "spans": (TaskHead("spans"), 2, "QuestionAnswering"),
    "tags": (TaskHead("tags", ("O", "B-X", "I-X")), 3, "TokenClassification"),
}


def build(kind, config, num_outputs):
    if kind == "choices":
        return heads.AlbertMultipleChoice(config)
    if kind == "spans":
        return span_heads.AlbertSpans(config)
    if kind == "tags":
        return tag_heads.AlbertTagger(config, num_labels=num_outputs)
    if kind == "conditional_spans":
        return span_heads.AlbertConditionalSpans(config)
    return heads.AlbertClassifier(
        config, num_labels=num_outputs, objective=kind
    )


def tuned_model(folder, head, num_outputs=3, **changes):
    """Writes a model with a head and random weights; returns its values."""
    config = dataclasses.replace(TINY, **changes)
    rng = np.random.default_rng(1)
    values = {
        name: rng.normal(0.1, 0.2, weight.shape).astype(np.float32)
        for name, weight in modeling.named_weights(
            build(head.kind, config, num_outputs)
        ).items()
    }
    folder.mkdir()
    pretrained.write_pretrained(
        folder,
        pretrained.Pretrained(str(folder), values, config, head=head),
        "own",
    )
    return values


def logits_of(folder, kind):
    """Our logits of `inputs()`; its two rows are choices for that kind."""
    found = pretrained.read_pretrained(folder)
    num_outputs = len(found.values.get("output_bias", ()))
    model = pretrained.build_model(
        lambda config: build(kind, config, num_outputs), found
    )
    names = ("input_ids", "input_mask", "segment_ids")
    features = {
        name: x.astype(np.int32)[np.newaxis] if kind == "choices" else x
        for name, x in zip(names, inputs(), strict=True)
    }
    return [value.numpy() for value in model(features).values()]


def compare(ours, theirs, kind):
    is_real = np.ones(1, bool)
    if kind in ("spans", "tags"):
        # Masked tokens are computed otherwise there.
        is_real = inputs()[1] == 1
        ours, theirs = ([x[is_real] for x in y] for y in (ours, theirs))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", ["classes", "choices", "spans"])
def test_a_recorded_head_of_transformers_computes_the_same_here(golden, name):
    folder = golden(f"huggingface/{name}")
    assert pretrained.read_pretrained(folder).head == HEADS[name][0]
    theirs = dict(np.load(folder / "outputs.npz"))
    compare(logits_of(folder, name), theirs.values(), name)


@pytest.mark.parametrize("form", ["tf1", "own"])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_survives_a_conversion_and_back(tmp_path, name, form):
    head, num_outputs, architecture = HEADS[name]
    values = tuned_model(tmp_path / "a", head, num_outputs)
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    described = json.loads((tmp_path / "b" / "config.json").read_text())
    assert described["architectures"] == [f"AlbertFor{architecture}"]
    assert pretrained.read_pretrained(tmp_path / "b").head == head
    convert(tmp_path / "b", tmp_path / "c", format=form)
    copy = pretrained.read_pretrained(tmp_path / "c")
    assert copy.head == head
    assert copy.values.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(copy.values[name], value)


@pytest.mark.parametrize("write", [tiny.write_classifier, tiny.write_tagger])
def test_the_length_of_training_survives_a_conversion(tmp_path, write):
    start = pretrained.read_pretrained(write(tmp_path))
    lengths = {"max_seq_length": 4}
    head = dataclasses.replace(start.head, lengths=lengths)
    start = dataclasses.replace(start, head=head)
    folder = tmp_path / "hf"
    folder.mkdir()
    pretrained.write_pretrained(folder, start, "hf")
    assert pretrained.read_pretrained(folder).head.lengths == lengths
    # Other models may have fewer positions than their tokenizer allows.
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"model_max_length": 900}
    path.write_text(json.dumps(settings))
    found = pretrained.read_pretrained(folder)
    positions = found.config.max_position_embeddings
    assert found.head.lengths == {"max_seq_length": positions}


def test_transformers_has_no_threshold_of_few_layers(tmp_path, capsys):
    head = TaskHead("classes", NAMES, threshold=0.25)
    tuned_model(tmp_path / "a", head)
    convert(tmp_path / "a", tmp_path / "b", format="own")
    assert pretrained.read_pretrained(tmp_path / "b").head == head
    assert "left out" not in capsys.readouterr().out
    inspect_checkpoint.run(InspectFlags(init_checkpoint=str(tmp_path / "b")))
    assert "threshold 0.25" in capsys.readouterr().out
    convert(tmp_path / "b", tmp_path / "c", format="hf")
    assert "exit_threshold=0.25 is left out" in capsys.readouterr().out
    assert pretrained.read_pretrained(tmp_path / "c").head == TaskHead(
        "classes", NAMES
    )


@pytest.mark.parametrize(
    ("name", "problem", "labels"),
    [
        ("classes", "single_label_classification", NAMES),
        ("unnamed", "single_label_classification", ("LABEL_0", "LABEL_1")),
        ("multi_label", "multi_label_classification", NAMES),
        ("regression", "regression", ("LABEL_0",)),
    ],
)
def test_labels_and_the_kind_of_problem_are_written(
    tmp_path, name, problem, labels
):
    tuned_model(tmp_path / "a", *HEADS[name][:2])
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    described = json.loads((tmp_path / "b" / "config.json").read_text())
    assert described["problem_type"] == problem
    assert described["id2label"] == dict(zip("012", labels, strict=False))
    assert described["label2id"] == {n: i for i, n in enumerate(labels)}


def test_labels_may_be_numbers(tmp_path):
    """As the values of id2label of who trained on a table of 0 and 1."""
    tuned_model(tmp_path / "a", *HEADS["unnamed"][:2])
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    path = tmp_path / "b" / "config.json"
    described = json.loads(path.read_text()) | {"id2label": {"0": 0, "1": 1}}
    path.write_text(json.dumps(described))
    found = pretrained.read_pretrained(tmp_path / "b")
    assert found.head == TaskHead("classes", ("0", "1"))


RELEASED = [
    (f"{task}_{name}", kind)
    for task, kind in (
        ("classifier_cola", "auto"),
        ("classifier_mnli", "auto"),
        ("classifier_sts-b", "regression"),
        ("race", "choices"),
        ("squad1", "auto"),
    )
    for name in "AC"
]


@pytest.mark.parametrize(("name", "head"), RELEASED)
def test_a_fine_tuned_model_of_the_release_survives_a_conversion_and_back(
    tmp_path, golden, name, head
):
    source = golden(f"heads/{name}")
    convert(source, tmp_path / "b", format="hf", head=head)
    convert(tmp_path / "b", tmp_path / "c", format="own")
    wanted = pretrained.read_pretrained(source)
    copy = pretrained.read_pretrained(tmp_path / "c")
    assert wanted.values.keys() == copy.values.keys()
    assert wanted.config == copy.config
    for name, value in wanted.values.items():
        np.testing.assert_array_equal(copy.values[name], value)


def test_an_ambiguous_head_must_be_given(tmp_path):
    tuned_model(tmp_path / "a", TaskHead("choices"), 1)
    (tmp_path / "a" / task_heads.HEAD_FILE).unlink()
    with pytest.raises(ValueError, match="one output.*head=choices"):
        convert(tmp_path / "a", tmp_path / "b", format="hf")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    convert(tmp_path / "a", tmp_path / "b", format="own", head="regression")
    assert pretrained.read_pretrained(tmp_path / "b").head == TaskHead(
        "regression"
    )


def test_the_head_of_squad_2_is_refused(tmp_path):
    tuned_model(tmp_path / "a", TaskHead("conditional_spans"))
    with pytest.raises(ValueError, match=r"SQuAD 2\.0, with ends that depend"):
        convert(tmp_path / "a", tmp_path / "b", format="hf")
    convert(tmp_path / "a", tmp_path / "b", format="tf1")


def test_a_weight_without_a_place_is_refused(tmp_path):
    values = tuned_model(tmp_path / "a", *HEADS["classes"][:2])
    more = {**values, "my_head/kernel": np.ones(3, "f4")}
    checkpoints.write_checkpoint(str(tmp_path / "a/model.ckpt-best"), more)
    with pytest.raises(ValueError, match=r"ALBERT lacks 1 .*my_head/kernel"):
        convert(tmp_path / "a", tmp_path / "b", format="hf")


@pytest.mark.parametrize(
    ("name", "told", "message"),
    [
        ("classes", "choices", r"has 3 outputs; .*'choices' .* has 1\."),
        ("spans", "classes", "head spans; the specified head is 'classes'"),
        (None, "classes", "--head=classes, but .* has no task head"),
        ("vectors", "classes", "--head=classes, but .* has no task head"),
    ],
)
def test_a_wrong_head_is_refused(tmp_path, name, told, message):
    if name in HEADS:
        tuned_model(tmp_path / "a", *HEADS[name][:2])
    else:
        values = tuned_model(tmp_path / "a", TaskHead("classes"))
        body = {n: v for n, v in values.items() if n.startswith("bert/")}
        checkpoints.write_checkpoint(str(tmp_path / "a/model.ckpt-best"), body)
        path = tmp_path / "a" / task_heads.HEAD_FILE
        path.unlink()
        if name:
            path.write_text('{"kind": "vectors", "pooling": "cls"}')
    with pytest.raises(ValueError, match=message):
        convert(tmp_path / "a", tmp_path / "b", head=told)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"kind": "words"}', r"head\.json is invalid: .*'words'; wanted one"),
        ('{"kind": ["classes"]}', r"head\.json is invalid: .*\['classes'\]"),
        ('{"kind": "classes", "labels": "ab"}', "labels are 'ab'; wanted a"),
        ('{"kind": "classes", "labels": ["a"]}', r"\('a',\) has 1\. Was"),
        ("[]", r"head\.json: found JSON of type list"),
        (
            '{"kind": "conditional_spans", "null_score_diff_threshold": "1"}',
            "head's null_score_diff_threshold is '1'; wanted a number",
        ),
        (
            '{"kind": "conditional_spans", "null_score_diff_threshold": NaN}',
            "threshold is nan; wanted a number",
        ),
        (
            '{"kind": "classes", "exit_threshold": true}',
            "head's exit_threshold is True; wanted a number",
        ),
        (
            '{"kind": "classes", "lengths": {"max_seq_length": "64"}}',
            "head's lengths are .* wanted an object of positive integers",
        ),
        (
            '{"kind": "classes", "has_pairs": "yes"}',
            "head's has_pairs is 'yes'; wanted true or false",
        ),
        (
            '{"kind": "vectors", "pooling": "cls", "is_normalized": null}',
            "head's is_normalized is None; wanted true or false",
        ),
    ],
)
def test_a_damaged_head_json_is_refused(tmp_path, content, message):
    tuned_model(tmp_path / "a", *HEADS["classes"][:2])
    (tmp_path / "a" / task_heads.HEAD_FILE).write_text(content)
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(tmp_path / "a")


@pytest.mark.parametrize("kind", ["regression", "multi_label", "spans"])
def test_a_threshold_needs_a_head_that_has_one(kind):
    with pytest.raises(ValueError, match=f"'{kind}' has the threshold 0.5; "):
        TaskHead(kind, threshold=0.5)


@pytest.fixture
def folder(tmp_path):
    """A classifier of three classes in Hugging Face's form."""
    tuned_model(tmp_path / "a", *HEADS["classes"][:2])
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    return tmp_path / "b"


def edit(folder, **changes):
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in values.items() if v != "-"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"problem_type": "tags"},
            r"problem_type 'tags'; wanted one of single",
        ),
        ({"problem_type": ["regression"]}, r"problem_type \['regression'\]"),
        ({"problem_type": "regression"}, "has 3 outputs; .*'regression'"),
        ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "id2label .* wanted"),
        ({"id2label": ["a", "b", "c"]}, "id2label .* wanted names for '0'"),
        ({"id2label": {"0": "a", "1": "b"}}, r"\('a', 'b'\) has 2\. Was"),
    ],
)
def test_a_config_that_contradicts_its_head_is_refused(
    folder, changes, message
):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(folder)


def test_what_a_config_leaves_out_is_as_transformers_takes_it(folder):
    edit(folder, problem_type=None, id2label="-", label2id="-")
    assert pretrained.read_pretrained(folder).head == TaskHead("classes")
    rewrite(
        folder,
        lambda w: {n: v[:1] if "classifier" in n else v for n, v in w.items()},
    )
    assert pretrained.read_pretrained(folder).head == TaskHead("regression")


def test_a_missing_head_is_an_error_and_an_unknown_one_is_left_out(folder):
    weights = rewrite(
        folder, lambda w: {n: v for n, v in w.items() if "classif" not in n}
    )
    with pytest.raises(
        ValueError, match=r"lacks 2 weights .*classifier\.weight"
    ):
        pretrained.read_pretrained(folder)
    path = folder / WEIGHTS_FILE
    safetensors.numpy.save_file(weights, path)
    edit(folder, architectures=["AlbertForSomethingElse"])
    found = pretrained.read_pretrained(folder)
    assert found.head is None
    assert found.remarks == ["omitted classifier.bias, classifier.weight"]


@pytest.mark.parametrize("body_only", [True, False])
@pytest.mark.parametrize("is_zero", [True, False])
def test_training_begins_without_a_pooler(folder, tmp_path, body_only, is_zero):
    """AlbertForMaskedLM has no pooler; `add_pooler` writes one of zeros."""
    found = pretrained.read_pretrained(folder)
    for name in [n for n in found.values if "pooler" in n]:
        value = found.values.pop(name)
        if is_zero:
            found.values[name] = np.zeros_like(value)
    weights = modeling.named_weights(modeling.AlbertEncoder(TINY))
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)
    said = initialization.initialize(
        manager, weights, TINY, found, body_only=body_only
    )
    assert "new: bert/pooler/dense/bias, bert/pooler/dense/kernel" in said
    assert weights["bert/pooler/dense/kernel"].numpy().any()


def test_spans_without_a_pooler_get_one_of_zeros(tmp_path, golden):
    source = golden("huggingface/spans")
    before = safetensors.numpy.load_file(source / WEIGHTS_FILE)
    assert not any("pooler" in name for name in before)
    found = pretrained.read_pretrained(source)
    assert not found.values["bert/pooler/dense/kernel"].any()
    assert (
        "has no pooler; bert/pooler/dense was set to zeros" in found.remarks[0]
    )
    convert(source, tmp_path / "b", format="tf1")
    convert(tmp_path / "b", tmp_path / "c", format="hf")
    after = safetensors.numpy.load_file(tmp_path / "c" / WEIGHTS_FILE)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_another_task_begins_with_a_new_head_and_a_remark(folder, tmp_path):
    """The folder's head may have the names and shapes of the task's head."""
    model = heads.AlbertClassifier(TINY, num_labels=3)
    weights = modeling.named_weights(model)
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)
    mine = weights["output_weights"].numpy()
    found = pretrained.read_pretrained(folder)
    said = initialization.initialize(
        manager, weights, TINY, found, body_only=True
    )
    assert "new: output_bias, output_weights" in said
    np.testing.assert_array_equal(weights["output_weights"], mine)
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(weights[name], found.values[name])
