"""Write, in a file a process, what a project's HorovodRuntime sums in a graph that asks for several sums at a time."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

package, folder = sys.argv[1:]
importlib.import_module(f"{package}.framework")  # before TensorFlow
import tensorflow as tf  # noqa: E402

RANK = int(os.environ["RANK"])
runtime_class = importlib.import_module(f"{package}.strategies.horovod").RUNTIME
runtime = runtime_class(RANK, int(os.environ["WORLD_SIZE"]), "cpu", "fp32", False)
runtime.join()


def inner(x: Any) -> Any:
    return runtime.sum([x + 1])


def step(x: Any) -> Any:
    two, *more = runtime.sum([x, tf.cast(x, tf.float64), tf.zeros([0]), 2 * x])
    with tf.name_scope("elsewhere"):
        again = runtime.sum([3 * x])
    chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: runtime.sum([4 * x])[0], lambda: x)
    return {"first": two, "more": more, "scope": again, "graph": tf.function(inner)(x), "branch": chosen}


if RANK == 1:  # graphs that the other process has not
    tf.function(inner).get_concrete_function(tf.TensorSpec([], tf.float32))
graph = tf.function(step, autograph=False)
for _ in range(20):
    found = graph(tf.constant([1.0 + RANK]))
found["eager"] = runtime.sum([tf.constant([RANK], tf.int64), tf.ones([2])])
found = tf.nest.map_structure(lambda tensor: tensor.numpy().tolist(), found)
found["types"] = [runtime.gather({RANK: "a" * RANK}), runtime.broadcast([1, "a"] if RANK == 0 else None)]
Path(folder, f"{RANK}.json").write_text(json.dumps(found))
runtime.leave()
