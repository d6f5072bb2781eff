"""The SQuAD task: thresholds, heads, warnings."""

import json
import types

import numpy as np
import pytest

from albert_tf.data import answers, squad, windows
from albert_tf.metrics import squad as metrics
from albert_tf.model import span_heads
from albert_tf.tasks.finetuning import FineTuning
from albert_tf.tasks.recipes import AnswerSettings, recall_answers
from albert_tf.tasks.squad import CHARACTER_F1, THRESHOLD, Answering, divide
from albert_tf.training import results_file
from albert_tf.weights import checkpoints, task_heads
from tests import tiny

WINDOWS = windows.WindowSettings(16, 4, 4)


def make_task(version, gold=None, threshold=None, **kwargs):
    """Returns a task with these gold answers: dict of question id -> texts."""
    asked = None
    if gold is not None:
        asked = squad.Squad(
            ["w1 w2"],
            [
                squad.Question(
                    name, "w0", 0, tuple(squad.Answer(t, 0) for t in texts)
                )
                for name, texts in gold.items()
            ],
        )
    settings = AnswerSettings(null_score_diff_threshold=threshold, **kwargs)
    return Answering(version, WINDOWS, asked=asked, settings=settings)


def test_no_question_is_answered_if_that_scores_best():
    given = answers.Answers(
        {"a": "x", "b": "y", "c": "z"}, {}, {"a": -2.0, "b": -1.0, "c": 1.0}
    )
    task = make_task("v2", {"a": [], "b": ["w"], "c": []})
    predictions, scores = task.score_answers(given)
    assert predictions == {"a": "", "b": "", "c": ""}
    assert scores["f1"] == scores["best_f1"] == pytest.approx(200 / 3)
    assert scores["best_f1_thresh"] == 0
    assert scores["null_score_diff_threshold"] == -2


def test_characters_are_counted_where_no_spaces_divide_words():
    gold = {"a": ["红楼梦"], "b": ["一九八四年", "1984年"], "c": ["x"]}
    found = {"a": "《红楼梦》", "b": "1984", "c": "y"}
    given = answers.Answers(found, {}, dict.fromkeys(found, -1.0))
    _, scores = make_task("v1", gold).score_answers(given)
    # SQuAD's script knows neither these quotes nor characters as words.
    assert scores["f1"] == scores["exact_match"] == 0
    assert scores[CHARACTER_F1] == pytest.approx(100 * (1 + 2 / 3) / 3)
    task = make_task("v2", {**gold, "c": []}, threshold=0)
    assert task.score_answers(given)[1][CHARACTER_F1] == scores[CHARACTER_F1]
    assert task.baseline[CHARACTER_F1] == pytest.approx(100 / 3)


def test_a_model_remembers_how_answers_were_chosen():
    task = make_task("v1", max_answer_length=70)
    assert recall_answers(task.head) == {"max_answer_length": 70}
    task = make_task("v2", start_n_top=20)
    assert AnswerSettings(**recall_answers(task.head)) == AnswerSettings(
        start_n_top=20
    )
    assert recall_answers(None) == {}


@pytest.mark.parametrize(
    ("gold", "found", "wanted"),
    [
        ("维生素A", "维生素", 6 / 7),
        ("维生素A", "维生素B", 3 / 4),
        ("3.5亿", "3.6亿", 1 / 2),
        ("1,234人", "1,235人", 1 / 2),
        ("A", "A", 1),
        ("25℃", "30℃", 0),
        ("10～20岁", "10～30岁", 1 / 2),
        # Vowels and tones belong to the letter before: บ้ า น, ป้ า.
        ("บ้าน", "ป้า", 2 / 5),
        ("กข", "กข\u200bค", 4 / 5),
    ],
)
def test_words_among_characters_are_those_of_mlqa(gold, found, wanted):
    """Its script removes punctuation first, and no articles."""
    score = metrics.score_f1(divide(gold), divide(found))
    assert score == pytest.approx(wanted)


def test_one_chinese_answer_leaves_the_scores_of_others_as_they_are():
    gold = {"a": ["红楼梦"], "b": ["a cat"]}
    given = answers.Answers({"a": "红楼", "b": "cat"}, {}, {})
    scores = make_task("v1", gold).score_answers(given)[1]
    assert scores == {"exact_match": 50, "f1": 50}


def test_training_questions_are_counted():
    train = types.SimpleNamespace(
        arrays={"question_index": np.array([0, 0, 2])}
    )
    assert Answering("v1", WINDOWS, train=train).num_train == 2
    assert Answering("v1", WINDOWS, train=train, num_train=5).num_train == 5
    assert Answering("v1", WINDOWS).num_train == 0


def test_each_version_has_its_head():
    one = make_task("v1").build_model(tiny.CONFIG)
    assert isinstance(one, span_heads.AlbertSpans)
    task = make_task("v2", start_n_top=3, end_n_top=4)
    two = task.build_model(tiny.CONFIG, dropout=0.3)
    assert (two.start_n_top, two.end_n_top) == (3, 4)
    assert two.dropout_prob == 0.3
    with pytest.raises(ValueError, match="version='v3'; wanted 'v1' or 'v2'"):
        make_task("v3")


def write_results(folder, *rows):
    folder.mkdir()
    head = task_heads.TaskHead("conditional_spans")
    (folder / task_heads.HEAD_FILE).write_text(
        json.dumps(task_heads.describe_head(head))
    )
    texts = [
        "".join(f"{name} = {value}\n" for name, value in row.items())
        for row in rows
    ]
    results_file.write_blocks(folder, texts)
    # Nobody needs it for the thresholds.
    (folder / results_file.RESULTS_FILE).unlink()


def test_an_export_has_the_threshold_of_the_best_score(tmp_path, capsys):
    (tmp_path / "here").mkdir()
    write_results(
        tmp_path / "there",
        {"f1": 90, "exact": 90, "global_step": 0, THRESHOLD: 7},
        {"f1": 40, "exact": 60, "global_step": 3, THRESHOLD: -1},
        {"f1": 60, "exact": 40, "global_step": 6, THRESHOLD: 1},
        {"exact": 99, "global_step": 9},
    )

    def write(write, folder, head, threshold):
        assert head.threshold == threshold
        return threshold

    def exported(task, folder="here", source=None, head=None, scored=None):
        tuning = types.SimpleNamespace(
            task=task,
            scored_threshold=scored,
            find_threshold=lambda: FineTuning.find_threshold(tuning),
            folder=str(tmp_path / folder),
            source=source or "/start/model.ckpt-best",
            start=types.SimpleNamespace(
                source="/start/model.ckpt-best", head=head
            ),
            reporter=types.SimpleNamespace(say=print),
            export=write,
        )
        return task.export(tuning, "somewhere")

    asking = make_task("v2")
    head = task_heads.TaskHead("conditional_spans", threshold=-2.5)
    for folder, step in (("there", 3), ("there", 8), ("nothing", 6)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"model.ckpt-{step}.index").touch()
    best = str(tmp_path / "there/model.ckpt-best")
    checkpoints.write_checkpoint(best, {checkpoints.STEP: np.int64(6)})
    # Scored here; a model that was scored elsewhere; trained here.
    assert exported(asking, head=head, scored=2.0) == 2
    assert asking.head.threshold is None
    assert exported(asking, head=head) == -2.5
    for step, threshold in (("best", 1), (3, -1)):
        source = str(tmp_path / f"there/model.ckpt-{step}")
        assert exported(asking, "there", source, head) == threshold
    assert "WARNING" not in capsys.readouterr().out
    unknown = task_heads.TaskHead("conditional_spans")
    assert exported(asking, head=unknown) == 0
    assert "ckpt-best was not scored" in capsys.readouterr().out
    # The threshold of the initial weights is not that of the trained ones.
    source = str(tmp_path / "nothing/model.ckpt-6")
    assert exported(asking, "nothing", source, head) == 0
    assert "ckpt-6 was not scored" in capsys.readouterr().out
    # Nor is that of another step, or of a model that was scored before.
    source = str(tmp_path / "there/model.ckpt-8")
    assert exported(asking, "there", source, head) == 0
    assert "ckpt-8 was not scored" in capsys.readouterr().out
    (tmp_path / "nothing/head.json").write_text(
        json.dumps(task_heads.describe_head(head))
    )
    source = str(tmp_path / "nothing/model.ckpt-6")
    assert exported(asking, "nothing", source) == -2.5
    for value in (0.0, -3.0):
        fixed = make_task("v2", {"a": ["w1"]}, threshold=value)
        assert exported(fixed) == value
    assert exported(make_task("v1", {"a": ["w1"]})) is None


@pytest.mark.parametrize(
    ("threshold", "wanted", "texts"),
    [
        (None, 0.5, ["w1", "", ""]),
        (1.0, 1.0, ["w1", "w2", ""]),
        (0.0, 0.0, ["w1", "", ""]),
    ],
)
def test_a_given_threshold_is_applied_and_reported(threshold, wanted, texts):
    given = answers.Answers(
        {"a": "w1", "b": "w2", "c": "w3"}, {}, {"a": -1.0, "b": 0.5, "c": 2.0}
    )
    gold = {"a": ["w1"], "b": ["w2"], "c": []}
    task = make_task("v2", gold, threshold=threshold)
    predictions, scores = task.score_answers(given)
    assert list(predictions.values()) == texts
    assert scores[THRESHOLD] == wanted
    assert scores["best_f1_thresh"] == 0.5
    np.testing.assert_allclose(
        scores["exact"], 100 * (1 + texts.count("w2") + 1) / 3
    )


def test_identical_answers_draw_a_warning(monkeypatch):
    said = []
    tuning = types.SimpleNamespace(
        reporter=types.SimpleNamespace(say=said.append),
        is_within_training=False,
    )
    task = make_task("v1", {str(i): ["w1"] for i in range(11)})
    for texts, is_told in ((["w1"] * 11, True), (["w1"] * 10 + [""], False)):
        best = {str(i): text for i, text in enumerate(texts)}
        nbest = {i: [{"text": t, "probability": 1}] for i, t in best.items()}
        given = answers.Answers(best, nbest, {})
        monkeypatch.setattr(task, "find_answers", lambda _, g=given: g)
        said.clear()
        task.score(tuning)
        assert any("every question with 'w1'" in s for s in said) == is_told
    tuning.is_within_training = True  # It may still learn.
    best = dict.fromkeys(best, "w1")
    given = answers.Answers(best, nbest, {})
    said.clear()
    task.score(tuning)
    assert not said
