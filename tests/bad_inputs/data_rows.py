"""Bad inputs of create_pretraining_data.py."""

from tests.bad_inputs.table import (
    Row,
    append,
    copy,
    link,
    put,
    rows_of_flags,
)

PROGRAM = "create_pretraining_data"


def row(name, words, says, *changes, **kwargs):
    return Row(name, f"{PROGRAM} {words}", says, changes, **kwargs)


def _hard_link():
    import os

    os.link("text.txt", "same.tfrecord")


ROWS = [
    # Outputs that are inputs, by whatever name.
    row(
        "the output is the text",
        "--output_file=text.txt",
        "--output_file would overwrite text.txt.*--input_file",
    ),
    row(
        "the output is the text, by a detour",
        "--output_file=glue/../text.txt",
        "--output_file would overwrite .*--input_file",
    ),
    row(
        "the output is the text, by a link",
        "--output_file=same.tfrecord",
        "--output_file would overwrite same.tfrecord.*--input_file",
        link("text.txt", "same.tfrecord"),
    ),
    row(
        "the output is the text, by a hard link",
        "--output_file=same.tfrecord",
        "--output_file would overwrite same.tfrecord.*--input_file",
        _hard_link,
    ),
    row(
        "one of several outputs is the text",
        "--output_file=new.tfrecord,text.txt",
        "--output_file would overwrite text.txt",
    ),
    row(
        "the output is one of several texts",
        "--input_file=*ext.txt --output_file=other_text.txt",
        "--output_file would overwrite other_text.txt",
    ),
    row(
        "the output is the SentencePiece model",
        "--vocab_file= --spm_model_file=pieces/pieces.model "
        "--output_file=pieces/pieces.model",
        "--output_file would overwrite .*--spm_model_file",
    ),
    row(
        "the output is the vocabulary",
        "--output_file=vocab.txt",
        "--output_file would overwrite .*--vocab_file",
    ),
    row(
        "the description would be the text",
        "--input_file=a.dataset.json --output_file=a.tfrecord",
        "would overwrite a.dataset.json",
        copy("text.txt", "a.dataset.json"),
    ),
    row(
        "a shard is the text",
        "--input_file=a-00001-of-00002.tfrecord --output_file=a --num_shards=2",
        "would overwrite a-00001-of-00002.tfrecord",
        copy("text.txt", "a-00001-of-00002.tfrecord"),
    ),
    row(
        "the same output twice",
        "--output_file=new.tfrecord,new.tfrecord",
        "output_file.*different files",
    ),
    row(
        "the same output twice, by a detour",
        "--output_file=new.tfrecord,glue/../new.tfrecord",
        "output_file.*different files",
    ),
    row(
        "another process makes the same output",
        "--output_file=made.tfrecord",
        "in use by process",
        owned=("made.dataset.json",),
    ),
    row(
        "another process makes one of the outputs",
        "--output_file=first.tfrecord,made.tfrecord",
        "in use by process",
        owned=("made.dataset.json",),
    ),
    # What is read.
    row("no text is named", "--input_file=", "--input_file.*wanted"),
    row("no such text", "--input_file=nowhere*.txt", "No file matches"),
    row(
        "the text is a folder",
        "--input_file=glue",
        "glue is a folder; wanted files",
    ),
    row(
        "the text is empty",
        "--input_file=empty.txt",
        "no text in.*empty.txt.*files are empty",
        put("empty.txt", b""),
    ),
    row(
        "the text is blank",
        "--input_file=blank.txt",
        "no text in.*blank.txt.*all lines are blank",
        put("blank.txt", b"\n \n\t\n"),
    ),
    row(
        "words are to be given by spaces, and there are none",
        "--input_file=sentences.txt --words_from_spaces",
        "--words_from_spaces, but .* 0 spaces among 150 characters",
        put("sentences.txt", "我们喜欢北京。\n\n" * 25),
    ),
    row(
        "words are given by spaces, but not masked as a whole",
        "--words_from_spaces --do_whole_word_mask=false",
        "--words_from_spaces needs --do_whole_word_mask",
    ),
    row(
        "the text is UTF-16",
        "--input_file=wide.txt",
        "wide.txt is UTF-16.*iconv",
        put("wide.txt", "w1 w2\n".encode("utf-16")),
    ),
    row(
        "the text is binary",
        "--input_file=zeros.txt",
        "zeros.txt is not UTF-8 text",
        put("zeros.txt", b"w1\0w2\0" * 99),
    ),
    row(
        "one document for NSP",
        "--input_file=one.txt --random_next_sentence",
        "NSP.*only one.*blank lines",
        put("one.txt", "w1 w2\nw3 w4\n"),
    ),
    row(
        "no vocabulary",
        "--vocab_file=",
        "--spm_model_file .*or --vocab_file",
    ),
    row("no such vocabulary", "--vocab_file=no.txt", "no.txt"),
    row(
        "the vocabulary is a folder",
        "--vocab_file=glue",
        "glue is a folder; it has .'SST-2'.. Wanted the vocabulary in it",
    ),
    row(
        "a tokenizer of another model",
        "--spm_model_file=t.json",
        "t.json describes a tokenizer of type 'BPE'.*Give the .model",
        put("t.json", {"model": {"type": "BPE"}}),
    ),
    row(
        "the vocabulary is a text",
        "--vocab_file=text.txt",
        "text.txt lacks the special pieces",
    ),
    row(
        "the vocabulary is empty",
        "--vocab_file=empty.txt",
        "empty.txt lacks the special pieces.*its 0 pieces",
        put("empty.txt", b""),
    ),
    row(
        "the vocabulary is not UTF-8",
        "--vocab_file=latin.txt",
        "latin.txt.*UTF-8",
        put("latin.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xe4\n"),
    ),
    row(
        "a piece twice in the vocabulary",
        "--vocab_file=vocab.txt",
        "vocab.txt has 'w3' on line 9 and again on line 26",
        append("vocab.txt", b"w3\n"),
    ),
    row(
        "a SentencePiece model as vocabulary",
        "--vocab_file=pieces/pieces.model",
        "pieces.model contains NUL.*Set --spm_model_file",
    ),
    row(
        "a vocabulary as SentencePiece model",
        "--vocab_file= --spm_model_file=vocab.txt",
        "vocab.txt is not a SentencePiece model.*vocab_file",
    ),
    row(
        "SentencePiece's list instead of its model",
        "--vocab_file= --spm_model_file=pieces/pieces.vocab",
        "pieces.vocab is SentencePiece's list",
    ),
    row(
        "a SentencePiece model that is cut",
        "--vocab_file= --spm_model_file=cut.model",
        "cut.model",
        lambda: put("cut.model", _read("pieces/pieces.model")[:200])(),
    ),
    row(
        "an empty SentencePiece model",
        "--vocab_file= --spm_model_file=empty.model",
        "empty.model",
        put("empty.model", b""),
    ),
    row(
        "the tokenizer's settings are cut",
        "",
        "tokenizer_settings.json is not JSON",
        put("tokenizer_settings.json", '{"sha256": '),
    ),
    row(
        "the tokenizer's settings are a list",
        "",
        "tokenizer_settings.json.*list",
        put("tokenizer_settings.json", "[]"),
    ),
    # Where it is written.
    row("an empty output", "--output_file=", "--output_file.*wanted"),
    row("outputs that are commas", "--output_file=,", "output_file"),
    row(
        "the output is in a file",
        "--output_file=a_file/a.tfrecord",
        "a_file cannot be a folder",
    ),
    row(
        "the output is a folder",
        "--output_file=glue",
        "glue is a folder",
    ),
    row(
        "the output is a folder that is not there",
        "--output_file=new/",
        "new/ is a folder",
    ),
    row(
        "a list of outputs, and shards",
        "--output_file=a.tfrecord,b.tfrecord --num_shards=3",
        "either one --output_file and --num_shards.*got 2 files",
    ),
    row(
        "two objectives",
        "--random_next_sentence --sentence_objective=none",
        "--random_next_sentence contradicts.*Give one",
    ),
    row(
        "no such objective",
        "--sentence_objective=xyz",
        "--sentence_objective=xyz.*sop",
    ),
    row(
        "more masked tokens than tokens",
        "--max_seq_length=8 --max_predictions_per_seq=9",
        "--max_predictions_per_seq=9; wanted at most --max_seq_length=8",
    ),
    row("an unknown flag", "--dupe_factors=3", "dupe_factors"),
    row("a stray word", "--do_lower_case False", "--flag=value.*False"),
    *rows_of_flags(
        PROGRAM,
        """
        masking no
        masked_lm_prob 1.5 nan 0 -0.1 inf
        short_seq_prob nan 2 -1
        max_seq_length 0 -5 4 70000 10000000000
        max_predictions_per_seq 0 -1
        dupe_factor 0 -3 1.5
        ngram 0 -1 1000000000
        num_shards 0 -1 100000
        num_workers 0 -2 100000
        random_seed -1 1000000000000 x
        """,
    ),
]


def _read(path):
    with open(path, "rb") as file:
        return file.read()
