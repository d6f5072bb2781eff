"""Models and tokenizers beside transformers itself."""

import gzip
import json
import shutil
import unicodedata

import pytest

from albert_tf.text import normalization, tokenization
from albert_tf.weights import huggingface, pretrained, vocabulary_files
from tests.text.test_tokenization import train_model
from tests.weights import test_huggingface_heads as tuned
from tests.weights.test_huggingface import SIZES, compare, inputs, our_outputs
from tests.weights.test_pretrained import CONFIGS, convert, random_model

WANTED = (
    "needs torch and transformers (pip install 'albert_tf[peers]'): that both "
    "compute the same; what they gave stands in tests/golden/huggingface"
)
pytest.importorskip("torch", reason=WANTED)
transformers = pytest.importorskip("transformers", reason=WANTED)


def their_outputs(model):
    import torch

    ids, mask, segments = map(torch.tensor, inputs())
    with torch.no_grad():
        outputs = model.eval()(
            input_ids=ids, attention_mask=mask, token_type_ids=segments
        )
    return outputs.prediction_logits.numpy(), outputs.sop_logits.numpy()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_groups": 2},
        {"inner_group_num": 2},
        {"hidden_act": "relu"},
    ],
)
def test_a_model_of_transformers_computes_the_same_here(tmp_path, changes):
    transformers.set_seed(0)
    config = transformers.AlbertConfig(
        **{**SIZES, "initializer_range": 0.3, **changes}
    )
    model = transformers.AlbertForPreTraining(config)
    model.save_pretrained(tmp_path)
    compare(our_outputs(tmp_path), their_outputs(model))


def test_shards_of_transformers_are_read(tmp_path):
    transformers.set_seed(0)
    model = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(**SIZES, initializer_range=0.3)
    )
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-0000?-of-0000?.safetensors"))) > 1
    compare(our_outputs(tmp_path), their_outputs(model))


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_our_model_computes_the_same_in_transformers(tmp_path, changes):
    random_model(tmp_path / "a", **changes)
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    model, info = transformers.AlbertForPreTraining.from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind]
    compare(our_outputs(tmp_path / "a"), their_outputs(model))


def their_logits(model, kind):
    import torch

    ids, mask, segments = map(torch.tensor, inputs())
    if kind == "choices":
        ids, mask, segments = (x[None] for x in (ids, mask, segments))
    with torch.no_grad():
        outputs = model.eval()(
            input_ids=ids, attention_mask=mask, token_type_ids=segments
        )
    names = ["logits"]
    if kind == "spans":
        names = ["start_logits", "end_logits"]
    return {name: outputs[name].numpy() for name in names}


@pytest.mark.parametrize("name", tuned.HEADS)
def test_a_head_of_transformers_computes_the_same_here(tmp_path, name):
    head, num_outputs, architecture = tuned.HEADS[name]
    transformers.set_seed(0)
    settings = {**SIZES, "initializer_range": 0.3}
    if architecture == "SequenceClassification":
        settings["num_labels"] = num_outputs
        problems = {"multi_label": "multi_label_classification"}
        settings["problem_type"] = problems.get(name)
    if head.labels:
        settings["id2label"] = dict(enumerate(head.labels))
    model = getattr(transformers, f"AlbertFor{architecture}")(
        transformers.AlbertConfig(**settings)
    )
    model.save_pretrained(tmp_path)
    theirs = their_logits(model, name)
    assert pretrained.read_pretrained(tmp_path).head == head
    ours = tuned.logits_of(tmp_path, head.kind)
    tuned.compare(ours, theirs.values(), name)


@pytest.mark.parametrize("name", tuned.HEADS)
def test_our_head_computes_the_same_in_transformers(tmp_path, name):
    head, num_outputs, architecture = tuned.HEADS[name]
    tuned.tuned_model(tmp_path / "a", head, num_outputs)
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    model, info = getattr(
        transformers, f"AlbertFor{architecture}"
    ).from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    # These have no pooler.
    has_none = name in ("spans", "tags")
    assert all("albert.pooler" in key for key in info["unexpected_keys"])
    assert bool(info["unexpected_keys"]) == has_none
    if head.labels:
        assert tuple(model.config.id2label.values()) == head.labels
    ours = tuned.logits_of(tmp_path / "a", head.kind)
    tuned.compare(ours, their_logits(model, name).values(), name)


@pytest.mark.parametrize("name", ["AlbertModel", "AlbertForMaskedLM"])
def test_a_model_with_few_heads_survives_a_conversion_and_back(tmp_path, name):
    transformers.set_seed(0)
    model = getattr(transformers, name)(transformers.AlbertConfig(**SIZES))
    model.save_pretrained(tmp_path / "a")
    has_pooler = name == "AlbertModel"
    found = pretrained.read_pretrained(tmp_path / "a")
    assert found.has_pooler == has_pooler
    convert(tmp_path / "a", tmp_path / "b", format="own")
    convert(tmp_path / "b", tmp_path / "c", format="hf")
    _, info = getattr(transformers, name).from_pretrained(
        tmp_path / "c", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind]


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


# Lines of about 520 whose ids differ in transformers 5.24: special pieces that
# stand in the text.
ALWAYS = ("[CLS] text", "<unk> <pad>")


@pytest.mark.parametrize(
    ("name", "file", "settings", "known"),
    [
        ("spm30k", "albert_en/30k-clean.model", {}, ALWAYS),
        (
            "spm30k",
            "albert_en/30k-clean.model",
            {"do_lower_case": False},
            ALWAYS,
        ),
        (
            "spm30k",
            "albert_en/30k-clean.model",
            {"keep_accents": True},
            ALWAYS,
        ),
        # A sigma at a word's end, words of 100 to 200 characters, private use.
        (
            "wordpiece",
            "zh/vocab.txt",
            {},
            ("[CLS] text", "ελληνικά", "0123456789", "\ue000private"),
        ),
    ],
)
def test_transformers_gives_the_same_ids(
    tmp_path, shared, name, file, settings, known
):
    path = shared / "data" / file
    kind = "spm_model_file" if path.suffix == ".model" else "vocab_file"
    ours = tokenization.build_tokenizer(**{kind: str(path)}, **settings)
    is_pieces = kind == "spm_model_file"
    copied = "spiece.model" if is_pieces else "vocab.txt"
    shutil.copyfile(path, tmp_path / copied)
    huggingface.write_tokenizer(tmp_path, ours, 512)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = lines_of(shared / f"golden/dev/token/{name}.jsonl.gz")
    different = [
        text
        for text in texts
        if theirs(text, add_special_tokens=False)["input_ids"]
        != ours.encode(text)
    ]
    assert [text for text in different if not text.startswith(known)] == []
    assert len(different) == len(known)
    pair = theirs("a", "b")
    a, b = ours.encode("a"), ours.encode("b")
    wanted = [ours.cls_id, *a, ours.sep_id, *b, ours.sep_id]
    assert pair["input_ids"] == wanted
    first = [0] * (len(a) + 2)
    assert pair["token_type_ids"] == [*first, *[1] * (len(b) + 1)]
    assert theirs.convert_tokens_to_ids(list(ours.special_pieces)) == (
        ours.special_ids
    )
    assert theirs.model_max_length == 512


SCRIPTS = [
    "हिन्दी भाषा में लिखा गया",
    "தமிழ் மொழி கொண்டு",
    "ที่นี่มีน้ำ",
    "I ❤️ it, 5️⃣ stars at café ™️",
    "Größe ẹ̀kọ́ Việt",
    "한국어 말을 배운다",
    "بِسْمِ اللَّهِ",
]


@pytest.mark.parametrize(
    ("lower", "accents"),
    [(True, False), (False, False), (False, True), (True, True)],
)
def test_transformers_gives_the_same_ids_of_other_scripts(
    tmp_path, lower, accents
):
    normalizer = normalization.SentenceNormalizer(lower, accents)
    path = tmp_path / "spiece.model"
    path.write_bytes(
        train_model(
            map(normalizer.normalize, SCRIPTS * 50),
            vocab_size=150,
            hard_vocab_limit=False,
        )
    )
    ours = tokenization.build_tokenizer(
        spm_model_file=path, do_lower_case=lower, keep_accents=accents
    )
    huggingface.write_tokenizer(tmp_path, ours, 512)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for form in ("NFC", "NFD", "NFKD"):
        texts = [unicodedata.normalize(form, text) for text in SCRIPTS]
        for text in texts:
            found = theirs(text, add_special_tokens=False)["input_ids"]
            assert found == ours.encode(text), text


@pytest.mark.parametrize(
    ("lower", "accents"),
    [(True, False), (False, False), (False, True), (True, True)],
)
@pytest.mark.parametrize("kind", ["spm30k", "wordpiece"])
def test_a_saved_tokenizer_is_read(tmp_path, shared, kind, lower, accents):
    """transformers 5 saves a tokenizer.json and no other vocabulary."""
    if kind == "spm30k":
        path = shared / "data/albert_en/30k-clean.model"
        arguments = {"spm_model_file": path}
        saved = transformers.AlbertTokenizer
        settings = {"keep_accents": accents}
        copied = "spiece.model"
    else:
        path = shared / "data/zh/vocab.txt"
        arguments = {"vocab_file": path}
        saved = transformers.BertTokenizer
        settings = {"strip_accents": False if accents else None}
        copied = "vocab.txt"
    (tmp_path / "a").mkdir()
    shutil.copyfile(path, tmp_path / "a" / copied)
    saved.from_pretrained(
        tmp_path / "a", do_lower_case=lower, **settings
    ).save_pretrained(tmp_path / "b")
    assert not (tmp_path / "b" / copied).exists()
    ours = tokenization.build_tokenizer(
        **arguments, do_lower_case=lower, keep_accents=accents
    )
    texts = lines_of(shared / f"golden/dev/token/{kind}.jsonl.gz")
    wanted = ours.encode_batch(texts)
    (name,) = arguments
    beside = tokenization.build_tokenizer(
        **{name: tmp_path / "b" / "tokenizer.json"}
    )
    in_folder = vocabulary_files.find_vocabulary(tmp_path / "b")
    for found in (beside, in_folder):
        assert found.encode_batch(texts) == wanted
