"""Processes, devices and precision. No other file knows about ranks."""

import gc
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist

# Before a group exists, which its default arguments would keep alive for ever (see _leave); DDP imports it.
import torch.distributed.nn.functional
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from .backend import Model, inference, run_model, to_numpy, to_tensors
from .config import TrainerSettings
from .contract import BaseTask, Batch
from .errors import UserError

T = TypeVar("T")
EvalStep = Callable[[Batch], Batch]
_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Runtime:
    """This process among the others (rank 0 is the main one), its device and its precision."""

    rank: int
    world_size: int
    device: torch.device
    precision: str
    stop_requested: bool = False

    @property
    def is_main(self) -> bool:
        return self.rank == 0

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
        """The same weights, compiled if asked, with gradients averaged over all processes in each backward pass."""
        if compiled:
            model = cast(Model, torch.compile(model))
        if self.world_size == 1:
            return model
        # Said of each convolution of one channel, by every process; nothing is wrong, and such layers are tiny.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        return DistributedDataParallel(model, [self.device] if self.device.type == "cuda" else None)

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
        return nullcontext() if last or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        summed: list[float] = tensor.tolist()
        return summed

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank; any plain object."""
        values: list[T] = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(values, value)
        return values

    def agree(self, value: T, rule: str) -> T:
        """The value, if every rank has the same."""
        values = self.gather(value)
        if any(other != value for other in values):
            raise UserError(f"{rule}, got {values}")
        return value

    def on_main(self, function: Callable[[], T]) -> T:
        """Call the function on rank 0 and hand its result, or its UserError, to every rank."""
        answer: list[Any] = [None, None]
        if self.is_main:
            try:
                answer[0] = function()
            except UserError as error:
                answer[1] = error
            except OSError as error:
                answer[1] = UserError(f"{error.filename or 'writing'}: {error.strerror}", exit_code=1)
        if self.world_size > 1:
            dist.broadcast_object_list(answer, device=self.device)
        if answer[1] is not None:
            raise answer[1]
        result: T = answer[0]
        return result

    def describe(self) -> dict[str, object]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return {"device": name, "world_size": self.world_size, "precision": self.precision, "cpus": os.cpu_count()}


@contextmanager
def start(trainer: TrainerSettings) -> Iterator[Runtime]:
    """Join the other processes that a launcher started (torchrun sets the environment), if any."""
    rank, local_rank, world_size = (int(os.environ.get(key, 0)) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    world_size = max(1, world_size)
    device = choose_device(trainer.device, local_rank)
    if trainer.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if world_size > 1:
        _join(rank, world_size, device)
    runtime = Runtime(rank, world_size, device, choose_precision(trainer.precision, device))
    try:
        yield runtime
    except UserError as error:
        traceback.clear_frames(error.__traceback__)
        _leave(world_size)
        raise
    _leave(world_size)


def is_main_process() -> bool:
    """Whether this is rank 0, after `start` has ended too."""
    return os.environ.get("RANK", "0") == "0"


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """CUDA (or ROCm), else Apple's mps, else the CPU; several processes on one mps device do not exist."""
    if wanted == "auto":
        alone = "WORLD_SIZE" not in os.environ
        wanted = "cuda" if torch.cuda.is_available() else "mps" if alone and torch.mps.is_available() else "cpu"
    if wanted == "cuda":
        if local_rank >= torch.cuda.device_count():
            found = torch.cuda.device_count()
            raise UserError(f"trainer.device: cuda device {local_rank} is not there, PyTorch sees {found} of them")
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


def _join(rank: int, world_size: int, device: torch.device) -> None:
    store, *_ = next(iter(rendezvous("env://", rank, world_size, timeout=timedelta(minutes=10))))
    # torchrun keeps the store over a restart: without a prefix of its own an attempt reads the keys of the last one.
    attempt = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=attempt, rank=rank, world_size=world_size)


def _leave(world_size: int) -> None:
    """Leave the others. gloo's threads end with the last reference to the group, as a DDP model holds one; a thread
    that outlives Python aborts the process (PyTorch 2.13)."""
    if world_size > 1:
        gc.collect()
        dist.destroy_process_group()
