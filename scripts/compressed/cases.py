"""What is measured: a gradient by codec and link speed, and models by codec, layer-wise and merged."""

from __future__ import annotations

import dataclasses

RESNET50_BYTES = 102_228_128  # 25,557,032 elements of f32
DENSE = "none"
LINKS_GBIT = (1.0, 2.5, 5.0, 10.0)
CODECS = (DENSE, "fp16", "int8", "qsgd", "natural", "onebit", "efsignsgd", "blocktopk", "powersgd", "dgc",
          "topk:ratio=0.01", "topk:ratio=0.001")  # fmt: skip
MODELS = ("resnet50", "vgg16", "bert-base")
MODEL_CODECS = (DENSE, "fp16", "int8", "qsgd", "onebit", "efsignsgd", "dgc", "topk:ratio=0.01")
MERGED = "64M"  # a bucket
QUICK_CODECS = (DENSE, "fp16", "efsignsgd", "topk:ratio=0.001")


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of gradbus bench: two agents, a rank each."""

    experiment: str  # "links" or "models"
    codec: str
    gbit: float
    model: str = ""  # "": the gradient of ResNet-50 as one tensor
    merged: bool = False

    @property
    def key(self) -> str:
        """Names the case in results.json."""
        how = f" {self.model} {'merged' if self.merged else 'layers'}" if self.model else ""
        return f"{self.experiment} {self.codec} {self.gbit:g}gbit{how}"

    @property
    def arguments(self) -> list[str]:
        """Of gradbus bench all_reduce."""
        rate = f"{self.gbit * 1000:.0f}mbit"
        words = ["--ranks", "2", "--agents", "2", "--link", rate, "-w", "2", "-n", "3", "--op-timeout", "120"]
        if self.codec != DENSE:
            words += ["--codec", self.codec]
        if not self.model:
            return [*words, "-b", str(RESNET50_BYTES), "-e", str(RESNET50_BYTES)]
        words += ["--model", self.model]
        return [*words, "--fuse", MERGED] if self.merged else words


def all_cases(quick: bool) -> list[Case]:
    """In the order in which they run."""
    links = (1.0, 10.0) if quick else LINKS_GBIT
    codecs = QUICK_CODECS if quick else CODECS
    cases = [Case("links", codec, gbit) for gbit in links for codec in codecs]
    for model in MODELS[:1] if quick else MODELS:
        for codec in QUICK_CODECS if quick else MODEL_CODECS:
            cases += [Case("models", codec, 1.0, model, merged) for merged in (False, True)]
    return cases
