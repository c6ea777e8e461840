"""Processes, devices and precision. No other file knows about ranks."""

import gc
import importlib
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist

# Before a group exists, which its default arguments would keep alive for ever (see _leave); DDP imports it.
import torch.distributed.nn.functional
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from .backend import Model, inference, run_model, to_numpy, to_tensors
from .config import TrainerSettings
from .contract import BaseTask, Batch
from .errors import Attempt, UserError
from .processes import Process

T = TypeVar("T")
EvalStep = Callable[[Batch], Batch]
_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Runtime(Process):
    """This process among the others, its device and its precision. Here: the only one."""

    device: torch.device
    precision: str
    is_sharded: ClassVar[bool] = False  # each rank holds a part of the weights

    def autocast(self) -> AbstractContextManager[Any]:
        dtype = _DTYPES[self.precision]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def seed(self, value: int) -> None:
        """Seed the generators of this device alone: torch.manual_seed asks every kind of device, at 0.1 ms a call."""
        torch.default_generator.manual_seed(value)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(value)
        elif self.device.type == "mps":
            torch.mps.manual_seed(value)

    def wrap_model(self, model: Model, compiled: bool) -> Model:
        """The same weights, compiled if asked, in the form that training calls."""
        return cast(Model, torch.compile(model)) if compiled else model

    def build_eval_step(self, task: BaseTask, model: Model) -> EvalStep:
        """Evaluate one batch: the task's sums over it, with "loss" and "count"."""

        def eval_step(arrays: Batch) -> Batch:
            batch = to_tensors(arrays, self.device)
            with inference(model):
                with self.autocast():
                    outputs = run_model(model, batch)
                    loss = task.compute_loss(outputs, batch)
                sums = {name: to_numpy(value) for name, value in task.compute_sums(outputs, batch).items()}
            return sums | {"loss": to_numpy(loss.total), "count": np.asarray(float(loss.count))}

        return eval_step

    def accumulate(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        """Around the forward and backward pass of a part of a batch: only the last part exchanges gradients."""
        return nullcontext()

    def reduce_gradients(self, model: Model) -> None:
        """After the last backward pass: the mean over all processes, where no backward pass has made it."""

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def on_each(self, function: Callable[[], T]) -> list[T]:
        """Call the function on every rank and hand all results, or the first UserError, to every rank."""
        return [attempt.outcome() for attempt in self.gather(Attempt(function))]

    def describe(self) -> dict[str, object]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return {"device": name, "world_size": self.world_size, "precision": self.precision, "cpus": os.cpu_count()}


class DDPRuntime(Runtime):
    """One of several processes, each with the whole model, whose gradients PyTorch averages."""

    def join(self) -> None:
        if dist.is_initialized():  # by the launcher
            return
        store, *_ = next(iter(rendezvous("env://", self.rank, self.world_size, timeout=timedelta(minutes=10))))
        # torchrun keeps the store over a restart: without a prefix an attempt reads the keys of the last one.
        attempt = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=attempt, rank=self.rank, world_size=self.world_size)

    def leave(self) -> None:
        """gloo's threads end with the last reference to the group. A thread that outlives Python aborts the process;
        one that a DDP model ends waits for Python's lock, which the model's end holds, for ever (PyTorch 2.13)."""
        gc.collect()
        dist.destroy_process_group()

    def wrap_model(self, model: Model, compiled: bool) -> Model:
        # Said of each convolution of one channel, by every process; nothing is wrong, and such layers are tiny.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        model = super().wrap_model(model, compiled)
        return DistributedDataParallel(model, [self.device] if self.device.type == "cuda" else None)

    def accumulate(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else cast(DistributedDataParallel, model).no_sync()

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        summed: list[float] = tensor.tolist()
        return summed

    def gather(self, value: T) -> list[T]:
        values: list[T] = [value] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        values = [value]
        dist.broadcast_object_list(values, device=self.device)
        return values[0]


class FSDPRuntime(DDPRuntime):
    """One of several processes, each with a part of every weight, of its gradient and of the optimizer's state."""

    is_sharded = True

    def wrap_model(self, model: Model, compiled: bool) -> Model:
        """Shard the model in place (FSDP2): each item of an nn.ModuleList, such as the layers of a transformer, is
        gathered when it is needed and let go after; the rest stays together."""
        from torch.distributed.fsdp import fully_shard  # half a second, which the other ways to run do without

        mesh = init_device_mesh(self.device.type, (self.world_size,))
        for module in reversed([*model.modules()]):
            for block in module if isinstance(module, nn.ModuleList) else ():
                if not isinstance(block, nn.ModuleList | nn.ModuleDict):
                    fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return Runtime.wrap_model(self, model, compiled)

    def accumulate(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        cast(Any, model).set_requires_gradient_sync(last)
        return nullcontext()


class TensorRuntime(DDPRuntime):
    """One of several processes that see the same data, each with a part of the layers that the model cuts."""

    is_sharded = True
    data_rank, data_size = 0, 1

    def wrap_model(self, model: Model, compiled: bool) -> Model:
        parallelize: Callable[[DeviceMesh], None] | None = getattr(model, "parallelize", None)
        if parallelize is None:
            raise UserError("trainer.strategy: tensor needs a model with a method parallelize; see docs/guide.md")
        parallelize(init_device_mesh(self.device.type, (self.world_size,)))
        return Runtime.wrap_model(self, model, compiled)

    def accumulate(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [value / self.world_size for value in super().sum_over_ranks(values)]


@contextmanager
def start(trainer: TrainerSettings) -> Iterator[Runtime]:
    """Join the other processes that a launcher started (torchrun sets the environment), if any."""
    rank, local_rank, world_size = (int(os.environ.get(key, 0)) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    world_size = max(1, world_size)
    device = choose_device(trainer.device, local_rank)
    if trainer.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    kind = choose_runtime(trainer.strategy) if world_size > 1 else Runtime
    runtime = kind(rank, world_size, device, choose_precision(trainer.precision, device))
    runtime.join()
    try:
        yield runtime
    except UserError as error:
        cause: BaseException | None = error
        while cause is not None:  # its frames hold the model
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__context__
        runtime.leave()
        raise
    runtime.leave()


def is_main_process() -> bool:
    """Whether this is rank 0, after `start` has ended too."""
    return os.environ.get("RANK", "0") == "0"


def choose_runtime(strategy: str) -> type[Runtime]:
    """How several processes train one model; `auto` is DDP. What is not among these is a file below strategies/."""
    own: dict[str, type[Runtime]] = {"ddp": DDPRuntime, "fsdp": FSDPRuntime, "tensor": TensorRuntime}
    own["auto"] = DDPRuntime
    return own.get(strategy) or importlib.import_module(f".strategies.{strategy}", __package__).RUNTIME


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """CUDA (or ROCm), else Apple's mps, else the CPU; several processes on one mps device do not exist."""
    if wanted == "auto":
        alone = "WORLD_SIZE" not in os.environ
        wanted = "cuda" if torch.cuda.is_available() else "mps" if alone and torch.mps.is_available() else "cpu"
    if wanted == "cuda":
        found, needed = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if found < needed:  # said by all, so that rank 0 tells it
            raise UserError(f"trainer.device: cuda takes a GPU a process, {needed} here; PyTorch sees {found}")
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    if wanted == "mps" and not torch.mps.is_available():
        raise UserError("trainer.device: mps is not available on this machine")
    return torch.device(wanted)


def choose_precision(wanted: str, device: torch.device) -> str:
    """bf16 from NVIDIA's Ampere on, fp16 on Volta, Turing and the P100, else fp32."""
    if wanted == "fp16" and device.type == "cpu":
        raise UserError("trainer.precision: fp16 needs a GPU; use fp32 or bf16 on the CPU")
    if wanted != "auto" or device.type != "cuda":
        return "fp32" if wanted == "auto" else wanted
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    capability = torch.cuda.get_device_capability(device)
    return "fp16" if capability >= (7, 0) or capability == (6, 0) else "fp32"
