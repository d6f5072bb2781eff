"""Models and tokenizers beside transformers itself."""

import gzip
import json
import shutil

import pytest

from albert_tf.text import tokenization
from albert_tf.weights import huggingface
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


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


# Lines of about 520 whose ids differ in transformers 5.23: special pieces
# that stand in the text, and ``quotes'', which it evens out.
ALWAYS = ("[CLS] text", "<unk> <pad>", "``quoted")


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
        # It lower-cases before the compatibility forms become letters.
        (
            "spm30k",
            "albert_en/30k-clean.model",
            {"keep_accents": True},
            (*ALWAYS, "50% 100", "™ ©", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢"),
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
