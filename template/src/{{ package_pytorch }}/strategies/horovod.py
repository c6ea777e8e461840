"""Horovod: each process has the whole model, and its background thread exchanges what the loop hands to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import torch

from ..backend import Model
from ..distributed import Runtime
from ..errors import UserError

try:
    import horovod.torch as hvd
    from horovod.common.exceptions import HorovodInternalError
except ImportError as error:
    raise UserError(f"trainer.strategy: horovod needs launch/install_horovod.sh, with this PyTorch ({error})") from None

T = TypeVar("T")


class HorovodRuntime(Runtime):
    """One of several processes, whose gradients are averaged after the last backward pass."""

    def join(self) -> None:
        hvd.init()
        if (hvd.rank(), hvd.size()) != (self.rank, self.world_size):
            found = f"it is process {hvd.rank()} of {hvd.size()}, where RANK and WORLD_SIZE say {self.rank} of"
            raise UserError(f"trainer.strategy: horovod is started by launch/horovod.sh; {found} {self.world_size}")

    def leave(self) -> None:
        hvd.shutdown()

    def wrap_model(self, model: Model, compiled: bool) -> Model:
        with _others_are_alive():
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return super().wrap_model(model, compiled)

    def reduce_gradients(self, model: Model) -> None:
        """A weight that no process used keeps no gradient, as in one process; where one did, the others add zeros."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        for dtype in dict.fromkeys(weight.dtype for weight in weights):
            group = [weight for weight in weights if weight.dtype == dtype]
            used = torch.tensor([weight.grad is not None for weight in group], dtype=dtype, device=self.device)
            gradients = [(torch.zeros_like(weight) if weight.grad is None else weight.grad) for weight in group]
            gradients = [gradient.contiguous() for gradient in gradients]
            with _others_are_alive():
                hvd.grouped_allreduce_([*gradients, used], op=hvd.Average, name=f"gradients {dtype}")
            for weight, gradient, share in zip(group, gradients, used.tolist(), strict=True):
                weight.grad = gradient if share else None

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        with _others_are_alive():
            summed = hvd.allreduce(torch.tensor(values, dtype=torch.float64), op=hvd.Sum, name="sums")
        return cast(list[float], summed.tolist())

    def gather(self, value: T) -> list[T]:
        with _others_are_alive():
            return cast(list[T], hvd.allgather_object(value, name="gather"))

    def broadcast(self, value: T) -> T:
        with _others_are_alive():  # without a name, ranks that pass other types wait for each other for ever
            return cast(T, hvd.broadcast_object(value, root_rank=0, name="broadcast"))


@contextmanager
def _others_are_alive() -> Iterator[None]:
    try:
        yield
    except HorovodInternalError:
        raise UserError("another process of this run has ended, so this one cannot go on", exit_code=1) from None


RUNTIME = HorovodRuntime
