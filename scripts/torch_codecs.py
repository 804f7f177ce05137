"""Times the codecs of `gradbus bench codec` written in plain PyTorch, beside the fused ones.

    .venv/bin/python scripts/torch_codecs.py                       # all, 16 Mi elements of f32
    .venv/bin/python scripts/torch_codecs.py topk int8 --elements 67108864
    .venv/bin/python scripts/torch_codecs.py --memory default      # a residual only where it is the codec's default

One thread each, same elements, normal data, with a residual. The PyTorch forms are what a programmer
writes who knows the library: as in GRACE's and MergeComp's public code, but with payloads packed to
the same bits, buckets of the same length, in-place operations, no Python loop over elements and no
copy that could be left out. They do less in this:
- topk, randk and dgc send raw int64 indices: no entropy coding, payloads twice as large;
- dgc takes the threshold of its sample as it is;
- nothing looks for NaN or Inf, so randk need not read what it does not send.

`encode` is from the gradient to a payload, with residual and momentum brought up to date; `decode`
adds a payload to a sum. Of powersgd only both together compare: the fused one writes its residual
when it decodes. The table has GB/s of f32, how many times the fused codec is as fast, and how many
times one would be that is as fast as memory allows (the bounds of `gradbus bench codec`).
"""

# ruff: noqa: D102  (what the two methods of every codec do is said at TorchCodec)
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import torch

WEIGHTS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
SHIFTS = torch.arange(8, dtype=torch.uint8)


def pack_bits(negative: torch.Tensor) -> torch.Tensor:
    """Eight booleans to a byte."""
    return (negative.view(-1, 8).to(torch.uint8) * WEIGHTS).sum(1, dtype=torch.uint8)


def unpack_bits(packed: torch.Tensor) -> torch.Tensor:
    """The booleans of pack_bits() as uint8 of 0 and 1."""
    return ((packed.unsqueeze(1) >> SHIFTS) & 1).view(-1)


class TorchCodec:
    """`encode` returns a payload; `add` adds `alpha` times one to `total`. Vectors of `count` elements."""

    feedback = False  # a residual is the default: v = g + r is sent, and r becomes what the payload lacks

    def __init__(self, count: int, residual: bool):
        self.count = count
        self.residual = residual
        self.kept = torch.zeros(count if residual else 0)

    def compensate(self, gradient: torch.Tensor) -> torch.Tensor:
        """What is to be sent; the memory of the residual itself, where there is one."""
        return self.kept.add_(gradient) if self.residual else gradient

    def keep_rest(self, payload):
        """Takes the payload off the residual; for codecs that do not while they encode."""
        if self.residual:
            self.add(payload, self.kept, -1)
        return payload


class Fp16(TorchCodec):
    """Rounded to f16."""

    def encode(self, gradient):
        return self.keep_rest(self.compensate(gradient).half())

    def add(self, payload, total, alpha):
        total.add_(payload, alpha=alpha)


class Int8(TorchCodec):
    """Whole numbers from -127 to 127, a scale per 1024."""

    def encode(self, gradient):
        blocks = self.compensate(gradient).view(-1, 1024)
        step = blocks.abs().amax(1, keepdim=True) / 127
        return self.keep_rest((torch.div(blocks, step).round_().to(torch.int8), step))

    def add(self, payload, total, alpha):
        codes, step = payload
        total.view(-1, 1024).addcmul_(codes, step, value=alpha)


class Qsgd(TorchCodec):
    """Levels of the L2 norm of 512, rounded at random."""

    def encode(self, gradient):
        buckets = self.compensate(gradient).view(-1, 512)
        norm = buckets.norm(dim=1, keepdim=True)
        level = torch.rand_like(buckets).add_(buckets / norm * 127).floor_()
        return self.keep_rest((level.to(torch.int8), norm / 127))

    def add(self, payload, total, alpha):
        codes, step = payload
        total.view(-1, 512).addcmul_(codes, step, value=alpha)


class Natural(TorchCodec):
    """Powers of two, rounded at random, below the largest of 1024: sign and exponent in a byte."""

    def encode(self, gradient):  # by bits, as GRACE's
        bits = self.compensate(gradient).view(torch.int32).view(-1, 1024)
        exponent = (bits >> 23).bitwise_and_(255)
        exponent += (bits & 0x7FFFFF) > torch.randint_like(bits, 0x7FFFFF)
        top = exponent.amax(1, keepdim=True)
        code = (exponent - top).add_(127).clamp_(min=0).to(torch.uint8)
        return self.keep_rest((code.bitwise_or_((bits < 0).to(torch.uint8) << 7), top))

    def add(self, payload, total, alpha):
        codes, top = payload
        bits = (codes & 127).to(torch.int32).add_(top - 127).bitwise_left_shift_(23)
        bits.bitwise_or_((codes & 128).to(torch.int32) << 24)
        total.view(-1, 1024).add_(bits.view(torch.float32), alpha=alpha)


class TernGrad(TorchCodec):
    """-1, 0 or 1 times the bound of 2048, at random, clipped at 2.5 sigma; two bits."""

    places = torch.tensor([1, 4, 16, 64], dtype=torch.uint8)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)

    def encode(self, gradient):
        buckets = self.compensate(gradient).view(-1, 2048)
        clip = buckets.std(dim=1, keepdim=True) * 2.5
        bound = torch.minimum(clip, buckets.abs().amax(1, keepdim=True))
        chance = (buckets / bound).clamp_(-1, 1)
        ternary = torch.rand_like(buckets).add_(chance).floor_().add_(1).to(torch.uint8)
        return self.keep_rest(((ternary.view(-1, 4) * self.places).sum(1, dtype=torch.uint8), bound))

    def add(self, payload, total, alpha):
        packed, bound = payload
        ternary = ((packed.unsqueeze(1) >> self.shifts) & 3).view(-1, 2048).to(torch.int8) - 1
        total.view(-1, 2048).addcmul_(ternary, bound, value=alpha)


class EfSignSgd(TorchCodec):
    """Signs and the mean magnitude of 1024."""

    feedback = True

    def encode(self, gradient):
        blocks = self.compensate(gradient).view(-1, 1024)
        level = blocks.abs().mean(1, keepdim=True)
        negative = blocks < 0
        if self.residual:
            blocks.sub_(torch.where(negative, -level, level))
        return pack_bits(negative), level

    def add(self, payload, total, alpha):
        packed, level = payload
        sign = 1 - unpack_bits(packed).float().mul_(2)
        total.view(-1, 1024).addcmul_(sign.view(-1, 1024), level, value=alpha)


class OneBit(TorchCodec):
    """Signs, the mean of the negative elements of 1024 and that of the others."""

    feedback = True

    def encode(self, gradient):
        blocks = self.compensate(gradient).view(-1, 1024)
        negative = blocks < 0
        negatives = negative.sum(1, keepdim=True)
        below = blocks.clamp(max=0).sum(1, keepdim=True) / negatives.clamp(min=1)
        rest = blocks.clamp(min=0).sum(1, keepdim=True) / (1024 - negatives).clamp(min=1)
        if self.residual:
            blocks.sub_(torch.where(negative, below, rest))
        return pack_bits(negative), below, rest

    def add(self, payload, total, alpha):
        packed, below, rest = payload
        negative = unpack_bits(packed).bool().view(-1, 1024)
        total.view(-1, 1024).add_(torch.where(negative, below, rest), alpha=alpha)


class Signum(TorchCodec):
    """The sign of the momentum, and 1 for every element."""

    def __init__(self, count, residual):
        super().__init__(count, residual)
        self.momentum = torch.zeros(count)

    def encode(self, gradient):
        negative = self.momentum.mul_(0.9).add_(self.compensate(gradient)) < 0
        if self.residual:
            self.kept.sub_(torch.where(negative, -1.0, 1.0))
        return pack_bits(negative)

    def add(self, payload, total, alpha):
        total.add_(1 - unpack_bits(payload).float().mul_(2), alpha=alpha)


class TopK(TorchCodec):
    """The largest 1 %."""

    feedback = True
    ratio = 0.01

    def encode(self, gradient):
        v = self.compensate(gradient)
        indices = v.abs().topk(int(self.count * self.ratio), sorted=False).indices
        values = v[indices]
        if self.residual:
            v[indices] = 0
        return values, indices

    def add(self, payload, total, alpha):
        values, indices = payload
        total.index_add_(0, indices, values, alpha=alpha)


class RandK(TopK):
    """1 % drawn at random, each set of so many equally likely.

    GRACE's and MergeComp's torch.randperm(count)[:k] takes 39 times as long as this.
    """

    feedback = False

    def encode(self, gradient):
        v = self.compensate(gradient)
        k = int(self.count * self.ratio)
        drawn = torch.randint(self.count, (k + k // 50,)).unique()
        indices = drawn[torch.randperm(drawn.numel())[:k]]
        if not self.residual:
            return v[indices].mul_(1 / self.ratio), indices
        values = v[indices]
        v[indices] = 0
        return values, indices


class Dgc(TopK):
    """The largest 0.1 % by the threshold of a 1 % sample, with momentum correction and masking."""

    feedback = True
    ratio = 0.001

    def __init__(self, count, residual):
        super().__init__(count, residual)
        self.momentum = torch.zeros(count)

    def encode(self, gradient):
        v = self.compensate(self.momentum.mul_(0.9).add_(gradient))
        sample = v[torch.randint(self.count, (self.count // 100,))].abs()
        threshold = sample.topk(max(1, int(sample.numel() * self.ratio))).values.min()
        indices = (v.abs() >= threshold).nonzero().view(-1)
        values = v[indices]
        v[indices] = 0
        self.momentum[indices] = 0
        return values, indices


class PowerSgd(TorchCodec):
    """Rank 2 of the square matrix, warm start."""

    feedback = True

    def __init__(self, count, residual):
        super().__init__(count, residual)
        self.q = torch.randn(int(count**0.5), 2)

    def encode(self, gradient):
        m = self.compensate(gradient).view(self.q.shape[0], -1)
        p = torch.linalg.qr(m @ self.q).Q
        self.q = m.T @ p
        m.addmm_(p, self.q.T, alpha=-1)
        return p, self.q

    def add(self, payload, total, alpha):
        p, q = payload
        total.view(p.shape[0], -1).addmm_(p, q.T, alpha=alpha)


CODECS = {
    "fp16": Fp16,
    "int8": Int8,
    "qsgd": Qsgd,
    "natural": Natural,
    "terngrad": TernGrad,
    "efsignsgd": EfSignSgd,
    "onebit": OneBit,
    "signum": Signum,
    "topk": TopK,
    "randk": RandK,
    "dgc": Dgc,
    "powersgd": PowerSgd,
}


def best_seconds(iterations: int, work) -> float:
    """Of several, after one to warm up."""
    best = float("inf")
    for i in range(iterations + 1):
        began = time.perf_counter()
        work()
        if i > 0:
            best = min(best, time.perf_counter() - began)
    return best


def torch_gbs(codec: TorchCodec, count: int, iterations: int) -> tuple[float, float]:
    """GB/s of f32 of encoding and of decoding."""
    gradient = torch.randn(count) * 1e-3
    total = torch.zeros(count)
    encode_s = best_seconds(iterations, lambda: codec.encode(gradient))
    payload = codec.encode(gradient)
    decode_s = best_seconds(iterations, lambda: codec.add(payload, total, 1))
    return count * 4e-9 / encode_s, count * 4e-9 / decode_s


def fused_row(program: str, spec: str, count: int) -> dict:
    """The row of `gradbus bench codec`."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "codec.json"
        command = [program, "bench", "codec", spec, "--elements", str(count), "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())[0]


def cells(what: str, plain: float, row: dict) -> str:
    """Of encoding or decoding: PyTorch, fused, times, and the times that memory allows."""
    fused = row[f"{what}_gbs"]
    allowed = fused / row[f"{what}_bound"]
    return f" {plain:>14.3f} {fused:>7.2f} {fused / plain:>6.1f}x {allowed / plain:>7.1f}x"


def main() -> None:
    """Prints a row per codec, PyTorch and fused measured one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("codecs", nargs="*", default=list(CODECS), help=" ".join(CODECS))
    parser.add_argument("--elements", type=int, default=1 << 24, help="a square and a multiple of 2048")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--memory", choices=["residual", "default"], default="residual")
    parser.add_argument("--gradbus", default="build/release/bin/gradbus", help="the program")
    options = parser.parse_args()
    if options.elements % 2048 != 0 or int(options.elements**0.5) ** 2 != options.elements:
        parser.error("--elements: a square and a multiple of 2048, such as 16777216 or 67108864")
    torch.set_num_threads(1)
    print(f"# {options.elements} elements of f32, one thread, PyTorch {torch.__version__}; GB/s of f32")
    title = "".join(
        f" {what + ': torch':>14} {'fused':>7} {'times':>7} {'at most':>8}" for what in ("encode", "decode")
    )
    print(f"{'codec':<24}{title}")
    for name in options.codecs:
        kind = CODECS[name]
        residual = options.memory == "residual" or kind.feedback
        spec = name if residual == kind.feedback else f"{name}:ef=residual"
        plain = torch_gbs(kind(options.elements, residual), options.elements, options.iterations)
        row = fused_row(options.gradbus, spec, options.elements)
        print(f"{spec:<24}{cells('encode', plain[0], row)}{cells('decode', plain[1], row)}", flush=True)


if __name__ == "__main__":
    main()
