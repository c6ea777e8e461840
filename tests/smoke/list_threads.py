"""Run a project's command line, then print which of gloo's threads outlived the group. In a project's environment.

With `interrupted` as the first argument, training is told to stop in its first step.
"""

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.distributed as dist

ending, package, *words = sys.argv[1:]
train: Any = import_module(f"{package}.train")
destroy, train_step = dist.destroy_process_group, train.train_step


def destroy_and_list() -> None:
    destroy()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    if os.environ["RANK"] == "0":
        print(f"gloo threads {[name for name in names if 'gloo' in name]}")


def stop_in(*arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    train_step(*arguments)


dist.destroy_process_group = destroy_and_list
if ending == "interrupted":
    train.train_step = stop_in
import_module(f"{package}.cli").main(words)
