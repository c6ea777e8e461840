"""What VS Code starts from .vscode: each launch configuration under the debugger, and the tasks."""

import ast
import fnmatch
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from debugger import Debugger
from peer import Message, server
from support import ROOT
from workspace import EXHAUSTIVE, FIRST_FRAMEWORK, FRAMEWORKS, SMALL, Workspace, snapshot, workspace

LOOK = """from PACKAGE.settings import ModelSettings


def look(limit: int) -> bool:
    return ModelSettings().width > limit


look(3)
"""
OURS = re.compile(r"runs/|\.(mypy|pytest|ruff)_cache/")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A project with one run, some pictures and a script of its owner's, in git."""
    project = workspace(tmp_path_factory.mktemp("vscode") / "project", request.param)
    project.train("first", *SMALL, "--trainer.max-steps", "1")
    project.run(project.python, ROOT / "tests/write_digits.py", "pictures")
    (project.path / "look.py").write_text(LOOK.replace("PACKAGE", project.package))
    project.run("git", "init", "--quiet")
    return project


def read(project: Workspace, name: str, open_file: str = "") -> dict[str, Any]:
    """A file of .vscode, with VS Code's variables filled in."""
    text = (project.path / ".vscode" / name).read_text("utf-8")
    variables = {
        "workspaceFolder": project.path,
        "command:python.interpreterPath": project.python,
        "file": project.path / open_file,
        "input:path": "pictures",
    }
    for variable, value in variables.items():
        text = text.replace(f"${{{variable}}}", str(value))
    assert "${" not in text
    content: dict[str, Any] = json.loads(text)
    return content


@dataclass(frozen=True)
class Stop:
    """A breakpoint in a function's first line, where a variable is to be seen."""

    file: str
    function: str
    variable: str
    open_file: str = ""
    processes: int = 0  # that are started, and stop there

    def place(self, project: Workspace) -> tuple[Path, int]:
        path = project.path / self.file.replace("PACKAGE", project.package)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == self.function:
                return path, node.body[1 if ast.get_docstring(node) else 0].lineno
        raise AssertionError(f"{path}: no {self.function}")


DDP = "Train in two processes (DDP)"
MULTIWORKER = "Train in two processes (MultiWorkerMirroredStrategy)"
TRAIN_STEP = Stop("src/PACKAGE/train.py", "train_step", "batches")
STOPS = {
    "Train": TRAIN_STEP,
    "Train one step": TRAIN_STEP,
    DDP: Stop("src/PACKAGE/train.py", "train_step", "batches", processes=2),
    MULTIWORKER: TRAIN_STEP,
    "Check my four files": Stop("src/PACKAGE/task.py", "compute_loss", "batch"),
    "Evaluate the newest run": Stop("src/PACKAGE/evaluate.py", "compute_metrics", "sums"),
    "Current test file": Stop("tests/test_model.py", "test_the_contract_holds", "config", "tests/test_model.py"),
    "Current file": Stop("look.py", "look", "limit", "look.py"),
}


ONLY_WITH = {DDP: "pytorch", MULTIWORKER: "tensorflow"}
BRIEF = {"pytorch": STOPS.keys() - {"Train one step"}, "tensorflow": {"Train"}}
CASES = [
    (framework, name)
    for framework in FRAMEWORKS
    for name in STOPS
    if ONLY_WITH.get(name, framework) == framework and (EXHAUSTIVE or name in BRIEF[framework])
]


@pytest.mark.parametrize(("project", "name"), CASES, indirect=["project"], scope="module")
def test_the_debugger_stops_at_a_breakpoint(project: Workspace, name: str) -> None:
    stop = STOPS[name]
    file, line = stop.place(project)
    content = read(project, "launch.json", stop.open_file)
    started = {each["name"]: each["configurations"] for each in content.get("compounds", [])}.get(name, [name])
    with ExitStack() as stack:
        debuggers = []
        for configuration in (each for each in content["configurations"] if each["name"] in started):
            # As the editor's extension does: its own debugpy, the project's interpreter, and the folder to run in.
            usual = {"python": [str(project.python)], "cwd": str(project.path), "justMyCode": True}
            command = [sys.executable, "-m", "debugpy.adapter"]
            debugger = Debugger(*stack.enter_context(server(command, project.path, project.env)), project.env)
            debugger.begin("launch", usual | configuration, file, line)
            debuggers.append(debugger)
        assert len(debuggers) == len(started)
        children = [debuggers[0].attach(file, line) for _ in range(stop.processes)]
        for session in children or debuggers:
            frame = session.wait_for_breakpoint()
            assert (frame["name"], frame["line"], frame["source"]["path"]) == (stop.function, line, str(file))
            assert stop.variable in session.locals(frame)
        for debugger in debuggers:
            debugger.request("disconnect", terminateDebuggee=True)
            assert debugger.terminal
            debugger.terminal.communicate(timeout=120)  # which ends when no process is left that could write
            assert debugger.terminal.returncode != 0, "stopped, not finished"


def test_every_launch_configuration_is_tested(project: Workspace) -> None:
    served = {"Demo"}  # until a browser comes: tests/engines
    content, framework = read(project, "launch.json"), project.answers["framework"]
    shown = [each for each in content["configurations"] if "presentation" not in each] + content.get("compounds", [])
    tested = {name for name in STOPS if ONLY_WITH.get(name, framework) == framework}
    assert {each["name"] for each in shown} == tested | served


def processes(tasks: dict[str, Message], label: str) -> Iterator[list[str]]:
    """What a task runs, after what it depends on."""
    first = tasks[label].get("dependsOn", [])
    for other in [first] if isinstance(first, str) else first:
        yield from processes(tasks, other)
    if "command" in tasks[label]:
        yield [tasks[label]["command"], *tasks[label]["args"]]


# What a task adds: a file, or nothing.
TASKS = {
    "train": "runs/baseline/2*/checkpoints/last.*",
    "resume": "",
    "evaluate": "runs/baseline/*/evaluation/test/metrics.json",
    "export": "runs/baseline/*/model.onnx",
    "runs": "",
    "predict": "",
    "check": "",
    "hardware": "",
    "hooks": ".git/hooks/pre-commit",
    "schema": "",
    "format": "",
}
SLOW = {"lint": "", "test": ""}  # what they run, other tests run too
# Makes the environment; takes a release of the template; takes minutes; run until they are stopped.
NOT_RUN = {"setup", "update", "search", "demo", "tensorboard"}


@FIRST_FRAMEWORK
def test_tasks_do_what_they_say(project: Workspace) -> None:
    tasks = {task["label"]: task for task in read(project, "tasks.json")["tasks"]}
    assert {label for label, task in tasks.items() if not task.get("hide")} == {*TASKS, *SLOW, *NOT_RUN}
    short = {f"{project.package.upper()}__TRAINER__MAX_STEPS": "1"}
    for label, adds in (TASKS | SLOW if EXHAUSTIVE else TASKS).items():
        before = snapshot(project.path)
        for command in processes(tasks, label):
            done = project.run(*command, env=short if label == "train" else None)
            print(done.stdout)
        after = snapshot(project.path)
        new = after.keys() - before.keys()
        assert not adds or fnmatch.filter(new, adds), label
        touched = {name for name, _ in before.items() ^ after.items() if not OURS.match(name)}
        assert not touched - set(fnmatch.filter(new, adds)), label


def test_every_module_is_there(project: Workspace) -> None:
    """What tasks and launch configurations start by `-m`, those too that are not run here."""
    launches = read(project, "launch.json")["configurations"]
    args = [task["args"] for task in read(project, "tasks.json")["tasks"] if "args" in task]
    modules = {words[1] for words in args if words[0] == "-m"} | {
        each["module"] for each in launches if "module" in each
    }
    find = "import sys, importlib.util as u; print([m for m in sys.argv[1:] if not u.find_spec(m)])"
    assert project.run(project.python, "-c", find, *sorted(modules)).stdout == "[]\n"
