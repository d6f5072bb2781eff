"""The page about a training: whole, true to the files, and safe to open."""

import base64
import dataclasses
import hashlib
import html
import json
import os
import re
import shutil

import numpy as np
import pytest
from sklearn import metrics

from albert_tf.commands.report import ReportFlags
from albert_tf.programs import run_classifier
from albert_tf.reports import mistakes, page, plots, report
from albert_tf.training import results_file
from albert_tf.weights import task_heads
from tests import pages
from tests.programs import classifier_runs as runs

EVIL = (
    "<script>document.title = 'run'</script><img src=x onerror=alert(1)> & w1"
)
RED = (214, 39, 40)  # matplotlib's tab:red, in which evaluations are drawn.


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model):
    """Folder of a classifier's run; its dev data holds markup."""
    folder = tmp_path_factory.mktemp("trained")
    args = runs.build_args(folder, model)
    rows = [*runs.make_rows(20, seed=2), (EVIL, 1), (EVIL, 0)]
    runs.write_table(folder / "data" / "SST-2" / "dev.tsv", rows)
    run_classifier.run(dataclasses.replace(args, do_predict=False))
    return folder / "out"


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "out")


def read_page(folder, **kwargs):
    """Writes the page about a folder, and parses it."""
    report.run(ReportFlags(output_dir=str(folder), **kwargs))
    path = kwargs.get("output_file") or folder / "report.html"
    with open(path, encoding="utf-8") as file:
        return pages.Page(file.read())


def write_rows(folder, rows):
    lines = (json.dumps({"step": 8, "id": str(i)} | r) for i, r in rows)
    path = folder / "dev_predictions.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))


def edit_task(folder, task):
    values = json.loads((folder / "run.json").read_text())
    values["made_of"]["task"] = task
    (folder / "run.json").write_text(json.dumps(values))


def test_a_page_is_whole_and_loads_nothing(folder):
    pytest.importorskip("matplotlib")
    page = read_page(folder)
    sections = ["results", "curves", "examples", "settings", "flags"]
    assert [i for i in page.ids if i in sections] == sections
    assert len(page.ids) == len(set(page.ids))
    # Loss, accuracy and learning rate.
    assert page.tags["svg"] == 3
    assert not page.tags.keys() & {"img", "link", "iframe", "object"}
    assert page.tags["script"] == 1
    assert page.links and all(link.startswith("#") for link in page.links)
    assert "Finished: 12 steps." in page.text
    assert not list(folder.glob("*.incomplete"))


def test_texts_are_shown_as_they_are(folder):
    page = read_page(folder)
    texts = [row[-1] for row in page.tables["examples"][-1]]
    # One of the two has the other label.
    assert texts.count(EVIL) == 1


def test_the_numbers_are_those_of_the_run(folder):
    page = read_page(folder)
    results = runs.results_of(folder)
    rows = results_file.read_results(folder)
    best = task_heads.best_row(rows, "eval_accuracy")
    (table,) = page.tables["results"]
    assert table[0][1:3] == [
        f"best (step {best['global_step']:.0f})",
        "last (step 12)",
    ]
    accuracy = dict((row[0], row[1:]) for row in table)["eval_accuracy"]
    assert accuracy[0] == f"{float(best['eval_accuracy']):.4f}"
    assert accuracy[1] == f"{float(results[-1]['eval_accuracy']):.4f}"
    matrix, scores, wrong = page.tables["examples"]
    counts = [[int(cell) for cell in row[1:]] for row in matrix[1:]]
    assert sum(map(sum, counts)) == 22
    supports = [int(row[-1]) for row in scores[1:]]
    assert supports == [*map(sum, counts), 22]
    share = (counts[0][0] + counts[1][1]) / 22
    assert share == pytest.approx(float(best["eval_accuracy"]))
    probabilities = [float(row[3]) for row in wrong[1:]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len(wrong) - 1 == min(12, counts[0][1] + counts[1][0])
    assert all(row[1] != row[2] for row in wrong[1:])
    flags = dict(page.tables["flags"][0])
    assert flags["--train_batch_size"] == "8" and "--use_tpu" not in flags
    settings = dict(page.tables["settings"][0])
    assert settings["config.hidden_size"] == "12"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("run.json", "settings are unknown"),
        ("flags.json", "flags are unknown"),
        ("metrics.jsonl", "There is no evaluation.*there are no curves"),
        ("summary.json", None),
        ("dev_predictions.jsonl", "only fine-tuning with dev data"),
    ],
)
def test_a_missing_file_leaves_its_section_out(folder, name, sentence):
    (folder / name).unlink()
    text = read_page(folder).text
    assert "Curves" in text and "Flags" in text
    if sentence:
        assert re.search(rf"{sentence}", text, re.S)
        assert f"There is no {name} in the folder" in text


def test_a_run_that_has_only_begun_has_a_page(folder):
    for path in folder.iterdir():
        if path.is_file() and path.name != "run.json":
            path.unlink()
    (folder / "metrics.jsonl").write_text("")
    assert "there are no curves" in read_page(folder).text


def test_initial_weights_are_not_the_best_checkpoint():
    accuracies = {0: 0.6, 100: -0.2, 200: -0.1}
    evaluations = [
        {"split": "eval", "step": step, "masked_lm_accuracy": accuracy}
        for step, accuracy in accuracies.items()
    ]
    made_of = {"task": {"sentence_objective": "sop"}}
    run = report.Run("", {"made_of": made_of}, {}, {}, evaluations, [], {})
    assert "best (step 200)" in report.tabulate_results(run)
    run = dataclasses.replace(run, records=evaluations[:1])
    assert "best (step 0)" in report.tabulate_results(run)


def write_evaluations(folder, accuracies):
    """Replaces the records by evaluations: pairs of step and accuracy."""
    records = (
        {"split": "eval", "step": step, "eval_accuracy": accuracy}
        for step, accuracy in accuracies
    )
    lines = (json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text("".join(lines))


def test_evaluations_are_in_the_order_of_their_steps(folder):
    """A checkpoint may be scored after later ones."""
    write_evaluations(folder, [(8, 0.25), (12, 0.5), (4, 0.75)])
    (table,) = read_page(folder).tables["results"]
    assert table[0][1:3] == ["best (step 4)", "last (step 12)"]


@pytest.mark.parametrize(
    ("step", "tested", "is_shown"),
    [(8, {}, True), (4, {}, False), (4, {"global_step": 4}, True)],
)
def test_test_scores_of_an_earlier_best_checkpoint_are_left_out(
    folder, step, tested, is_shown
):
    write_evaluations(folder, [(4, 0.25), (8, 0.5)])
    summary = {"best": {"global_step": step}}
    summary["test"] = [{"mine": {"eval_accuracy": 0.375}, **tested}]
    (folder / "summary.json").write_text(json.dumps(summary))
    page = read_page(folder)
    assert ("Scores on test data (mine)" in page.text) == is_shown
    assert (len(page.tables["results"]) == 2) == is_shown


def test_a_metric_that_is_not_a_number_has_no_best_checkpoint(folder):
    write_evaluations(folder, [(4, np.nan), (8, np.nan)])
    (table,) = read_page(folder).tables["results"]
    assert table[0][1] == "last (step 8)"


def test_labels_of_several_numbers_have_no_table(folder):
    """As of a task of one's own."""
    edit_task(folder, {"name": "rating"})
    numbers = {"label": [0.5, 1.0], "prediction": [0.25, 0.5], "text": ["w1"]}
    write_rows(folder, [("0", numbers)])
    page = read_page(folder)
    assert "for 1 dev examples" in page.text
    assert not page.tables.get("examples")


def test_without_settings_the_title_is_the_folder(folder):
    (folder / "run.json").unlink()
    read_page(folder)
    content = (folder / "report.html").read_text()
    assert "<title>out</title>" in content


def test_a_running_training_says_how_far_it_is(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines = [line for line in lines if '"warning"' not in line]
    (folder / "metrics.jsonl").write_text("".join(lines[:3]) + '{"spl')
    assert "Unfinished: step 8 of 12." in read_page(folder).text


def test_without_matplotlib_all_but_plots_is_there(folder, monkeypatch):
    def refuse():
        raise ImportError("Plots require matplotlib: pip install it.")

    monkeypatch.setattr(report.plot_metrics, "import_matplotlib", refuse)
    page = read_page(folder)
    assert "Plots require matplotlib" in page.text
    assert page.tables["examples"] and not page.tags["svg"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {},
            "contains no training: neither run.json nor metrics.jsonl. Wanted",
        ),
        (
            {"run_1/metrics.jsonl": "", "run_2/metrics.jsonl": ""},
            "subfolders run_1, run_2 do; give one of them",
        ),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    with pytest.raises(FileNotFoundError, match=message):
        report.run(ReportFlags(output_dir=str(tmp_path)))
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", "run.json is not JSON"),
        (
            "run.json",
            '{"made_of": []}',
            "made_of or its task is not a JSON object",
        ),
        ("metrics.jsonl", "x\n", "metrics.jsonl, line 1 is not JSON"),
        ("dev_predictions.jsonl", '{"id": "0"}\n', "line 1 lacks label, pred"),
    ],
)
def test_a_damaged_file_is_an_error(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        report.run(ReportFlags(output_dir=str(folder)))


def test_another_place_is_taken_and_another_ending_refused(folder, tmp_path):
    path = str(tmp_path / "pages" / "x.html")
    read_page(folder, output_file=path)
    assert os.path.exists(path) and not (folder / "report.html").exists()
    with pytest.raises(ValueError, match="must end in .html"):
        ReportFlags(output_dir="out", output_file="out/run.json")


def test_a_regression_has_a_scatter_and_what_is_farthest_off(folder):
    pytest.importorskip("matplotlib")
    edit_task(folder, {"name": "sts-b", "objective": "regression"})
    pairs = [(1.0, 1.5), (5.0, 0.25), (2.0, 2.0)]
    write_rows(
        folder,
        enumerate(
            {"label": y, "prediction": z, "text": ["<a>", "b"]}
            for y, z in pairs
        ),
    )
    page = read_page(folder)
    assert "Prediction against label" in page.text
    (table,) = page.tables["examples"]
    assert table[1] == ["1", "5.0000", "0.2500", "<a>\nb"]
    assert [row[0] for row in table[1:]] == ["1", "0", "2"]


def test_each_of_several_labels_is_counted(folder):
    labels = ["a", "b", "c"]
    edit_task(
        folder, {"name": "x", "objective": "multi_label", "labels": labels}
    )
    rows = [
        (["a", "b"], ["a"], [0.9, 0.2, 0.1]),
        ([], ["c"], [0.1, 0.2, 0.7]),
        (["a"], ["a"], [0.8, 0.1, 0.1]),
    ]
    write_rows(
        folder,
        enumerate(
            {"label": y, "prediction": z, "probabilities": p, "text": ["t"]}
            for y, z, p in rows
        ),
    )
    counts, scores, wrong = read_page(folder).tables["examples"]
    assert scores[1:] == [
        ["a", "1.0000", "1.0000", "1.0000", "2"],
        ["b", "0.0000", "0.0000", "0.0000", "1"],
        ["c", "0.0000", "0.0000", "0.0000", "0"],
        ["Macro average", "0.3333", "0.3333", "0.3333", "3"],
    ]
    assert counts[1:] == [
        ["a", "2", "0", "0"],
        ["b", "0", "1", "0"],
        ["c", "0", "0", "1"],
    ]
    (folder / "run.json").unlink()
    assert read_page(folder).tables["examples"][0][1][1:3] == ["a, b", "a"]
    # The second label of the first was thought least of.
    assert [row[0] for row in wrong[1:]] == ["0", "1"]
    assert wrong[1][1:4] == ["a, b", "a", "0.8000"]
    assert wrong[2][1:3] == ["(none)", "c"]


def test_answers_are_sorted_from_the_worst(folder):
    edit_task(folder, {"name": "squad_v2"})
    rows = [
        (["x y"], "x", 0.67, 0.9),
        (["x"], "x", 1.0, 0.9),
        ([], "x", 0.0, 0.5),
        (["<x>", "<x>"], "", 0.0, 0.8),
    ]
    write_rows(
        folder,
        enumerate(
            {"label": y, "prediction": z, "f1": f, "probability": p}
            | {"text": ["?"]}
            for y, z, f, p in rows
        ),
    )
    (table,) = read_page(folder).tables["examples"]
    assert [row[0] for row in table[1:]] == ["3", "2", "0"]
    assert table[1][1:5] == ["?", "<x>", "(none)", "0.0000"]


def test_tags_are_known_without_the_settings(folder):
    (folder / "run.json").unlink()
    tags = {"label": ["B-A", "O"], "prediction": ["O", "O"]}
    write_rows(folder, [("0", tags | {"text": ["w1", "w2"]})])
    page = read_page(folder)
    *_, wrong = page.tables["examples"]
    assert wrong[1] == ["0", "1", "w1 [B-A → O] w2"]


def test_choices_show_the_right_and_the_chosen_one(folder):
    edit_task(folder, {"name": "race", "max_qa_length": 8})
    row = {"text": ["Is p", "Is q", "Is r", "Is s"]}
    row |= {"probabilities": [0.1, 0.2, 0.3, 0.4]}
    write_rows(
        folder,
        enumerate(
            [
                row | {"label": "B", "prediction": "D"},
                row | {"label": "D", "prediction": "D"},
            ]
        ),
    )
    (table,) = read_page(folder).tables["examples"]
    assert table[1:] == [["0", "B: Is q", "D: Is s", "0.4000"]]


def test_more_labels_than_a_matrix_shows_are_pairs():
    labels = [f"l{i}" for i in range(30)]
    rows = [
        {"label": a, "prediction": b}
        for a, b in [("l1", "l1")] * 9 + [("l2", "l3")] * 4 + [("l4", "l5")] * 7
    ]
    page = pages.Page(mistakes.tabulate_confusion(rows, labels))
    (table,) = page.tables[None]
    assert table[1:] == [["l4", "l5", "7"], ["l2", "l3", "4"]]


def test_scores_of_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    gold, predicted = rng.choice(list("abcd"), size=[2, 50])
    rows = [
        {"label": str(y), "prediction": str(z)}
        for y, z in zip(gold, predicted, strict=True)
    ]
    wanted = metrics.classification_report(gold, predicted, output_dict=True)
    # The label "e" does not occur.
    found = pages.Page(mistakes.tabulate_scores(rows, list("edcba")))
    (table,) = found.tables[None]
    names = {"Macro average": "macro avg"}
    assert [row[0] for row in table[1:]] == [*"dcba", "Macro average"]
    for name, *cells in table[1:]:
        values = wanted[names.get(name, name)]
        keys = "precision", "recall", "f1-score"
        assert cells == [
            *(f"{values[key]:.4f}" for key in keys),
            f"{values['support']:.0f}",
        ]


def test_of_many_labels_the_worst_are_shown():
    names = [f"l{i:02}" for i in range(30)]
    rows = [{"label": x, "prediction": x} for x in names * 2]
    rows += [{"label": "l28", "prediction": "l29"}]
    (table,) = pages.Page(mistakes.tabulate_scores(rows, names)).tables[None]
    assert len(table) == 2 + mistakes.NUM_SHOWN
    assert table[1] == ["l28", "1.0000", "0.6667", "0.8000", "3"]
    assert table[-1][-1] == "61"


def test_the_baseline_is_a_line_in_the_plots_of_scores(folder):
    pytest.importorskip("matplotlib")
    read_page(folder)
    content = (folder / "report.html").read_text()
    figures = re.findall(
        r'</figcaption><div role="img" aria-label="(.*?)"(.*?)</svg>',
        content,
        re.S,
    )
    have = {title: "baseline" in figure for title, figure in figures}
    assert have == {"Loss": True, "Accuracy": True, "Learning rate": False}


def test_a_run_whose_name_begins_with_an_underscore_is_in_the_legends():
    """Without being asked, matplotlib leaves it out."""
    pytest.importorskip("matplotlib")
    runs = dict.fromkeys(["_a", "b"], {("eval", "f1"): ([1, 2], [0.5, 0.25])})
    (figure,) = plots.draw_curves(runs, {"f1": 0.125})
    for label in ("_a: eval", "b: eval", "baseline"):
        assert f">{label}</text>" in figure


def test_warnings_are_at_the_top_with_their_last_numbers(folder):
    said = [(4, "The loss is 0.75. <b>"), (0, "Rare."), (8, "The loss is 0.5.")]
    said += [(12, "The loss is 0.25. <b>")]
    with open(folder / "metrics.jsonl", "w") as file:
        for step, text in said:
            record = {"split": "warning", "step": step, "text": text}
            file.write(json.dumps(record) + "\n")
    read_page(folder)
    content = (folder / "report.html").read_text()
    header = content.partition("</header>")[0]
    assert re.findall('<p class="warning">(.*?)</p>', header) == [
        "Warning at step 12, the last of 2 such: The loss is 0.25. &lt;b&gt;",
        "Warning at step 0: Rare.",
        "Warning at step 8: The loss is 0.5.",
    ]


def test_runs_are_shown_side_by_side(folder, trained, tmp_path):
    other = shutil.copytree(trained, tmp_path / "<b>$")
    lines = (other / "metrics.jsonl").read_text()
    (other / "metrics.jsonl").write_text(
        re.sub('"eval_loss": [0-9.]+', '"eval_loss": 0.5', lines)
    )
    values = json.loads((other / "run.json").read_text())
    values["made_of"]["optimizer"]["learning_rate"] = 7.0
    values["made_of"]["vocabulary"]["sha256"] = "0123456789abcdef"
    (other / "run.json").write_text(json.dumps(values))
    page = read_page(folder, compare=str(other))
    scores, settings = page.tables["beside"]
    assert scores[0] == ["", "out", "<b>$", "difference"]
    ((_, mine, its, difference),) = [r for r in scores if r[0] == "eval_loss"]
    assert its == "0.5000" and difference[0] in "+-"
    assert float(difference) == pytest.approx(0.5 - float(mine), abs=1e-4)
    assert dict((row[0], row[2]) for row in settings[1:]) == {
        "optimizer.learning_rate": "7.0",
        "vocabulary.sha256": "01234567",
    }
    # The rest of the page is about the first.
    assert dict(page.tables["settings"][0])["optimizer.learning_rate"] != "7.0"


def test_runs_with_the_same_settings_say_so(folder, trained):
    page = read_page(folder, compare=f"{trained},")
    assert "settings and data of the runs are the same" in page.text
    scores, *rest = page.tables["beside"]
    assert not rest and {row[3] for row in scores[1:]} == {"+0.0000"}


def test_a_run_beside_itself_is_refused(folder):
    with pytest.raises(ValueError, match="--compare=.* repeats a folder"):
        ReportFlags(output_dir=str(folder), compare=f"{folder}/")


def test_long_texts_are_cut():
    assert mistakes.clip("a" * 400) == "a" * 400
    assert mistakes.clip("ab " * 400) == ("ab " * 134)[:400].rstrip() + " …"


# In a real browser.


def test_a_browser_shows_the_plots(folder):
    image = pytest.importorskip("matplotlib.image")
    read_page(folder)
    path = folder / "report.html"
    seen = pages.browse(path, "--dump-dom")
    assert "<title>sst-2: out</title>" in seen  # No script has changed it.
    for title in ("Loss", "Accuracy", "Learning rate"):
        (figure,) = re.findall(
            rf'<div role="img" aria-label="{title}"[^>]*>.*?</div>', seen, re.S
        )
        assert figure.count("<path") > 5
    picture = folder / "seen.png"
    pages.browse(path, f"--screenshot={picture}", "--window-size=900,1200")
    pixels = 255 * image.imread(picture)[..., :3]
    assert (abs(pixels - RED).max(axis=-1) < 8).sum() > 100


def run_script(path, script):
    """What a browser shows of a page once a further script has run.

    The policy of the page permits it, by its hash.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = path.read_text()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ")
    text = text.replace("</body>", f"<script>{script}</script></body>")
    changed = path.with_name("changed.html")
    changed.write_text(text)
    return pages.browse(changed, "--dump-dom")


def test_a_click_sorts_a_table(folder):
    read_page(folder)
    click = """
        const heads = document.querySelectorAll("#examples thead button");
        const find = (text, i) =>
          [...heads].filter((x) => x.textContent === text)[i];
        find("Support", 0).click();
        find("Support", 0).click();
        find("Probability", 0).click();
    """
    page = pages.Page(run_script(folder / "report.html", click))
    _, scores, wrong = page.tables["examples"]
    one, two, average = [int(row[-1]) for row in scores[1:]]
    assert one > two and average == one + two  # It stays below.
    probabilities = [float(row[3]) for row in wrong[1:]]
    assert probabilities == sorted(probabilities) and len(probabilities) > 2
    assert page.text.lstrip().startswith(
        "sst-2: out"
    )  # No text has been executed.


def test_a_click_sorts_by_the_first_number_of_a_cell(tmp_path):
    columns = [
        ["", "", "240 ± 1 (2)", "5,432 ± 10 (2)", "12,000 ± 3 (2)"],
        ["9,999 (2.1%)", "91,648 (0.8%)", "3,840,000 (32.9%)"],
        ["-2", "1e-05", "3.5%", "20%"],
        ["2 or 1", "2 or 3", "2 or 10", "a2", "a10", "b"],
    ]
    for column in columns:
        rows = [[text] for text in column[::-1]]
        content = page.section("x", page.table(rows, head=["n"]), name="x")
        (tmp_path / "x.html").write_text(page.page("x", content))
        click = "document.querySelector('thead button').click();"
        seen = run_script(tmp_path / "x.html", click)
        (table,) = pages.Page(seen).tables["x"]
        assert [text for (text,) in table[1:]] == column


def test_pointing_at_a_curve_shows_step_and_values(folder, trained, tmp_path):
    pytest.importorskip("matplotlib")
    other = shutil.copytree(trained, tmp_path / "<b>'x")
    read_page(folder, compare=str(other))
    point = """
        for (const figure of document.querySelectorAll(".curves")) {
          const box = figure.firstElementChild.getBoundingClientRect();
          const clientX = box.right - 20;
          figure.dispatchEvent(new PointerEvent("pointermove", { clientX }));
        }
    """
    seen = run_script(folder / "report.html", point)
    outputs = re.findall("<output>(.*?)</output>", seen)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    last = {r["split"]: r for r in map(json.loads, lines) if r["step"] == 12}
    values = {
        "train": f"{last['train']['accuracy']:.5g}",
        "eval": f"{last['eval']['eval_accuracy']:.5g}",
    }
    assert html.unescape(outputs[1]) == ": step 12, " + ", ".join(
        f"{name}: {split} {values[split]}"
        for name in ("out", "<b>'x")
        for split in ("train", "eval")
    )
    assert len(outputs) == 3
