"""Tests of create_pretraining_data.py: whole runs on small text."""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import typing

import pytest
import tensorflow as tf

from albert_tf import filesystem, ownership
from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.data import processes
from albert_tf.data.pretraining import (
    masking,
    reading,
    records,
    rules,
    shards,
    sidecars,
    unfinished,
)
from albert_tf.programs import create_pretraining_data as program
from albert_tf.text import tokenization

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture
def folder(tmp_path):
    """A folder with a vocabulary and a text of 30 documents."""
    rng = random.Random(0)
    documents = [
        "\n".join(
            " ".join(rng.choices(WORDS, k=rng.randint(1, 15)))
            for _ in range(rng.randint(2, 20))
        )
        for _ in range(30)
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    return tmp_path


def flags_of(folder, **changes):
    values = {
        "input_file": f"{folder}/text.txt",
        "output_file": f"{folder}/a.tfrecord",
        "vocab_file": f"{folder}/vocab.txt",
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "dupe_factor": 3,
        "progress": False,
    }
    return DataFlags(**{**values, **changes})


def digests(folder):
    """File name -> hash, for all record files."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.tf*record"))
    }


def test_flags_are_those_of_the_release(shared):
    path = shared / "spec/original_flags.json"
    original = json.loads(path.read_text())["create_pretraining_data"]
    hints = typing.get_type_hints(DataFlags)
    ours = {f.name: f for f in dataclasses.fields(DataFlags)}
    kinds = {"string": str, "integer": int, "float": float, "bool": bool}
    for name, flag in original.items():
        kind = kinds[flag["type"]]
        assert hints[name] in (kind, kind | None), name
        if name != "vocab_file" and flag.get("required"):
            assert ours[name].default is dataclasses.MISSING, name
        else:
            # None is True, unless a tokenizer.json says otherwise; a length
            # of 512, unless the model has fewer positions; 20 predictions,
            # unless sequences are shorter.
            follows = name in (
                "do_lower_case",
                "max_predictions_per_seq",
                "max_seq_length",
            )
            wanted = None if follows else flag["default"]
            assert ours[name].default == wanted, name


def test_records_are_read_and_described(folder):
    statistics = program.run(flags_of(folder))
    files = filesystem.expand_files(f"{folder}/*.tfrecord")
    sidecar = sidecars.read_sidecar(files)
    features = records.pretraining_features(32, 5)
    dataset = reading.build_dataset(files, features, 16)
    batches = list(dataset)

    def total(name):
        return sum(float(tf.reduce_sum(batch[name])) for batch in batches)

    sequences = total("example_weight")
    assert sequences == sidecar["statistics"]["sequences"] > 100
    assert total("input_mask") == statistics["tokens"]
    share = total("masked_lm_weights") / total("input_mask")
    assert statistics["masked_share"] == pytest.approx(share, abs=1e-5)
    share = total("sentence_order_labels") / sequences
    assert statistics["swapped_share"] == pytest.approx(share, abs=1e-5)
    assert sidecar["statistics"] == statistics
    assert sidecar["sentence_objective"] == "sop"
    assert sidecar["num_predictions"] == 5
    assert sidecar["tokenizer"]["vocab_size"] == 45
    assert sidecar["flags"]["dupe_factor"] == 3
    assert statistics["input_documents"] == 30
    left_over = {path.name for path in folder.iterdir()}
    assert left_over == {
        "a.dataset.json",
        "a.tfrecord",
        "text.txt",
        "vocab.txt",
    }


def test_any_number_of_workers_writes_the_same_bytes(folder):
    found = []
    path = folder / "vocab.txt"
    remote = f"ram:/{path}"  # This process alone can read it.
    filesystem.write_file(remote, path.read_bytes())
    for num_workers, file in ((1, path), (2, path), (3, remote)):
        changes = {"num_workers": num_workers, "vocab_file": str(file)}
        program.run(flags_of(folder, num_shards=2, **changes))
        found.append(digests(folder))
        for path in folder.glob("*.tfrecord"):
            path.unlink()
    assert list(found[0]) == [
        "a-00000-of-00002.tfrecord",
        "a-00001-of-00002.tfrecord",
    ]
    assert found[0] == found[1] == found[2]


def test_the_seed_decides_the_bytes(folder):
    def digest(**changes):
        program.run(flags_of(folder, **changes))
        return digests(folder)["a.tfrecord"]

    first = digest()
    assert digest() == first
    assert digest(random_seed=1) != first


def test_documents_are_dealt_over_the_files_of_a_list(folder):
    names = f"{folder}/x.tf_record,{folder}/y.tf_record,{folder}/z.tf_record"
    program.run(flags_of(folder, output_file=names))
    files = names.split(",")
    sidecar = sidecars.read_sidecar(files)
    assert len(sidecar["num_records"]) == 3
    assert min(sidecar["num_records"]) > 0.6 * max(sidecar["num_records"])
    alone = sidecars.read_sidecar(files[1:2])
    assert alone["statistics"]["sequences"] == sidecar["num_records"][1]


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_other_sentence_objectives(folder, objective):
    is_nsp = objective == "nsp"
    changes = {"random_next_sentence": True} if is_nsp else {}
    if not is_nsp:
        changes["sentence_objective"] = "none"
    statistics = program.run(flags_of(folder, dupe_factor=20, **changes))
    wanted = pytest.approx(0.5, abs=0.03) if is_nsp else 0
    assert statistics["swapped_share"] == wanted
    files = filesystem.expand_files(f"{folder}/*.tfrecord")
    assert sidecars.read_sidecar(files)["sentence_objective"] == objective


def test_permutation_doubles_the_predictions(folder):
    before = program.run(flags_of(folder))["masked_share"]
    after = program.run(flags_of(folder, do_permutation=True))["masked_share"]
    assert after == pytest.approx(2 * before, rel=0.1)
    files = [f"{folder}/a.tfrecord"]
    assert sidecars.read_sidecar(files)["num_predictions"] == 10
    features = records.pretraining_features(32, 10)
    dataset = reading.build_dataset(files, features, 4)
    assert next(iter(dataset))["masked_lm_ids"].shape == (4, 10)


def test_a_killed_run_resumes_at_the_next_shard(folder):
    args = flags_of(folder, num_shards=6, dupe_factor=60)
    program.run(args)
    wanted = digests(folder)
    sidecar = (folder / "a.dataset.json").read_text()
    for path in folder.glob("a*"):
        path.unlink()

    code = (
        "import json, sys;"
        "from albert_tf.programs import create_pretraining_data as p;"
        "from albert_tf.commands.create_pretraining_data import DataFlags;"
        "p.run(DataFlags(**json.loads(sys.argv[1])))"
    )
    settings = json.dumps(dataclasses.asdict(args))
    process = subprocess.Popen([sys.executable, "-c", code, settings], cwd=ROOT)
    second = folder / ".a.unfinished/a-00001-of-00006.tfrecord"
    while not second.exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert second.exists() and not digests(folder)
    assert not (folder / "a.dataset.json").exists()
    state = json.loads((folder / ".a.unfinished/state.json").read_text())
    times = {
        path: os.stat(unfinished.staged(path)).st_mtime_ns
        for path in state["shards"]
    }
    assert times

    program.run(args)
    assert digests(folder) == wanted
    assert (folder / "a.dataset.json").read_text() == sidecar
    assert not list(folder.glob(".a*")) and not list(folder.glob("*.incom*"))
    for path, written in times.items():
        assert os.stat(path).st_mtime_ns == written


def stop_at_shard(monkeypatch, number, error=KeyboardInterrupt):
    """Lets writing fail at one record file, counted from 0."""
    write, written = records.write_records, []

    def write_or_stop(path, serialized):
        if len(written) == number:
            raise error
        written.append(path)
        return write(path, serialized)

    monkeypatch.setattr(records, "write_records", write_or_stop)


def stopped(folder, monkeypatch, number, **changes):
    """A run that is stopped while it writes a record file."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at_shard(patch, number)
        program.run(flags_of(folder, **changes))


def stopped_late(folder, monkeypatch, number, **changes):
    """A run that is stopped after it has replaced so many record files."""
    rename, renamed = filesystem.rename, []

    def rename_or_stop(temporary, path):
        if len(renamed) == number:
            raise KeyboardInterrupt
        if path.endswith(".tfrecord") and "incomplete" not in temporary:
            renamed.append(path)
        rename(temporary, path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(filesystem, "rename", rename_or_stop)
        program.run(flags_of(folder, **changes))


def test_an_unfinished_run_of_other_text_is_not_continued(folder, monkeypatch):
    stopped(folder, monkeypatch, 0)
    assert (folder / ".a.unfinished/state.json").exists()
    (folder / "text.txt").write_text("w1 w2\nw3 w4\n\nw5 w6\nw7 w8\n")
    assert program.run(flags_of(folder))["input_tokens"] == 8


@pytest.mark.parametrize(
    "content",
    [b"", b'{"finger', b"[]", b"null", b"\0" * 99, b"{}"],
    ids=str,
)
def test_a_truncated_progress_file_restarts_the_work(
    folder, monkeypatch, content
):
    program.run(flags_of(folder, num_shards=3))
    wanted = digests(folder)
    stopped(folder, monkeypatch, 1, num_shards=3)
    state = folder / ".a.unfinished/state.json"
    state.write_bytes(content)
    program.run(flags_of(folder, num_shards=3))
    assert digests(folder) == wanted


@pytest.mark.parametrize("name", ["a-00000-of-00003.tfrecord", "tokens.bin"])
def test_files_truncated_by_a_full_disk_are_rewritten(
    folder, monkeypatch, name
):
    program.run(flags_of(folder, num_shards=3))
    wanted = digests(folder)
    stopped(folder, monkeypatch, 2, num_shards=3)
    (path,) = folder.rglob(f".a.unfinished/{name}")
    os.truncate(path, path.stat().st_size - 1)
    program.run(flags_of(folder, num_shards=3))
    assert digests(folder) == wanted


def test_a_mixture_of_old_and_new_records_is_refused(folder, monkeypatch):
    program.run(flags_of(folder, num_shards=3))
    stopped_late(
        folder, monkeypatch, 1, num_shards=3, random_next_sentence=True
    )
    files = filesystem.expand_files(f"{folder}/a*.tfrecord")
    assert len(files) == 3 and not (folder / "a.dataset.json").exists()
    with pytest.raises(ValueError, match=".a.unfinished shows"):
        sidecars.read_sidecar(files)
    program.run(flags_of(folder, num_shards=3, random_next_sentence=True))
    assert sidecars.read_sidecar(files)["sentence_objective"] == "nsp"


def test_each_listed_output_is_marked_unfinished(folder, monkeypatch):
    names = [f"{folder}/{name}.tfrecord" for name in "xyz"]
    stopped_late(folder, monkeypatch, 1, output_file=",".join(names))
    for name in names:
        with pytest.raises(ValueError, match="unfinished set"):
            sidecars.read_sidecar([name])
    program.run(flags_of(folder, output_file=",".join(names)))
    assert not list(folder.glob(".*"))
    assert sum(sidecars.read_sidecar(names)["num_records"]) > 100


def test_a_refused_run_keeps_existing_files(folder, monkeypatch):
    program.run(flags_of(folder))
    before = {path.name for path in folder.iterdir()}
    (folder / "blank.txt").write_text("\n \n")
    blank = flags_of(folder, input_file=f"{folder}/blank.txt")
    with pytest.raises(ValueError, match="all lines are blank"):
        program.run(blank)
    assert {path.name for path in folder.iterdir()} == before | {"blank.txt"}
    sidecars.read_sidecar([f"{folder}/a.tfrecord"])
    # But not if a run before it may have mixed the files.
    stopped_late(folder, monkeypatch, 1, random_seed=1)
    with pytest.raises(ValueError, match="all lines are blank"):
        program.run(blank)
    with pytest.raises(ValueError, match="unfinished set"):
        sidecars.read_sidecar([f"{folder}/a.tfrecord"])


def test_a_concurrent_run_with_the_same_output_is_refused(folder):
    args = flags_of(folder)
    with ownership.owning(sidecars.sidecar_path(args.output_file)):
        with pytest.raises(BlockingIOError, match="in use by process"):
            program.run(args)
        program.run(flags_of(folder, output_file=f"{folder}/b.tfrecord"))
    assert list(digests(folder)) == ["b.tfrecord"]
    program.run(args)
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    "output", ["text.txt", "vocab.txt", "link.txt", "hard.txt", "x/../text.txt"]
)
def test_no_output_is_written_over_an_input(folder, output):
    (folder / "x").mkdir()
    (folder / "link.txt").symlink_to(folder / "text.txt")
    os.link(folder / "text.txt", folder / "hard.txt")
    before = (folder / "text.txt").read_bytes()
    with pytest.raises(ValueError, match="would overwrite"):
        program.run(flags_of(folder, output_file=f"{folder}/{output}"))
    assert (folder / "text.txt").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("a.dataset.json", {}),
        ("a-00001-of-00002.tfrecord", {"num_shards": 2}),
    ],
)
def test_no_sidecar_overwrites_an_input(folder, name, changes):
    (folder / "text.txt").rename(folder / name)
    with pytest.raises(ValueError, match="would overwrite"):
        program.run(flags_of(folder, input_file=f"{folder}/{name}", **changes))


def test_file_names_may_contain_glob_characters(folder):
    odd = folder / "a[1]*?"
    odd.mkdir()
    for name in ("text.txt", "vocab.txt"):
        (folder / name).rename(odd / f"[{name}]?")
    args = flags_of(
        folder,
        input_file=f"{odd}/[text.txt]?",
        vocab_file=f"{odd}/[vocab.txt]?",
        output_file=f"{odd}/b[0]*.tfrecord",
        num_shards=2,
    )
    statistics = program.run(args)
    names = [f"{odd}/b[0]*-0000{i}-of-00002.tfrecord" for i in (0, 1)]
    files = filesystem.expand_files(",".join(names))
    found = sidecars.read_sidecar(files)
    assert sum(found["num_records"]) == statistics["sequences"]


def test_remote_output_is_noted_in_a_folder_of_the_user(
    folder, monkeypatch, tmp_path_factory
):
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    output = f"file://{folder}/a.tfrecord"
    stopped(folder, monkeypatch, 0, output_file=output)
    (notes,) = cache.rglob("state.json")
    assert (folder / ".a.unfinished").is_dir()
    program.run(flags_of(folder, output_file=output))
    assert not notes.exists()
    assert not list(folder.glob(".*"))
    assert sidecars.read_sidecar([output])["num_records"][0] > 100


def test_empty_input_ends_the_program_with_an_error(folder):
    (folder / "text.txt").write_text("")
    command = [
        sys.executable,
        "create_pretraining_data.py",
        f"--input_file={folder}/text.txt",
        f"--output_file={folder}/a.tfrecord",
        f"--vocab_file={folder}/vocab.txt",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "There is no text in" in done.stderr
    assert "Traceback" not in done.stderr


def test_short_sequences_need_no_other_flag(folder):
    program.run(
        flags_of(folder, max_seq_length=12, max_predictions_per_seq=None)
    )
    described = json.loads((folder / "a.dataset.json").read_text())
    assert described["max_predictions_per_seq"] == 12


def test_unusual_text_draws_a_warning(folder, caplog):
    (folder / "text.txt").write_bytes(b"w1 w2 \xff\nw3 w4 \xc3\xa9\n" * 200)
    program.run(flags_of(folder, max_predictions_per_seq=1, dupe_factor=1))
    assert "200 characters are not UTF-8" in caplog.text
    assert "No blank line" in caplog.text
    assert "set --max_predictions_per_seq to 5" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("w1 w2 w3\n\n" * 99, "A document has 1.0 sentences on average"),
        ("w1\nw2\nw3\nw4\n\n" * 99, "A line has 1.0 tokens on average"),
        (f"{'w1 ' * 26}\n" * 99, "of the tokens are in no sequence"),
        ("w1 w2 w3\nw4 w5\n\n" * 99, "most of each record is padding"),
        ("w1 w2 w3\nw4 w5 w6\n\n" * 999 + "x y z\n" * 999, "33% of all pi"),
    ],
)
def test_text_that_is_no_list_of_sentences_draws_a_warning(
    folder, caplog, text, said
):
    program.run(flags_of(folder, dupe_factor=1))
    assert not caplog.records
    (folder / "text.txt").write_text(text)
    program.run(flags_of(folder, dupe_factor=1))
    assert said in caplog.text


def test_a_low_share_that_is_wanted_draws_no_warning(folder, caplog):
    changes = {"masked_lm_prob": 0.06, "max_predictions_per_seq": 2}
    assert program.run(flags_of(folder, **changes))["masked_share"] < 0.07
    assert "of the tokens are masked" not in caplog.text


@pytest.mark.parametrize("names", ["a", "a,sub/b"])
def test_text_without_sequences_leaves_existing_records(folder, names):
    outputs = [f"{folder}/{name}.tfrecord" for name in names.split(",")]
    args = flags_of(folder, output_file=",".join(outputs))
    program.run(args)
    files = {path for path in folder.rglob("*") if path.is_file()}
    wanted = {path: path.read_bytes() for path in files}
    (folder / "empty.txt").write_text("w1\n\nw2\n")
    other = dataclasses.replace(args, input_file=f"{folder}/empty.txt")
    with pytest.raises(ValueError, match="each of its 2 documents has only"):
        program.run(other)
    assert {path: path.read_bytes() for path in files} == wanted
    assert not list(folder.rglob(".*"))
    assert sidecars.read_sidecar(outputs)


def test_a_later_file_that_fails_leaves_existing_records(folder, monkeypatch):
    program.run(flags_of(folder, num_shards=3))
    wanted = digests(folder)
    changes = {"num_shards": 3, "random_seed": 1}
    with monkeypatch.context() as patch:
        stop_at_shard(patch, 2, OSError(28, "full"))
        with pytest.raises(OSError, match="full"):
            program.run(flags_of(folder, **changes))
    assert digests(folder) == wanted
    assert sidecars.read_sidecar(sorted(map(str, folder.glob("a-*"))))
    program.run(flags_of(folder, **changes))
    assert digests(folder).keys() == wanted.keys() and digests(folder) != wanted


def test_the_pattern_of_a_folder_may_match_the_sidecar(folder):
    program.run(flags_of(folder, output_file=f"{folder}/records/a.tfrecord"))
    found = sidecars.find_records(f"{folder}/records/*")
    assert found == [f"{folder}/records/a.tfrecord"]
    with pytest.raises(ValueError, match="describes records; wanted the rec"):
        sidecars.find_records(f"{folder}/records/*.json")


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_letters_without_spaces_are_masked(folder, kind):
    rng = random.Random(0)
    pieces = [*"acgt", *(f"##{letter}" for letter in "acgt")]
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + pieces) + "\n")
    lines = ["".join(rng.choices("acgt", k=64)) for _ in range(400)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    changes = {"max_seq_length": 128, "max_predictions_per_seq": 20}
    found = program.run(flags_of(folder, masking=kind, **changes))
    assert found["masked_share"] == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_masks_are_counted_and_few_of_them_draw_a_warning(
    folder, caplog, monkeypatch, kind
):
    monkeypatch.setattr(masking, "_divide_long", lambda words, *_: words)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "##a"]))
    (folder / "text.txt").write_text("aaaaaaaaaaaaaaaaaaaa\n" * 50)
    found = program.run(flags_of(folder, masking=kind))
    assert found["masked_share"] == 0
    assert "Only 0.0% of the tokens are masked" in caplog.text
    assert "set --nodo_whole_word_mask: the words are too" in caplog.text


def test_more_files_than_documents_draw_a_warning(folder, caplog):
    statistics = program.run(flags_of(folder, num_shards=40, dupe_factor=1))
    assert "10 of 40 files have no sequence" in caplog.text
    files = filesystem.expand_files(f"{folder}/*.tfrecord")
    sidecar = sidecars.read_sidecar(files)
    assert len(files) == 40
    assert sum(sidecar["num_records"]) == statistics["sequences"]


def test_commands_of_the_release_give_both_vocabularies(shared, folder, caplog):
    (folder / "text.txt").write_text("This is a test.\nSo is this.\n\nYes.\n")
    model = str(shared / "data/albert_en/30k-clean.model")
    args = flags_of(
        folder, spm_model_file=model, vocab_file=model.replace("model", "vocab")
    )
    program.run(args)
    assert "is ignored" in caplog.text
    sidecar = sidecars.read_sidecar([args.output_file])
    assert sidecar["tokenizer"]["kind"] == "sentencepiece"


@pytest.mark.parametrize("given", [{}, {"keep_accents": False}])
def test_casing_is_as_recorded_with_the_vocabulary(folder, given):
    path = str(folder / "vocab.txt")
    tokenizer = tokenization.build_tokenizer(
        vocab_file=path, do_lower_case=False, keep_accents=True
    )
    tokenizer.write_settings(folder)
    args = flags_of(folder, **given)
    program.run(args)
    found = sidecars.read_sidecar([args.output_file])["tokenizer"]
    assert found == tokenizer.settings | given


CHINESE = """今天早上下了很大的雪。
河边的老茶馆九点才开门。
他把三封信都放进了抽屉里！
村子里有一座一九三五年修的石桥。
水从两千四百米高的山上流下来。
你为什么不坐早上的火车呢？
图书馆里一共有21,500本书。
孩子们在院子里追一只黄色的猫。
她说：“明天再来吧。”
后来谁也没有再提起那条船。""".splitlines()


def test_chinese_sentences_make_records(shared, folder):
    rng = random.Random(4)
    documents = ["\n".join(rng.choices(CHINESE, k=20)) for _ in range(30)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    vocabulary = str(shared / "data/zh/vocab.txt")
    args = flags_of(folder, vocab_file=vocabulary, max_seq_length=128)
    statistics = program.run(args)
    assert statistics["sequences"] > 100 and statistics["lost_lines"] == 0
    sidecar = sidecars.read_sidecar([args.output_file])
    assert sidecar["tokenizer"]["kind"] == "wordpiece"


def test_chinese_text_makes_records(shared, folder):
    args = flags_of(
        folder,
        input_file=str(shared / "data/zh/news_zh_1.txt"),
        vocab_file=str(shared / "data/zh/vocab.txt"),
        max_seq_length=128,
    )
    statistics = program.run(args)
    assert statistics["sequences"] > 100 and statistics["lost_lines"] == 0


def test_progress_is_shown(folder, capsys):
    program.run(flags_of(folder, progress=True))
    shown = capsys.readouterr().err
    assert "tokenizing: 100% of" in shown and "writing: 100% of" in shown
    assert "elapsed" in shown and "remaining" in shown


@pytest.mark.parametrize("value", [float("nan"), 1.5, -1, 0])
def test_settings_of_the_library_have_ranges_too(value):
    with pytest.raises(ValueError, match="masked_lm_prob"):
        shards.Settings(
            tokenizer=(),
            sequence=rules.SequenceRule(),
            masking=rules.MaskingRule(masked_lm_prob=value),
        )


def test_a_dead_worker_raises_an_error_instead_of_hanging():
    with processes.ordered_map(2) as run:
        assert list(run(abs, [(-i,) for i in range(20)])) == list(range(20))
        with pytest.raises(RuntimeError, match="terminated"):
            list(run(os._exit, [(1,)]))


WORK = """
import os, sys, time
from albert_tf.data import processes
try:
    with processes.ordered_map(2) as run:
        for pid in run(os.getpid, [()] * 9):
            print(pid, flush=True)
        for _ in run(time.sleep, [(0.1,)] * 10_000):
            pass
except KeyboardInterrupt:
    sys.exit(130)
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_workers_exit_silently_with_their_parent(name):
    process = subprocess.Popen(
        [sys.executable, "-c", WORK],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = {int(process.stdout.readline()) for _ in range(9)}
    if name == "SIGINT":  # As ctrl-C: to all of them.
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    _, errors = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGKILL)
    assert "Traceback" not in errors
    end = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
