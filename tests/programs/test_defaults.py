"""Names and defaults of flags, against the release's."""

import dataclasses
import json

import pytest

from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.commands.run_race import RaceFlags
from albert_tf.commands.run_squad import SquadFlags

# Ours are None: the release's default would replace what the model or another
# flag says.
UNSET = {
    "run_classifier": {
        "do_lower_case": True,
        "eval_batch_size": 8,
        "predict_batch_size": 8,
        "threshold_to_export": "float('nan')",
    },
    "run_squad_v1": {"do_lower_case": True, "predict_batch_size": 8},
    "run_squad_v2": {
        "do_lower_case": True,
        "dropout_prob": 0.1,
        "predict_batch_size": 8,
    },
    "run_race": {
        "do_lower_case": True,
        "dropout_prob": 0.1,
        "eval_batch_size": 8,
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
