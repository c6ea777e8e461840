"""launch/slurm.sbatch on a cluster of two nodes: as one process learns, over time limits, preemption and arrays."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from slurm import Slurm, cluster

from distribution import THREE_EPOCHS, TWENTY_STEPS, distribution_problems
from programs import SLURM, find_slurm_program
from workspace import (
    EXHAUSTIVE,
    FIRST,
    FRAMEWORKS,
    IN_DEPTH,
    Workspace,
    error_line,
    last_step,
    read_metrics,
    snapshot,
    status,
    workspace,
)

from conftest import required

SCRIPT = "launch/slurm.sbatch"
IN_BOTH = pytest.mark.parametrize("project", FRAMEWORKS, indirect=True)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    for program in SLURM.values():
        required(find_slurm_program(program), program)
    with cluster() as started:
        yield started


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("slurm") / "project", request.param, launchers=["slurm"])


@dataclass(frozen=True)
class Job:
    """A submitted job, or a task of an array."""

    slurm: Slurm
    project: Workspace
    id: str

    @property
    def output(self) -> str:
        return (self.project.path / f"slurm-{self.id}.out").read_text("utf-8")

    @property
    def run(self) -> Path:
        return self.project.run_dir(f"slurm-{self.id}")

    def ask(self, key: str) -> str:
        return self.slurm.job(self.id).get(key, "")

    def wait_for_step(self, step: int) -> None:
        self.slurm.wait_until(lambda: last_step(self.run) >= step or self.has_ended(), f"job {self.id}: step {step}")
        assert not self.has_ended(), self.output

    def wait_for_end(self) -> str:
        """Its state at the end, such as COMPLETED."""
        self.slurm.wait_until(self.has_ended, f"job {self.id} ends")
        return self.ask("JobState")

    def wait_for_requeue(self) -> None:
        """Until it is in the queue again, where Slurm would leave it for two minutes; seconds are enough."""
        self.slurm.wait_until(lambda: self.waits_again or self.has_ended(), f"job {self.id} is queued again")
        assert self.waits_again, self.output
        self.slurm.control("scontrol", "update", f"JobId={self.id}", "StartTime=now+5seconds")

    @property
    def waits_again(self) -> bool:
        job = self.slurm.job(self.id)
        return (job["JobState"], job["Restarts"]) == ("PENDING", "1")

    def has_ended(self) -> bool:
        return self.ask("JobState") not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def count_starts(self) -> int:
        return self.output.count(f"run runs/baseline/{self.run.name} on ")


def submit(slurm: Slurm, project: Workspace, options: str, *arguments: str) -> Job:
    words = ("sbatch", "--parsable", *options.split(), SCRIPT, *arguments)
    return Job(slurm, project, project.run(*words, env=slurm.env).stdout.strip())


ONE_NODE = [("tensorflow", 1, 2)] if EXHAUSTIVE else []  # what launch/multiworker.sh does by itself


@pytest.mark.parametrize(
    ("project", "nodes", "gpus"),
    [("pytorch", 2, 1), ("pytorch", 1, 2), ("tensorflow", 2, 1), *ONE_NODE],
    indirect=["project"],
    scope="module",
)
def test_the_processes_of_a_job_equal_one(
    slurm: Slurm, project: Workspace, single: Path, nodes: int, gpus: int
) -> None:
    before = set((project.path / "runs/baseline").iterdir())
    job = submit(slurm, project, f"--nodes {nodes} --gpus-per-node {gpus}", *TWENTY_STEPS)
    assert job.wait_for_end() == "COMPLETED", job.output
    assert not distribution_problems(project, single, job.run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {job.run}
    first, *more = job.output.splitlines()
    assert first.endswith("world size 2"), "one process a GPU"
    assert len(more) == len({*more}) == 3, "a line is printed once, by rank 0, and nothing else"


def test_a_job_goes_on_after_its_time_limit(slurm: Slurm, project: Workspace, long_single: Path) -> None:
    job = submit(slurm, project, "--nodes 2", *THREE_EPOCHS)
    job.wait_for_step(25)
    slurm.control("scancel", "--signal", "USR1", "--batch", job.id)  # as Slurm does, so many seconds before
    job.wait_for_requeue()
    assert job.wait_for_end() == "COMPLETED", job.output
    assert job.count_starts() == 2
    assert "error: interrupted, and saved" in job.output
    assert not distribution_problems(project, long_single, job.run)


@IN_DEPTH
def test_a_job_goes_on_after_a_preemption(slurm: Slurm, project: Workspace, long_single: Path) -> None:
    job = submit(slurm, project, "--nodes 2 --exclusive", *THREE_EPOCHS)
    job.wait_for_step(25)
    urgent = "--parsable --partition urgent --exclusive --nodes 2 --output /dev/null --wrap true"
    other = Job(slurm, project, slurm.control("sbatch", *urgent.split()))
    job.wait_for_requeue()
    assert other.wait_for_end() == "COMPLETED"
    assert job.wait_for_end() == "COMPLETED", job.output
    assert job.count_starts() == 2
    assert not distribution_problems(project, long_single, job.run)


def test_a_cancelled_job_is_saved_and_not_queued_again(slurm: Slurm, project: Workspace, long_single: Path) -> None:
    job = submit(slurm, project, "--nodes 2", *THREE_EPOCHS)
    job.wait_for_step(25)
    slurm.control("scancel", job.id)
    assert job.wait_for_end() == "CANCELLED"
    assert job.ask("Restarts") == "0"
    assert status(job.run) == "interrupted"
    later = submit(slurm, project, "--nodes 1", "--run-name", job.run.name, *THREE_EPOCHS)
    assert later.wait_for_end() == "COMPLETED", later.output
    assert "from step" in later.output
    assert not distribution_problems(project, long_single, job.run)


@IN_DEPTH
def test_an_array_trains_with_its_seeds(slurm: Slurm, project: Workspace, long_single: Path) -> None:
    array = submit(slurm, project, "--array 0-1", *THREE_EPOCHS).id
    tasks = [Job(slurm, project, f"{array}_{seed}") for seed in (0, 1)]
    # One task has the array's own number, by which Slurm would signal, or queue again, all of them.
    for task in tasks:
        task.wait_for_step(10)
    named, other = sorted(tasks, key=lambda task: task.ask("JobId") != array)
    assert named.ask("JobId") == array
    slurm.control("scancel", "--signal", "USR1", "--batch", named.id)
    named.wait_for_requeue()
    assert [task.wait_for_end() for task in tasks] == ["COMPLETED"] * 2
    assert [task.ask("Restarts") for task in (named, other)] == ["1", "0"]
    seeds = [yaml.safe_load((task.run / "config.yaml").read_text("utf-8"))["seed"] for task in tasks]
    assert seeds == [0, 1]
    assert not distribution_problems(project, long_single, tasks[0].run)
    assert read_metrics(tasks[0].run) != read_metrics(tasks[1].run)


def test_the_guides_commands(slurm: Slurm, project: Workspace) -> None:
    guide = (project.path / "docs/guide.md").read_text("utf-8").partition("\n## Slurm\n")[2]
    commands = guide.split("```")[1].partition("\n")[2]
    few_steps = {"MY_MODEL__TRAINER__MAX_STEPS": "2", "MY_MODEL__TRAINER__DEVICE": "cpu"}
    done = project.run("bash", "-euc", commands, env=slurm.env | few_steps)
    *submitted, dry = done.stdout.splitlines()
    assert dry.startswith("srun ")
    jobs = [line.removeprefix("Submitted batch job ") for line in submitted]
    slurm.wait_until(lambda: not slurm.control("squeue", "--noheader"), "all jobs have ended", 300)
    states = [re.findall(r"JobState=(\w+)", slurm.control("scontrol", "show", "job", job)) for job in jobs]
    assert states == [["COMPLETED"], ["COMPLETED"], ["COMPLETED"] * 3]
    assert "world size 4" in Job(slurm, project, jobs[1]).output


@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        ("--nodes 2", "--trainer.global-batch-size 63", "63 does not divide by 2 processes"),
        ("--nodes 2", "--trainer.max-epoch 3", "did you mean --trainer.max-epochs?"),
        ("--nodes 1", "--nproc-per-node 2", "more than the job's GPUs on a node, 1"),
    ],
)
def test_wrong_settings_are_one_line(slurm: Slurm, project: Workspace, options: str, arguments: str, said: str) -> None:
    before = snapshot(project.path / "runs")
    job = submit(slurm, project, options, *arguments.split())
    assert job.wait_for_end() == "FAILED"
    assert job.ask("ExitCode") == "2:0"
    (line,) = job.output.splitlines()
    assert line.startswith("error: ") and said in line
    assert snapshot(project.path / "runs") == before


def test_it_must_be_submitted_from_the_project(slurm: Slurm, project: Workspace, tmp_path: Path) -> None:
    words = ("sbatch", "--parsable", "--chdir", tmp_path, "--output", project.path / "slurm-%j.out", SCRIPT)
    job = Job(slurm, project, project.run(*words, env=slurm.env).stdout.strip())
    assert job.wait_for_end() == "FAILED"
    assert job.output == f"error: submit it from the project's folder: sbatch {SCRIPT}\n"


def bash(project: Workspace, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """The script outside of Slurm, with other programs on the path."""
    env = {"PATH": path} if path else {}
    return project.run("/bin/bash", SCRIPT, *arguments, check=False, env=env)


@IN_BOTH
def test_help_and_a_dry_run_need_no_slurm(project: Workspace) -> None:
    done = bash(project, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Usage: sbatch")
    before = snapshot(project.path / "runs")
    done = bash(project, "--trainer.max-epochs", "3", "--dry-run", "--nproc-per-node", "2")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith("srun ") and " --nproc-per-node 2 " in done.stdout
    command = {"pytorch": "-m my_model train --run-name slurm-JOB", "tensorflow": "--run-name slurm-JOB --"}
    end = f"{command[project.answers['framework']]} --trainer.max-epochs 3"
    assert done.stdout.rstrip().endswith(end)
    assert snapshot(project.path / "runs") == before


def test_outside_of_slurm_it_is_one_line(project: Workspace, tmp_path: Path) -> None:
    for tool in ("cat", "dirname", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    done = bash(project, path=str(tmp_path))
    assert done.returncode == 2 and "no Slurm here" in error_line(done)
    (tmp_path / "sbatch").symlink_to("/bin/true")
    done = bash(project, path=str(tmp_path))
    assert done.returncode == 2 and "submit it: sbatch" in error_line(done)
    for wrong in (["--nproc-per-node", "two"], ["--run-name"], ["--seed", "x"]):
        done = bash(project, "--dry-run", *wrong)
        assert done.returncode == 2 and wrong[0] in error_line(done)


def test_a_missing_environment_is_one_line(project: Workspace, tmp_path: Path) -> None:
    bare = Workspace(
        shutil.copytree(project.path, tmp_path / "project", ignore=shutil.ignore_patterns("runs", ".venv"))
    )
    done = bare.run("env", "-u", "PYTHONPATH", "/bin/bash", SCRIPT, "--dry-run", check=False)
    assert done.returncode == 2 and "make setup" in error_line(done)
