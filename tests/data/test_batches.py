"""Plans of batches, and the batches built from them."""

import itertools

import numpy as np
import pytest

from albert_tf.data import batches, examples

BUCKETS = [4, 8, 11]


def make_examples(num_examples=50, num_choices=1, seed=5):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, num_examples * num_choices, np.int32)
    return examples.Examples(
        ids=rng.integers(5, 31, lengths.sum(), np.int32),
        lengths=lengths,
        first_lengths=rng.integers(1, lengths + 1).astype(np.int32),
        arrays={
            "label_ids": np.arange(num_examples, dtype=np.int32),
            "scores": rng.random((num_examples, 3), np.float32),
        },
        num_choices=num_choices,
        token_labels={"tag_ids": rng.integers(-1, 4, lengths.sum(), np.int32)},
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", [11]),
        ("4,8", [4, 8, 11]),
        ("8, 4,11,64", [4, 8, 11]),
    ],
)
def test_bucket_lengths_end_with_the_longest(text, wanted):
    assert batches.parse_bucket_lengths(text, 11) == wanted


@pytest.mark.parametrize("text", ["a", "0,4", "-4", "4;8"])
def test_bucket_lengths_are_numbers(text):
    with pytest.raises(ValueError, match="wanted numbers of tokens"):
        batches.parse_bucket_lengths(text, 11)


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("num_examples", [3, 50])
def test_training_uses_each_example_once_per_epoch(num_examples, num_choices):
    rows = make_examples(num_examples, num_choices)
    plan = batches.plan_training(rows, BUCKETS, 8, num_examples, seed=3)
    seen = plan.indices.ravel()
    assert seen.shape == (8 * num_examples,)
    # Eight epochs: the remainder of one is used in the next.
    counts = np.bincount(seen, minlength=num_examples)
    assert counts.min() >= 7 and counts.max() <= 9
    needed = batches.longest_sequences(rows)[plan.indices].max(axis=1)
    assert (plan.lengths >= needed).all()
    assert set(plan.lengths) <= set(BUCKETS)


def test_most_batches_come_from_one_bucket():
    rows = make_examples(400)
    plan = batches.plan_training(rows, BUCKETS, 8, 50, seed=3)
    lengths = batches.longest_sequences(rows)[plan.indices]
    is_pure = np.searchsorted(BUCKETS, lengths).min(axis=1) == np.searchsorted(
        BUCKETS, lengths
    ).max(axis=1)
    assert is_pure.sum() >= 50 - len(BUCKETS)


def test_a_shorter_plan_is_a_prefix_of_a_longer_one():
    rows = make_examples()
    short = batches.plan_training(rows, BUCKETS, 8, 13, seed=3)
    long = batches.plan_training(rows, BUCKETS, 8, 40, seed=3)
    np.testing.assert_array_equal(short.indices, long.indices[:13])
    np.testing.assert_array_equal(short.lengths, long.lengths[:13])
    other = batches.plan_training(rows, BUCKETS, 8, 13, seed=4)
    assert (short.indices != other.indices).any()


def split(plan):
    """The examples of each batch of a pass."""
    return np.split(plan.order, np.cumsum(plan.sizes)[:-1])


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("num_replicas", [1, 3])
@pytest.mark.parametrize("num_examples", [1, 7, 8, 9, 50])
def test_a_pass_has_each_example_once(num_examples, num_replicas, is_static):
    rows = make_examples(num_examples)
    plan = batches.plan_pass(
        rows, 11, 24, num_replicas=num_replicas, is_static=is_static
    )
    real = plan.order[plan.order < num_examples]
    assert sorted(real) == list(range(num_examples))
    assert (np.diff(plan.lengths) <= 0).all()
    assert not (plan.sizes % num_replicas).any()
    longest = batches.longest_sequences(rows)
    for length, size, index in zip(
        plan.lengths, plan.sizes, split(plan), strict=True
    ):
        assert length * size <= 24 * num_replicas
        assert longest[index[index < num_examples]].max() <= length <= 11
    num_padding = len(plan.order) - num_examples
    assert num_padding < (plan.sizes[-1] if is_static else num_replicas)


def test_a_pass_may_have_batches_of_a_given_size():
    rows = make_examples(50)
    plan = batches.plan_pass(rows, 11, 1, batch_size=8)
    assert plan.sizes.tolist() == [8] * 6 + [2]
    plan = batches.plan_pass(rows, 11, 1, batch_size=8, is_static=True)
    assert plan.sizes.tolist() == [8] * 7


def test_an_example_beyond_the_token_limit_is_its_own_batch():
    rows = make_examples(9, num_choices=3)
    assert batches.plan_pass(rows, 11, 4).sizes.tolist() == [1] * 9


def test_a_pass_pads_to_the_minimum_length():
    rows = make_examples()
    assert batches.plan_pass(rows, 11, 64).lengths.min() < 9
    assert batches.plan_pass(rows, 11, 64, min_length=9).lengths.min() == 9
    assert set(batches.plan_pass(rows, 11, 64, min_length=99).lengths) == {11}


def test_a_batch_ends_before_it_is_mostly_padding():
    lengths = np.repeat([400, 390, 40, 38], [3, 4, 20, 20])
    rows = examples.Examples(
        np.zeros(lengths.sum(), np.int32), lengths, lengths, {}
    )
    plan = batches.plan_pass(rows, 512, 1 << 20)
    assert plan.lengths.tolist() == [400, 40]
    assert plan.sizes.tolist() == [7, 40]


@pytest.mark.parametrize("price", [0, 1, 10, 40, 200, 10_000])
def test_the_chosen_lengths_have_minimal_cost(price):
    lengths = np.array([3, 3, 4, 7, 7, 7, 9, 12, 12, 20])

    def cost(chosen):
        padded = np.array(chosen)[np.searchsorted(chosen, lengths)]
        return padded.sum() + price * len(chosen)

    possible = sorted(set(lengths.tolist()))[:-1]
    wanted = min(
        cost([*some, 20])
        for count in range(len(possible) + 1)
        for some in itertools.combinations(possible, count)
    )
    chosen = batches.choose_lengths(lengths, price)
    assert cost(chosen.tolist()) == wanted
    assert (np.diff(chosen) > 0).all()
    if price in (0, 10_000):
        assert chosen.tolist() == ([*possible, 20] if not price else [20])


def test_few_shapes_are_compiled_for_few_examples(monkeypatch):
    rows = make_examples(400)
    plan = batches.plan_pass(rows, 11, 64, is_static=True)
    assert set(plan.lengths) == {11}
    monkeypatch.setattr(batches, "TOKENS_PER_SHAPE", 10)
    plan = batches.plan_pass(rows, 11, 64, is_static=True)
    assert set(zip(plan.lengths, plan.sizes, strict=True)) == {(8, 8), (11, 5)}


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("num_choices", [1, 3])
def test_batches_equal_those_padded_in_numpy(
    num_choices, is_static, monkeypatch
):
    monkeypatch.setattr(batches, "TOKENS_PER_SHAPE", 10)
    rows = make_examples(21, num_choices)
    plan = batches.plan_pass(rows, 11, 96, is_static=is_static)
    datasets = batches.build_pass(rows, plan)
    shapes = [d.element_spec["input_ids"].shape for d in datasets]
    assert all(shape.is_fully_defined() == is_static for shape in shapes)
    assert len(datasets) == (2 if is_static else 1)
    found = [b for d in datasets for b in d.as_numpy_iterator()]
    host = batches.HostBatches(rows, plan)
    for name, spec in datasets[0].element_spec.items():
        assert host.element_spec[name].is_compatible_with(spec), name
    shape = host.element_spec["input_ids"].shape
    assert (shape[0], shape[-1]) == (None, None)
    assert host.element_spec["scores"].shape[-1] == 3
    for batch, same, length, wanted_index in zip(
        found, host, plan.lengths, split(plan), strict=True
    ):
        assert same.keys() == batch.keys()
        for name, values in batch.items():
            assert same[name].numpy().dtype == values.dtype, name
            np.testing.assert_array_equal(same[name], values)
        index = batch.pop("example_index")
        weight = batch.pop("example_weight")
        np.testing.assert_array_equal(index, wanted_index)
        np.testing.assert_array_equal(weight, index < 21)
        real = index[index < 21]
        wanted = examples.pad_examples(rows, real, length)
        assert set(wanted) == set(batch)
        for name, values in wanted.items():
            assert batch[name].dtype == values.dtype, name
            np.testing.assert_array_equal(batch[name][: len(real)], values)
            empty = -1 if name == "tag_ids" else 0
            assert (batch[name][len(real) :] == empty).all()


def test_shapes_are_static():
    rows = make_examples()
    plan = batches.plan_training(rows, BUCKETS, 8, 20, seed=3)
    for length, dataset in batches.build_datasets(rows, plan).items():
        shapes = {n: s.shape for n, s in dataset.element_spec.items()}
        assert shapes["input_ids"] == shapes["segment_ids"] == (8, length)
        assert shapes["scores"] == (8, 3)


def test_datasets_follow_the_order_of_the_plan():
    rows = make_examples()
    plan = batches.plan_training(rows, BUCKETS, 8, 20, seed=3)
    iterators = {
        length: dataset.as_numpy_iterator()
        for length, dataset in batches.build_datasets(rows, plan).items()
    }
    for length, index in zip(*plan, strict=True):
        batch = next(iterators[length])
        np.testing.assert_array_equal(batch["example_index"], index)


def test_an_example_longer_than_every_bucket_is_refused():
    rows = make_examples()
    with pytest.raises(ValueError, match="11 tokens; the longest bucket has 8"):
        batches.plan_training(rows, [4, 8], 8, 20, seed=3)
    with pytest.raises(ValueError, match="11 tokens; wanted at most 8"):
        batches.plan_pass(rows, 8, 8)


def test_a_batch_is_no_larger_than_the_data():
    plan = batches.plan_pass(make_examples(8), 11, 64, batch_size=2048)
    assert plan.sizes.tolist() == [8]


def test_training_on_nothing_is_refused():
    with pytest.raises(ValueError, match="no examples"):
        batches.plan_training(make_examples(0), BUCKETS, 8, 20, seed=3)
    with pytest.raises(ValueError, match="no examples"):
        batches.plan_pass(make_examples(0), 11, 8)


@pytest.mark.parametrize(
    ("batch_size", "num_steps", "message"),
    [
        (8, 10**8, "100,000,000 steps of 8 examples are 800,000,000 examples"),
        (1, 50 * 100_000 + 1, "100,000 epochs of the 50 available"),
        (1 << 20, 1, "1,048,576 would repeat the 50 .* more than 100 times"),
    ],
)
def test_too_large_plans_are_refused_before_memory_is_used(
    batch_size, num_steps, message
):
    rows = make_examples()
    with pytest.raises(ValueError, match=message):
        batches.plan_training(rows, BUCKETS, batch_size, num_steps, seed=3)
    if num_steps == 1:
        with pytest.raises(ValueError, match=message):
            batches.plan_pass(
                rows, 11, 8, batch_size=batch_size, is_static=True
            )


def test_a_batch_may_be_somewhat_larger_than_the_data():
    rows = make_examples(1)
    plan = batches.plan_training(rows, BUCKETS, 1024, 2, seed=3)
    assert plan.indices.shape == (2, 1024)
    plan = batches.plan_pass(rows, 11, 8, batch_size=1024, is_static=True)
    assert plan.sizes.tolist() == [1024]
