"""Train a model: from `main` down to `train_step`, one screen a function."""

import argparse
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from . import checkpoint, data, distributed
from .backend import Model, Tensor, run_model
from .check import build
from .config import Config, check_batch
from .contract import BaseTask, Batch, Datasets
from .distributed import EvalStep, Runtime
from .errors import UserError
from .evaluate import compute_metrics, compute_sums
from .files import write_json
from .loading import batch_parts, data_version, epoch_order, read_batches
from .progress import Progress, TrainState, start_metrics
from .run import Checkpoint, Run, StopRequested, open_run, record_start, recorded, stop_on_signal
from .schedule import learning_rate
from .seeds import mix

Seeds = NDArray[np.int64]
Sums = tuple[Tensor, Tensor, Tensor]  # over all copies of the model: the loss, what it counts, who has to stop


@dataclass
class Graphs:
    """What TensorFlow runs of a step: all of it, or, where the batch is cut into pieces, the parts."""

    random_layers: int
    step: Callable[[Batch, Seeds, float, float], Sums]
    accumulate: Callable[[Batch, Seeds], None]
    update: Callable[[float, float], Sums]


@dataclass
class Loop:
    """All that a step needs."""

    config: Config
    runtime: Runtime
    run: Run
    datasets: Datasets
    task: BaseTask
    model: Model
    graphs: Graphs
    eval_step: EvalStep
    optimizer: keras.optimizers.Optimizer
    state: TrainState
    total_steps: int
    progress: Progress
    must_stop: bool = False  # a signal has reached one of the processes

    @property
    def learning_rate(self) -> float:
        """Of the last step."""
        return learning_rate(self.config.optimizer, self.state.step - 1, self.total_steps)

    @property
    def stopped_early(self) -> bool:
        patience = self.config.trainer.patience
        return patience is not None and self.state.epochs_since_best >= patience

    @property
    def is_done(self) -> bool:
        used_up = self.state.epoch >= self.config.trainer.max_epochs or self.state.step >= self.total_steps
        return used_up or self.stopped_early

    def save(self, name: Checkpoint) -> None:
        path, facts = self.run.checkpoint(name), self.datasets.facts
        self.runtime.on_main(lambda: checkpoint.save(path, self.state, facts, self.model, self.optimizer))


def main(args: argparse.Namespace) -> None:
    train(args.config, args.run, args.run_name)


def train(config: Config, resumed: Run | None = None, run_name: str | None = None) -> Run:
    """Train from the start, or go on with a run; returns the run when it is finished."""
    with distributed.start(config.trainer) as runtime:
        run = runtime.on_main(lambda: open_run(config, resumed, run_name))
        train_all_epochs(config, runtime, run)
    return run


def train_all_epochs(config: Config, runtime: Runtime, run: Run) -> None:
    """All that is left of the run."""
    loop = build_loop(config, runtime, run)
    say = print if runtime.is_main else lambda *_: None
    start = f", from step {loop.state.step}" if loop.state.step else ""
    say(f"run {run.path} on {runtime.device}, {runtime.precision}, world size {runtime.copies}{start}")
    if loop.is_done:
        say("nothing is left to do; raise trainer.max_epochs, trainer.max_steps or trainer.patience")
    with recorded(run, runtime.is_main, loop.progress.metrics.finish), stop_on_signal(runtime):
        while not loop.is_done:
            train_one_epoch(loop)
            finish_epoch(loop)
    if loop.stopped_early:
        say(f"stopped early: no better model in {config.trainer.patience} epochs (trainer.patience)")
    best = "" if loop.state.best is None else f", best val/{loop.task.monitor.metric} {loop.state.best:.4f}"
    say(f"finished after {loop.state.step} steps{best}\nnext: python -m {__package__} evaluate {run.path}")


def build_loop(config: Config, runtime: Runtime, run: Run) -> Loop:
    """Data, model, optimizer and trackers, in the state of the last checkpoint where there is one."""
    trainer, size = config.trainer, config.trainer.global_batch_size
    check_batch(config, runtime.copies)
    datasets = data.build_datasets(config.data)
    runtime.seed(config.seed)
    with runtime.scope():
        model, task = build(config, datasets, runtime.device)
        optimizer = build_optimizer(config, model, runtime)
    runtime.share_weights(model.weights)
    steps = len(epoch_order(datasets, config.seed, 0)) // size
    if steps == 0:
        raise UserError(f"trainer.global_batch_size: {size} is more than the {len(datasets.train)} training examples")
    total_steps = min(trainer.max_epochs * steps, trainer.max_steps or trainer.max_epochs * steps)
    state = TrainState()
    if run.checkpoint("last").is_file():
        state = checkpoint.restore(run.checkpoint("last"), model, optimizer)
    version = runtime.agree(data_version(datasets), "data.py: build_datasets must give every process the same data")
    runtime.on_main(lambda: record_start(run, config, runtime.describe(), version, task.monitor._asdict()))
    metrics = start_metrics(runtime, run, config.tracking, state.step)
    graphs, eval_step = build_graphs(config, runtime, task, model, optimizer), runtime.build_eval_step(task, model)
    progress = Progress(runtime, metrics)
    return Loop(config, runtime, run, datasets, task, model, graphs, eval_step, optimizer, state, total_steps, progress)


def build_optimizer(config: Config, model: Model, runtime: Runtime) -> keras.optimizers.Optimizer:
    """AdamW or SGD; biases and the scales of norms do not decay. fp16 scales the loss."""
    settings, weights, clip = config.optimizer, model.trainable_variables, config.trainer.max_grad_norm
    # Keras clips before it sums over the replicas, each of which gives the same part of the whole gradient.
    common = {"weight_decay": settings.weight_decay, "global_clipnorm": clip and clip / runtime.replicas}
    if settings.name == "sgd":
        optimizer = keras.optimizers.SGD(settings.learning_rate, settings.momentum, **common)
    else:
        betas = {"beta_1": settings.betas[0], "beta_2": settings.betas[1]}
        optimizer = keras.optimizers.AdamW(settings.learning_rate, epsilon=1e-8, **betas, **common)
    optimizer.exclude_from_weight_decay([weight for weight in weights if len(weight.shape) <= 1])
    if runtime.precision == "fp16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(weights)
    return optimizer


def build_graphs(
    config: Config, runtime: Runtime, task: BaseTask, model: Model, optimizer: keras.optimizers.Optimizer
) -> Graphs:
    """The loss of a batch is a sum; the gradients are those of the loss / the global batch size.

    The seeds, int64 [copies of the model here, layers that draw random numbers, 2], decide what dropout drops.
    """
    size, weights, generators = config.trainer.global_batch_size, model.trainable_variables, random_states(model)
    averages = [v for v in model.non_trainable_variables if v.dtype.startswith(("float", "bfloat"))]  # of BatchNorm

    def backward(batch: dict[str, Tensor], seeds: Tensor) -> list[Tensor]:
        """The gradients of this copy's part of the batch, its loss, and what that counts."""
        batch, seeds = runtime.own_part((batch, seeds))
        for i, generator in enumerate(generators):
            generator.assign(tf.cast(seeds[0, i], generator.dtype))
        with tf.GradientTape() as tape:
            loss = task.compute_loss(run_model(model, batch, training=True), batch)
            count = tf.cast(loss.count, tf.float32)
            total = tf.add_n([loss.total, *(penalty * count for penalty in model.losses)])
            scaled = optimizer.scale_loss(total / size)
        return [*map(tf.convert_to_tensor, tape.gradient(scaled, weights)), total, count]

    def apply(parts: list[Tensor], rate: Tensor, stop: Tensor) -> Sums:
        """Step with the whole gradient, scaled where a batch counts more or less than its examples (tokens...)."""
        *gradients, total, count, stop = runtime.sum([*parts, stop])
        if runtime.copies > 1 and averages:
            for variable, value in zip(averages, runtime.sum([v.value for v in averages]), strict=True):
                variable.assign(value / runtime.copies)
        optimizer.learning_rate = rate
        optimizer.apply([gradient * (size / count / runtime.replicas) for gradient in gradients], weights)
        return total, count, stop

    def step(batch: dict[str, Tensor], seeds: Tensor, rate: Tensor, stop: Tensor) -> Sums:
        return apply(backward(batch, seeds), rate, stop)

    with runtime.scope():
        shapes = [*(weight.shape for weight in weights), (), ()] if config.trainer.accumulation_steps > 1 else []
        kept = [tf.Variable(tf.zeros(shape), trainable=False) for shape in shapes]

    def accumulate(batch: dict[str, Tensor], seeds: Tensor) -> None:
        for variable, part in zip(kept, backward(batch, seeds), strict=True):
            variable.assign_add(tf.cast(part, tf.float32))

    def update(rate: Tensor, stop: Tensor) -> Sums:
        parts = [variable * 1 for variable in kept]
        for variable in kept:
            variable.assign(tf.zeros_like(variable))
        return apply(parts, rate, stop)

    number, seeds = tf.TensorSpec([], tf.float32), tf.TensorSpec([runtime.replicas, len(generators), 2], tf.int64)
    return Graphs(
        len(generators),
        runtime.build_step(runtime.replicate(step), task.signature(), seeds, number, number),
        runtime.build_step(runtime.replicate(accumulate), task.signature(), seeds),
        runtime.compile(runtime.replicate(update), number, number),
    )


def random_states(model: Model) -> list[keras.Variable]:
    """The states of the generators in the model's layers."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def train_one_epoch(loop: Loop) -> None:
    """Train on what is left of the epoch; log and save on the way."""
    trainer, state = loop.config.trainer, loop.state
    order = epoch_order(loop.datasets, loop.config.seed, state.epoch)
    steps = len(order) // trainer.global_batch_size
    with loop.progress.bar(state, steps) as bar, profiler(loop) as profile_step:
        for batches in read_steps(loop, order, range(state.step_in_epoch, steps)):
            train_step(loop, batches)
            profile_step()
            bar.update()
            if state.step % trainer.log_every == 0:
                loop.progress.log_train(state, loop.learning_rate)
                bar.set_postfix_str(str(loop.progress), refresh=False)
            if loop.must_stop:
                loop.save("last")
                raise StopRequested
            if state.step >= loop.total_steps:
                break
            if trainer.checkpoint_every and state.step % trainer.checkpoint_every == 0 and state.step_in_epoch < steps:
                loop.save("last")
    if state.step_in_epoch == steps:
        state.epoch, state.step_in_epoch = state.epoch + 1, 0


def read_steps(loop: Loop, order: Any, steps: range) -> Iterator[list[Batch]]:
    """This rank's share of each global batch, in `accumulation_steps` pieces."""
    trainer, runtime, pieces = loop.config.trainer, loop.runtime, loop.config.trainer.accumulation_steps
    chosen, times = (range(1), len(steps)) if trainer.overfit_one_batch else (steps, 1)
    parts = batch_parts(order, chosen, trainer.global_batch_size, pieces, runtime.data_rank, runtime.data_size)
    seeds = None if trainer.overfit_one_batch else (loop.config.seed, loop.state.epoch)
    batches = read_batches(loop.datasets.train, parts * times, seeds, trainer.read_workers)
    while step := list(islice(batches, pieces)):
        yield step


def train_step(loop: Loop, batches: Sequence[Batch]) -> None:
    """One update. The gradient is that of the mean over the global batch, whatever the processes and pieces."""
    state, graphs, size = loop.state, loop.graphs, loop.config.trainer.global_batch_size
    rate, stop = learning_rate(loop.config.optimizer, state.step, loop.total_steps), float(loop.runtime.stop_requested)
    if len(batches) == 1:
        sums = graphs.step(batches[0], step_seeds(loop, 0), rate, stop)
    else:
        for piece, batch in enumerate(batches):
            graphs.accumulate(batch, step_seeds(loop, piece))
        sums = graphs.update(rate, stop)
    total, count, stop = map(float, sums)
    loop.must_stop = stop > 0
    if not math.isfinite(total):
        settings = "optimizer.learning_rate (lower), trainer.max_grad_norm (set) or trainer.precision (fp32)"
        raise UserError(f"step {state.step + 1}: the loss is {total}; look at {settings}", exit_code=1)
    state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
    state.window_total, state.window_count = state.window_total + total, state.window_count + count
    loop.progress.examples += size


def step_seeds(loop: Loop, piece: int) -> Seeds:
    """A seed for each layer that draws random numbers, so that no state of theirs needs to be stored."""
    runtime, layers = loop.runtime, range(loop.graphs.random_layers)
    copies = range(runtime.rank * runtime.replicas, (runtime.rank + 1) * runtime.replicas)
    seeds = [[[mix(loop.config.seed, loop.state.step, i, piece, j) >> 33, 0] for j in layers] for i in copies]
    return np.array(seeds, np.int64).reshape(len(copies), len(layers), 2)


def finish_epoch(loop: Loop) -> None:
    """Evaluate, log, and save: `best` when the monitored metric improved, and `last` always."""
    state, monitor, trainer = loop.state, loop.task.monitor, loop.config.trainer
    if state.window_count:
        loop.progress.log_train(state, loop.learning_rate)
    size, workers = trainer.global_batch_size, trainer.read_workers
    sums = compute_sums(loop.runtime, loop.eval_step, loop.datasets.val, size, workers)
    metrics = compute_metrics(loop.task, sums)
    if not math.isfinite(metrics["loss"]):
        raise UserError(f"step {state.step}: the val loss is {metrics['loss']}; lower optimizer.learning_rate", 1)
    loop.progress.log_val(state, metrics)
    better = monitor.improves(metrics[monitor.metric], state.best)
    state.epochs_since_best = 0 if better else state.epochs_since_best + 1
    state.best = metrics[monitor.metric] if better else state.best
    if better:
        loop.save("best")
    loop.save("last")
    loop.progress.show_epoch(state, trainer.max_epochs)


@contextmanager
def profiler(loop: Loop) -> Iterator[Callable[[], None]]:
    """Trace a few of the first steps where trainer.profile is set."""
    if not loop.config.trainer.profile or loop.state.step > 0 or not loop.runtime.is_main:
        yield lambda: None
        return

    def profile_step() -> None:
        if loop.state.step == 3:
            tf.profiler.experimental.start(str(loop.run.path / "profile"))
        elif loop.state.step == 8:
            tf.profiler.experimental.stop()

    yield profile_step
    if 3 <= loop.state.step < 8:
        tf.profiler.experimental.stop()
    write_trace(loop.run.path)


def write_trace(folder: Path) -> None:
    """Turn what TensorFlow's profiler wrote into a trace that any browser shows, and a table."""
    events: list[dict[str, Any]] = []
    for file in (folder / "profile").rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
        for process, plane in enumerate(space.planes):
            for thread, line in enumerate(plane.lines):
                for event in line.events:
                    name, start = (
                        plane.event_metadata[event.metadata_id].name,
                        line.timestamp_ns * 1000 + event.offset_ps,
                    )
                    where = {"ph": "X", "pid": process, "tid": thread}
                    events.append({"name": name, "ts": start / 1e6, "dur": event.duration_ps / 1e6, **where})
    write_json(folder / "trace.json", {"traceEvents": events})
    spent: Counter[str] = Counter()
    for found in events:
        if operation := re.fullmatch(r"[^: ]+:(\w+)", found["name"]):  # its place in the graph, and its kind
            spent[operation[1]] += found["dur"]
    for kind, microseconds in spent.most_common(10):
        print(f"  {kind:<40}{microseconds / 1000:10.2f} ms")
    print(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
