"""A rank: Lightning, Accelerate and the Trainer of transformers on the backend "gradbus": `trainers.py FOLDER WHICH`.

Each trains on the ranks, and rank 0 compares with a plain loop in one process.
"""

import gc
import os
import pathlib
import sys

import torch
from torch.utils.data import DataLoader, Dataset

FOLDER, WHICH = pathlib.Path(sys.argv[1]), sys.argv[2]
RANK, SIZE = int(os.environ["GRADBUS_RANK"]), int(os.environ["GRADBUS_SIZE"])
ROWS, BATCH, EPOCHS = 64, 16, 2  # the batch of all ranks together
CLIP = 0.05


class Rows(Dataset):
    """Those that a sampler for the ranks deals out in turn: row i of a global batch goes to rank i % SIZE."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.x, self.y = torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 3, generator=generator)

    def __len__(self):
        return ROWS

    def __getitem__(self, number):
        return {"x": self.x[number], "labels": self.y[number]}


def network():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-5)  # with 1e-8, rounding errors move parameters


def alone():
    model = network()
    optimizer, schedule = adamw(model), Rows()
    for _ in range(EPOCHS):
        for first in range(0, ROWS, BATCH):
            rows = slice(first, first + BATCH)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(schedule.x[rows]), schedule.y[rows]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
    return model


def lightning():
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()

        def training_step(self, batch, _):
            loss = torch.nn.functional.mse_loss(self.model(batch["x"]), batch["labels"])
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return adamw(self.model)

    os.environ.update(LOCAL_RANK="0", NODE_RANK=str(RANK))  # each rank is a node here, as agents are
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, num_nodes=SIZE, strategy=DDPStrategy(process_group_backend="gradbus"),
        max_epochs=EPOCHS, gradient_clip_val=CLIP, default_root_dir=str(FOLDER), enable_progress_bar=False,
        enable_model_summary=False, logger=False, use_distributed_sampler=False,
    )  # fmt: skip
    module = Module()
    sampler = torch.utils.data.DistributedSampler(Rows(), SIZE, RANK, shuffle=False)
    trainer.fit(module, DataLoader(Rows(), BATCH // SIZE, sampler=sampler))
    assert torch.distributed.get_backend() == "gradbus"
    assert trainer.world_size == SIZE and trainer.global_step == EPOCHS * ROWS // BATCH
    return module.model


def lightning_optimizer():
    """Lightning makes a proxy of the optimizer for each fit(), and collects it: the optimizer is not gone."""
    import gradbus.torch as gradbus
    import lightning.pytorch as pl

    gradbus.init()
    torch.distributed.init_process_group("gradbus")  # for the comparison
    model = network()
    optimizer = gradbus.DistributedOptimizer(adamw(model), model.named_parameters())

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            return torch.nn.functional.mse_loss(self.model(batch["x"]), batch["labels"])

        def configure_optimizers(self):
            return optimizer

    module = Module()
    sampler = torch.utils.data.DistributedSampler(Rows(), SIZE, RANK, shuffle=False)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)  # else Lightning makes ranks of its own
    for _ in range(EPOCHS):
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, gradient_clip_val=CLIP, default_root_dir=str(FOLDER),
            enable_progress_bar=False, enable_model_summary=False, logger=False, use_distributed_sampler=False,
            enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(module, DataLoader(Rows(), BATCH // SIZE, sampler=sampler))
        del trainer
        gc.collect()
    optimizer.flush()
    return model


def accelerate():
    from accelerate import Accelerator

    torch.distributed.init_process_group("gradbus")  # on the CPU Accelerate begins one with gloo itself
    accelerator = Accelerator(cpu=True)
    assert torch.distributed.get_backend() == "gradbus" and accelerator.num_processes == SIZE
    bare = network()
    model, optimizer, loader = accelerator.prepare(bare, adamw(bare), DataLoader(Rows(), BATCH // SIZE))
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["labels"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
        mean = accelerator.gather(loss.detach()[None]).mean()
        assert mean.isfinite()
    accelerator.wait_for_everyone()
    accelerator.save_state(str(FOLDER / "accelerate"))
    return accelerator.unwrap_model(model)


def transformers():
    from transformers import Trainer, TrainingArguments

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network()

        def forward(self, x, labels):
            return {"loss": torch.nn.functional.mse_loss(self.model(x), labels)}

    torch.distributed.init_process_group("gradbus")  # as with Accelerate, which is in Trainer
    arguments = TrainingArguments(
        output_dir=str(FOLDER), use_cpu=True, per_device_train_batch_size=BATCH // SIZE,
        num_train_epochs=EPOCHS, max_grad_norm=CLIP, report_to=[], save_strategy="no", disable_tqdm=True, seed=1,
        lr_scheduler_type="constant", dataloader_pin_memory=False,
    )  # fmt: skip
    wrapped = Wrapped()
    trainer = InOrder(Trainer)(
        model=wrapped, args=arguments, train_dataset=Rows(), optimizers=(adamw(wrapped.model), None)
    )
    trainer.train()
    assert torch.distributed.get_backend() == "gradbus" and arguments.world_size == SIZE
    return wrapped.model


def InOrder(trainer):
    """Rows are not shuffled."""

    class Sequential(trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return Sequential


WAYS = {
    "lightning": lightning, "lightning_optimizer": lightning_optimizer, "accelerate": accelerate,
    "transformers": transformers,
}  # fmt: skip
model = WAYS[WHICH]()
for (name, one), mine in zip(alone().named_parameters(), model.parameters()):
    assert torch.allclose(one, mine, rtol=0, atol=1e-5), (WHICH, name, (one - mine).abs().max())
    everyone = [torch.empty_like(mine) for _ in range(SIZE)]
    torch.distributed.all_gather(everyone, mine.detach())
    assert all(torch.equal(mine, other) for other in everyone)
torch.distributed.destroy_process_group()
print("ok", flush=True)
