"""All-reduce, reduce and reduce-scatter of torch.distributed. Any thread.

Each method takes what torch's process groups take, starts the operations and returns a Work. Tensors that are not
contiguous, or lie on a GPU, pass through a copy in host memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from ... import _core
from ..._data_movement import allgather_part
from ..._errors import bad_argument
from ..._ops import Average, Sum
from ..._parts import Collective
from .._comm_hook.ignored_options import is_in_backward, warn_of_plain_exchange
from .._sparse_sum import entries_of, joined
from ._reduce_ops import Reduction, reduction_of
from ._starting import Starting, Tensors
from ._wire import (
    NOTHING,
    Part,
    check_same_kind,
    host_in_place,
    host_input,
    host_output,
    name_of,
    put_back,
    put_back_counted,
    reduce_request,
)
from ._work import Work


class Reductions(Starting):
    """A part of a process group."""

    _looked_for_options = False  # of the job, which have no effect here

    def allreduce(self, tensors: Any, opts: Any = None, **_: Any) -> Work:
        """In place."""
        opts = opts or c10d.AllreduceOptions()
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._warn_of_options()
        return self.start([p for t in given for p in self._allreduce_parts(t, opts.reduceOp)], given, opts.timeout)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """allreduce() of several tensors with one work."""
        return self.allreduce(tensors, opts or c10d.AllreduceCoalescedOptions())

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Work:
        """allreduce() takes sparse tensors, too."""
        return self.allreduce(tensors, opts)

    def _warn_of_options(self) -> None:
        """Once, on the first rank of the program, when gradients come."""
        if self._looked_for_options or not is_in_backward():
            return
        self._looked_for_options = True
        if self.members.size > 1 and self.members.global_ranks[self.members.rank] == 0:
            warn_of_plain_exchange(self.members.session, self.members)

    def _allreduce_parts(self, tensor: torch.Tensor, op: Any) -> list[Part]:
        """One for a dense tensor. Of a sparse one, the entries travel."""
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.sparse_coo:
            return self._sparse_parts(tensor, op)
        return [self._allreduce_part(tensor, op)]

    def _sparse_parts(self, tensor: torch.Tensor, op: Any) -> list[Part]:
        how = reduction_of(op, tensor.dtype, "allreduce")
        if how.op not in (Average, Sum) or how.fold is not None or how.prescale != 1:
            raise bad_argument(f"allreduce: {op} of a sparse tensor", "use SUM or AVG, or pass it .to_dense()")
        divisor = self.members.size if how.op is Average else 1
        received: list[torch.Tensor] = []

        def finish(part: Any, operation: _core.Operation, index: int) -> None:
            received.append(part.finish(operation, index))
            if len(received) == len(parts):
                total = joined(received, tensor, "allreduce").coalesce()
                with torch.no_grad():  # detach() would have entries of its own
                    tensor.copy_(total / divisor if divisor > 1 else total)

        name = f"allreduce of sparse {str(tensor.dtype)[6:]}"
        parts = [allgather_part(each, f"{name}.{n}") for n, each in enumerate(entries_of(tensor, "allreduce"))]
        return [Part(part.request, functools.partial(finish, part)) for part in parts]

    def _allreduce_part(self, tensor: torch.Tensor, op: Any) -> Part:
        how = reduction_of(op, tensor.dtype, "allreduce")
        if how.fold is not None:
            return self._folded(tensor, tensor, how)
        name = name_of("allreduce", tensor, how.op.name.lower())
        host = host_in_place(tensor, name)
        if tensor.numel() == 0:
            return NOTHING
        request = reduce_request(Collective.ALLREDUCE, name, host, host, how)
        return Part(request, lambda *_: put_back(host, tensor))

    def _folded(self, source: torch.Tensor, target: torch.Tensor | None, how: Reduction, first: int = 0) -> Part:
        """Of operations that agents cannot combine: every rank gathers all and folds what it wants."""
        size = self.members.size

        def finish(blocks: torch.Tensor) -> None:
            if target is None:
                return
            total = blocks[0].clone()
            for block in blocks[1:]:
                total = how.fold(total, block)
            part = total.view(-1)[first : first + target.numel()]
            target.detach().copy_(part.view(target.shape))

        host = host_input(source, "allreduce")
        everything = torch.empty((size, host.numel()), dtype=host.dtype, device="cpu")
        part = self.allgather_part(everything, host, "fold")
        if part.request is None:
            return part
        return Part(part.request, lambda op, i: (part.finish(op, i) if part.finish else None, finish(everything))[1])

    def reduce(self, tensors: Any, opts: Any) -> Work:
        """In place on the root; the others keep theirs."""
        tensor = self.one(tensors, "reduce")
        root = self.root(opts.rootRank, "reduce")
        how = reduction_of(opts.reduceOp, tensor.dtype, "reduce")
        is_root = self.members.rank == root
        if how.fold is not None:
            part = self._folded(tensor, tensor if is_root else None, how)
            return self.start([part], [tensor], opts.timeout)
        name = name_of("reduce", tensor, how.op.name.lower(), f"to {root}")
        host = host_in_place(tensor, name)
        if tensor.numel() == 0:
            return self.start([], [tensor], opts.timeout)
        request = reduce_request(Collective.REDUCE, name, host, host if is_root else None, how, root=root)
        part = Part(request, (lambda *_: put_back(host, tensor)) if is_root else None)
        return self.start([part], [tensor], opts.timeout)

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """This rank's part of the sum of ``source``, which has one for each rank."""
        opts = opts or c10d.ReduceScatterOptions()
        self._warn_of_options()
        return self.start([self._reduce_scatter_part(output, source, opts.reduceOp)], [output], opts.timeout)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """reduce_scatter of several tensors with one work."""
        opts = opts or c10d.ReduceScatterOptions()
        parts = [self._reduce_scatter_part(o, i, opts.reduceOp) for o, i in zip(outputs, inputs)]
        return self.start(parts, outputs, opts.timeout)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_part(self, output: torch.Tensor, source: torch.Tensor, op: Any) -> Part:
        check_same_kind([source], output.dtype, "reduce_scatter")
        size = self.members.size
        if source.numel() != output.numel() * size:
            raise bad_argument(
                f"reduce_scatter: {source.numel()} elements in, {output.numel()} out, {size} ranks",
                "pass an input that is as many times as large as the output as there are ranks",
            )
        how = reduction_of(op, source.dtype, "reduce_scatter")
        if how.fold is not None:
            return self._folded(source, output, how, self.members.rank * output.numel())
        name = name_of("reduce_scatter", source, how.op.name.lower())
        host, result = host_input(source, name), host_output(output, name)
        if source.numel() == 0:
            return NOTHING
        request = reduce_request(
            Collective.REDUCESCATTER, name, host, result, how, row_elements=output.numel()
        )
        return Part(request, lambda *_: put_back_counted(result, output))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """As the other one, from a list with a tensor for each rank; these may differ in size."""
        opts = opts or c10d.ReduceScatterOptions()
        return self.start(
            [self._reduce_scatter_list(o, i, opts.reduceOp) for o, i in zip(outputs, inputs)], outputs, opts.timeout
        )

    def _reduce_scatter_list(self, output: torch.Tensor, inputs: Tensors, op: Any) -> Part:
        self.check_count(inputs, "reduce_scatter")
        check_same_kind(inputs, output.dtype, "reduce_scatter")
        flat = torch.cat([host_input(tensor, "reduce_scatter").reshape(-1) for tensor in inputs])
        if all(tensor.numel() == output.numel() for tensor in inputs):
            return self._reduce_scatter_part(output, flat, op)
        rank = self.members.rank
        if inputs[rank].numel() != output.numel():
            raise bad_argument(
                f"reduce_scatter: the input for this rank has {inputs[rank].numel()} elements, the output "
                f"{output.numel()}", "pass an output of that size",
            )  # fmt: skip
        first = sum(tensor.numel() for tensor in inputs[:rank])
        part = self._allreduce_part(flat, op)
        mine = flat[first : first + output.numel()]
        return Part(
            part.request,
            lambda operation, i: (
                part.finish(operation, i) if part.finish else None,
                output.detach().copy_(mine.view(output.shape)),
            )[0],
        )
