"""LAMB (You et al. 2020, algorithm 2, phi(z) = z), in float64 and NumPy: what shards are compared with."""

import numpy
import torch


class Lamb(torch.optim.Optimizer):
    """Torch has none. Layers are parameters; the norms are of a whole one."""

    def __init__(self, parameters, lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(
            parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )
        self.exact = {}  # by parameter: w, m and v, and the number of steps

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group)

    def _step(self, parameter, group):
        if parameter not in self.exact:
            w = parameter.detach().numpy().astype(numpy.float64)
            self.exact[parameter] = (w, numpy.zeros_like(w), numpy.zeros_like(w), 0)
        w, m, v, number = self.exact[parameter]
        g = parameter.grad.numpy().astype(numpy.float64)
        number += 1
        beta1, beta2 = group["betas"]
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        update = (m / (1 - beta1**number)) / (numpy.sqrt(v / (1 - beta2**number)) + group["eps"])
        update = update + group["weight_decay"] * w
        length, size = numpy.sqrt((w * w).sum()), numpy.sqrt((update * update).sum())
        ratio = length / size if length > 0 and size > 0 else 1.0
        w = w - group["lr"] * ratio * update
        self.exact[parameter] = (w, m, v, number)
        parameter.copy_(torch.as_tensor(w))


class CheckpointedLamb(Lamb):
    """The same in float32, with its moments and steps in ``state``, where checkpoints look for them."""

    steps_each_parameter_alone = True

    def _step(self, w, group):
        state = self.state[w]
        if not state:
            state.update(step=0, m=torch.zeros_like(w), v=torch.zeros_like(w))
        state["step"] += 1
        for key, beta, value in zip("mv", group["betas"], (w.grad, w.grad * w.grad)):
            state[key].mul_(beta).add_(value, alpha=1 - beta)
        m, v = (state[key] / (1 - beta ** state["step"]) for key, beta in zip("mv", group["betas"]))
        update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * w
        w.sub_(update, alpha=group["lr"] * (w.norm() / update.norm()).item())
