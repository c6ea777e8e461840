"""Processes, devices and precision. No other file knows about ranks."""

import importlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from .backend import Model, Tensor, run_model, to_numpy
from .config import TrainerSettings
from .contract import BaseTask, Batch
from .errors import UserError
from .processes import Process
from .signature import Signature, mismatch

T = TypeVar("T")
Tensors = dict[str, Tensor]
EvalStep = Callable[[Batch], Batch]
_POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.UnknownError)
LOST_PROCESS = 75  # the exit code by which a launcher knows that another start may help


@dataclass
class Runtime(Process):
    """This process among the others, its device and its precision. Here: the only one."""

    device: str
    precision: str
    compiled: bool
    replicas: int = 1  # copies of the model in this process, over which Keras's optimizers sum the gradients

    @property
    def copies(self) -> int:
        """Of the model, in all processes."""
        return self.world_size * self.replicas

    def seed(self, value: int) -> None:
        """Seed what initial weights are drawn from."""
        keras.utils.set_random_seed(value)

    def scope(self) -> AbstractContextManager[Any]:
        """Around all that makes weights or an optimizer's state."""
        return nullcontext()

    def compile(self, function: Callable[..., T], *specs: object) -> Callable[..., T]:
        """Make a graph of a function of tensors, compiled by XLA if asked."""
        xla = self.compiled or None
        graph: Callable[..., T] = tf.function(function, input_signature=specs, jit_compile=xla, autograph=False)
        return graph

    def build_step(self, step: Callable[..., T], signature: Signature, *others: tf.TensorSpec) -> Callable[..., T]:
        """Make a graph of a function of a batch.

        The batch and the axes that the task's signature names vary, without a second graph: numbers could
        then depend on which graph came first, and a run that goes on would not be the same to the bit.
        """
        graph: Callable[..., T] | None = None

        def call(batch: Batch, *values: object) -> T:
            nonlocal graph
            if graph is None:
                graph = self.compile(step, describe(batch, signature), *others)
            check_shapes(batch, signature)
            return graph(batch, *values)

        return call

    def build_eval_step(self, task: BaseTask, model: Model) -> EvalStep:
        """Evaluate one batch: the task's sums over it, with "loss" and "count"."""
        graph = self.build_step(partial(_eval_step, task, model), task.signature())
        return lambda batch: {name: to_numpy(value) for name, value in graph(batch).items()}

    def replicate(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function of a graph, called for each copy of the model in this process; all return the same."""
        return function

    def own_part(self, values: T) -> T:
        """Of tensors [copies in this process * n, ...], those [n, ...] of the copy that asks."""
        return values

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor's sum over all copies of the model; in a graph."""
        return list(tensors)

    def share_weights(self, variables: Sequence[keras.Variable]) -> None:
        """Give every process those of rank 0."""
        if self.world_size > 1:
            own = [variable.value if self.is_main else tf.zeros_like(variable) for variable in variables]
            values = tf.function(self.sum, autograph=False)(own)
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def describe(self) -> dict[str, object]:
        return {
            "device": describe_gpu(gpus()[0]) if self.device == "cuda" else self.device,
            "world_size": self.copies,
            "precision": self.precision,
            "cpus": os.cpu_count(),
        }


def _eval_step(task: BaseTask, model: Model, batch: Tensors) -> Tensors:
    outputs = run_model(model, batch)
    loss = task.compute_loss(outputs, batch)
    return task.compute_sums(outputs, batch) | {"loss": loss.total, "count": tf.cast(loss.count, tf.float64)}


class MirroredRuntime(Runtime):
    """One process with a copy of the model on each of its GPUs (tf.distribute.MirroredStrategy)."""

    def join(self) -> None:
        devices = tf.config.list_logical_devices("GPU" if self.device == "cuda" else "CPU")
        self.strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
        self.replicas = len(devices)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.strategy.scope()
        return scope

    def build_eval_step(self, task: BaseTask, model: Model) -> EvalStep:
        """On all copies what divides by their number, and the rest, such as a last batch, on the first."""
        local = self.strategy.experimental_local_results

        def each(batch: Tensors) -> Tensors:
            return {name: tf.identity(sums) for name, sums in _eval_step(task, model, self.own_part(batch)).items()}

        def step(batch: Tensors) -> Tensors:
            return {name: tf.add_n(local(sums)) for name, sums in self.strategy.run(each, (batch,)).items()}

        graph, alone = self.build_step(step, task.signature()), super().build_eval_step(task, model)

        def eval_step(batch: Batch) -> Batch:
            if any(len(array) % self.replicas for array in batch.values()):
                return alone(batch)
            return {name: to_numpy(value) for name, value in graph(batch).items()}

        return eval_step

    def replicate(self, function: Callable[..., T]) -> Callable[..., T]:
        def call(*arguments: Any) -> T:
            local = self.strategy.experimental_local_results
            first: T = tf.nest.map_structure(lambda each: local(each)[0], self.strategy.run(function, arguments))
            return first

        return call

    def own_part(self, values: T) -> T:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group

        def cut(value: Tensor) -> Tensor:
            rows = tf.shape(value)[0] // self.replicas
            return value[place * rows : (place + 1) * rows]

        part: T = tf.nest.map_structure(cut, values)
        return part

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return _all_reduce(*tensors)


def _all_reduce(*tensors: Tensor) -> list[Tensor]:
    placed = [tf.identity(tensor) for tensor in tensors]  # an argument of a graph stands on no device
    return list(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, placed))


def _all_gather(part: Tensor) -> Tensor:
    return tf.distribute.get_replica_context().all_gather(tf.identity(part), axis=0)


class MultiWorkerRuntime(Runtime):
    """One of several processes, each with the whole model (tf.distribute.MultiWorkerMirroredStrategy).

    The strategy joins the processes and sums over them. Weights and the optimizer's state are each process's own, as
    in one process: in the strategy's scope Keras's optimizers would sum gradients after they have clipped them.
    """

    def join(self) -> None:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", [])
        if len(cluster) != self.world_size:
            found = f"names {len(cluster)} workers, WORLD_SIZE is {self.world_size}"
            raise UserError(f"trainer.strategy: several processes need TF_CONFIG, which a launcher sets; it {found}")
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        run, spec = self.strategy.run, [tf.TensorSpec([None], tf.int32)]  # a type that TensorFlow gathers
        self._concatenate = tf.function(lambda part: run(_all_gather, (part,)), input_signature=spec, autograph=False)

    def leave(self) -> None:
        self.gather(None)  # who leaves early ends the others

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(self.strategy.run(_all_reduce, tuple(tensors)))

    def gather(self, value: T) -> list[T]:
        content = np.frombuffer(pickle.dumps(value), np.uint8).astype(np.int32)
        sizes = to_numpy(self._concatenate([len(content)]))
        parts = np.split(to_numpy(self._concatenate(content)), np.cumsum(sizes)[:-1])
        return [pickle.loads(part.astype(np.uint8).tobytes()) for part in parts]  # from this run's processes

    def broadcast(self, value: T) -> T:
        return self.gather(value)[0]


@contextmanager
def start(trainer: TrainerSettings) -> Iterator[Runtime]:
    """Join the other processes that a launcher started, if any; TensorFlow takes device and precision for all of it."""
    rank, local_rank, world_size = (int(os.environ.get(key, 0)) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    world_size = max(1, world_size)
    kind = choose_runtime(trainer.strategy, world_size)
    if trainer.compile and kind is not Runtime:
        raise UserError("trainer.compile: XLA compiles no sums over several GPUs or processes; leave it out with them")
    device = choose_device(trainer.device)
    own = slice(None) if kind is MirroredRuntime else slice(local_rank, local_rank + 1)
    chosen = gpus()[own] if device == "cuda" else []
    tf.config.set_visible_devices(chosen, "GPU")  # the others stay free
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)
    if trainer.deterministic:
        tf.config.experimental.enable_op_determinism()
    runtime = kind(rank, world_size, device, choose_precision(trainer.precision, device), trainer.compile)
    runtime.join()
    keras.config.set_dtype_policy(_POLICIES[runtime.precision])
    try:
        yield runtime
        runtime.leave()
    except tf.errors.OpError as error:
        if world_size == 1 or not isinstance(error, _LOST):
            raise
        lost = "another process of this run has ended, so this one cannot go on"
        raise UserError(lost, exit_code=LOST_PROCESS) from None
    finally:
        keras.config.set_dtype_policy("float32")


def is_main_process() -> bool:
    """Whether this is rank 0, after `start` has ended too."""
    return os.environ.get("RANK", "0") == "0"


def choose_runtime(strategy: str, world_size: int) -> type[Runtime]:
    """How several GPUs or processes train one model. What is not among these is a file below strategies/."""
    if strategy == "mirrored":
        if world_size > 1:
            raise UserError(f"trainer.strategy: mirrored is one process for all GPUs, and WORLD_SIZE is {world_size}")
        return MirroredRuntime
    if world_size == 1:
        return Runtime
    if strategy in ("auto", "multiworker"):
        return MultiWorkerRuntime
    kind: type[Runtime] = importlib.import_module(f".strategies.{strategy}", __package__).RUNTIME
    return kind


def gpus() -> list[tf.config.PhysicalDevice]:
    return list(tf.config.list_physical_devices("GPU"))


def describe_gpu(gpu: tf.config.PhysicalDevice) -> str:
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))


def capability(gpu: tf.config.PhysicalDevice) -> tuple[int, int]:
    """The compute capability of an NVIDIA GPU, such as (8, 0); of others (0, 0)."""
    major, minor = tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
    return major, minor


def choose_device(wanted: str) -> str:
    """The first NVIDIA (or AMD) GPU that TensorFlow sees, else the CPU."""
    if wanted == "mps":
        raise UserError("trainer.device: mps is not available with TensorFlow; use auto, cpu or cuda")
    found, needed = len(gpus()), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if found < needed and (found or wanted == "cuda") and wanted != "cpu":  # said by all, so that rank 0 tells it
        raise UserError(f"trainer.device: cuda takes a GPU a process, {needed} here; TensorFlow sees {found}")
    return "cuda" if wanted != "cpu" and found else "cpu"


def choose_precision(wanted: str, device: str) -> str:
    """bf16 from NVIDIA's Ampere on, fp16 on Volta, Turing and the P100, else fp32."""
    if wanted == "fp16" and device == "cpu":
        raise UserError("trainer.precision: fp16 needs a GPU; use fp32 or bf16 on the CPU")
    if wanted != "auto" or device == "cpu":
        return "fp32" if wanted == "auto" else wanted
    version = capability(gpus()[0])
    if version >= (8, 0):
        return "bf16"
    return "fp16" if version >= (7, 0) or version == (6, 0) else "fp32"


def describe(batch: Batch, signature: Signature) -> dict[str, tf.TensorSpec]:
    """What a graph takes: the signature's shapes; what stands only in batches, such as labels, may have any."""
    shapes = {item.name: [axis if isinstance(axis, int) else None for axis in item.shape] for item in signature.inputs}
    return {
        name: tf.TensorSpec([None, *shapes.get(name, [None] * (array.ndim - 1))], array.dtype, name)
        for name, array in batch.items()
    }


def check_shapes(batch: Batch, signature: Signature) -> None:
    for item in signature.inputs:
        if mismatch(batch[item.name], item.shape):
            expected, got = f"give {item.name!r} the shape {item.shape}", batch[item.name].shape[1:]
            hint = "an axis that varies has a name, such as 'time', in task.py: signature"
            raise UserError(f"data.py: read must {expected}, got {got}; {hint}")
