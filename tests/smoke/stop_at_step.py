"""Run the command line in this process, which gets a signal while it trains a step. Runs in a project's environment.

stop_at_step.py PACKAGE STEP ARGUMENT...
"""

import os
import signal
import sys
from importlib import import_module
from typing import Any

package, last = sys.argv[1], int(sys.argv[2])
train: Any = import_module(f"{package}.train")
train_step = train.train_step


def train_step_and_signal(loop: Any, batches: Any) -> None:
    if loop.state.step == last - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    train_step(loop, batches)


train.train_step = train_step_and_signal
sys.exit(import_module(f"{package}.cli").main(sys.argv[3:]))
