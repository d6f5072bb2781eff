"""Files of tagged words: what is read, converted, written back, and refused."""

import json

import numpy as np
import pytest

from albert_tf.data import tagged, tagged_tables

SPAN_SCHEMES = [s for s in tagged.SCHEMES if s != tagged.PLAIN]


def write(folder, text, name="dev.txt", **options):
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def read(folder, text, name="dev.txt", **options):
    return tagged.read_tagged(write(folder, text, name), **options)


def words_and_tags(file):
    return [(" ".join(s.words), " ".join(s.tags)) for s in file.sentences]


def rewrite(folder, file, tags=None):
    """Returns what is written for tags, by default those of the file."""
    path = folder / "written"
    tags = tags or [sentence.tags for sentence in file.sentences]
    tagged.write_tagged(path, file, tags)
    return path.read_bytes().decode()


# Schemes.

EXAMPLES = {
    "IOB1": "I-ORG I-PER I-PER B-PER O I-PER I-PER I-PER",
    "IOB2": "B-ORG B-PER I-PER B-PER O B-PER I-PER I-PER",
    "BIOES": "S-ORG B-PER E-PER S-PER O B-PER I-PER E-PER",
    "BILOU": "U-ORG B-PER L-PER U-PER O B-PER I-PER L-PER",
    "BMES": "S-ORG B-PER E-PER S-PER O B-PER M-PER E-PER",
    "plain": "NNP NNP NNP NNP VBD DT JJ O",
}


@pytest.mark.parametrize("scheme", tagged.SCHEMES)
def test_a_scheme_is_found_converted_and_written_back(tmp_path, scheme):
    tags = EXAMPLES[scheme].split()
    text = "".join(f"w{i} {tag}\n" for i, tag in enumerate(tags))
    file = read(tmp_path, text)
    assert file.scheme == scheme
    wanted = tags if scheme == "plain" else EXAMPLES["IOB2"].split()
    assert file.sentences[0].tags == wanted
    assert tagged.to_iob2(tags, scheme) == wanted
    assert rewrite(tmp_path, file) == text


@pytest.mark.parametrize("scheme", SPAN_SCHEMES)
def test_conversions_are_inverse_to_each_other(scheme):
    """Spans are drawn, and their tags written by a second implementation."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        lengths = rng.integers(1, 5, rng.integers(0, 6))
        iob2, own = [], []
        last = None
        for length in lengths:
            label = str(rng.choice(["X", "Y-Z", "O"]))
            if rng.random() < 0.3:
                iob2.append("O")
                own.append("O")
                last = None
            iob2 += [f"B-{label}"] + [f"I-{label}"] * (length - 1)
            first, inside, end, only = {
                "IOB1": ("B" if label == last else "I", "I", "I", "?"),
                "IOB2": "BIIB",
                "BIOES": "BIES",
                "BILOU": "BILU",
                "BMES": "BMES",
            }[scheme]
            only = first if scheme == "IOB1" else only
            row = first + inside * (length - 2) + end if length > 1 else only
            own += [f"{prefix}-{label}" for prefix in row]
            last = label
        assert tagged.from_iob2(iob2, scheme) == own
        assert tagged.to_iob2(own, scheme) == iob2


def test_plain_tags_are_not_converted():
    tags = ["B-X", "NOUN", "I-X"]
    assert tagged.to_iob2(["I-X"], "plain") == ["I-X"]
    assert tagged.from_iob2(tags, "BIOES") == tags
    with pytest.raises(ValueError, match="scheme is 'IOBES'; wanted one of"):
        tagged.to_iob2(tags, "IOBES")


def test_inconsistent_tags_are_read_as_conlleval_does(tmp_path, caplog):
    text = "a B-X\nb I-X\nc O\nd I-X\n\ne B-Y\nf I-X\ng B-X\n"
    file = read(tmp_path, text)
    assert file.scheme == "IOB2"
    assert words_and_tags(file) == [
        ("a b c d", "B-X I-X O B-X"),
        ("e f g", "B-Y B-X B-X"),
    ]
    (record,) = caplog.records
    assert (
        "2 tags are inconsistent in IOB2, such as I-X in the sentence at"
        in (record.getMessage())
    )
    caplog.clear()
    file = read(tmp_path, "a B-X\nb E-X\nc B-X\nd O\ne S-X\n")
    assert file.scheme == "BIOES"
    assert file.sentences[0].tags == "B-X I-X B-X O B-X".split()
    assert "1 tags are inconsistent in BIOES" in caplog.text
    caplog.clear()
    assert read(tmp_path, "a I-X\nb B-X\nc O\nd I-Y\n").scheme == "IOB1"
    assert read(tmp_path, "a O\nb O\n").scheme == "IOB2"
    assert not caplog.records


def test_tags_are_listed_with_those_that_follow_them(tmp_path):
    files = [
        read(tmp_path, "a B-PER\nb O\n", "a.txt"),
        read(tmp_path, "a I-LOC\nb I-A-B\n", "b.txt"),
        read(tmp_path, "a b\n", "c.txt", has_tags=False),
    ]
    assert tagged.list_tags(files) == (
        *("O", "B-A-B", "I-A-B", "B-LOC", "I-LOC", "B-PER", "I-PER"),
    )
    plain = read(tmp_path, "a VERB\nb O\nc NOUN\n", "d.txt")
    assert tagged.list_tags([plain]) == ("O", "NOUN", "VERB")
    assert tagged.list_tags(files[1:2]) == ("B-A-B", "I-A-B", "B-LOC", "I-LOC")
    with pytest.raises(ValueError, match="d.txt has plain .*'NOUN', but .*a.t"):
        tagged.list_tags([*files, plain])


# CoNLL.


def test_conll_of_2003_is_read_and_written_back(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\n\n"
        "\nEkeus  NNP I-NP I-PER\n-DOCSTART- -X- -X- O\n# # I-NP O\n"
    )
    file = read(tmp_path, text)
    assert words_and_tags(file) == [
        ("U.N. official", "B-ORG O"),
        ("Ekeus", "B-PER"),
        ("#", "O"),
    ]
    first = file.sentences[0]
    assert first.text == "U.N. official"
    assert [first.text[a:b] for a, b in first.spans] == first.words
    assert rewrite(tmp_path, file) == text
    predicted = [["B-X", "B-X"], ["O"], ["B-Y"]]
    assert rewrite(tmp_path, file, predicted) == (
        "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-X\nofficial NN I-NP B-X\n\n"
        "\nEkeus  NNP I-NP O\n-DOCSTART- -X- -X- O\n# # I-NP I-Y\n"
    )
    file = read(tmp_path, text, tag_column="2")
    assert file.sentences[0].tags == ["B-NP", "I-NP"]
    assert read(tmp_path, text, word_column=-3).sentences[1].words == ["NNP"]


def test_tags_in_another_spelling_are_said(tmp_path, caplog):
    assert read(tmp_path, "a b_per\nb i_per\nc o\n").scheme == "plain"
    assert "such as 'b_per' are read as plain" in caplog.text
    caplog.clear()
    assert read(tmp_path, "a NOUN\nb X\n").scheme == "plain"
    assert not caplog.text
    read(tmp_path, "a B\nb I\nc O\n")
    assert "wanted is 'B-X'" in caplog.text
    caplog.clear()
    read(tmp_path, "a PER-B\nb PER-I\nc O\n")
    assert "wanted is 'B-PER'" in caplog.text


def test_test_data_may_have_empty_tags(tmp_path):
    text = "Sentence #,Word,Tag\n1,Ann,\n,sings,\n"
    file = read(tmp_path, text, "a.csv", has_tags=None)
    assert [s.words for s in file.sentences] == [["Ann", "sings"]]
    assert file.sentences[0].tags is None
    with pytest.raises(ValueError, match="tag 1 of the sentence .* is empty"):
        read(tmp_path, text, "a.csv")
    for name, text in (
        ("a.txt", "Ann O\nsings O\n"),
        ("a.jsonl", to_lines({"text": "Ann sings", "spans": []})),
    ):
        file = read(tmp_path, text, name, has_tags=None)
        assert [s.tags for s in file.sentences] == [None]
        (sentence,) = read(tmp_path, text, name).sentences
        assert sentence.tags == ["O", "O"]


def test_sentences_without_tags_among_others_are_said(tmp_path, caplog):
    rows = [{"tokens": ["a"], "tags": tags} for tags in (["B-X"], None)]
    file = read(
        tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl", has_tags=None
    )
    assert [sentence.tags for sentence in file.sentences] == [None, None]
    assert "1 of 2 sentences have no tags, the first at line 2" in caplog.text


def test_tabs_line_ends_and_strange_spaces_are_kept(tmp_path):
    text = "New York\tO\r\n\u00a0\tO\r\n \t \r\na\u2028b\tB-X\r\n"
    file = read(tmp_path, text, "dev.tsv")
    assert [s.words for s in file.sentences] == [
        ["New York", "\u00a0"],
        ["a\u2028b"],
    ]
    assert rewrite(tmp_path, file) == text
    assert len(read(tmp_path, "a O\rb O\r\rc O").sentences) == 2
    # A byte order mark is no part of the first word.
    assert read(tmp_path, "\ufeffa O\n").sentences[0].words == ["a"]


def test_comments_are_told_from_words(tmp_path):
    text = (
        "#\thttp://a.b/c\t[2009]\n1\t#\tO\t_\n2\tBonn\tB-LOC\t_\n\n"
        "# sent_id = 1\n# a comment\n1\tAnn\tB-PER\t_\n"
    )
    file = read(tmp_path, text, word_column=1, tag_column=2)
    assert words_and_tags(file) == [("# Bonn", "O B-LOC"), ("Ann", "B-PER")]
    assert rewrite(tmp_path, file) == text
    file = read(
        tmp_path, "# text = a\n# SYM a O\n#b x y O\n\n#c x y O\nd x y O\n"
    )
    assert words_and_tags(file) == [("# #b", "O O"), ("#c d", "O O")]
    file = read(tmp_path, "# newdoc\na NN\n\n# newpar\n# NN\n# newdoc\n")
    assert words_and_tags(file) == [("a", "NN"), ("# #", "NN newdoc")]
    file = read(tmp_path, "# sent_id=5\na NN\n")
    assert words_and_tags(file) == [("a", "NN")]
    # Tweets: hashtags, and braces as words.
    file = read(tmp_path, "#newparents B\nlove O\n\n{ O\n#sent_ids O\n")
    assert words_and_tags(file) == [
        ("#newparents love", "B O"),
        ("{ #sent_ids", "O O"),
    ]


CONLLU = """\
# sent_id = 1
# text = Vámonos al mar
1-2	Vámonos	_	_	_	_	_	_	_	_
1	Vamos	ir	VERB	_	_	0	root	_	_
2	nos	nosotros	PRON	_	_	1	obj	_	_
2.1	fuimos	ir	VERB	_	_	_	_	1:conj	_
3	#	#	SYM	_	_	1	punct	_	_

"""


@pytest.mark.parametrize("name", ["dev.conllu", "dev.conll"])
def test_conllu_has_its_own_columns(tmp_path, name):
    file = read(tmp_path, CONLLU, name)
    assert words_and_tags(file) == [("Vamos nos #", "VERB PRON SYM")]
    assert file.scheme == "plain"
    assert rewrite(tmp_path, file) == CONLLU
    written = rewrite(tmp_path, file, [["A", "B", "C"]])
    assert "2\tnos\tnosotros\tB\t_" in written
    assert "2.1\tfuimos\tir\tVERB" in written
    file = read(tmp_path, CONLLU, name, tag_column=7)
    assert file.sentences[0].tags == ["root", "obj", "punct"]


def test_predictions_are_appended_or_replace_the_tags(tmp_path):
    predicted = [["B-X", "I-X"], ["O"]]
    file = read(tmp_path, "# id 1\na\nb\n\n#c\n", has_tags=False)
    assert [s.tags for s in file.sentences] == [None, None]
    assert file.scheme == "plain"
    assert rewrite(tmp_path, file, predicted) == (
        "# id 1\na B-X\nb I-X\n\n#c O\n"
    )
    file = read(tmp_path, "a\tx\nb\ty\n\nc\tz", has_tags=False, tag_column=2)
    assert rewrite(tmp_path, file, predicted) == (
        "a\tx\tB-X\nb\ty\tI-X\n\nc\tz\tO"
    )
    file = read(tmp_path, "a x _\nb y _\n\nc z _\n", has_tags=False)
    assert rewrite(tmp_path, file, predicted) == "a x B-X\nb y I-X\n\nc z O\n"
    # In the scheme of the training data.
    file = file._replace(scheme="BIOES")
    assert rewrite(tmp_path, file, predicted).startswith("a x B-X\nb y E-X")
    with pytest.raises(ValueError, match="Found 2 tags of 1 .* of the 3 words"):
        tagged.write_tagged(tmp_path / "written", file, predicted[:1])


# CSV.


def test_the_csv_of_kaggle_is_read_and_written_back(tmp_path):
    text = (
        "Sentence #,Word,POS,Tag\r\nSentence: 1,Ann,NNP,B-per\r\n"
        ',",",",",O\r\n,"""",``,O\r\nSentence: 2,NA,NNP,B-geo\r\n'
    )
    file = read(tmp_path, text, "ner.csv")
    assert words_and_tags(file) == [('Ann , "', "B-per O O"), ("NA", "B-geo")]
    assert rewrite(tmp_path, file) == text
    file = read(tmp_path, text, "ner.csv", tag_column="pos", word_column=3)
    assert words_and_tags(file)[1] == ("B-geo", "NNP")
    file = read(tmp_path, "word,TAG,Tag\na,X,Y\n", "a.csv", tag_column="Tag")
    assert words_and_tags(file) == [("a", "Y")]


@pytest.mark.parametrize("gap", [",\n", "\n", '"",""\n'])
def test_sentences_of_csv_end_at_empty_words(tmp_path, gap):
    file = read(tmp_path, f"token,label\na,X\n{gap}b,Y\n", "a.csv")
    assert words_and_tags(file) == [("a", "X"), ("b", "Y")]


def test_tags_are_appended_to_csv(tmp_path):
    text = "Token,n\na,1\n\nb,2\n,\nc,3\n"
    file = read(tmp_path, text, "a.csv", has_tags=False)
    assert [s.tags for s in file.sentences] == [None, None, None]
    assert rewrite(tmp_path, file, [["B-X"], ["O"], ["I-X"]]) == (
        "Token,n,tag\na,1,B-X\n\nb,2,O\n,,\nc,3,I-X\n"
    )


def test_sentences_of_csv_end_where_ids_change(tmp_path):
    file = read(
        tmp_path, "sentence_id,word,tag\n7,a,X\n7,b,Y\n8,c,X\n", "a.csv"
    )
    assert [s.words for s in file.sentences] == [["a", "b"], ["c"]]


def test_rows_of_csv_without_a_word_are_skipped(tmp_path, caplog):
    text = "sentence,word,tag\n1,a,X\n1,,\n1,b,Y\n"
    file = read(tmp_path, text, "a.csv")
    assert words_and_tags(file) == [("a b", "X Y")]
    assert "1 rows have no word and are skipped" in caplog.text
    assert rewrite(tmp_path, file) == text


# JSON lines.


def to_lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_tokens_and_tags_of_json_are_read_and_written_back(tmp_path):
    text = to_lines(
        {"id": 7, "tokens": ["Zoë", "left"], "tags": ["S-PER", "O"]},
        {"tokens": [], "tags": []},
        {"tokens": ["New York"], "tags": ["O"], "text": "New York"},
    )
    file = read(tmp_path, text, "a.jsonl")
    assert file.scheme == "BIOES"
    assert words_and_tags(file)[0] == ("Zoë left", "B-PER O")
    assert file.sentences[2].spans == [(0, 8)]
    assert rewrite(tmp_path, file) == text
    row = {"words": ["a"], "ner": ["X"]}
    columns = {"word_column": "words", "tag_column": "ner"}
    file = read(tmp_path, to_lines(row), "a.jsonl", **columns)
    assert words_and_tags(file) == [("a", "X")]
    file = read(tmp_path, '{"tokens": ["a"]}\n', "a.jsonl", has_tags=False)
    assert file.sentences[0].tags is None
    assert rewrite(tmp_path, file, [["B-X"]]) == (
        '{"tokens": ["a"], "tags": ["B-X"]}\n'
    )


def span(start, end, label="X"):
    return {"start": start, "end": end, "label": label}


def test_texts_and_spans_of_json_are_read_and_written_back(tmp_path):
    spans = [span(0, 7, "PER"), span(16, 18, "A-B"), span(18, 20, "A-B")]
    row = {"text": "Ann Lee liebt  東京大阪.", "spans": spans, "id": 7}
    row["spans"] = [span(0, 7, "PER"), span(15, 17, "A-B"), span(17, 19, "A-B")]
    file = read(tmp_path, to_lines(row), "a.json")
    assert words_and_tags(file) == [
        (
            "Ann Lee liebt 東 京 大 阪 .",
            "B-PER I-PER O B-A-B I-A-B B-A-B I-A-B O",
        )
    ]
    assert file.sentences[0].text == row["text"]
    assert rewrite(tmp_path, file) == to_lines(row)
    tags = ["O", "B-Z", *["O"] * 6]
    row["spans"] = [span(4, 7, "Z")]
    assert rewrite(tmp_path, file, [tags]) == to_lines(row)
    file = read(tmp_path, '{"text": "a b"}\n', "a.jsonl", has_tags=False)
    row = {"text": "a b", "spans": [span(0, 1, "DET"), span(2, 3, "NOUN")]}
    assert rewrite(tmp_path, file, [["DET", "NOUN"]]) == to_lines(row)
    file = read(tmp_path, '{"text": "a b"}\n' * 2, "a.jsonl", has_tags=False)
    other = row | {"spans": [span(0, 1, "O"), span(2, 3, "O")]}
    tags = [["DET", "NOUN"], ["O", "O"]]
    assert rewrite(tmp_path, file, tags) == to_lines(row, other)


def test_words_that_a_span_cuts_belong_to_it(tmp_path, caplog):
    row = {"text": "overlook USA2024 x", "spans": [span(4, 8)]}
    row["spans"] += [span(9, 12, "Y"), span(12, 17, "Z")]
    file = read(tmp_path, to_lines(row), "a.jsonl")
    assert file.sentences[0].tags == ["B-X", "B-Y", "O"]
    assert "3 spans begin or end inside a word" in caplog.text
    caplog.clear()
    # Spaces at the ends of a span cut no word.
    row = {"text": "a bc d", "spans": [span(1, 5), span(0, 1)]}
    file = read(tmp_path, to_lines(row), "a.jsonl")
    assert file.sentences[0].tags == ["B-X", "B-X", "O"]
    assert not caplog.records


# What is refused.

TOO_LONG = "a O\n" * (tagged_tables.MAX_WORDS + 1)
BROKEN = {
    "nothing": ("a.txt", " \n\n", "a.txt is empty"),
    "no words": ("a.txt", "-DOCSTART- O\n# x\n", "a.txt has no words"),
    "no rows": ("a.csv", "word,tag\n", "a.csv has no words"),
    "no tokens": ("a.jsonl", '{"tokens": [], "tags": []}', "has no words"),
    "a NUL": ("a.txt", "ab cd\nab\0cd O", "line 2 contains a NUL"),
    "one column": (
        "a.txt",
        "# x = y\nword\n",
        "line 2: found 1 columns; wanted words in column 0 and tags in column "
        "1.* Is it test data without tags",
    ),
    "too few columns": (
        "a.conllu",
        "1 a\n",
        "found 2 columns; wanted words in column 1 and tags in column 3",
    ),
    "a shorter row": (
        "a.txt",
        "a x O\nb O\n",
        "line 2: found 2 .*line 1 has 3",
    ),
    "a longer row": ("a.txt", "a O\n\nNew York O\n", "line 3: found 3 columns"),
    "a shorter comment": (
        "a.txt",
        "a x O\n# b\n",
        "line 2: found 2 columns",
    ),
    "an empty tag": (
        "a.txt",
        "a\tO\n\nb\tO\nc\t\n",
        "tag 2 of the sentence at line 3 is empty",
    ),
    "an empty word": (
        "a.txt",
        "\tO\n",
        "word 1 of the sentence at line 1 is e",
    ),
    "no blank lines": (
        "a.txt",
        TOO_LONG,
        "line 1 has 10001 words; wanted 10000",
    ),
    "words that are numbers": (
        "a.txt",
        "1 a O\n2 b O\n3 c O\n",
        "line 1: the words of the sentence are the numbers 1 to 3",
    ),
    "JSON of another name": (
        "a.txt",
        '{"a": 1}\n',
        "line 1 begins with a brace",
    ),
    "dicts of Python": ("a.txt", "{'a': 1}\n", "line 1 begins with a brace"),
    "a header": (
        "a.txt",
        "Word Tag\nAnn B-PER\nLee I-PER\n",
        "2 tags are of spans, such as B-X, but 1 are not, such as 'Tag' in the "
        "sentence at line 1",
    ),
    "two schemes": ("a.txt", "a E-X\nb L-X\n", "prefixes .'E', 'L'.; wanted"),
    "no column": (
        "a.csv",
        "text;tag\na;O\n",
        "no column 'word' or 'token'; its header is .'text;tag'",
    ),
    "no tags in CSV": (
        "a.csv",
        "word,ner\na,O\n",
        "no column 'tag' or 'label'",
    ),
    "a long row of CSV": (
        "a.csv",
        "word,tag\na,O\n,,O\n",
        "line 3: found 3 columns; the header has 2",
    ),
    "an unclosed quote": ("a.csv", 'word,tag\n"a,O\n', "line 2: .*unclosed"),
    "no JSON": ("a.jsonl", "a O\n", "a.jsonl, line 1 is not JSON"),
    "no object": ("a.jsonl", "[1]\n", "line 1: found JSON of type list"),
    "no words in JSON": (
        "a.jsonl",
        '{"sentence": "a"}',
        "line 1: 'text' is missing from the keys .'sentence'.. Wanted \"tokens",
    ),
    "no tags in JSON": (
        "a.jsonl",
        '{"tokens": ["a"]}',
        "'tags' is missing from .*Is it test data without tags",
    ),
    "a number for words": (
        "a.jsonl",
        '{"tokens": 7, "tags": []}',
        "line 1: 'tokens' is 7; wanted a list of strings",
    ),
    "indices of tags": (
        "a.jsonl",
        '{"tokens": ["a"], "tags": [0]}',
        "line 1: 'tags' contains 0; wanted strings. Are they indices",
    ),
    "objects of words": (
        "a.jsonl",
        '{"tokens": [{"a": 1}], "tags": ["O"]}',
        "'tokens' contains .*; wanted strings. Does it contain an object",
    ),
    "no tags, null in JSON": (
        "a.jsonl",
        '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"], "tags": null}',
        "line 2: 'tags' is null; wanted a list",
    ),
    "tabs and spaces": (
        "a.txt",
        "a\t_ B-X\nb\t_ O\n",
        "tag '_ B-X' of the sentence at line 1 contains a space",
    ),
    "another number of tags": (
        "a.jsonl",
        '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"], "tags": []}',
        "line 2: found 0 tags for 1 words",
    ),
}
BAD_SPANS = {
    "no list": (7, "found the span 7; a key is missing"),
    "no object": ([[0, 1, "X"]], "the span .0, 1, 'X'.; a key is missing"),
    "no end": ([{"start": 0, "label": "X"}], "a key is missing"),
    "no number": ([span("0", 1)], "must be whole numbers"),
    "a truth value": ([span(False, 1)], "must be whole numbers"),
    "no label": ([span(0, 1, " ")], '"label" must be a name'),
    "an empty span": ([span(1, 1)], "it is empty or not in the 4 characters"),
    "beyond the end": ([span(0, 5)], "not in the 4 characters"),
    "before the text": ([span(-1, 1)], "not in the 4 characters"),
    "spaces": ([span(1, 3)], "the span from 1 to 3 has no word"),
    "an overlap": (
        [span(3, 4), span(0, 1), span(0, 4)],
        "the spans .0, 1, 'X'. and .0, 4, 'X'. overlap",
    ),
}


@pytest.mark.parametrize(
    ("name", "text", "message"), BROKEN.values(), ids=BROKEN
)
def test_a_broken_file_is_refused(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, name)


@pytest.mark.parametrize(
    ("spans", "message"), BAD_SPANS.values(), ids=BAD_SPANS
)
def test_bad_spans_are_refused(tmp_path, spans, message):
    text = to_lines({"text": "a  b", "spans": spans})
    with pytest.raises(ValueError, match=f"a.jsonl, line 1: .*{message}"):
        read(tmp_path, text, "a.jsonl")


def test_other_bad_arguments_and_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no .*absent.txt"):
        tagged.read_tagged(tmp_path / "absent.txt")
    (tmp_path / "a.txt").write_bytes("é O".encode("latin-1"))
    with pytest.raises(ValueError, match="a.txt is not UTF-8"):
        tagged.read_tagged(tmp_path / "a.txt")
    with pytest.raises(
        ValueError, match="column 'ner' for .*; wanted a number"
    ):
        read(tmp_path, "a O\n", tag_column="ner")
    for columns in ({"word_column": 2}, {"tag_column": 0}, {"tag_column": -3}):
        with pytest.raises(ValueError, match="found 2 columns; wanted words"):
            read(tmp_path, "a O\n", **columns)
    with pytest.raises(ValueError, match="no column 'ner'; its header"):
        read(tmp_path, "word,tag\na,O\n", "a.csv", tag_column="ner")
    with pytest.raises(ValueError, match="no column 2; its header"):
        read(tmp_path, "word,tag\na,O\n", "a.csv", tag_column=2)


def test_a_sentence_may_have_ten_thousand_words(tmp_path):
    text = TOO_LONG.removesuffix("a O\n")
    assert len(read(tmp_path, text).sentences[0].words) == 10_000


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["Ann", "'s", "5", "%"], "Ann 's 5 %"),
        (["上海", "市", "，", "很", "好"], "上海市，很好"),
        (["在", "2020", "年", "(", "京", ")"], "在2020年(京)"),
        (["用", "iPhone", "，", "说"], "用 iPhone，说"),
        (["เขา", "พูด", "ดี", "a"], "เขาพูดดี a"),
        (["서울", "東京", "시"], "서울 東京 시"),
        (["\u200b", "東\u200b", "京"], "\u200b東\u200b京"),
        (["2020", "21"], "2020 21"),
    ],
)
def test_words_are_joined_as_their_script_writes_them(words, text):
    sentence = tagged.join_words(words)
    assert sentence.text == text
    assert [text[a:b] for a, b in sentence.spans] == words
