"""Faults that once hid in training code are planted, one at a time; the checks of the other files see each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from distribution import TWENTY_STEPS, distribution_problems
from test_distributed import launch
from test_order import order_problems, record_reads
from test_resume import STEPS_PER_EPOCH, THREE_EPOCHS, resume_problems, train_with_kills
from workspace import EXHAUSTIVE, IN_DEPTH, Workspace, workspace


def resumed(project: Workspace) -> list[str]:
    whole = project.train("whole", *THREE_EPOCHS)
    return resume_problems(project, whole, train_with_kills(project, "killed", (STEPS_PER_EPOCH + 15,), *THREE_EPOCHS))


def distributed(project: Workspace) -> list[str]:
    single = project.train("single", *TWENTY_STEPS)
    launch(project, "two", *TWENTY_STEPS)
    return distribution_problems(project, single, project.run_dir("two"))


def sharded(project: Workspace) -> list[str]:
    single = project.train("single", *TWENTY_STEPS)
    for steps in ("12", "20"):
        launch(project, "two", *TWENTY_STEPS[:-1], steps, "--trainer.strategy", "fsdp")
    return distribution_problems(project, single, project.run_dir("two"))


def ordered(project: Workspace) -> list[str]:
    return order_problems(record_reads(project))


@dataclass(frozen=True)
class Fault:
    """A text in one file of the package, what stands there instead, and who must notice."""

    name: str
    file: str
    text: str
    instead: str
    check: Callable[[Workspace], list[str]]
    own_test: str = ""
    always: bool = True
    framework: str = "pytorch"

    def plant(self, project: Workspace) -> None:
        path = project.path / "src" / project.package / self.file
        code = path.read_text("utf-8")
        assert code.count(self.text) == 1, f"{self.file} holds {self.text!r} {code.count(self.text)} times"
        path.write_text(code.replace(self.text, self.instead), "utf-8")


FAULTS = [
    Fault(
        "optimizer not restored",
        "checkpoint.py",
        '    optimizer.load_state_dict(content["optimizer"])\n',
        "",
        resumed,
        "test_training.py",
    ),
    Fault(
        "optimizer not restored (TensorFlow)",
        "checkpoint.py",
        '    assign(path, optimizer.variables, content["optimizer"], ',
        '    lambda: (path, optimizer.variables, content["optimizer"], ',
        resumed,
        "test_training.py",
        framework="tensorflow",
        always=False,
    ),
    Fault("zero_grad dropped", "train.py", "    loop.optimizer.zero_grad()\n", "", resumed, "test_training.py", False),
    Fault(
        "model not wrapped",
        "distributed.py",
        "return DistributedDataParallel(model, ",
        "return model; DistributedDataParallel(model, ",
        distributed,
        "test_distributed.py",
        always=False,
    ),
    Fault(
        "gradients averaged twice (FSDP2)",
        "train.py",
        "(runtime.data_size / size)",
        "(1 / size)",
        sharded,
        always=False,
    ),
    Fault(
        "shards in the wrong order (FSDP2)",
        "checkpoint.py",
        "for part in (first, *others)",
        "for part in (*others, first)",
        sharded,
        always=False,
    ),
    Fault(
        "gradients summed rather than averaged",
        "train.py",
        "(runtime.data_size / size)",
        "(runtime.data_size**2 / size)",
        distributed,
        "test_distributed.py",
    ),
    Fault(
        "ranks that see the same data",
        "train.py",
        "pieces, runtime.data_rank, runtime.data_size)",
        "pieces, 0, runtime.data_size)",
        distributed,
        "test_distributed.py",
    ),
    Fault(
        "epoch dropped from the order", "train.py", "loop.config.seed, state.epoch)", "loop.config.seed, 0)", ordered
    ),
    Fault(
        "epoch dropped from the augmentation",
        "train.py",
        "(loop.config.seed, loop.state.epoch)",
        "(loop.config.seed, 0)",
        ordered,
    ),
    Fault(
        "position in the epoch dropped",
        "train.py",
        "range(state.step_in_epoch, steps)",
        "range(0, steps)",
        resumed,
        always=False,
    ),
    Fault(
        "metrics not cut",
        "tracking/__init__.py",
        "            _cut(file, step)\n",
        "            pass\n",
        resumed,
        always=False,
    ),
]


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.always or EXHAUSTIVE], ids=lambda fault: fault.name)
def test_a_planted_fault_is_seen(fault: Fault, tmp_path: Path) -> None:
    project = workspace(tmp_path / "project", fault.framework)
    fault.plant(project)
    problems = fault.check(project)
    assert problems
    print(f"{len(problems)} problems, such as: {problems[0]}")


@IN_DEPTH
@pytest.mark.parametrize("fault", [f for f in FAULTS if f.own_test], ids=lambda fault: fault.name)
def test_a_projects_own_tests_see_it_too(fault: Fault, tmp_path: Path) -> None:
    project = workspace(tmp_path / "project", fault.framework)
    fault.plant(project)
    done = project.run(project.python, "-m", "pytest", "-q", f"tests/{fault.own_test}", check=False)
    assert done.returncode == 1, done.stdout
    assert "AssertionError" in done.stdout
