"""The few names by which shared code reaches TensorFlow and Keras."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import Model as Model
from numpy.typing import NDArray
from tensorflow import Tensor as Tensor

from .errors import UserError

if TYPE_CHECKING:
    from .contract import BaseTask

Device = str

keras.config.disable_traceback_filtering()  # errors as they are, without a page of arguments
warnings.filterwarnings("ignore", ".*looks like it has unbuilt state")  # said before an error in `call`


def to_tensors(batch: Mapping[str, NDArray[Any]], device: Device = "cpu") -> dict[str, Tensor]:
    """Arrays [B, ...] as tensors of the same dtype; TensorFlow moves them to the device where it needs them."""
    return {name: tf.convert_to_tensor(array) for name, array in batch.items()}


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    return np.asarray(tensor)


@contextmanager
def inference(model: Model) -> Iterator[None]:
    """No gradients and no dropout, which TensorFlow and Keras have only where they are asked for."""
    yield


def place(model: Model, device: Device) -> Model:
    """Keras has built it on the device."""
    return model


def without_gradient(model: Model, task: "BaseTask", batch: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of the trainable weights that the loss, in training, does not depend on.

    Makes the graphs of training, evaluation and prediction and runs none, so that code which needs values fails here.
    """
    unused: list[str] = []

    def trace(tensors: dict[str, Tensor]) -> None:
        with tf.GradientTape() as tape:
            total = task.compute_loss(run_model(model, tensors, training=True), tensors).total
        gradients = tape.gradient(total, model.trainable_variables)
        pairs = zip(model.trainable_variables, gradients, strict=True)
        unused.extend(variable.path for variable, gradient in pairs if gradient is None)
        task.compute_sums(run_model(model, tensors), tensors)
        task.predict(model, {item.name: tensors[item.name] for item in task.signature().inputs})

    specs = {name: tf.TensorSpec([None, *array.shape[1:]], array.dtype) for name, array in batch.items()}
    on_each = tf.distribute.get_strategy().run  # variables with copies have gradients only there
    graph = tf.function(lambda tensors: on_each(trace, (tensors,)), input_signature=[specs], autograph=False)
    graph.get_concrete_function()
    return list(dict.fromkeys(unused))


def trainable_weights(model: Model) -> dict[str, NDArray[Any]]:
    return {f"{i}.{variable.name}": variable.numpy() for i, variable in enumerate(model.trainable_variables)}


def run_model(model: Model, batch: dict[str, Tensor], training: bool = False) -> dict[str, Tensor]:
    """The model's outputs, in float32 whatever precision it computes in."""
    wanted = getattr(model, "input", None)  # of a functional model, which warns of what it does not take
    if isinstance(wanted, dict):
        if missing := wanted.keys() - batch.keys():
            raise UserError(f"model.py: the model takes {', '.join(sorted(missing))}, which data.py does not give")
        batch = {name: batch[name] for name in wanted}
    outputs: dict[str, Tensor] = model(batch, training=training)
    if not isinstance(outputs, dict):
        return outputs
    return {name: tf.cast(value, tf.float32) if is_half(value) else value for name, value in outputs.items()}


def is_half(value: Tensor) -> bool:
    return getattr(value, "dtype", None) in (tf.bfloat16, tf.float16)
