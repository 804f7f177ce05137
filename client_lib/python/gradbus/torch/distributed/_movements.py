"""Broadcast, all-gather, gather, scatter and all-to-all of torch.distributed: values move, bit by bit. Any thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from ... import _core
from ..._errors import bad_argument
from ..._parts import Collective
from ._starting import Starting, Tensors
from ._wire import (
    NOTHING,
    Part,
    check_same_kind,
    elements_on_wire,
    host_in_place,
    host_input,
    host_output,
    name_of,
    name_of_any_size,
    put_back,
    wire_of,
)
from ._work import Work


class Movements(Starting):
    """A part of a process group."""

    def broadcast(self, tensors: Any, opts: Any = None, **_: Any) -> Work:
        """In place, from the root."""
        opts = opts or c10d.BroadcastOptions()
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        root = self.root(opts.rootRank, "broadcast")
        return self.start([self._broadcast_part(t, root) for t in given], given, opts.timeout)

    def _broadcast_part(self, tensor: torch.Tensor, root: int) -> Part:
        name = name_of("broadcast", tensor, f"from {root}")
        host = host_in_place(tensor, name)
        if tensor.numel() == 0:
            return NOTHING
        request = _core.Request(Collective.BROADCAST, name, output=wire_of(host), root=root)
        return Part(request, lambda *_: put_back(host, tensor))

    def _allgather_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """``output`` has the blocks of all ranks, one behind the other."""
        opts = opts or c10d.AllgatherOptions()
        return self.start([self.allgather_part(output, source)], [output], opts.timeout)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """The same of several tensors with one work."""
        opts = opts or c10d.AllgatherOptions()
        parts = [self.allgather_part(o, i) for o, i in zip(outputs, inputs)]
        return self.start(parts, outputs, opts.timeout)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """A list with a tensor for each rank; these may differ in size."""
        opts = opts or c10d.AllgatherOptions()
        parts = [self._allgather_list(o, i) for o, i in zip(outputs, inputs)]
        return self.start(parts, [tensor for each in outputs for tensor in each], opts.timeout)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """``outputs``: for each rank a list with a tensor for each input."""
        return self.allgather([list(each) for each in zip(*outputs)], inputs, opts)

    def _allgather_list(self, outputs: Tensors, source: torch.Tensor) -> Part:
        self.check_count(outputs, "allgather")
        check_same_kind(outputs, source.dtype, "allgather")
        name = name_of_any_size("allgather", source)
        host = host_input(source, name)
        if all(tensor.numel() == 0 for tensor in outputs):
            return NOTHING
        request = _core.Request(Collective.ALLGATHER, name, wire_of(host))
        return Part(request, lambda operation, i: self._spread(operation, i, outputs, host))

    def _spread(self, operation: _core.Operation, index: int, outputs: Tensors, like: torch.Tensor) -> None:
        """The blocks that were received into the tensors that they are for."""
        self.check_received(operation.counts(index), [elements_on_wire(like, tensor.numel()) for tensor in outputs])
        flat = torch.empty(sum(tensor.numel() for tensor in outputs), dtype=like.dtype, device="cpu")
        operation.copy_output(wire_of(flat), index)
        first = 0
        for tensor in outputs:
            tensor.detach().copy_(flat[first : first + tensor.numel()].view(tensor.shape))
            first += tensor.numel()

    def gather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any) -> Work:
        """As allgather(), for the root; the others pass no outputs."""
        source = self.one(inputs, "gather")
        root = self.root(opts.rootRank, "gather")
        is_root = self.members.rank == root
        targets = list(outputs[0]) if is_root else []
        if is_root:
            self.check_count(targets, "gather")
            check_same_kind(targets, source.dtype, "gather")
        name = name_of_any_size("gather", source, f"to {root}")
        host = host_input(source, name)
        if source.numel() == 0:
            return self.start([], targets, opts.timeout)
        request = _core.Request(Collective.GATHER, name, wire_of(host), root=root)
        part = Part(request, (lambda op, i: self._spread(op, i, targets, host)) if is_root else None)
        return self.start([part], targets, opts.timeout)

    def gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Work:
        """gather() into one tensor, with rows for each rank."""
        is_root = self.members.rank == opts.rootRank
        rows = [list(output.view(self.members.size, source.numel()))] if is_root else []
        return self.gather(rows, [source], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any) -> Work:
        """The root passes a list with a tensor for each rank."""
        output = self.one(outputs, "scatter")
        root = self.root(opts.rootRank, "scatter")
        name = name_of("scatter", output, f"from {root}")
        source = None
        result = host_output(output, name)
        if self.members.rank == root:
            tensors = list(inputs[0])
            self.check_count(tensors, "scatter")
            check_same_kind(tensors, output.dtype, "scatter")
            if any(tensor.numel() != output.numel() for tensor in tensors):
                raise bad_argument("scatter: inputs and output differ in size", "pass tensors of one size")
            source = torch.cat([host_input(tensor, name).reshape(-1) for tensor in tensors])
        if output.numel() == 0:
            return self.start([], [output], opts.timeout)
        request = _core.Request(
            Collective.SCATTER, name, None if source is None else wire_of(source), wire_of(result), root=root
        )
        return self.start([Part(request, lambda *_: put_back(result, output))], [output], opts.timeout)

    def alltoall_base(
        self, output: torch.Tensor, source: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:  # fmt: skip
        """Rows of axis 0 for each rank, from each rank; no splits: as many for each."""
        opts = opts or c10d.AllToAllOptions()
        check_same_kind([source], output.dtype, "alltoall")
        send = self._elements(source, input_splits, "input")
        expected = self._elements(output, output_splits, "output")
        host, result = host_input(source, "alltoall"), host_output(output, "alltoall")

        def finish(operation: _core.Operation, index: int) -> None:
            self._check_received(operation.counts(index), [elements_on_wire(host, n) for n in expected])
            operation.copy_output(wire_of(result), index)
            put_back(result, output)

        return self.start([Part(self._alltoall(host, send), finish)], [output], opts.timeout)

    all_to_all_single = alltoall_base

    def _alltoall(self, host: torch.Tensor, send: Sequence[int]) -> _core.Request:
        name = name_of_any_size("alltoall", host)
        counts = [elements_on_wire(host, count) for count in send]
        return _core.Request(Collective.ALLTOALL, name, wire_of(host), send_counts=counts)

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int], which: str) -> list[int]:
        rows, size = (tensor.shape[0] if tensor.dim() else 1), self.members.size
        if not splits:
            if rows % size:
                raise bad_argument(f"alltoall: {which} of {rows} rows for {size} ranks", "pass split sizes")
            splits = [rows // size] * size
        self.check_count(splits, f"alltoall, {which} splits")
        if sum(splits) != rows or any(count < 0 for count in splits):
            raise bad_argument(f"alltoall: {which} splits {list(splits)} of {rows} rows", "pass splits that add up")
        row = math.prod(tensor.shape[1:])
        return [count * row for count in splits]

    def _check_received(self, got: Sequence[int], expected: Sequence[int]) -> None:
        for rank, (count, wanted) in enumerate(zip(got, expected)):
            if count != wanted:
                raise bad_argument(
                    f"alltoall: {self.members.name_of(rank)} sent {count} elements, output splits say {wanted}",
                    "pass output splits that are the input splits of the other ranks",
                )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Lists with a tensor for each rank, of any sizes."""
        opts = opts or c10d.AllToAllOptions()
        self.check_count(outputs, "alltoall")
        self.check_count(inputs, "alltoall")
        check_same_kind([*outputs, *inputs], inputs[0].dtype, "alltoall")
        flat = torch.cat([host_input(tensor, "alltoall").reshape(-1) for tensor in inputs])
        request = self._alltoall(flat, [tensor.numel() for tensor in inputs])
        part = Part(request, lambda operation, i: self._spread(operation, i, outputs, flat))
        return self.start([part], outputs, opts.timeout)
