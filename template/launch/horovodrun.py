"""Start a command as one process a slot, from Horovod's own parts.

Against the program horovodrun: the output is as the command writes it, Ctrl-C leaves time to save, the exit code is the
command's, one machine listens on its loopback interface alone, and the environment stays out of the list of processes.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from shlex import quote
from typing import Any

try:
    from horovod.runner.common.util.hosts import parse_hosts
    from horovod.runner.common.util.secret import make_secret_key
    from horovod.runner.common.util.settings import Settings
    from horovod.runner.common.util.timeout import Timeout
    from horovod.runner.driver.driver_service import get_common_interfaces
    from horovod.runner.gloo_run import launch_gloo
    from horovod.runner.http import http_server
    from horovod.runner.util import network
except ImportError as error:
    print(f"error: Horovod is not installed ({error}); build it: launch/install_horovod.sh", file=sys.stderr)
    sys.exit(2)

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
SECONDS_TO_END = 30  # for the other processes, when one has failed


class Workers:
    """The processes, each watched by a thread; `ended` holds (rank, exit code) in the order of their ends."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, int]] = []
        self.failed = threading.Event()
        self.stopped = False  # by Ctrl-C or SIGTERM

    def run(self, command: str, slot: Any, events: list[threading.Event]) -> tuple[int, float]:
        """Called by Horovod for each slot; the first event says that a signal has come."""
        ranks = f"RANK={slot.rank} WORLD_SIZE={slot.size}"
        ranks += f" LOCAL_RANK={slot.local_rank} LOCAL_WORLD_SIZE={slot.local_size}"
        shell = [*SSH, slot.hostname] if network.filter_local_addresses([slot.hostname]) else ["sh", "-c"]
        command = f"cd {quote(os.getcwd())} && exec env {ranks} {command}"
        process = subprocess.Popen([*shell, command], stdin=subprocess.DEVNULL)
        told, limit = False, float("inf")
        while process.poll() is None:
            time.sleep(0.1)
            if events[0].is_set() and not told:
                process.terminate()
                told = self.stopped = True
            if self.failed.is_set():
                limit = min(limit, time.monotonic() + SECONDS_TO_END)
            if time.monotonic() > limit:
                process.kill()
        self.ended.append((slot.rank, process.returncode))
        if process.returncode != 0:
            self.failed.set()
        return process.returncode, time.time()


def main(hosts: str, command: list[str]) -> int:
    """Run the command on hosts such as "localhost:2" or "a:4,b:4"; returns its exit code."""
    machines = [host.hostname for host in parse_hosts(hosts)]
    processes = sum(host.slots for host in parse_hosts(hosts))
    for machine in network.filter_local_addresses(machines):
        if subprocess.run([*SSH, machine, "true"], stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
            print(f"error: {machine}: not reached by ssh without a password; try: ssh {machine} true", file=sys.stderr)
            return 2
    timeout = Timeout(60, message="no answer from another machine within 60 s while waiting for {activity}")
    settings = Settings(hosts, num_proc=processes, verbose=0, key=make_secret_key(), start_timeout=timeout)
    interfaces = get_common_interfaces(settings, machines)
    address = network.get_driver_ip(interfaces)
    # Its server of addresses would listen on every interface.
    http_server.find_port = lambda make: network.find_port(lambda any_address: make((address, any_address[1])))
    workers = Workers()
    try:
        launch_gloo(command, workers.run, settings, interfaces, exported(command), address)
    except RuntimeError:
        if workers.stopped:
            return 130
        rank, code = next((rank, code) for rank, code in workers.ended if code != 0)
        if code < 0:
            ended = f"process {rank} was ended by {signal.Signals(-code).name}"
            print(f"error: {ended}; the same --run-name goes on from the last checkpoint", file=sys.stderr)
        return code if code > 0 else 128 - code
    return 0


def exported(command: list[str]) -> dict[str, str]:
    """What other machines are told of the environment; on this one the processes inherit all of it."""
    settings = [f"{module.upper()}__" for flag, module in pairwise(command) if flag == "-m"]
    prefixes = (*settings, "HOROVOD_", "NCCL_", "OMP_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes) or name.endswith("_THREADS")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
