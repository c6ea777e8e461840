"""The project's training loop against a bare one, in one process. Runs in a project's environment; prints JSON.

python step.py 2.4 5.5           a model of about so many milliseconds a step, each
python step.py --lines 2.4       what each line of both loops costs
python step.py --trackers 5.5    the loop with every tracker of the project against the loop with none
"""

import argparse
import inspect
import io
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

from my_model import distributed, loading, train
from my_model.config import Config
from my_model.framework import NAME
from my_model.run import open_run
from my_model.tracking import AVAILABLE

from measure import Sample, choose_size, clock, interleave

BareLoop: Any = import_module("bare_tensorflow" if NAME == "TensorFlow" else "bare").BareLoop
WIDTHS = {2.4: 8, 5.5: 24, 7.5: 24}  # 24 is the shipped one


class Terminal(io.TextIOWrapper):
    """Where the progress bar is drawn as on a terminal, and seen by nobody."""

    def isatty(self) -> bool:
        return True


TERMINAL = Terminal(Path(os.devnull).open("wb"))  # noqa: SIM115


@contextmanager
def project_loop(width: int, batch_size: int, trackers: tuple[str, ...] = AVAILABLE) -> Iterator[train.Loop]:
    """The project's loop as `train` builds it, with metrics.jsonl and every tracker that it has."""
    with TemporaryDirectory() as folder:
        trainer = {"global_batch_size": batch_size, "max_epochs": 1_000_000, "device": "cpu"}
        settings = {"trainer": trainer, "model": {"width": width}, "tracking": {"trackers": trackers}}
        config = Config.model_validate({"runs_dir": folder, "name": "bench", **settings})
        with distributed.start(config.trainer) as runtime:
            loop = train.build_loop(config, runtime, open_run(config, None, None))
            yield loop
            loop.progress.metrics.finish("finished")


def project_epoch(loop: train.Loop) -> None:
    """An epoch with its line of metrics, but without evaluation and checkpoints, which the bare loop lacks too."""
    with redirect_stderr(TERMINAL):
        train.train_one_epoch(loop)
    if loop.state.window_count:
        loop.progress.log_train(loop.state, 0.0)
    loop.state.epoch, loop.state.step_in_epoch = loop.state.epoch + 1, 0


def choose_batch_size(width: int, milliseconds: float) -> int:
    def seconds(size: int) -> float:
        loop = BareLoop(width, size)
        return min(clock(loop.train_one_epoch, loop.steps).cpu for _ in range(8))

    return choose_size(seconds, milliseconds / 1000, 16, 64)


def compare(milliseconds: float, repeats: int) -> dict[str, Any]:
    width = WIDTHS.get(milliseconds, 24)
    batch_size = choose_batch_size(width, milliseconds)
    bare, again = BareLoop(width, batch_size), BareLoop(width, batch_size)
    epochs = max(1, round(250 / milliseconds / bare.steps))  # about a quarter of a second a sample

    def block(epoch: Callable[[], object]) -> Callable[[], Sample]:
        return lambda: clock(lambda: [epoch() for _ in range(epochs)], epochs * bare.steps)

    with project_loop(width, batch_size) as loop:
        variants = {
            "ours": block(lambda: project_epoch(loop)),
            "floor": block(bare.train_one_epoch),
            "floor again": block(again.train_one_epoch),
        }
        samples = interleave(f"step of about {milliseconds} ms", variants, repeats)
    return {"milliseconds": milliseconds, "width": width, "batch_size": batch_size, "samples": samples}


def compare_trackers(milliseconds: float, repeats: int) -> dict[str, Any]:
    """In blocks of some seconds: trackers are told once a second."""
    width = WIDTHS.get(milliseconds, 24)
    batch_size = choose_batch_size(width, milliseconds)
    with (
        project_loop(width, batch_size) as tracked,
        project_loop(width, batch_size, ()) as plain,
        project_loop(width, batch_size, ()) as again,
    ):
        steps = len(loading.epoch_order(plain.datasets, 0, 0)) // batch_size
        epochs = max(1, round(3000 / milliseconds / steps))

        def train_on(loop: train.Loop) -> None:
            for _ in range(epochs):
                project_epoch(loop)

        def block(loop: train.Loop) -> Callable[[], Sample]:
            return lambda: clock(lambda: train_on(loop), epochs * steps)

        variants = {"ours": block(tracked), "floor": block(plain), "floor again": block(again)}
        samples = interleave(f"trackers, step of about {milliseconds} ms", variants, repeats)
    return {"milliseconds": milliseconds, "width": width, "batch_size": batch_size, "samples": samples}


def measure_lines(function: Callable[[], object], codes: set[CodeType]) -> dict[tuple[CodeType, int], float]:
    """CPU seconds of this thread on each line of these functions, with what the line calls (slowed by being traced)."""
    spent: dict[tuple[CodeType, int], float] = defaultdict(float)
    here: dict[FrameType, tuple[int, float]] = {}

    def on_line(frame: FrameType, event: str, argument: object) -> Any:
        now = time.thread_time()
        if frame in here:
            line, since = here.pop(frame)
            spent[frame.f_code, line] += now - since
        if event != "return":
            here[frame] = (frame.f_lineno, time.thread_time())
        return on_line

    sys.settrace(lambda frame, event, _: on_line(frame, event, None) if frame.f_code in codes else None)
    try:
        function()
    finally:
        sys.settrace(None)
    return spent


def print_lines(milliseconds: float) -> None:
    width = WIDTHS.get(milliseconds, 24)
    batch_size = choose_batch_size(width, milliseconds)
    bare = BareLoop(width, batch_size)
    functions: list[Any] = [train.train_one_epoch, train.read_steps, loading.read_batches, train.train_step]
    functions += [getattr(train, "update", train.train_step), BareLoop.train_one_epoch, BareLoop.train_step]
    functions = [inspect.unwrap(function) for function in functions]
    codes = {function.__code__ for function in functions}
    with project_loop(width, batch_size) as loop:
        epochs, spent = 12, defaultdict[tuple[CodeType, int], list[float]](list)
        for _ in range(epochs):
            for epoch in (lambda: project_epoch(loop), bare.train_one_epoch):
                for key, seconds in measure_lines(epoch, codes).items():
                    spent[key].append(seconds / bare.steps * 1e6)
    for function in functions:
        lines, first = inspect.getsourcelines(function)
        costs = {line: sorted(spent.get((function.__code__, first + line), [0.0])) for line in range(len(lines))}
        medians = {line: values[len(values) // 2] for line, values in costs.items()}
        print(f"\n{function.__qualname__}: {sum(medians.values()):.0f} microseconds of CPU a step")
        for line, cost in medians.items():
            if cost >= 1:
                print(f"{cost:8.1f}  {lines[line].rstrip()}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("milliseconds", nargs="+", type=float)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--trackers", action="store_true")
    args = parser.parse_args()
    for milliseconds in args.milliseconds:
        if args.lines:
            print_lines(milliseconds)
        else:
            measure = compare_trackers if args.trackers else compare
            print(json.dumps(measure(milliseconds, args.repeats)), flush=True)


if __name__ == "__main__":
    main()
