"""A rank that leaves codecs to its training: one is used where it shortens steps, and none elsewhere.

codec_choice.py cases GRADBUS COORDINATOR TOKEN   with costs and times of our own: a busy machine decides nothing
codec_choice.py link                              with the real ones, and the policy's codecs
codec_choice.py policy                            with a policy that names a codec which cannot be chosen
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import warnings

import gradbus.torch as gradbus
import torch
from gradbus._session import current
from gradbus.torch._tuning import codec_choice, codec_trials, measured, plan_trials
from torch import nn

WIDTH = 256
STEPS = 40
plan_trials.WARM_STEPS, plan_trials.STEPS = 1, 3

real_cost = measured.Agreement.exchange_cost


class Clock:
    """Stands in for the module time in trials."""

    now = 0.0

    def monotonic(self):
        return self.now


def batch(number, rank):
    random = torch.Generator().manual_seed(100 * number + rank)
    x = torch.randn(16, 8, generator=random)
    return x, x[:, :4] * 2 + 1


def new_model(width=WIDTH):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))


def wrap(model, compression, **options):
    plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    return gradbus.DistributedOptimizer(plain, model.named_parameters(), compression=compression, **options)


def steps(model, optimizer, numbers, after=lambda: None):
    """The loss of each."""
    losses = []
    for number in numbers:
        optimizer.zero_grad()
        x, y = batch(number, gradbus.rank())
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        after()
        optimizer.step()
        losses.append(loss.item())
    optimizer.flush()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    assert len(set(gradbus.allgather_object(digest))) == 1, "ranks differ"
    return losses


def codecs_of(optimizer):
    return {codec.partition(":")[0] for codec in optimizer.exchange_plan()["compression"]}


def tick(optimizer, seconds):
    """A step takes seconds[0] when it is dense, else seconds[1]. The slowest rank decides."""
    plan_trials.time.now += (1.0 if gradbus.rank() else 0.5) * seconds[codecs_of(optimizer) != {"none"}]


def train(compression, byte_ns, seconds, **options):
    """``byte_ns``: of an exchange, by codec; others take 1000. ``seconds``: of a step, dense and compressed."""
    plan_trials.time = Clock()
    measured.Agreement.exchange_cost = lambda _, codec: {
        "startup_us": 100.0, "byte_ns": byte_ns.get(codec.partition(":")[0], 1000.0)
    }  # fmt: skip
    model = new_model()
    optimizer = wrap(model, compression, **options)
    assert not optimizer.exchange_plan()["is_final"]
    losses = steps(model, optimizer, range(STEPS), lambda: tick(optimizer, seconds))
    assert losses[-1] < 0.5 * losses[0], losses
    plan = optimizer.exchange_plan()
    assert plan["is_final"], plan
    return model, optimizer, plan


SLOW = {"none": 80.0, "fp16": 45.0, "int8": 25.0}


def case_a_codec_that_pays():
    model, optimizer, plan = train("auto", SLOW, [1.0, 0.5])
    assert codecs_of(optimizer) == {"int8", "none"}, plan  # biases stay dense
    assert "a step takes int8 for" in plan["why"] and "dense 1000.0 ms" in plan["why"], plan
    if gradbus.rank() == 0:
        words = [sys.argv[2], "status", "--job", current().job, "--tensors", "--coordinator", sys.argv[3]]
        said = subprocess.run(words, env=dict(os.environ, GRADBUS_TOKEN_FILE=sys.argv[4]),
                              text=True, capture_output=True, check=False).stdout  # fmt: skip
        words = " ".join(said.split())
        assert "int8:fidelity=100" in words and "a step takes int8 for" in words and "dense 1000.0 ms" in words, said
    optimizer.change_schedule("ddp")  # other buckets: their codecs are chosen again
    assert codecs_of(optimizer) == {"none"} and not optimizer.exchange_plan()["is_final"]
    steps(model, optimizer, range(STEPS), lambda: tick(optimizer, [1.0, 0.5]))
    assert codecs_of(optimizer) == {"int8", "none"} and optimizer.exchange_plan()["is_final"]


def case_the_residual_is_kept():
    """All that was left out arrives: the sum of the gradients that were used is that of all gradients."""
    width = 192
    model = new_model(width)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    plan_trials.time = Clock()
    measured.Agreement.exchange_cost = lambda _, codec: {"startup_us": 1.0, "byte_ns": SLOW.get(codec, 20.0)}
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(),
                                             compression="auto:cosine=0,topk:ratio=0.25")  # fmt: skip
    total = torch.zeros(width, width, dtype=torch.float64)
    compressed = 0
    for number in range(STEPS):
        optimizer.zero_grad()
        gradient = torch.randn(width, width, generator=torch.Generator().manual_seed(number))
        total += gradient
        (model[2].weight * gradient).sum().backward()
        busy = "topk" in codecs_of(optimizer)
        compressed += busy
        plan_trials.time.now += 0.5 if busy else 1.0
        optimizer.step()
    assert compressed > 20, compressed
    left = optimizer.compression_state()["residual"]["2.weight"].double()
    left = sum(torch.tensor(one) for one in gradbus.allgather_object(left.tolist())) / gradbus.size()
    assert left.abs().max() > 1, "nothing was left out"
    assert torch.allclose(model[2].weight.detach().double() + total - left, torch.zeros(1).double(), atol=1e-3)


def case_none_pays():
    _, optimizer, plan = train("fp16,int8", {"none": 1.0, "fp16": 2.0, "int8": 3.0}, [1.0, 0.1])
    assert codecs_of(optimizer) == {"none"} and "no codec would shorten a step" in plan["why"], plan
    assert optimizer._gradbus.codec_trials._trials is None, "something was tried"


def case_the_model_was_wrong():
    _, optimizer, plan = train("fp16,int8", SLOW, [1.0, 0.98], schedule="ddp")
    assert codecs_of(optimizer) == {"none"} and "no codec shortened the step: dense 1000.0 ms" in plan["why"], plan


def case_a_codec_that_loses_too_much():
    _, optimizer, plan = train("auto:cosine=0.99,onebit,int8", SLOW, [1.0, 0.5], schedule="dear")
    assert codecs_of(optimizer) == {"int8", "none"}, plan
    assert "onebit is left out: its cosine is 0." in plan["why"], plan


def case_a_codec_that_makes_steps_longer():
    """Signs of small gradients: their angle is within the limit, and their length is not."""
    why_not, codec_choice._why_not_chosen = codec_choice._why_not_chosen, lambda _: ("", "")
    codec_choice.parse_choice.cache_clear()
    _, optimizer, plan = train("signsgd,int8", {**SLOW, "signsgd": 5.0}, [1.0, 0.5], schedule="dear")
    assert codecs_of(optimizer) == {"int8", "none"}, plan
    assert "signsgd is left out: it changes the length of the gradient by a factor of " in plan["why"], plan
    codec_choice._why_not_chosen = why_not
    codec_choice.parse_choice.cache_clear()


def case_the_gauge_takes_a_codec_back():
    model, optimizer, _ = train("int8,none", SLOW, [1.0, 0.5])
    assert "int8" in codecs_of(optimizer)
    codec_trials.WATCH_EVERY = 5
    limit_of, codec_trials.CodecTrials._limit_of = codec_trials.CodecTrials._limit_of, lambda *_: 1.5
    end = time.monotonic() + 60
    while "int8" in codecs_of(optimizer):
        late = gradbus.allgather_object(time.monotonic() > end)
        assert not all(late), optimizer.exchange_plan()
        steps(model, optimizer, range(5))
    why = optimizer.exchange_plan()["why"]
    assert "the gauge of the running job" in why and "int8 is left out: its cosine is 1.00" in why, why
    codec_trials.CodecTrials._limit_of = limit_of


def case_wrong_choices():
    for text, part in (
        ("fp16,topq", "did you mean"), ("auto:cosine=2", "cosine=0 to 1"), ("fp16,powersgd", "looks at matrices"),
        ("none,none", "names 0 codecs"), ("fp16,signsgd", "signs without a magnitude"),
        ("auto:cosine=0.1,signum:momentum=0.9,int8", "signs without a magnitude"),
        ("int8:ef=dgc,fp16", "int8:ef=dgc adds momentum"), ("auto,fp16,dgc:ratio=0.1", "dgc:ratio=0.1 adds momentum"),
    ):  # fmt: skip
        try:
            wrap(new_model(), text)
        except gradbus.InvalidError as error:
            assert part in str(error), error
        else:
            raise AssertionError(text)
    for call in (gradbus.hook, lambda text: gradbus.allreduce(torch.ones(4), name="x", compression=text)):
        try:
            call("fp16,int8")
        except gradbus.InvalidError as error:
            assert "is a choice" in str(error), error
        else:
            raise AssertionError("it has no steps to measure")


def wrong_policy():
    """It is said when the optimizer is made, on every rank."""
    try:
        wrap(new_model(), None)
    except gradbus.InvalidError as error:
        assert "compression='fp16,signsgd': signsgd sends signs" in str(error), error
    else:
        raise AssertionError("signsgd was taken")


def cases():
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            print(name, flush=True)
            case()


def link():
    """A matrix of 1 MiB takes 84 ms at 100 Mbit/s, and computing it 1 ms."""
    model = new_model(512)
    optimizer = wrap(model, None)
    seen = steps(model, optimizer, range(STEPS))
    plan, trials = optimizer.exchange_plan(), optimizer._gradbus.codec_trials._trials
    assert seen[-1] < seen[0] and plan["is_final"], plan
    assert codecs_of(optimizer) - {"none"}, plan
    assert trials.found[trials.best] < trials.first_seconds, (trials.found, plan)
    if gradbus.rank() == 0:
        print(json.dumps({"step_ms": [seconds * 1e3 for seconds in trials.found], "why": plan["why"]}))


def main():
    warnings.filterwarnings("error", message="gradbus:")
    gradbus.init()
    {"cases": cases, "link": link, "policy": wrong_policy}[sys.argv[1]]()
    gradbus.shutdown()
    print("ok", flush=True)


main()
