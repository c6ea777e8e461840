"""Horovod: each process has the whole model, and its background thread exchanges what the loop hands to it."""

from collections.abc import Sequence
from typing import TypeVar, cast

import tensorflow as tf

from ..backend import Tensor
from ..distributed import Runtime
from ..errors import UserError

try:
    import horovod.tensorflow as hvd
except (ImportError, tf.errors.NotFoundError) as error:
    needs = "launch/install_horovod.sh, with this TensorFlow"
    raise UserError(f"trainer.strategy: horovod needs {needs} ({error})") from None

T = TypeVar("T")


class HorovodRuntime(Runtime):
    """One of several processes, whose gradients are added up after the last backward pass."""

    def join(self) -> None:
        hvd.init()
        if (hvd.rank(), hvd.size()) != (self.rank, self.world_size):
            found = f"it is process {hvd.rank()} of {hvd.size()}, where RANK and WORLD_SIZE say {self.rank} of"
            raise UserError(f"trainer.strategy: horovod is started by launch/horovod.sh; {found} {self.world_size}")

    def leave(self) -> None:
        hvd.shutdown()

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Processes meet by the name of an exchange, which TensorFlow makes unique in a graph."""
        summed: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            group = [tensors[i] for i in places]
            sums = hvd.grouped_allreduce(group, op=hvd.Sum, name=f"sum_{dtype.name}")
            summed.update(zip(places, sums, strict=True))
        return [summed[i] for i in range(len(tensors))]

    def gather(self, value: T) -> list[T]:
        return cast(list[T], hvd.allgather_object(value, name="gather"))

    def broadcast(self, value: T) -> T:
        # Without a name, ranks that pass other types wait for each other for ever.
        return cast(T, hvd.broadcast_object(value, root_rank=0, name="broadcast"))


RUNTIME = HorovodRuntime
