"""What the tests of every launcher share: runs that can be compared, the comparison, and a look at processes."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

from workspace import SMALL, Workspace, differences, last_step, read_metrics, status, wait_until

# Adam would hide a gradient that is doubled or not averaged; momentum and a plain learning rate show it.
SGD = ("--optimizer.name", "sgd", "--optimizer.momentum", "0.9", "--optimizer.schedule", "constant")
EXACT = (*SMALL, *SGD, "--trainer.precision", "fp32", "--trainer.device", "cpu", "--optimizer.learning-rate")
# Too gentle for a difference in the last bit to grow, where it turns a ReLU on or off.
TWENTY_STEPS = (*EXACT, "0.005", "--trainer.max-steps", "20")
# Long enough to be stopped on the way.
THREE_EPOCHS = (*EXACT, "0.0001", "--trainer.max-epochs", "3", "--trainer.checkpoint-every", "10")
TOLERANCE = 1e-5


def distribution_problems(project: Workspace, single: Path, several: Path) -> list[str]:
    """What tells the run of several processes from that of one."""
    apart = differences(project, single, several)
    weights = {part: apart[part] for part in ("last model", "best model")}
    problems = [f"{part} differs by {by}" for part, by in weights.items() if not by <= TOLERANCE]
    expected, got = read_metrics(single), read_metrics(several)
    if expected.keys() != got.keys():
        problems.append(f"logged by one only: {sorted(expected.keys() ^ got.keys())}")
    for key in expected.keys() & got.keys():
        if not abs(expected[key] - got[key]) <= 1e-6 * max(1, abs(expected[key])):
            problems.append(f"metric {key}: {expected[key]}, {got[key]}")
    if status(several) != "finished":
        problems.append(f"status: {status(several)}")
    return problems


def interruption_problems(project: Workspace, long_single: Path, launch: tuple[str, ...], how: str) -> list[str]:
    """Of a run that is stopped by "Ctrl-C" or "SIGTERM" and then goes on; `launch` ends before the run's name."""
    run = project.run_dir(f"stopped-by-{how}")
    with project.started(*launch, run.name, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 40, launcher, "step 40")
        if how == "Ctrl-C":
            os.killpg(launcher.pid, signal.SIGINT)  # as a terminal does
        else:
            launcher.terminate()
        assert launcher.wait(120) == 130
    assert status(run) == "interrupted"
    assert 40 <= last_step(run) < last_step(long_single)
    errors = [line for line in (project.path / "err.txt").read_text("utf-8").splitlines() if line]
    assert len(errors) == 2 and errors[0] == "stopping after this step", errors
    assert errors[1].startswith("error: interrupted, and saved")
    project.run(*launch, run.name, "--", *THREE_EPOCHS)
    return distribution_problems(project, long_single, run)


def family(launcher: int) -> list[int]:
    """A process and all its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    pids = [launcher]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def worker(launcher: int, rank: int) -> int | None:
    """The pid of the training process of a rank among a launcher's descendants."""
    for pid in family(launcher):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"RANK={rank}".encode() in variables:
            return pid
    return None


def listening(*pids: int) -> set[str]:
    """The addresses, as /proc/net writes them, on which these processes wait for connections."""
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(file))
            except OSError:
                continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def free_ports(count: int) -> list[int]:
    """On 127.0.0.1, each another."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
