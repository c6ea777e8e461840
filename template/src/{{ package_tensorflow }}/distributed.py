"""The device and its precision. One process for now; no other file knows about ranks."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import keras
import tensorflow as tf

from .backend import Model, run_model, to_numpy
from .config import TrainerSettings
from .contract import BaseTask, Batch
from .errors import UserError
from .signature import Signature, mismatch

T = TypeVar("T")
EvalStep = Callable[[Batch], Batch]
_POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}


@dataclass
class Runtime:
    """This process among the others (rank 0 is the main one), its device and its precision."""

    rank: int
    world_size: int
    device: str
    precision: str
    compiled: bool
    stop_requested: bool = False

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def seed(self, value: int) -> None:
        """Seed what initial weights are drawn from."""
        keras.utils.set_random_seed(value)

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

        def step(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            outputs = run_model(model, batch)
            loss = task.compute_loss(outputs, batch)
            return task.compute_sums(outputs, batch) | {"loss": loss.total, "count": tf.cast(loss.count, tf.float64)}

        graph = self.build_step(step, task.signature())
        return lambda batch: {name: to_numpy(value) for name, value in graph(batch).items()}

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank; any plain object."""
        return [value]

    def agree(self, value: T, rule: str) -> T:
        """The value, if every rank has the same."""
        return value

    def on_main(self, function: Callable[[], T]) -> T:
        """Call the function on rank 0 and hand its result, or its UserError, to every rank."""
        try:
            return function()
        except OSError as error:
            raise UserError(f"{error.filename or 'writing'}: {error.strerror}", exit_code=1) from None

    def describe(self) -> dict[str, object]:
        return {
            "device": describe_gpu(gpus()[0]) if self.device == "cuda" else self.device,
            "world_size": self.world_size,
            "precision": self.precision,
            "cpus": os.cpu_count(),
        }


@contextmanager
def start(trainer: TrainerSettings) -> Iterator[Runtime]:
    """Choose the device and the precision; TensorFlow takes both for the whole process."""
    world_size = max(1, int(os.environ.get("WORLD_SIZE", 1)))
    if world_size > 1:
        raise UserError(
            f"WORLD_SIZE is {world_size}, but this project trains in one process: start it without a launcher"
        )
    device = choose_device(trainer.device)
    for gpu in gpus()[:1] if device == "cuda" else []:
        tf.config.set_visible_devices(gpu, "GPU")  # the others stay free
        tf.config.experimental.set_memory_growth(gpu, True)
    if device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    if trainer.deterministic:
        tf.config.experimental.enable_op_determinism()
    precision = choose_precision(trainer.precision, device)
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        yield Runtime(0, world_size, device, precision, trainer.compile)
    finally:
        keras.config.set_dtype_policy("float32")


def is_main_process() -> bool:
    """Whether this is rank 0, after `start` has ended too."""
    return True


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
    if wanted == "cuda" and not gpus():
        raise UserError("trainer.device: cuda device 0 is not there, TensorFlow sees 0 of them")
    return "cuda" if wanted != "cpu" and gpus() else "cpu"


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
