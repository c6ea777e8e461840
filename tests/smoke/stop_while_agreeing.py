"""Run the command line in this process, which gets a signal whenever the ranks add up what each has. Runs in a
project's environment.

stop_while_agreeing.py PACKAGE ARGUMENT...
"""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

package = sys.argv[1]
distributed = import_module(f"{package}.distributed")
sum_over_ranks = distributed.Runtime.sum_over_ranks


def sum_after_a_signal(self: Any, values: Sequence[float]) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)
    return sum_over_ranks(self, values)


distributed.Runtime.sum_over_ranks = sum_after_a_signal
sys.exit(import_module(f"{package}.cli").main(sys.argv[2:]))
