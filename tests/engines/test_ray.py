"""launch/ray: workers of Ray Train learn what one process does, and runs wait for the GPUs of one machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from distribution import THREE_EPOCHS, TWENTY_STEPS, distribution_problems, family, free_ports, listening
from workspace import (
    EXHAUSTIVE,
    FIRST,
    FRAMEWORKS,
    IN_DEPTH,
    SMALL,
    Workspace,
    error_line,
    last_step,
    read_metrics,
    status,
    wait_until,
    workspace,
)

TINY = (*SMALL, "--trainer.device", "cpu", "--trainer.max-steps", "1")
ENDLESS = (*SMALL, "--trainer.device", "cpu", "--trainer.max-epochs", "100000")
EIGHT = [f"tiny-{number}" for number in range(8)]
IN_BOTH = pytest.mark.parametrize("project", FRAMEWORKS, indirect=True)


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    dest = tmp_path_factory.mktemp("ray") / "project"
    return workspace(dest, request.param, launchers=["ray"])


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@IN_BOTH
def test_two_workers_equal_one(project: Workspace, single: Path) -> None:
    done = project.run(
        project.python, "launch/ray/train.py", "--workers", "2", "--run-name", "two", "--", *TWENTY_STEPS
    )
    assert not distribution_problems(project, single, project.run_dir("two"))
    folders = [{path.name for path in (project.path / folder).iterdir()} for folder in ("runs", "runs/baseline")]
    assert folders == [{"baseline"}, {"single", "two"}]
    assert {path.name for path in project.run_dir("two").iterdir()} == {path.name for path in single.iterdir()}
    lines = [line for line in done.stdout.splitlines() if line]
    assert len(lines) == len(set(lines)), "a line is printed once, by rank 0"
    assert "world size 2" in lines[0]


@pytest.fixture
def cluster(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A Ray cluster of one machine, whose address and token are in the environment."""
    with TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, open(f"{folder}/log", "wb") as log:
        variables = {"AUTH_MODE": "token", "AUTH_TOKEN": "0" * 64, "GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
        variables["ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # binds it to 127.0.0.1
        for name, value in variables.items():
            monkeypatch.setenv(f"RAY_{name}", value)
        options = ("--node-ip-address=127.0.0.1", "--port=0", "--include-dashboard=false", "--num-cpus=2")
        command = (project.python, "-m", "ray.scripts.scripts", "start", "--head", "--block", *options)
        more = (f"--ray-client-server-port={free_ports(1)[0]}", f"--temp-dir={folder}/ray")
        head = subprocess.Popen([*command, *more], env=project.env, stdout=log, stderr=log)
        try:
            address = Path(folder, "ray", "ray_current_cluster")
            wait_until(lambda: "Ray runtime started" in Path(folder, "log").read_text(), head, "the cluster's start")
            wait_until(address.exists, head, "the cluster's address")
            monkeypatch.setenv("RAY_ADDRESS", address.read_text().strip())
            yield head
        finally:
            end(head.pid)
            head.wait()


def end(pid: int) -> None:
    """End a head and wait for what belongs to it."""
    everybody = family(pid)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    for _ in range(300):
        if not any(map(command_of, everybody)):
            return
        time.sleep(0.2)


@pytest.mark.parametrize("rank", [1, 0] if EXHAUSTIVE else [1])
def test_a_killed_worker_is_replaced(
    project: Workspace, long_single: Path, cluster: subprocess.Popen[bytes], rank: int
) -> None:
    run, before = project.run_dir(f"killed-{rank}"), set((project.path / "runs/baseline").iterdir())
    command = (project.python, "launch/ray/train.py", "--workers", "2", "--run-name", run.name)
    with project.started(*command, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 25, launcher, "step 25", seconds=400)
        main = json.loads((run / "status.json").read_text("utf-8"))["pid"]
        everybody = family(cluster.pid)
        workers = [pid for pid in everybody if command_of(pid).startswith("ray::RayTrainWorker")]
        assert main in workers and len(workers) == 2
        others = [pid for pid in everybody if pid not in workers]  # these listen where all can reach them
        assert listening(*others) <= LOOPBACK
        os.kill(main if rank == 0 else next(pid for pid in workers if pid != main), signal.SIGKILL)
        killed_at = last_step(run)
        print(f"rank {rank} killed after step {killed_at}")
        assert killed_at < last_step(long_single)
        assert launcher.wait(600) == 0
    assert not distribution_problems(project, long_single, run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {run}
    starts = re.findall(rf"^run runs/baseline/{run.name} .*", (project.path / "out.txt").read_text("utf-8"), re.M)
    assert [bool(re.search(r", from step [1-9]", start)) for start in starts] == [False, True]


@IN_DEPTH
def test_what_is_wrong_for_every_attempt_is_not_tried_again(project: Workspace) -> None:
    diverge = (*SMALL, "--optimizer.name", "sgd", "--optimizer.learning-rate", "1e30")
    command = (project.python, "launch/ray/train.py", "--workers", "2", "--run-name", "diverged")
    done = project.run(*command, "--", *diverge, check=False)
    assert done.returncode == 1
    assert "step 2: the loss is" in done.stderr
    assert done.stdout.count("run runs/baseline/diverged") == 1, "started once"
    assert "Traceback" not in done.stdout
    assert status(project.run_dir("diverged")) == "failed"


@dataclass(frozen=True)
class Queue:
    """The queue of one user, who keeps its state in a folder of their own."""

    project: Workspace
    state: Path

    def __call__(self, *words: str, check: bool = True, seed: str = "") -> subprocess.CompletedProcess[str]:
        # What a user's GPUs would be; the framework's CPU build sees none of them.
        env = {"XDG_STATE_HOME": str(self.state), "CUDA_VISIBLE_DEVICES": "2,3"}
        env |= {f"{self.project.package.upper()}__SEED": seed} if seed else {}
        return self.project.run(self.project.python, "launch/ray/gpu_queue.py", *words, check=check, env=env)

    def submit(self, name: str, *arguments: str, gpus: int = 1, seed: str = "") -> None:
        self("submit", "--gpus", str(gpus), "--run-name", name, "--", *arguments, seed=seed)

    def states(self) -> dict[str, str]:
        """The state of every run."""
        head, *lines = self("list").stdout.splitlines()
        assert head.split() == ["id", "state", "gpus", "submitted", "command"]
        return {line.split()[0]: line.split()[1] for line in lines}

    @property
    def head_file(self) -> Path:
        return next(self.state.glob("gpu-queue/*/head.json"))

    @property
    def head(self) -> dict[str, object]:
        return dict(json.loads(self.head_file.read_text("utf-8")))

    def processes(self) -> list[int]:
        """All that belongs to the head."""
        return family(int(str(self.head["pid"])))

    def end(self) -> None:
        """However the test went."""
        if [*self.state.glob("gpu-queue/*/head.json")]:
            end(self.processes()[0])
            shutil.rmtree(str(self.head["folder"]))


@pytest.fixture
def queue(project: Workspace, tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(project, tmp_path / "state")
    yield queue
    queue.end()


def until(queue: Queue, states: set[str], *names: str) -> None:
    """Poll until the runs are in these states, while never more than two run."""
    for _ in range(300):
        now = queue.states()
        running = [name for name, state in now.items() if state in ("running", "stopping")]
        assert len(running) <= (1 if EIGHT[-1] in running else 2), now
        if {now[name] for name in names} <= states:
            return
        time.sleep(6)  # asking takes a core for half of it
    raise AssertionError(f"not {states}: {now}")


def most_at_once(runs: list[Path]) -> int:
    """How many of the runs went on at a time, from when their files were written."""
    spans = [((run / "environment.json").stat().st_mtime, (run / "status.json").stat().st_mtime) for run in runs]
    return max(sum(start <= moment <= end for start, end in spans) for moment, _ in spans)


def gpu_of(run: Path) -> str:
    pid = json.loads((run / "status.json").read_text("utf-8"))["pid"]
    return "".join(re.findall(r"CUDA_VISIBLE_DEVICES=([^\0]*)", Path(f"/proc/{pid}/environ").read_text()))


def test_eight_runs_wait_for_two_gpus(project: Workspace, queue: Queue) -> None:
    holders = [project.run_dir(f"holder-{number}") for number in range(2)]
    queue("start", "--gpus", "2", seed="5")
    assert listening(*queue.processes()) <= LOOPBACK
    for run in holders:
        queue.submit(run.name, *ENDLESS)
    for name in EIGHT:
        queue.submit(name, *TINY, gpus=2 if name == EIGHT[-1] else 1, seed="7" if name == EIGHT[0] else "")
    queue.submit("unwanted", *TINY)
    until(queue, {"running"}, *(run.name for run in holders))
    now = queue.states()
    assert {now[name] for name in (*EIGHT, "unwanted")} == {"waiting"}
    for _ in range(600):
        if all(map(last_step, holders)):
            break
        time.sleep(0.2)
    assert sorted(map(gpu_of, holders)) == ["2", "3"]

    refused = queue("submit", "--run-name", EIGHT[0], check=False), queue("submit", "--gpus", "4", check=False)
    assert "is waiting; choose another --run-name" in error_line(refused[0])
    assert "--gpus 4: the queue has 2" in error_line(refused[1])
    assert "no such run; there are: holder-0, " in error_line(queue("cancel", "nobody", check=False))
    assert "cancel them first" in error_line(queue("stop", check=False))

    queue("cancel", "unwanted")
    assert queue.states()["unwanted"] == "cancelled"
    queue("cancel", *(run.name for run in holders))
    until(queue, {"finished"}, *EIGHT)
    until(queue, {"cancelled"}, "unwanted", *(run.name for run in holders))
    assert [status(run) for run in holders] == ["interrupted"] * 2
    assert [status(project.run_dir(name)) for name in EIGHT] == ["finished"] * 8
    assert not project.run_dir("unwanted").exists()
    seeds = [
        re.findall(r"^seed: (\d+)$", (run / "config.yaml").read_text(), re.M) for run in map(project.run_dir, EIGHT)
    ]
    assert seeds == [["7"], *[["0"]] * 7], "a run has the settings of its own environment"
    assert most_at_once([*holders, *map(project.run_dir, EIGHT)]) == 2
    assert "world size 2" in queue("logs", EIGHT[-1]).stdout

    steps = last_step(holders[0])
    queue.submit("holder-0", *SMALL, "--trainer.device", "cpu", "--trainer.max-steps", str(steps + 1))
    assert f"from step {steps}" in queue("logs", "holder-0", "--follow").stdout
    until(queue, {"finished"}, "holder-0")
    assert not [name for *_, name in read_metrics(holders[0]) if "again" in name]


@IN_DEPTH
def test_the_queue_ends_its_own_head_alone(project: Workspace, queue: Queue, tmp_path: Path) -> None:
    other = Queue(project, tmp_path / "other")
    try:
        other("start", "--gpus", "1")
        queue("start", "--gpus", "1")
        token = next(queue.state.rglob("token"))
        assert token.stat().st_mode & 0o077 == 0
        assert "is running already" in error_line(queue("start", check=False))
        address, file, mine = queue.head["address"], queue.head_file, queue.processes()
        text = file.read_text("utf-8")
        file.write_text(text.replace(str(address), "http://127.0.0.1:9"), "utf-8")
        assert "does not answer" in error_line(queue("list", check=False))
        file.write_text(text, "utf-8")
        assert "the queue has ended" in queue("stop").stdout
        for _ in range(100):
            if not any(map(command_of, mine)):
                break
            time.sleep(0.2)
        assert [command for command in map(command_of, mine) if command] == []
        assert queue.states() == {}
        assert "the queue is not running" in error_line(queue("stop", check=False))
        other.submit("survivor", *TINY)
        until(other, {"finished"}, "survivor")
        listed = project.make("queue", "ARGS=list", env={"XDG_STATE_HOME": str(other.state)})
        assert re.search(r"^survivor +finished +1 ", listed.stdout, re.MULTILINE)
    finally:
        other.end()
