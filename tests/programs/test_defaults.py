"""Names and defaults of flags, against the release's."""

import dataclasses
import json

import pytest

from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.commands.run_race import RaceFlags
from albert_tf.commands.run_squad import SquadFlags
from albert_tf.model.config import AlbertConfig

# Ours are None: the release's default would replace what the model, the data or
# another flag says. Lengths have it where the model has as many positions.
WINDOWS = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}
UNSET = {
    "run_classifier": {
        "do_lower_case": True,
        "eval_batch_size": 8,
        "max_seq_length": 512,
        "predict_batch_size": 8,
        "save_checkpoints_steps": 1000,
        "threshold_to_export": "float('nan')",
    },
    "run_squad_v1": {
        **WINDOWS,
        "do_lower_case": True,
        "max_answer_length": 30,
        "predict_batch_size": 8,
        "save_checkpoints_steps": 1000,
    },
    "run_squad_v2": {
        **WINDOWS,
        "do_lower_case": True,
        "dropout_prob": 0.1,
        "max_answer_length": 30,
        "predict_batch_size": 8,
        "save_checkpoints_steps": 1000,
    },
    "run_race": {
        "do_lower_case": True,
        "dropout_prob": 0.1,
        "eval_batch_size": 8,
        "max_qa_length": 128,
        "max_seq_length": 512,
        "predict_batch_size": 8,
    },
    "export_checkpoints": {"do_lower_case": True},
    "export_to_tfhub": {"do_lower_case": True},
}


@pytest.mark.parametrize(
    "name, flags",
    [
        ("run_classifier", ClassifierFlags),
        ("run_squad_v1", SquadFlags),
        ("run_squad_v2", SquadFlags),
        ("run_race", RaceFlags),
        ("export_checkpoints", ExportFlags),
        ("export_to_tfhub", ExportFlags),
    ],
)
def test_flags_have_the_names_and_defaults_of_the_release(shared, name, flags):
    path = shared / "spec" / "original_flags.json"
    theirs = json.loads(path.read_text())[name]
    ours = {field.name: field.default for field in dataclasses.fields(flags)}
    differing = {}
    for flag, described in theirs.items():
        default = described["default"]
        is_required = ours[flag] is dataclasses.MISSING
        assert not is_required or described["required"], flag
        if not is_required and ours[flag] != default:
            assert ours[flag] is None, flag
            differing[flag] = default
    assert differing == UNSET[name]


@pytest.mark.parametrize(
    ("positions", "given", "lengths"),
    [
        (512, {}, (384, 64, 128)),
        (128, {}, (128, 64, 30)),
        # As the release, whose windows do not overlap then.
        (512, {"max_seq_length": 128}, (128, 64, 128)),
        (32, {}, (32, 14, 7)),
        (32, {"max_query_length": 4, "doc_stride": 9}, (32, 4, 9)),
    ],
)
def test_lengths_of_squad_fit_the_model(positions, given, lengths):
    config = AlbertConfig(vocab_size=7, max_position_embeddings=positions)
    values = {"output_dir": "x", "do_predict": True, "predict_file": "x"}
    fitted = SquadFlags(**values, **given).fit(config)
    assert (
        tuple(
            getattr(fitted, name)
            for name in ("max_seq_length", "max_query_length", "doc_stride")
        )
        == lengths
    )


@pytest.mark.parametrize(
    ("positions", "lengths"),
    [(512, (512, 128)), (131, (131, 128)), (32, (32, 14))],
)
def test_lengths_of_race_fit_the_model(positions, lengths):
    config = AlbertConfig(vocab_size=7, max_position_embeddings=positions)
    fitted = RaceFlags(output_dir="x", data_dir="x").fit(config)
    assert (fitted.max_seq_length, fitted.max_qa_length) == lengths
