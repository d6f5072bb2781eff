"""Bad inputs of the programs that fine-tune."""

import gzip
import io
import json
import tarfile

from tests.bad_inputs.table import (
    Row,
    append,
    copy,
    cut,
    drop_json,
    edit_json,
    put,
    remove,
    replace,
    rows_of_flags,
    set_json,
)

DEEP = "[" * 100_000
PROGRAMS = (
    "run_classifier",
    "run_squad",
    "run_race",
    "run_tagger",
    "run_embedding",
)
TRAIN = "glue/SST-2/train.tsv"
DEV = "glue/SST-2/dev.tsv"
TEST = "glue/SST-2/test.tsv"
TASK = {"name": "mine", "train": "mine.csv", "format": "csv"}
TASK |= {"text": "text", "label": "label"}
TABLE = "label,text\n" + "".join(f"{i % 2},w{i % 9} w1\n" for i in range(30))
PASSAGE = "race/RACE/train/middle/1.txt"


def classifier(name, words, says, *changes, **kwargs):
    return Row(name, f"run_classifier {words}", says, changes, **kwargs)


def squad(name, words, says, *changes, **kwargs):
    return Row(name, f"run_squad {words}", says, changes, **kwargs)


def race(name, words, says, *changes, **kwargs):
    return Row(name, f"run_race {words}", says, changes, **kwargs)


def tagger(name, words, says, *changes, **kwargs):
    return Row(name, f"run_tagger {words}", says, changes, **kwargs)


def vectors(name, words, says, *changes, **kwargs):
    return Row(name, f"run_embedding {words}", says, changes, **kwargs)


def own_task(name, says, /, *changes, **values):
    """A row with a task of one's own, some of whose keys are other ones."""
    return classifier(
        name,
        "--task_name= --task_config=task.json --data_dir=. --nodo_predict",
        says,
        put("task.json", {**TASK, **values}),
        put("mine.csv", TABLE),
        *changes,
    )


def edit_question(function):
    """A change: lets a function change the second question of SQuAD."""
    return edit_json(
        "v1.json",
        lambda found: function(found["data"][0]["paragraphs"][1]["qas"][0]),
    )


def edit_answer(**values):
    return edit_question(lambda qa: qa["answers"][0].update(values))


def edit_paragraph(function):
    return edit_json(
        "v1.json", lambda found: function(found["data"][0]["paragraphs"][1])
    )


def pack(path, *members):
    """A change: writes an archive of (TarInfo, content)."""

    def change():
        with tarfile.open(path, "w:gz") as archive:
            for info, content in members:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    return change


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def pack_zeros():
    """An archive of 1 MB that unpacks to 1 GB."""
    info = member("model/model.ckpt-best.index")
    info.size = 1 << 30
    parts = map(gzip.compress, (info.tobuf(), bytes(1 << 20), bytes(1024)))
    start, zeros, end = parts
    put("model.tar.gz", start + zeros * 1024 + end)()


MODEL = "model.ckpt-best"
# Of all three: what is given to begin with, and where it is written.
COMMON = [
    Row(name, f"{program} {words}", says, tuple(changes))
    for program in PROGRAMS
    for name, words, says, *changes in (
        ("an empty output_dir", "--output_dir=", "--output_dir is empty"),
        (
            "nothing to do",
            "--nodo_train --nodo_predict --do_eval=false"
            if program != "run_squad"
            else "--nodo_train --nodo_predict",
            "nothing to do",
        ),
        (
            "nothing to begin with",
            "--init_checkpoint=",
            "give --init_checkpoint.*--from_scratch",
        ),
        (
            "a model, and from scratch",
            "--from_scratch",
            "--from_scratch contradicts.*Give one",
        ),
        (
            "a random encoder that is frozen",
            "--init_checkpoint= --from_scratch --freeze_encoder "
            "--albert_config_file=model/albert_config.json "
            "--vocab_file=vocab.txt",
            "random weights of the encoder would never change",
        ),
        (
            "more tokens than positions",
            "--max_seq_length=33",
            "--max_seq_length=33.*32 positions",
        ),
        (
            "as many steps of warmup as steps",
            "--warmup_step=2",
            "training steps: 2, including 2 warmup steps",
        ),
        (
            "buckets that are words",
            "--bucket_lengths=short",
            "--bucket_lengths='short'",
        ),
        (
            "negative buckets",
            "--bucket_lengths=-5,8",
            "--bucket_lengths='-5,8'",
        ),
        (
            "a batch that is larger than the data",
            "--train_batch_size=100000",
            "batch of 100,000 .* examples",
        ),
        ("output_dir is a file", "--output_dir=a_file", "a_file cannot be a"),
        (
            "output_dir is the model's folder",
            "--output_dir=model",
            "model contains the model .*would overwrite.*--init_checkpoint",
        ),
        (
            "output_dir is a model of transformers",
            "--output_dir=hf",
            "hf contains a model of another format .config.json.*output_dir",
        ),
        (
            "no TPU",
            "--tpu_name=somewhere",
            "--tpu_name=somewhere is for --distribution=tpu",
        ),
        (
            "a TPU that does not answer",
            "--use_tpu --tpu_name=grpc://127.0.0.1:1",
            "No TPU at 'grpc://127.0.0.1:1'",
        ),
        ("a TPU here", "--distribution=tpu", "No TPU at 'local'"),
        ("more steps than can be planned", "--train_step=1000000000", "steps"),
        ("an unknown flag", "--learning_rat=1", "learning_rat"),
        (
            "a name that is no UTF-8",
            "--output_dir='new\udcff'",
            "--output_dir=.*not UTF-8",
        ),
    )
]

ROWS = [
    *COMMON,
    *(
        row
        for program in PROGRAMS
        for row in rows_of_flags(
            program,
            """
            learning_rate -1e-5 nan
            train_batch_size 0 1000000000
            eval_batch_size -1
            predict_batch_size 0
            tokens_per_batch 0 -1 10000000000
            train_step 0 -5
            warmup_step -1
            num_train_epochs 0 -1 nan
            warmup_proportion 1 -0.1 nan
            hidden_dropout_prob 1 -0.1
            attention_probs_dropout_prob 1.5
            classifier_dropout 1 nan
            max_seq_length 0 2
            save_checkpoints_steps 0 -1
            keep_checkpoint_max -1 -3
            log_every_steps 0
            iterations_per_loop -2
            random_seed -1 1000000000000
            num_runs 0 -1 100000
            """,
        )
    ),
    *rows_of_flags(
        "run_squad",
        """
        n_best_size 0 -1
        max_answer_length 0
        num_workers 0 -1
        start_n_top 0 -1
        end_n_top 0
        doc_stride 0 -1
        max_query_length 0
        dropout_prob 1 nan
        null_score_diff_threshold nan inf
        squad_version v3
        """,
    ),
    *rows_of_flags(
        "run_race",
        """
        max_qa_length 0 -1
        num_keep_checkpoint -1
        dropout_prob 1 -0.5
        """,
    ),
    *rows_of_flags("run_classifier", "threshold_to_export nan inf"),
    # The model to begin with: its files.
    classifier("no such model", "--init_checkpoint=no", "no.index does not"),
    classifier(
        "a table of vectors",
        "--init_checkpoint=model/v.npz",
        "v.npz is not a model; model has .'model.ckpt-best.index'",
        put("model/v.npz", b"PK"),
    ),
    # Several models.
    *(
        classifier(
            name, f"--init_checkpoint= --nodo_train --ensemble={words}", says
        )
        for name, words, says in (
            ("an ensemble of nothing", "no_*", "No file matches 'no_.*'"),
            ("an ensemble of one", "classif*", "'classifier'.; wanted two"),
            ("an ensemble of no names", ",", "names ..; wanted two"),
            ("an ensemble with no model", "classifier,no", "no.index does not"),
            (
                "an ensemble of other tasks",
                "classifier,tagger",
                "tagger.*head 'tags'; the task wants 'classes'",
            ),
            (
                "an ensemble that was not fine-tuned",
                "classifier,model",
                "model.* has no head",
            ),
            (
                "results of an ensemble in the folder of a model",
                "classifier,model --output_dir=classifier",
                "has a training.*classifier/ensemble",
            ),
            (
                "layers of an ensemble",
                "classifier,classifier --exit_threshold=0",
                "together; omit --exit_threshold",
            ),
            (
                "an export of an ensemble",
                "classifier,classifier --export_dir=new",
                "together; omit --export_dir",
            ),
        )
    ),
    classifier(
        "an ensemble, and a model",
        "--ensemble=classifier,classifier --nodo_train",
        "together; omit --init_checkpoint",
    ),
    race(
        "an ensemble that is to be trained",
        "--init_checkpoint= --ensemble=race_out,race_out",
        "together; give --nodo_train",
    ),
    classifier(
        "a folder without a model",
        "--init_checkpoint=glue",
        "glue has no model.ckpt",
    ),
    classifier(
        "a folder with two models",
        "",
        "model has 2 checkpoints without a number.*Name the one",
        copy(f"model/{MODEL}.index", "model/other.index"),
    ),
    classifier(
        "two names of a model",
        "--albert_hub_module_handle=hub",
        "--init_checkpoint or --albert_hub_module_handle, not both",
    ),
    classifier(
        "no config beside the model",
        "",
        "model.*Give --albert_config_file",
        remove("model/albert_config.json"),
    ),
    classifier(
        "a key of a file that is named like a flag",
        "",
        'model config: "hidden_dropout_prob"=2; wanted',
        set_json("model/albert_config.json", hidden_dropout_prob=2),
    ),
    classifier(
        "no vocabulary beside the model",
        "",
        "model.*Give --spm_model_file or --vocab_file",
        remove("model/vocab.txt"),
    ),
    classifier(
        "two vocabularies beside the model",
        "",
        "Give --spm_model_file or --vocab_file",
        copy("model/vocab.txt", "model/vocab_chinese.txt"),
        replace("model/vocab_chinese.txt", "w7", "w77"),
    ),
    classifier(
        "the folder of a vocabulary",
        "--vocab_file=model",
        "model is a folder; it has .*'vocab.txt'",
    ),
    classifier(
        "a vocabulary of another size",
        "--vocab_file=vocab.txt",
        "vocab.txt has 26 pieces, the model 25",
        append("vocab.txt", b"w20\n"),
    ),
    classifier(
        "another vocabulary of the same size than the settings tell of",
        "",
        "model/vocab.txt has another hash than tokenizer_settings.json",
        replace("model/vocab.txt", "w7", "w77"),
    ),
    *(
        classifier(
            f"the tokenizer's settings are {name}",
            "",
            f"tokenizer_settings.json.*{says}",
            put("model/tokenizer_settings.json", content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("zeros", bytes(99), "not JSON: it is empty"),
            ("cut", '{"do_lower_case": tr', "not JSON"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("nested too deeply", DEEP, "nested too deeply"),
        )
    ),
    classifier(
        "do_lower_case is a word",
        "",
        "tokenizer_settings.json.*do_lower_case.*yes",
        set_json("model/tokenizer_settings.json", do_lower_case="yes"),
    ),
    *(
        classifier(
            f"the config of Hugging Face is {name}",
            "--init_checkpoint=hf",
            rf"config.json.*{says}",
            put("hf/config.json", content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("cut", '{"model_type": ', "not JSON"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("nested too deeply", DEEP, "nested too deeply"),
        )
    ),
    *(
        classifier(
            f"the tokenizer's config of Hugging Face is {name}",
            "--init_checkpoint=hf",
            f"tokenizer_config.json.*{says}",
            remove("hf/tokenizer_settings.json"),
            put("hf/tokenizer_config.json", content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("cut", '{"do_lower_case": ', "not JSON"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
        )
    ),
    # Archives.
    classifier(
        "an archive that is text",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz cannot be unpacked",
        put("model.tar.gz", "text"),
    ),
    classifier(
        "an archive that is empty",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz",
        put("model.tar.gz", b""),
    ),
    classifier(
        "an archive that is cut",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz cannot be unpacked.*cut off",
        pack("model.tar.gz", (member("a.index"), bytes(range(256)) * 99)),
        cut("model.tar.gz"),
    ),
    classifier("no such archive", "--init_checkpoint=no.tar.gz", "no.tar.gz"),
    classifier(
        "an archive without a model",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz has 0 folders with a checkpoint",
        pack("model.tar.gz", (member("a.txt"), b"text")),
    ),
    classifier(
        "an archive of two models",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz has 2 folders",
        pack(
            "model.tar.gz",
            (member("a/a.index"), b""),
            (member("b/b.index"), b""),
        ),
    ),
    *(
        classifier(
            f"an archive with {name}",
            "--init_checkpoint=model.tar.gz",
            "model.tar.gz contains .*Nothing was unpacked",
            pack("model.tar.gz", (info, b"")),
        )
        for name, info in (
            ("a path outside", member("../outside.index")),
            ("an absolute path", member("/tmp/outside.index")),
            ("a link", member("a.index", tarfile.SYMTYPE, "/etc/passwd")),
            ("a hard link", member("a.index", tarfile.LNKTYPE, "/etc/passwd")),
            ("a device", member("a.index", tarfile.CHRTYPE)),
            ("a pipe", member("a.index", tarfile.FIFOTYPE)),
        )
    ),
    classifier(
        "an archive that unpacks to a thousand times its size",
        "--init_checkpoint=model.tar.gz",
        "model.tar.gz .*unpacks to at least 1,073,741,824",
        pack_zeros,
    ),
    # Tables.
    classifier("no task", "--task_name=", "either --task_name or"),
    classifier("no such task", "--task_name=cols", "cols; known: cola"),
    classifier(
        "two tasks",
        "--task_config=task.json",
        "either --task_name or --task_config",
    ),
    classifier(
        "a task without training data",
        "--task_name=ax",
        "--do_train: ax has no data",
    ),
    classifier("no data", "--data_dir=nowhere", "There is no nowhere/SST-2"),
    classifier("data_dir is a file", "--data_dir=a_file", "a_file/SST-2"),
    classifier("an empty data_dir", "--data_dir=", "--data_dir is empty"),
    classifier(
        "cached_dir is a file",
        "--cached_dir=a_file",
        "a_file cannot be a folder",
    ),
    classifier("no training table", "", "train.tsv", remove(TRAIN)),
    classifier("no dev table", "", "dev.tsv", remove(DEV)),
    classifier("no test table", "", "test.tsv", remove(TEST)),
    classifier(
        "a table that is a folder",
        "",
        "train.tsv.*folder",
        remove(TRAIN),
        copy("race", TRAIN),
    ),
    classifier("an empty table", "", "train.tsv has no rows", put(TRAIN, "")),
    classifier(
        "a table with a header alone",
        "",
        "train.tsv has no rows",
        put(TRAIN, "sentence\tlabel\n"),
    ),
    classifier(
        "a table that is not UTF-8",
        "",
        "train.tsv is not UTF-8",
        append(TRAIN, b"w1 \xe4\t1\n"),
    ),
    classifier(
        "a table of zeros",
        "",
        "train.tsv",
        put(TRAIN, bytes(500)),
    ),
    classifier(
        "a row that is cut",
        "",
        "train.tsv, line 14: found 1 columns, wanted",
        append(TRAIN, b"w1 w2"),
    ),
    classifier(
        "an unknown label",
        "",
        "train.tsv, line 14: label '2'; known: 0, 1",
        append(TRAIN, b"w1 w2\t2\n"),
    ),
    classifier(
        "an unknown label in the dev data",
        "",
        "dev.tsv, line 8: label 'x'; known: 0, 1",
        append(DEV, b"w1 w2\tx\n"),
    ),
    classifier(
        "the index column is no number",
        "",
        "test.tsv, line 5: id is ''; wanted a value",
        replace(TEST, "3\tw", "\tw"),
    ),
    classifier(
        "an index twice",
        "",
        "test.tsv has the id '3' on line 5 and again on line 7",
        append(TEST, b"3\tw1 w2\n"),
    ),
    classifier(
        "a score that is no number",
        "--task_name=sts-b",
        "STS-B/train.tsv, line 2: label 'high'; wanted a number",
        put(
            "glue/STS-B/train.tsv",
            "\t".join("abcdefghij") + "\n" + "\t".join(["w1"] * 9) + "\thigh\n",
        ),
        copy("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv"),
        copy("glue/STS-B/train.tsv", "glue/STS-B/test.tsv"),
    ),
    # Tasks of one's own.
    *(
        classifier(
            f"the task's description is {name}",
            "--task_name= --task_config=task.json --data_dir=.",
            f"task.json.*{says}",
            put("task.json", content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("cut", '{"name": ', "not JSON"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("nested too deeply", DEEP, "nested too deeply"),
            ("an empty object", "{}", "lacks name"),
        )
    ),
    own_task("an unknown key", "unknown key 'labl'.*'label'", labl=3),
    own_task("a name with a slash", "name of the task 'a/b'", name="a/b"),
    own_task("a column that is not there", "no column 'tex'", text="tex"),
    own_task("a column out of range", "mine.csv", text=7),
    own_task("three texts", "wanted 1 to 2 columns", text=["a", "b", "c"]),
    own_task("an objective", "objective of the task", objective="guess"),
    own_task("an unknown format", "format is 'xls'", format="xls"),
    own_task("a share of 2", "dev_share", dev_share=2),
    own_task("a share of NaN", "dev_share", dev_share=float("nan")),
    own_task("a negative share", "dev_share", dev_share=-0.1),
    own_task("one label", "labels", labels=["0"]),
    own_task("a label twice", "labels", labels=["0", "0", "1"]),
    own_task(
        "a label that is not known", "label '1'; known", labels=["0", "x"]
    ),
    own_task(
        "labels of a regression",
        "labels",
        objective="regression",
        labels=["0", "1"],
    ),
    own_task("an unknown metric", "metrics", metrics=["accuracy"]),
    own_task(
        "no metric at all", "metrics", metrics=["MSE"], objective="regression"
    ),
    own_task(
        "a table outside data_dir",
        "There is no .*mine.csv",
        train="../mine.csv",
    ),
    own_task(
        "a quote that is not closed",
        "mine.csv, line 32.*quote",
        append("mine.csv", b'1,"w1 w2\n'),
    ),
    *(
        own_task(
            f"a line of JSON that is {name}",
            f"mine.jsonl, line 3.*{says}",
            put(
                "mine.jsonl",
                b'{"text": "w1", "label": "0"}\n{"text": "w2", "label": "1"}\n'
                + content
                + b"\n",
            ),
            train="mine.jsonl",
            format="jsonl",
        )
        for name, content, says in (
            ("cut", b'{"text": ', "not JSON"),
            ("a list", b"[]", "list"),
            ("null", b"null", "NoneType"),
            ("nested too deeply", DEEP.encode(), "nested too deeply"),
            (
                "half a surrogate pair",
                rb'{"text": "\ud83d", "label": "0"}',
                "surrogate",
            ),
            ("without a label", b'{"text": "w1"}', "label.*missing"),
            (
                "with a number as text",
                b'{"text": 7, "label": "0"}',
                "text_a is 7; wanted a string",
            ),
        )
    ),
    # SQuAD.
    squad("no training file", "--train_file=", "Please give --train_file"),
    squad("no file to answer", "--predict_file=", "give --predict_file"),
    squad("no such file", "--train_file=no.json", "no.json"),
    squad("a folder as data", "--train_file=glue", "glue.*folder"),
    squad(
        "no room for a window",
        "--max_seq_length=7",
        "--max_seq_length=7 must exceed --max_query_length=4",
    ),
    squad(
        "version 2 for version 1",
        "--train_file=v2.json",
        "v2.json: 3 questions, such as q0.*--squad_version=v2",
    ),
    squad(
        "nothing to train on",
        "--train_file=asked.json",
        "asked.json.*answers",
        put(
            "asked.json",
            json.dumps(
                {
                    "data": [
                        {
                            "paragraphs": [
                                {
                                    "context": "w1 w2",
                                    "qas": [{"id": "a", "question": "w1"}],
                                }
                            ]
                        }
                    ]
                }
            ),
        ),
    ),
    *(
        squad(
            f"the data is {name}",
            "",
            f"v1.json.*{says}",
            put("v1.json", content),
        )
        for name, content, says in (
            ("empty", b"", "empty"),
            ("zeros", bytes(200), "not JSON: it is empty"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("an empty object", "{}", "lacks 'data'"),
            ("without questions", '{"data": []}', "has no questions"),
            ("not UTF-8", b'{"data": "\xff"}', "utf-8"),
            ("nested too deeply", DEEP, "nested too deeply"),
            (
                "objects nested too deeply",
                '{"data":' * 100_000,
                "nested too deeply",
            ),
        )
    ),
    squad(
        "the data is cut", "", "v1.json is not JSON.*truncated", cut("v1.json")
    ),
    squad(
        "half a surrogate pair in a paragraph",
        "",
        "v1.json.*surrogate",
        edit_paragraph(lambda p: p.update(context=p["context"] + " \ud83d")),
    ),
    squad(
        "half a surrogate pair in a question",
        "",
        "v1.json.*surrogate",
        edit_question(lambda qa: qa.update(question="w1 \udc00")),
    ),
    squad(
        "a paragraph without context",
        "",
        "paragraph 2 of article 1: lacks 'context'",
        edit_paragraph(lambda p: p.pop("context")),
    ),
    squad(
        "a context that is a number",
        "",
        "paragraph 2 of article 1: context: found 7, wanted a string",
        edit_paragraph(lambda p: p.update(context=7)),
    ),
    squad(
        "questions that are a string",
        "",
        "paragraph 2 of article 1",
        edit_paragraph(lambda p: p.update(qas="q")),
    ),
    *(
        squad(
            f"{name} of a question is missing",
            "",
            f"v1.json, .*lacks '{name}'",
            edit_question(lambda qa, name=name: qa.pop(name)),
        )
        for name in ("id", "question")
    ),
    *(
        squad(
            f"answer_start is {value!r}",
            "",
            "v1.json, question q1: answer_start: found .*wanted a",
            edit_answer(answer_start=value),
        )
        for value in ("4", 4.5, None, [4], True, float("nan"), float("inf"))
    ),
    squad(
        "an answer that is not in its paragraph",
        "",
        "v1.json, question q1: the answer 'w77' is not in its paragraph",
        edit_answer(text="w77"),
    ),
    squad(
        "an empty answer",
        "",
        "v1.json, question q1",
        edit_answer(text=""),
    ),
    squad(
        "answers that are an object",
        "",
        "v1.json, question q1",
        edit_question(lambda qa: qa.update(answers={"text": "w1"})),
    ),
    squad(
        "is_impossible is a word",
        "",
        "v1.json, question q1: is_impossible: found 'no'",
        edit_question(lambda qa: qa.update(is_impossible="no")),
    ),
    squad(
        "an id twice",
        "",
        "v1.json has the question id q0 twice",
        edit_question(lambda qa: qa.update(id="q0")),
    ),
    # RACE.
    race("no data", "--data_dir=nowhere", "nowhere/train/middle"),
    race(
        "no questions left", "--high_only --middle_only", "no questions. Give"
    ),
    race(
        "options that do not fit",
        "--max_qa_length=14",
        "--max_qa_length=14 does not fit",
    ),
    race(
        "a level is missing",
        "",
        r"no \*.txt in .*train/high",
        remove("race/RACE/train/high"),
    ),
    race(
        "answers that are missing",
        "",
        "train has 2 questions without .* middle/middle1.txt/0; wanted an ans",
        drop_json(PASSAGE, "answers"),
    ),
    race("no dev data", "", "dev/middle", remove("race/RACE/dev")),
    *(
        race(
            f"a passage is {name}",
            "",
            f"middle/1.txt.*{says}",
            put(PASSAGE, content),
        )
        for name, content, says in (
            ("empty", b"", "no questions"),
            ("a list", "[]", "list"),
            ("null", "null", "NoneType"),
            ("not UTF-8", b'{"article": "\xff"}', "is not UTF-8"),
            ("nested too deeply", DEEP, "nested too deeply"),
        )
    ),
    race("a passage is cut", "", "middle/1.txt.*not JSON", cut(PASSAGE)),
    *(
        race(
            f"a passage without {name}",
            "",
            f"middle/1.txt, line 1: .*{name}",
            drop_json(PASSAGE, name),
        )
        for name in ("article", "questions", "options")
    ),
    *(
        race(
            f"{name} is {value!r:.20}",
            "",
            f"middle/1.txt, line 1.*{says}",
            set_json(PASSAGE, **{name: value}),
        )
        for name, value, says in (
            ("article", 7, "article"),
            ("article", "w1 \ud83d", "surrogate"),
            ("questions", "w1", "questions"),
            ("questions", ["w1"], "equal numbers"),
            ("options", [["a"] * 4], "equal numbers"),
            ("options", [["a"]] * 2, "has 1 options, wanted 2 to 6"),
            ("options", [["b"] * 7] * 2, "has 7 options, wanted 2 to 6"),
            ("options", [["a", 1, "b", "c"]] * 2, "must be strings"),
            ("answers", ["A", "E"], "'E', wanted a letter"),
            ("answers", ["A", ""], "'', wanted a letter"),
            ("answers", ["A", 1], "1, wanted a letter"),
            ("answers", "AD", "answers"),
        )
    ),
    # Tags.
    *rows_of_flags("run_tagger", "doc_stride 0 -1"),
    tagger("no file of tags", "--train_file=no.txt", "There is no no.txt"),
    tagger("a file of tags not named", "--dev_file=", "Please give --dev_file"),
    tagger(
        "tags, nothing to do",
        "--nodo_train --nodo_eval --nodo_predict",
        "Give --do_train, --do_eval, --do_predict, --export_dir or",
    ),
    tagger(
        "a file of tags empty", "", "tags.txt is empty", put("tags.txt", b"")
    ),
    tagger(
        "words alone",
        "",
        "found 1 columns; wanted words in column 0",
        put("tags.txt", "w1\nw2\n"),
    ),
    tagger(
        "a row of tags cut",
        "",
        "tags.txt, line 2: found 1 columns",
        put("tags.txt", "w1 O\nw2\n"),
    ),
    tagger(
        "tags in a column that is not there",
        "--tag_column=4",
        "tags in column 4",
    ),
    tagger(
        "tags that are numbers",
        "--train_file=tags.jsonl",
        "Are they indices",
        put("tags.jsonl", '{"tokens": ["w1"], "tags": [3]}\n'),
    ),
    tagger(
        "tags of two kinds",
        "",
        "wanted one kind",
        put("tags.txt", "w1 B-X\nw2 B-X\nw3 NOUN\n"),
    ),
    tagger("tags not UTF-8", "", "is not UTF-8", put("tags.txt", b"w\xff O\n")),
    tagger(
        "no tags in the model",
        "--nodo_train",
        "model.* does not say what tags it predicts",
    ),
    tagger(
        "tags with a classifier",
        "--nodo_train --init_checkpoint=classifier",
        "classifier/model.* does not say what tags it predicts",
    ),
    tagger(
        "predictions over the data",
        "--predict_file=new/predictions.txt",
        "predictions.txt",
        put("new/predictions.txt", "w1 O\n"),
    ),
    Row(
        "tag with a classifier",
        "tag --init_checkpoint=classifier",
        "has the head 'classes'; wanted a tagger",
    ),
    Row(
        "tag without texts",
        "bare tag --init_checkpoint=tagger",
        "Give either --text or",
    ),
    Row("tags in another format", "tag --output_file=new.txt", "must end in"),
    # Vectors.
    *rows_of_flags("run_embedding", "temperature 0 -1"),
    vectors("no file of pairs", "--train_file=no.tsv", "There is no no.tsv"),
    vectors("pairs not named", "--dev_file=", "Please give --dev_file"),
    vectors(
        "pairs, nothing to do",
        "--nodo_train --nodo_eval --nodo_predict",
        "Give --do_train, --do_eval, --do_predict, --export_dir or",
    ),
    vectors(
        "a file of pairs empty",
        "",
        "pairs.tsv has no rows",
        put("pairs.tsv", b""),
    ),
    vectors(
        "pairs without rows",
        "",
        "pairs.tsv has no rows",
        put("pairs.tsv", "sentence1\tsentence2\n"),
    ),
    vectors(
        "pairs of unknown columns",
        "",
        "has the columns .'x', 'y'.; wanted such as sentence1",
        put("pairs.tsv", "x\ty\na\tb\n"),
    ),
    vectors(
        "a column of texts that is not there",
        "--text_columns=sentence1,other",
        "other",
    ),
    vectors(
        "four columns of texts",
        "--text_columns=sentence1,sentence2,sentence1,sentence2",
        "one to three different names",
    ),
    vectors(
        "a score that is no number",
        "",
        "line 2: the score is 'high'",
        put("pairs.tsv", "sentence1\tsentence2\tscore\na\tb\thigh\n"),
    ),
    vectors(
        "one pair in a batch",
        "--train_batch_size=1",
        "train_batch_size=1, but a pair is compared",
        put("pairs.tsv", "sentence1\tsentence2\na\tb\nc\td\n"),
    ),
    vectors(
        "one label that is not of inference",
        "",
        "line 3: the label is 'none'",
        put("pairs.tsv", "text_a\ttext_b\tlabel\na\tb\tneutral\na\tb\tnone\n"),
    ),
    vectors(
        "single texts without dropout",
        "--train_file=text.txt --hidden_dropout_prob=0 "
        "--attention_probs_dropout_prob=0",
        "differ by dropout alone",
    ),
    vectors(
        "single texts to score", "--dev_file=text.txt", "nearest to itself"
    ),
    vectors(
        "scores all equal",
        "--dev_file=same.tsv",
        "All scores of same.tsv are equal",
        put("same.tsv", "sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1\n"),
    ),
    vectors(
        "cosines over the data",
        "--predict_file=new/predictions.tsv",
        "predictions.tsv",
        put("new/predictions.tsv", "sentence1\tsentence2\na\tb\n"),
    ),
    vectors(
        "vectors of a classifier",
        "--nodo_train --init_checkpoint=classifier",
        "has the head 'classes'; the task wants 'vectors'",
    ),
]
