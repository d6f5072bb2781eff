"""Set-up that every test relies on."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

# A background job of a shell ignores SIGINT, and so would the programs that
# the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TERM"] = "xterm"
# Servers of tests are here, not behind a proxy.
os.environ.setdefault("no_proxy", "127.0.0.1")

# Before TensorFlow, whose kernels it chooses.
import albert_tf  # noqa: F401  # isort: skip

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
CARRIED = ROOT / "tests/golden"
NUM_LOGICAL_CPUS = 2

# Replicas for the tests of tf.distribute. TensorFlow refuses to change this
# once it has run its first operation.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * NUM_LOGICAL_CPUS,
)

# Now, because it decorates the kernels of a model when they are imported.
from tests import eager

# What the repository may not carry: what it would prove, and its origin.
ABSENT = {
    "curve": (
        "300 steps of the release's pretraining, with its initial weights: "
        "that the training loop follows them",
        "google-research/albert, run on novels",
    ),
    "data/glue": (
        "GLUE's own files: that every row of them is read, with its index",
        "https://gluebenchmark.com; some allow research only",
    ),
    "data/imdb": (
        "film reviews: that the task of configs/tasks reads and learns them",
        "https://ai.stanford.edu/~amaas/data/sentiment",
    ),
    "data/race": (
        "RACE as it is distributed: that all its passages are read",
        "https://www.cs.cmu.edu/~glai1/data/race; research only",
    ),
    "data/squad": (
        "SQuAD's dev sets, with predictions of known official scores: that "
        "we score as officially, and find the answers in the paragraphs",
        "https://rajpurkar.github.io/SQuAD-explorer; CC BY-SA 4.0",
    ),
    "data/text": (
        "chapters of novels: that long real text is tokenized alike",
        "Project Gutenberg",
    ),
    "data/zh/news": (
        "a sample of Chinese news: that real Chinese text makes records",
        "https://github.com/brightmart/albert_zh",
    ),
    "optim": (
        "a checkpoint that the release's optimizer wrote: that its weights "
        "and slots are read",
        "google-research/albert, run for twelve steps",
    ),
    "pretrain_data": (
        "a text of 630,000 tokens, of RACE, IMDB, WikiText and novels, with "
        "the statistics of the sequences that the release made of it: that "
        "ours have the same distributions",
        "google-research/albert, create_pretraining_data.py run on that text",
    ),
}


# The files that take most CPU seconds, see tests/cpu_seconds.py. They are run
# first, so that at the end no worker of pytest-xdist idles while another one
# runs such a file.
LONGEST = (
    "test_bad_inputs",
    "test_loop",
    "test_run_pretraining",
    "test_operations",
    "test_hub",
    "test_run_squad",
    "test_workers",
    "test_resuming",
    "test_run_classifier_inputs",
    "test_serving",
    "test_freezing",
    "test_curve",
    "test_optimization",
    "test_pretrained",
)


def pytest_collection_modifyitems(items):
    """Moves the tests of the longest files to the front."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


class Carried(type(pathlib.Path())):
    """A path to what the repository carries of a larger collection.

    It is laid out as the collection, except that golden/dev is the top. A path
    to anything else skips the test and says what is missing.
    """

    def __truediv__(self, key):
        parts = super().__truediv__(key).relative_to(CARRIED).parts
        for top in ("golden", "dev"):
            parts = parts[1:] if parts[:1] == (top,) else parts
        path = Carried(CARRIED, *parts)
        if not path.exists():
            pytest.skip(reason("/".join(parts)))
        return path


def reason(name):
    """Says what a file that the repository lacks would prove."""
    for folder, (what, origin) in ABSENT.items():
        if name.startswith(folder):
            return (
                f"needs {name}, which is not in the repository: {what}. "
                f"Origin: {origin}. See tests/golden/README.md"
            )
    return (
        f"needs {name}, which is not in the repository. See "
        "tests/golden/README.md"
    )


def pytest_report_header():
    """Says which recordings the tests compare with."""
    if SHARED.is_dir():
        return f"recordings: all, in {SHARED}"
    return "recordings: the samples in tests/golden (see its README.md)"


@pytest.fixture(scope="session")
def shared():
    """Folder of the release's recorded numbers and of data.

    All of them are outside the repository; without them, the few in it.
    """
    return SHARED if SHARED.is_dir() else Carried(CARRIED)


RECORDINGS = {
    name: folder
    for name, folder in (("all", SHARED / "golden/dev"), ("ours", CARRIED))
    if folder.is_dir()
}


@pytest.fixture(scope="session", params=RECORDINGS)
def recordings(request):
    """Folder of what the release made of GLUE, RACE and SQuAD, and of text.

    All of the recordings where they are there; and the repository's, which are
    of text of our own in files of the same layout.
    """
    return RECORDINGS[request.param]


@pytest.fixture(scope="session")
def golden(shared, tmp_path_factory):
    """Finds recorded numbers of the release: all of them, or our few."""
    # Not earlier: this module sets TensorFlow up.
    from tests import recorded

    made = {}

    def find(name):
        path = shared / "golden/dev" / name
        if not path.exists():  # No recording of the release: our own.
            path = Carried(CARRIED) / name
        files = {p.name for p in path.iterdir()} if path.is_dir() else set()
        if "README.json" not in files or "model.ckpt-best.index" in files:
            return pathlib.Path(path)
        if name not in made:
            made[name] = tmp_path_factory.mktemp("recorded")
            recorded.rebuild(path, made[name])
        return made[name]

    return find


@pytest.fixture(scope="session", autouse=True)
def any_cpu():
    """Makes --compute_dtype=auto the same on all machines: float32."""
    # Not earlier: this module sets TensorFlow up.
    from albert_tf.training import distribution

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "BFLOAT16_FLAGS", set())
        yield


@pytest.fixture(scope="module")
def eager_steps():
    """Runs the training steps of a module's tests without tracing them."""
    with eager.steps():
        yield


@pytest.fixture(autouse=True)
def steps_as_marked(request):
    """Traces training steps, or not, in tests that are marked accordingly."""
    names = [mark.name for mark in request.node.iter_markers()]  # Own first.
    names = [name for name in names if name in ("eager", "traced")]
    if not names:
        yield
        return
    with eager.steps(names[0] == "eager"):
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a tiny model of one layer and its vocabulary, to be read."""
    # Not earlier: this module sets TensorFlow up.
    from tests import tiny

    folder = tmp_path_factory.mktemp("tiny") / "model"
    folder.mkdir()
    return tiny.write_model(folder, tiny.ONE_LAYER)


@contextlib.contextmanager
def started(code, *arguments, cwd=ROOT, **kwargs):
    """Yields a process that runs some code and has printed "started"."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        **kwargs,
    ) as process:
        for line in process.stdout:
            if line == "started\n":
                break
        yield process


@pytest.fixture
def own_elsewhere():
    """Lets another process own a path; returns the process."""
    code = (
        "import sys, time; from albert_tf import ownership\n"
        "with getattr(ownership, sys.argv[1])(sys.argv[2]):\n"
        "    print('owns', flush=True); time.sleep(600)"
    )
    with contextlib.ExitStack() as stack:

        def own(path, kind="owning"):
            command = [sys.executable, "-c", code, kind, str(path)]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
            )
            stack.callback(process.kill)
            process.stdout.readline()
            return process

        yield own
