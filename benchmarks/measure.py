"""Timings in interleaved rounds, and what can be said about them. A project's environment imports this too."""

import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """Seconds on the clock, and seconds of the processors."""

    wall: float
    cpu: float


Samples = dict[str, list[Sample]]


def clock(function: Callable[[], object], units: int = 1) -> Sample:
    """Time a function, in this process and its children, by unit of the work that it does."""
    cpu, start = cpu_seconds(), time.perf_counter()
    function()
    return Sample((time.perf_counter() - start) / units, (cpu_seconds() - cpu) / units)


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def interleave(title: str, variants: Mapping[str, Callable[[], Sample]], repeats: int) -> Samples:
    """Measure every variant once a round, in a new order each time, after a first round that does not count."""
    samples: Samples = {name: [] for name in variants}
    order, shuffle = list(variants), random.Random(0).shuffle
    for done in range(repeats + 1):
        shuffle(order)
        for name in order:
            sample = variants[name]()
            if done:
                samples[name].append(sample)
        print(f"{title}: {done}/{repeats}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    medians = [f"{name} {statistics.median(s.wall for s in taken):.3g} s" for name, taken in samples.items()]
    print(f"{title}: {', '.join(medians)}", file=sys.stderr, flush=True)
    return samples


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def choose_size(seconds: Callable[[int], float], target: float, small: int, large: int) -> int:
    """The multiple of 8 at which something takes `target` seconds, if the time is a straight line over the size."""
    low, high = seconds(small), seconds(large)
    slope = max(high - low, 1e-9) / (large - small)
    return max(8, min(2 * large, 8 * round((small + (target - low) / slope) / 8)))
