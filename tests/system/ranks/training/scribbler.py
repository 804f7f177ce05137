"""A rank that writes into its gradients while they are exchanged, where torch does not count it: through NumPy."""

import json
import threading

import gradbus.torch as gradbus
import torch


def main():
    torch.set_num_threads(1)
    gradbus.init()
    layer = torch.nn.Linear(2048, 2048, bias=False)
    torch.nn.init.zeros_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer = gradbus.DistributedOptimizer(optimizer, layer.named_parameters(), wait="step")
    optimizer.zero_grad()
    layer(torch.ones(1, 2048)).sum().backward()
    optimizer.step()
    ended = threading.Event()

    def scribble():
        memory, value = layer.weight.grad.numpy(), 0.0
        while not ended.is_set():
            memory[:] = value
            value += 1.0

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(100):
            layer(torch.ones(1, 2048)).sum().backward()
            optimizer.step()
        print(json.dumps({"error": "none", "text": ""}), flush=True)
    except gradbus.GradbusError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
    finally:
        ended.set()
        writer.join()


if __name__ == "__main__":
    main()
