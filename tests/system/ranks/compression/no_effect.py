"""A rank that asks for compression: prints the warnings that it got, by case, as JSON."""

import json
import warnings

import gradbus.torch as gradbus
import torch


def said(model, compression="topk:ratio=0.01"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gradbus.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)
    return [str(warning.message) for warning in caught if "compression" in str(warning.message)]


def large(dtype=torch.float32):
    return torch.nn.Linear(128, 256).to(dtype)


def main():
    cases = {
        "none": lambda: [*said(large(), None), *said(large(torch.float64), "none")],
        "applies": lambda: said(large()),
        "half": lambda: said(large(torch.bfloat16)),
        "float64": lambda: said(torch.nn.Sequential(large(), large(torch.float64))),
        "small": lambda: said(torch.nn.Linear(8, 8)),
        "twice": lambda: [*said(torch.nn.Linear(8, 8)), *said(torch.nn.Linear(8, 8))],
    }
    found = {}
    for name, case in cases.items():
        gradbus.init()
        found[name] = case()
        gradbus.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
