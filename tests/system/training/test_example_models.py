"""examples/mnist, cifar, imagenet and bert: ranks train what one process trains; models have their published sizes."""

import importlib.util
import json
import sys

import conftest
import fork_server
import numpy as np
import pytest
import rig as rigs
import torch

EXAMPLES = rigs.REPOSITORY / "examples"
sys.path.insert(0, str(EXAMPLES))

from common import backends, tensorboard  # noqa: E402

pytestmark = pytest.mark.timeout(300)
DEADLINE_S = 200  # of runs that take ten seconds on an idle machine
PYTHON = str(conftest.PYTHONS["newest"])  # the only one with torchvision and transformers
BERT = ["--model", "tiny", "--length", "16", "--batch-size", "4", "--steps", "3", "--dropout", "0",
        "--optimizer", "sgd", "--lr", "0.1"]  # fmt: skip


def module_of(folder, name="train"):
    """The program, not run: every folder has a module of this name."""
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", EXAMPLES / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def last_json(output):
    return json.loads(output.strip().splitlines()[-1])


def alone(folder, *options):
    done = fork_server.run([PYTHON, str(EXAMPLES / folder / "train.py"), *options], env=conftest.clean_environment(),
                          text=True, capture_output=True, timeout=DEADLINE_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout)


def on_ranks(rig, folder, *options, size=2):
    command = [PYTHON, str(EXAMPLES / folder / "train.py"), *options]
    ranks = rig.start_job(size, program=command, job=f"{folder}-{len(options)}", env={"OMP_NUM_THREADS": "1"})
    results = [rank.finish(DEADLINE_S) for rank in ranks]
    assert [status for status, _ in results] == [0] * size, results[0][1]
    assert all(output == "" for _, output in results[1:]), "only rank 0 talks"
    return last_json(results[0][1])


def relative_difference(left, right):
    """Largest difference of a parameter, relative to its array. Small arrays may be rounding noise: biases of keys."""
    a, b = np.load(left), np.load(right)
    assert a.files == b.files and a.files
    return max(np.abs(a[name] - b[name]).max() / max(np.abs(b[name]).max(), 1e-3) for name in a.files)


def test_mnist_is_learned_as_by_one_process_and_the_curves_say_so(two_agents, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # TensorBoard would take examples/tensorflow for it
    steps = ["--steps", "60", "--save-params"]
    one = alone("mnist", *steps, str(tmp_path / "one.npz"))
    result = on_ranks(two_agents, "mnist", *steps, str(tmp_path / "two.npz"), "--schedule", "dear",
                      "--tensorboard", str(tmp_path / "board"))  # fmt: skip
    assert result["ranks_identical"] and result["world_size"] == 2 and result["exposed_ms"] >= 0
    assert one["accuracy"] > 0.8 and result["accuracy"] == pytest.approx(one["accuracy"], abs=0.01)
    # Rounding grows in the maximum of four pixels and in ReLU. Measured: 0.005, and 0.4 with a wrong part on one rank.
    assert relative_difference(tmp_path / "two.npz", tmp_path / "one.npz") < 0.05

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert sorted(board.Tags()["scalars"]) == ["exposed_ms", "loss", "samples_per_s", "step_ms"]
    losses = board.Scalars("loss")
    assert [point.step for point in losses] == list(range(60))
    assert losses[-1].value == pytest.approx(result["loss"], rel=1e-6)


def test_bert_steps_as_one_process(two_agents, tmp_path):
    one = alone("bert", *BERT, "--save-params", str(tmp_path / "one.npz"))
    result = on_ranks(two_agents, "bert", *BERT, "--save-params", str(tmp_path / "two.npz"))
    assert result["model"] == "bert-tiny" and result["parameters"] == one["parameters"] > 1e6
    assert relative_difference(tmp_path / "two.npz", tmp_path / "one.npz") < 1e-3


def test_images_train_with_gradbus_and_with_ddp(two_agents):
    few = ["--batch-size", "4", "--steps", "2"]
    small = [*few, "--model", "resnet18", "--image-size", "32", "--classes", "10"]
    ours = on_ranks(two_agents, "imagenet", *small, "--compression", "fp16", "--time")
    assert ours["ranks_identical"] and ours["step_ms_alone"] > 0 and ours["backend"] == "gradbus"
    peer = on_ranks(two_agents, "cifar", *few, "--ddp", "--compression", "fp16")
    assert peer["ranks_identical"] and peer["backend"] == "ddp" and "exposed_ms" not in peer


@pytest.mark.parametrize(
    ("folder", "words", "millions"),
    [
        ("imagenet", ("resnet50", 1000), 25.557032),
        ("imagenet", ("resnet101", 1000), 44.549160),
        ("imagenet", ("vgg16", 1000), 138.357544),
        ("imagenet", ("densenet201", 1000), 20.013928),
        ("bert", ("base",), 110.106428),
        ("bert", ("large",), 336.226108),
        ("cifar", ("resnet20",), 0.269722),
        ("cifar", ("resnet56",), 0.853018),
    ],
)
def test_models_have_their_published_sizes(folder, words, millions):
    with torch.device("meta"):  # no memory, no random numbers
        model = module_of(folder).make_model(*words)
    assert sum(p.numel() for p in model.parameters()) == round(millions * 1e6)


def test_synthetic_batches_are_the_same_each_time_and_differ_by_step():
    images = module_of("imagenet").synthetic.Images(32, 10, seed=3)
    (x, y), (again, _), (other, _) = images.batch(5, 8), images.batch(5, 8), images.batch(6, 8)
    assert x.shape == (8, 3, 32, 32) and y.shape == (8,)
    assert torch.equal(x, again) and not torch.equal(x, other)


def test_bert_masks_as_many_words_of_each_text():
    bert = module_of("bert")
    arguments = type("Arguments", (), {"batch_size": 6, "length": 20, "seed": 1, "model": "tiny"})
    words, halves, labels, follows = bert.batch_of(0, arguments)
    masked = labels != bert.IGNORED
    assert masked.sum(1).tolist() == [3] * 6 and (words[masked] == bert.MASK).all()
    assert (words[~masked] > bert.MASK).all() and (labels[masked] > bert.MASK).all()
    assert halves[0].tolist() == [0] * 10 + [1] * 10 and follows.shape == (6,)


@pytest.mark.parametrize(
    ("folder", "words", "part"),
    [
        ("mnist", ["--steps", "0"], "at least 1"),
        ("bert", ["--length", "1"], "2 to 512"),
        ("imagenet", ["--image-size", "8"], "at least 32"),
        ("imagenet", ["--ddp", "--schedule", "dear"], "--schedule is an option of Gradbus"),
        ("cifar", ["--horovod", "--compression", "topk"], "horovod has none and fp16"),
    ],
)
def test_bad_options_are_refused(capsys, folder, words, part):
    with pytest.raises(SystemExit) as ended:
        module_of(folder).main(words)
    assert ended.value.code == 2 and part in capsys.readouterr().err


def test_without_a_folder_nothing_is_written():
    board = tensorboard.Board(None, 0)
    board.step(0, loss=1.0)
    board.close()
    assert {"gradbus", "ddp", "horovod"} <= set(backends.BACKENDS)
