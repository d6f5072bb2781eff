"""Bad inputs of the tools, the commands that the release lacks."""

import gzip

from tests.bad_inputs.export_rows import edit_safetensors, without_pooler
from tests.bad_inputs.table import (
    Row,
    copy,
    cut,
    put,
    remove,
    replace,
    rows_of_flags,
)

DEEP = "[" * 100_000
MODEL = "--init_checkpoint=model"
ASK = "bare answer --init_checkpoint=serving/squad --paragraph=w2"


def row(program, name, words, says, *changes, **kwargs):
    return Row(name, f"{program} {words}", says, changes, **kwargs)


def serving(kind):
    """A change: gives the only version of a SavedModel a name that is known."""
    import glob
    import os

    return lambda: os.rename(glob.glob(f"serving/{kind}/*")[0], f"{kind}_model")


ROWS = [
    # train_vocab.
    row("train_vocab", "no text", "--input_file=", "--input_file is empty"),
    row("train_vocab", "no such text", "--input_file=no*", "No file matches"),
    row(
        "train_vocab",
        "the text is empty",
        "--input_file=empty.txt",
        "no text in empty.txt",
        put("empty.txt", b""),
    ),
    row(
        "train_vocab",
        "the text is not UTF-8",
        "--input_file=latin.txt",
        "latin.txt is not UTF-8 text: 9 of its first.*iconv",
        put("latin.txt", b"w1\n" + b"\xe4\n" * 9),
    ),
    row(
        "train_vocab",
        "the text is blank",
        "--input_file=blank.txt",
        "no text in blank.txt",
        put("blank.txt", b"\n \n\n"),
    ),
    row(
        "train_vocab",
        "the text is binary",
        "--input_file=zeros.txt",
        "zeros.txt is not UTF-8 text: 9 of its first.*binary",
        put("zeros.txt", b"w1\nw2" + bytes(9) + b"\n"),
    ),
    row(
        "train_vocab",
        "the text is a list of JSON",
        "--input_file=list.txt",
        "list.txt is a JSON list.*--input_format",
        put("list.txt", b'["w1", "w2"]\n'),
    ),
    row(
        "train_vocab",
        "the text is a truncated archive",
        "--input_file=cut.txt",
        "cut.txt cannot be decompressed",
        put("cut.txt", gzip.compress(b"w1 w2\n" * 99)[:-9]),
    ),
    row("train_vocab", "the text is a folder", "--input_file=glue", "folder"),
    row(
        "train_vocab", "no place", "--model_prefix=", "--model_prefix is empty"
    ),
    row(
        "train_vocab",
        "a place in a file",
        "--model_prefix=a_file/w",
        "a_file cannot be a folder",
    ),
    row(
        "train_vocab",
        "a model that is there",
        "--model_prefix=pieces/pieces",
        "pieces/pieces.model already exists",
    ),
    row(
        "train_vocab",
        "the model would be the text",
        "--input_file=w.model --model_prefix=w",
        "w.model",
        copy("text.txt", "w.model"),
    ),
    row(
        "train_vocab",
        "the list would be the text",
        "--input_file=w.vocab --model_prefix=w",
        "w.vocab",
        copy("text.txt", "w.vocab"),
    ),
    row(
        "train_vocab",
        "the settings are of another vocabulary",
        "--model_prefix=model/w",
        "model/tokenizer_settings.json",
    ),
    row(
        "train_vocab",
        "too many pieces",
        "--vocab_size=99999",
        "too large.*at most 34 is possible",
    ),
    row(
        "train_vocab",
        "too few pieces",
        "--vocab_size=14",
        "too small.*alone need 25",
    ),
    *rows_of_flags(
        "train_vocab",
        """
        vocab_size 0 -1 13
        input_sentence_size 0 -1
        character_coverage 0 0.97 1.5 nan -1
        num_threads 0 -1
        random_seed -1
        """,
    ),
    # initialize.
    row(
        "initialize",
        "no config",
        "--albert_config_file=none.json",
        "none.json: there is no such file",
    ),
    row(
        "initialize",
        "no vocabulary",
        "--vocab_file=",
        "Give --spm_model_file or --vocab_file",
    ),
    row(
        "initialize",
        "two vocabularies",
        "--spm_model_file=pieces/pieces.model",
        "Set exactly one vocabulary",
    ),
    row(
        "initialize",
        "a vocabulary of another size",
        "--vocab_file= --spm_model_file=pieces/pieces.model",
        "has 34 pieces, the model 25",
    ),
    row("initialize", "no such text", "--input_file=no*", "No file matches"),
    row(
        "initialize",
        "the text is not UTF-8",
        "--input_file=latin.txt",
        "latin.txt is not UTF-8 text: at least 1 characters",
        put("latin.txt", b"w1\n\xe4\n"),
    ),
    row("initialize", "a place in use", "--to=glue", "glue is not empty"),
    *rows_of_flags("initialize", "random_seed -1"),
    # extend_vocab.
    row("extend_vocab", "no model", "--from=none", "none.index does not exist"),
    row(
        "extend_vocab",
        "no vocabulary",
        "",
        "has no vocabulary, .*Give --spm_model_file or --vocab_file",
        remove("model/vocab.txt"),
    ),
    row(
        "extend_vocab",
        "a vocabulary of another size",
        "--spm_model_file=pieces/pieces.model",
        "has 34 pieces, the model 25",
    ),
    row(
        "extend_vocab",
        "neither text nor words",
        "--words_file=",
        "either --input_file, a text, or --words_file",
    ),
    row(
        "extend_vocab",
        "text and words",
        "--input_file=text.txt",
        "either --input_file, a text, or --words_file",
    ),
    row("extend_vocab", "no such words", "--words_file=no*", "No file matches"),
    row(
        "extend_vocab",
        "the text is not UTF-8",
        "--words_file= --input_file=latin.txt",
        "latin.txt is not UTF-8 text: at least 1 characters",
        put("latin.txt", b"w1\n\xe4\n"),
    ),
    row(
        "extend_vocab",
        "the words are not UTF-8",
        "--words_file=latin.txt",
        "latin.txt, line 2 is not UTF-8",
        put("latin.txt", b"w1\n\xe4\n"),
    ),
    row(
        "extend_vocab",
        "only words that are there",
        "--words_file=old.txt",
        "splits none of them.*Is it extended already",
        put("old.txt", "w1\n\nw2 w3\n"),
    ),
    row(
        "extend_vocab", "a remote place", "--to=ram://x/y", "wanted a local fo"
    ),
    row("extend_vocab", "a place in use", "--to=glue", "glue is not empty"),
    row("extend_vocab", "a place in the model", "--to=model/x", "is inside"),
    *rows_of_flags(
        "extend_vocab",
        """
        num_words 0 -1
        min_count 0 -1
        """,
    ),
    # inspect_checkpoint.
    row(
        "inspect_checkpoint",
        "no model",
        "--init_checkpoint=",
        "--init_checkpoint is empty",
    ),
    row(
        "inspect_checkpoint",
        "no such model",
        "--init_checkpoint=no",
        "no.index does not exist",
    ),
    row(
        "inspect_checkpoint",
        "a config that is cut",
        "",
        "albert_config.json is not JSON",
        cut("model/albert_config.json"),
    ),
    row(
        "inspect_checkpoint",
        "a config nested too deeply",
        "",
        "albert_config.json.*nested too deeply",
        put("model/albert_config.json", DEEP),
    ),
    row(
        "inspect_checkpoint",
        "weights that are cut",
        "",
        "model.ckpt-best cannot be read",
        cut("model/model.ckpt-best.data-00000-of-00001"),
    ),
    # embed.
    row("embed", "no such model", "--init_checkpoint=no", "no.index does not"),
    row(
        "embed",
        "no such file of weights",
        "--init_checkpoint=hf/typo.weights.h5",
        "hf/typo.weights.h5 does not exist; hf has .'model.safetensors'",
    ),
    row(
        "embed",
        "a model without a pooler",
        "--init_checkpoint=hf --pooling=pooled",
        "hf has no pooler",
        edit_safetensors(without_pooler),
    ),
    row("embed", "no such text", "--input_file=no.txt", "No file matches"),
    row(
        "embed", "an empty text", "--input_file=e", "no lines in", put("e", "")
    ),
    row(
        "embed",
        "a text that is not UTF-8",
        "--input_file=latin.txt",
        "latin.txt, line 2 is not UTF-8",
        put("latin.txt", b"w1\n\xe4\n"),
    ),
    row(
        "embed", "a remote table", "--output_file=ram://x/v.npz", "wanted .json"
    ),
    row("embed", "another ending", "--output_file=v.csv", "must end in .npz"),
    row(
        "embed",
        "the output is the text",
        "--input_file=t.jsonl --output_file=t.jsonl",
        "--output_file would overwrite t.jsonl",
        copy("text.txt", "t.jsonl"),
    ),
    row(
        "embed",
        "a place in a file",
        "--output_file=a_file/v.npz",
        "a_file cannot be a folder",
    ),
    row(
        "embed",
        "a place that is a folder",
        "--output_file=f.npz",
        "f.npz.*fol",
        put("f.npz/x", "x"),
    ),
    row("embed", "a layer before all", "--layer=-2", "layer=-2.*model has 1"),
    row(
        "embed",
        "no such layer",
        "--layer=1",
        "--layer=1.*has 1 layers; wanted -1 to 0",
    ),
    row("embed", "too many tokens", "--max_seq_length=33", "max_seq_length=33"),
    row(
        "embed",
        "no vocabulary",
        "",
        "no vocabulary.*--spm_model_file or --vocab_file",
        remove("model/vocab.txt"),
    ),
    *rows_of_flags(
        "embed",
        """
        tokens_per_batch 0 -1 10000000000
        max_seq_length 2 0
        layer x
        pooling max
        """,
    ),
    # fill_mask.
    row(f"bare fill_mask {MODEL}", "no text", "--text=", "--text is empty"),
    row(
        "fill_mask",
        "half a surrogate pair",
        "--text='w1 [MASK] \udcff'",
        "--text=.*not UTF-8",
    ),
    row(
        "fill_mask",
        "a character 0",
        "--text='w1 [MASK] \0'",
        "--text=.*NUL character",
    ),
    row(
        f"bare fill_mask {MODEL}",
        "no mask",
        "--text='w1 w2'",
        r"no \[MASK\] in the text",
    ),
    row(
        "fill_mask",
        "too long a text",
        f"--text='[MASK] {'w1 ' * 40}'",
        "has 43 tokens.*the model has 32 positions",
    ),
    row(
        "fill_mask",
        "another number of second texts",
        "--next_text='w1\nw2'",
        "--text has 1 lines, --next_text 2",
    ),
    row(
        "fill_mask",
        "a fine-tuned model",
        "--init_checkpoint=classifier/model.ckpt-best",
        "the head 'classes'; wanted a pretrained model",
    ),
    *rows_of_flags("fill_mask", "top_k 0 -1"),
    row(
        "fill_mask",
        "more guesses than pieces",
        "--top_k=26",
        "--top_k=26.*wanted 1 to 25",
    ),
    # answer.
    row("answer", "no model", "--init_checkpoint=no", "no.index does not"),
    row(ASK, "no question", "--question=", "--question is empty"),
    row(ASK, "a blank question", "--question=' '", "--question"),
    row(
        "answer",
        "half a surrogate pair",
        "--question='w1 \ud83d'",
        "--question=.*not UTF-8",
    ),
    row("answer", "no paragraph", "--paragraph=", "either --paragraph or"),
    row(
        "answer",
        "two paragraphs",
        "--paragraph_file=text.txt",
        "either --paragraph or",
    ),
    row(
        "answer",
        "a paragraph that is not UTF-8",
        "--paragraph= --paragraph_file=latin.txt",
        "latin.txt is not UTF-8",
        put("latin.txt", b"w1\n\xe4\n"),
    ),
    row(
        "answer",
        "no such paragraph",
        "--paragraph= --paragraph_file=no.txt",
        "no.txt",
    ),
    row(
        "answer",
        "a classifier",
        "--init_checkpoint=serving/classifier",
        "serving/classifier.*has the head .classes.*run_squad",
    ),
    row("answer", "an encoder", "--init_checkpoint=hub", "no head of a task"),
    row(
        "answer",
        "longer sequences than the model's",
        "--max_seq_length=64",
        "max_seq_length=64, but the model has 32 positions",
    ),
    row(
        "answer",
        "a SavedModel that is cut",
        "--init_checkpoint=squad_model",
        "squad_model",
        lambda: (
            serving("squad")(),
            cut("squad_model/variables/variables.index")(),
        ),
    ),
    row(
        "answer",
        "a SavedModel without a vocabulary",
        "--init_checkpoint=squad_model",
        "squad_model.*has no vocabulary",
        lambda: (serving("squad")(), remove("squad_model/assets/vocab.txt")()),
    ),
    *rows_of_flags(
        "answer",
        """
        n_best_size 0
        max_answer_length 0 -1
        max_seq_length 0
        doc_stride 0 -1
        max_query_length 0
        """,
    ),
    # demo.
    row(
        "bare demo", "no model to show", "--init_checkpoint=no", "no.index does"
    ),
    row(
        f"bare demo {MODEL}",
        "no vocabulary to show",
        "",
        "has no vocabulary, .*Give --spm_model_file or --vocab_file",
        remove("model/vocab.txt"),
    ),
    row(f"bare demo {MODEL}", "no such port", "--port=65536", "--port=65536"),
    # convert_to_litert.
    row(
        "convert_to_litert",
        "no model",
        "--saved_model=no",
        "no SavedModel in no",
    ),
    row(
        "convert_to_litert",
        "no such signature",
        "--signature=texts",
        "no signature texts.*it has",
    ),
    row(
        "convert_to_litert",
        "a signature of records",
        "--signature=serving_default",
        "no signature serving_default that takes only ids",
    ),
    row(
        "convert_to_litert",
        "longer sequences than were exported",
        "--seq_length=17",
        "max_seq_length.* 17 tokens, wanted at most 16",
    ),
    row(
        "convert_to_litert",
        "a place that is the model's file",
        "--saved_model=classifier_model "
        "--output=classifier_model/saved_model.pb",
        "--output.*saved_model.pb",
        serving("classifier"),
    ),
    row(
        "convert_to_litert",
        "a place in a file",
        "--output=a_file/m.tflite",
        "a_file cannot be a folder",
    ),
    row(
        "convert_to_litert",
        "a place that is a folder",
        "--output=glue",
        "glue.*folder",
    ),
    row("convert_to_litert", "no place", "--output=", "--output is empty"),
    *rows_of_flags(
        "convert_to_litert",
        """
        seq_length 0 -1
        batch_size 0 -1 10000000000
        weights int4
        """,
    ),
    # run_glue: nothing is run.
    row(
        "run_glue", "no data", "--data_dir=nowhere", "nowhere has training data"
    ),
    row("run_glue", "an unknown task", "--tasks=sst-3", "not for .*sst-3"),
    row("run_glue", "a task without data", "--tasks=mnli", "not for .*mnli"),
    row(
        "run_glue",
        "flags with a quote that is not closed",
        '''--extra_flags="--train_step='2"''',
        "--extra_flags.*quot",
    ),
    row("run_glue", "no recipes", "--recipes=nowhere", "nowhere/sst-2.flags"),
    row(
        "run_glue", "an empty output_dir", "--output_dir=", "output_dir is empt"
    ),
    row(
        "run_glue",
        "output_dir is a file",
        "--output_dir=a_file",
        "a_file cannot be a folder",
    ),
    # plot_metrics.
    row("plot_metrics", "no file", "--metrics_file=no", "No file matches 'no'"),
    row(
        "plot_metrics",
        "an empty file",
        "",
        "contains no metrics",
        put("pretrained/metrics.jsonl", b""),
    ),
    row(
        "plot_metrics",
        "a file of text",
        "--metrics_file=text.txt",
        "text.txt, line 1.*not JSON",
    ),
    row(
        "plot_metrics",
        "a file of lists",
        "--metrics_file=m",
        "m, line 1.*list",
        put("m", "[]\n[]\n"),
    ),
    row(
        "plot_metrics",
        "a file that lacks its steps",
        "",
        "metrics.jsonl, line 1.*step",
        replace("pretrained/metrics.jsonl", '"step"', '"steps"'),
    ),
    row(
        "plot_metrics",
        "the picture is the file",
        "--output_file=pretrained/metrics.jsonl",
        "--output_file would overwrite .*metrics.jsonl",
    ),
    row(
        "plot_metrics",
        "another ending",
        "--output_file=x.gif",
        "x.gif must end in",
    ),
    row(
        "plot_metrics",
        "a place in a file",
        "--output_file=a_file/x.svg",
        "a_file",
    ),
    row(
        "plot_metrics",
        "several, one of which is not there",
        "--metrics_file=pretrained/metrics.jsonl,no",
        "No file matches 'no'",
    ),
    # report.
    row("report", "no folder", "--output_dir=no", "no contains no training"),
    row("report", "an empty output_dir", "--output_dir=", "output_dir is empt"),
    row(
        "report", "a file", "--output_dir=a_file", "a_file contains no training"
    ),
    row(
        "report",
        "a folder of runs",
        "--output_dir=.",
        "contains no training.* pretrained.* do; give one",
    ),
    row(
        "report",
        "no such run beside it",
        "--compare=no",
        "no contains no training",
    ),
    row(
        "report",
        "a run beside itself",
        "--compare=pretrained",
        "--compare=pretrained repeats a folder; wanted other runs",
    ),
    row("report", "another ending", "--output_file=x.svg", "x.svg must end in"),
    row("report", "a place in a file", "--output_file=a_file/x.html", "a_file"),
    row(
        "report",
        "a torn manifest",
        "",
        "run.json is not JSON.*truncated",
        put("pretrained/run.json", '{"format": 1'),
    ),
    # analyze.
    row(
        "analyze",
        "no such config",
        "--albert_config_file=no.json",
        "no.json: there is no such file",
    ),
    row(
        "analyze",
        "no such config beside it",
        "--compare=no*.json",
        "No file matches 'no\\*.json'",
    ),
    row(
        "analyze",
        "something else beside it",
        "--compare=model/vocab.txt",
        "vocab.txt is not JSON",
    ),
    row(
        "analyze",
        "a batch of nothing",
        "--batch_sizes=8,0",
        "--batch_sizes=8,0; wanted whole numbers from 1",
    ),
    row(
        "analyze",
        "lengths in words",
        "--seq_lengths=short",
        "--seq_lengths=short; wanted whole numbers",
    ),
    row(
        "analyze",
        "more predictions than tokens",
        "--seq_lengths=16 --max_predictions_per_seq=17",
        "16 tokens .--seq_lengths. cannot have --max_predictions_per_seq=17",
    ),
    row(
        "analyze",
        "more tokens than positions",
        "--seq_lengths=512",
        "has 512 tokens, but .*max_position_embeddings 32",
    ),
    row(
        "analyze",
        "another ending",
        "--output_file=new.txt",
        "must end in .html",
    ),
    row(
        "analyze",
        "the config would be overwritten",
        "--json_file=model/albert_config.json",
        "albert_config.json",
    ),
    # layers.
    row("layers", "no such text", "--input_file=no*", "No file matches"),
    row(
        "layers",
        "no such checkpoint",
        "--init_checkpoint=no",
        "no.index does not exist",
    ),
    row(
        "layers",
        "no such checkpoint beside it",
        "--compare=no",
        "no.index does not exist",
    ),
    row(
        "layers",
        "a fine-tuned model",
        "--init_checkpoint=classifier",
        "lacks the pretraining heads",
    ),
    row(
        "layers",
        "more tokens than positions",
        "--max_seq_length=512",
        "model: --max_seq_length=512, but the model has 32 positions",
    ),
    row(
        "layers",
        "another ending",
        "--json_file=new.txt",
        "must end in .json",
    ),
    row(
        "layers",
        "the text would be overwritten",
        "--input_file=new.html",
        "new.html",
        copy("text.txt", "new.html"),
    ),
    # ablate.
    row("ablate", "no such grid", "--grid=no.json", "no.json: there is no"),
    row(
        "ablate",
        "another JSON file as grid",
        "--grid=model/albert_config.json",
        "albert_config.json is not a grid: .*wanted .'title'",
    ),
    row(
        "ablate",
        "a flag that no program has",
        "",
        "run_pretraining does not: .'num_train_step'",
        replace(
            "grid.json",
            '"num_train_steps": 2',
            '"num_train_step": 2, "num_train_steps": 2',
        ),
    ),
    row("ablate", "no such text", "--train_text=no", "No file matches 'no'"),
    row(
        "ablate", "no such vocabulary", "--vocab_file=no", "no vocabulary file"
    ),
    row(
        "ablate",
        "two vocabularies",
        "--spm_model_file=a.model",
        "--spm_model_file or --vocab_file",
    ),
    row("ablate", "no such row", "--only=two", "wanted some of one"),
    row("ablate", "no such task", "--task_data=RTE=glue", "'RTE=glue'; wanted"),
    row("ablate", "no data", "--task_data=SST-2=no", "'SST-2=no'; wanted"),
    row("ablate", "seeds in words", "--seeds=one", "--seeds=one; wanted"),
    row(
        "ablate",
        "text to train and to score on",
        "--heldout_text=text.txt",
        "text.txt is in --train_text and in --heldout_text",
    ),
    row(
        "ablate",
        "no such report",
        "--other_results=no.json",
        "no.json: there is no such file",
    ),
    row(
        "ablate",
        "another JSON file as report",
        "--other_results=model/albert_config.json",
        "albert_config.json has the keys .*; wanted rows of the grid, .'one'",
    ),
    row("ablate", "a file as folder", "--output_dir=a_file", "a_file"),
    # tpu_check.
    row(
        "tpu_check",
        "no such config",
        "--albert_config_file=no.json",
        "no.json: there is no such file",
    ),
    row(
        "tpu_check",
        "more tokens than positions",
        "--max_seq_length=512",
        "--max_seq_length=512, but the model has 32 positions",
    ),
    row(
        "tpu_check",
        "more predictions than tokens",
        "--max_predictions_per_seq=17",
        "--max_predictions_per_seq=17 is more than the 16 tokens",
    ),
    row(
        "tpu_check",
        "a batch that cannot be divided",
        "--train_batch_size=6",
        "not a multiple of the 4 replicas; use 4",
    ),
    row(
        "tpu_check",
        "parts that cannot be divided",
        "--gradient_accumulation_steps=4",
        "4 replicas times --gradient_accumulation_steps=4; use 16",
    ),
    row(
        "tpu_check",
        "two kinds of work",
        "--find_batch",
        "either --train_batch_size or --find_batch",
    ),
    Row(
        "no work",
        "bare tpu_check --albert_config_file=model/albert_config.json",
        "either --train_batch_size or --find_batch",
    ),
    row(
        "tpu_check",
        "a number of layers that is drawn, and computed again",
        "--min_num_layers=1 --remat",
        "min_num_layers draws .*give one of them",
    ),
    row(
        "tpu_check",
        "the environment is in a file",
        "--environment=a_file",
        "a_file/.* cannot be a folder",
    ),
]
