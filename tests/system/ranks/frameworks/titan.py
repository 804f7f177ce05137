"""A rank: torchtitan's Trainer on the backend "gradbus": `titan.py FOLDER`.

A Llama of two layers, with FSDP2, selective checkpointing of activations, clipping, AdamW and a learning-rate
schedule, all torchtitan's. Rank 0 compares with a plain loop in one process. Nothing of torchtitan is replaced but its
device: it looks for an accelerator, so the CPU gets the few functions that it asks a device for.
"""

import dataclasses
import os
import pathlib
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

FOLDER = pathlib.Path(sys.argv[1])
RANK, SIZE = int(os.environ["GRADBUS_RANK"]), int(os.environ["GRADBUS_SIZE"])
LENGTH, BATCH, STEPS, WORDS, RATE, CLIP = 16, 4, 6, 64, 0.01, 0.05
EPSILON = 1e-5  # AdamW's 1e-8 is as small as some gradients here: a rounding error of these moves a parameter by 1e-5


class CpuAsDevice(types.ModuleType):
    """torch.cpu with the questions about memory that torchtitan asks."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    def set_device(self, _):
        pass

    def current_device(self):
        return 0

    def get_device_name(self, _=None):
        return "cpu"

    def get_device_properties(self, _=None):
        return types.SimpleNamespace(total_memory=1 << 30)

    def memory_stats(self, _=None):
        return {}

    def reset_peak_memory_stats(self, _=None):
        pass

    def empty_cache(self):
        pass


torch._utils._get_available_device_type = lambda: "cpu"
torch._utils._get_device_module = lambda _: CpuAsDevice("cpu")
dist.init_process_group("gradbus")  # torchtitan takes the process group that it finds

from torchtitan.components.checkpoint import CheckpointManager  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.models.common import attention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

FACTORS = (0.5, 1, 1, 0.75, 0.5, 0.25)  # of the rate: a warm-up of two steps, then linear to 0


class Letters(BaseTokenizer):
    """Nothing is encoded: batches have numbers already."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()

    def encode(self, *_, **__):
        return []

    def decode(self, *_, **__):
        return ""

    def get_vocab_size(self):
        return WORDS


def batch_of(step):
    """(words, next words) of all ranks."""
    words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return words[:, :-1], words[:, 1:]


class Batches(BaseDataLoader):
    """Each rank's rows of the same global batches."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **_):
        assert (dp_world_size, local_batch_size) == (SIZE, BATCH // SIZE)
        self.rows = slice(dp_rank * local_batch_size, (dp_rank + 1) * local_batch_size)
        self.step = 0

    def __iter__(self):
        while True:
            words, labels = batch_of(self.step)
            self.step += 1
            yield {"input": words[self.rows].clone()}, labels[self.rows].clone()

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def small_llama():
    """torchtitan's smallest model with two of its layers, 64 words, and attention that needs no compiler."""
    spec = model_registry("debugmodel")
    model = spec.model
    model.vocab_size = model.tok_embeddings.num_embeddings = model.lm_head.out_features = WORDS
    model.layers = model.layers[:2]
    for layer in model.layers:
        layer.attention.inner_attention = attention.ScaledDotProductAttention.Config()
    return spec


def configuration():
    return Trainer.Config(
        model_spec=small_llama(),
        dump_folder=str(FOLDER),
        loss=CrossEntropyLoss.Config(),
        tokenizer=Letters.Config(),
        dataloader=Batches.Config(),
        optimizer=default_adamw(lr=RATE, eps=EPSILON),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(
            local_batch_size=BATCH // SIZE, seq_len=LENGTH, steps=STEPS, max_norm=CLIP,
            mixed_precision_param="float32", disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree=SIZE, spmd_backend="partial_dtensor"),
        checkpoint=CheckpointManager.Config(enable=True, folder="checkpoint", interval=STEPS),
    )  # fmt: skip


def whole(model):
    """All parameters by name, without the wrappers of activation checkpointing. All ranks call it."""
    return {
        name.replace("_checkpoint_wrapped_module.", ""): parameter.detach().full_tensor().clone()
        for name, parameter in model.named_parameters()
    }


def plain_llama():
    return small_llama().model.build()


def alone(first):
    """The same training by hand, from the same parameters."""
    model = plain_llama()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(first[name])
    optimizer = torch.optim.AdamW(model.parameters(), RATE, eps=EPSILON, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(STEPS):
        words, labels = batch_of(step)
        optimizer.param_groups[0]["lr"] = RATE * FACTORS[step]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(words).flatten(0, 1), labels.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return dict(model.named_parameters())


trainer = Trainer(configuration())
assert dist.get_backend() == "gradbus"
sharded = [p for p in trainer.model_parts[0].parameters() if p.to_local().numel() < p.numel()]
assert len(sharded) == len(list(trainer.model_parts[0].parameters())) or SIZE == 1
first = whole(trainer.model_parts[0])
trainer.train()
last = whole(trainer.model_parts[0])
trainer.close()
if RANK == 0:
    expected = alone(first)
    assert max((last[name] - value).abs().max() for name, value in first.items()) > RATE
    for name, value in expected.items():
        assert torch.allclose(last[name], value, rtol=0, atol=1e-5), (name, (last[name] - value).abs().max())
    loaded = plain_llama()
    saved = loaded.state_dict()
    dcp.load(saved, checkpoint_id=FOLDER / f"checkpoint/step-{STEPS}", no_dist=True)
    loaded.load_state_dict(saved)
    assert all(torch.equal(value, last[name]) for name, value in loaded.named_parameters())
dist.barrier()
dist.destroy_process_group()
print("ok", flush=True)
