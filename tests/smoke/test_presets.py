"""Each preset's project, set up as its README says: clean, tested, and from training to a prediction."""

import json
import os
import shutil
from pathlib import Path
from statistics import mean

import pytest

from support import PRESETS, ROOT, Project, render
from workspace import EXHAUSTIVE, FRAMEWORKS, IN_DEPTH, ONE_THREAD, read_accuracy, workspace

FAST = ONE_THREAD | {"PYTHONDONTWRITEBYTECODE": ""}
HEAVY = (
    "torch",
    "tensorflow",
    "keras",
    "onnxruntime",
    "onnx",
    "sklearn",
    "scipy",
    "matplotlib",
    "tensorboard",
    "pytest",
)


# The least and the most, once in each framework; all in the exhaustive form.
EVERY = [*PRESETS, *(f"{preset}-tensorflow" for preset in PRESETS)]
CHOSEN = EVERY if EXHAUSTIVE else ["solo", "large-org-tensorflow"]
# What other tests run too, with a shared environment, is for one of them.
SOLO = pytest.mark.parametrize("project", CHOSEN if EXHAUSTIVE else CHOSEN[:1], indirect=True)


@pytest.fixture(scope="module", params=CHOSEN)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A preset's project, committed and with an environment of its own."""
    preset = request.param.removesuffix("-tensorflow")
    framework = "pytorch" if preset == request.param else "tensorflow"
    project = render(tmp_path_factory.mktemp(request.param) / "project", preset=preset, framework=framework)
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "--quiet"), ("add", "--all"), (*identity, "commit", "--quiet", "--message", "Begin")):
        project.run("git", *command)
    project.make("setup", timeout=1800, env=FAST)
    return project


def changed_files(project: Project) -> str:
    return project.run("git", "status", "--porcelain").stdout


def newest_run(project: Project) -> Path:
    return max((project.path / "runs").glob("*/*"), key=lambda run: run.stat().st_mtime)


def count_right(lines: str) -> tuple[int, int]:
    """How many of the files that write_digits.py named after their label were predicted so, and of how many."""
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return sum(Path(row["file"]).name.split("-")[1] == row["label"] for row in rows), len(rows)


@IN_DEPTH  # each change checks the same by the hooks, in tests/render
def test_style_and_types(project: Project) -> None:
    project.make("lint", env=FAST)


@IN_DEPTH
def test_hooks_pass_and_change_nothing(project: Project) -> None:
    done = project.run(project.python, "-m", "pre_commit", "run", "--all-files", env=FAST)
    assert done.stdout.count("Passed") >= 5, done.stdout
    assert "Skipped" not in done.stdout
    assert not changed_files(project)


@SOLO  # a project with TensorFlow runs its own after updates
def test_own_tests(project: Project) -> None:
    done = project.make("test", env=FAST, timeout=900)
    print(done.stdout[-3000:])
    assert " passed" in done.stdout and " skipped" not in done.stdout
    assert not changed_files(project), "tests leave nothing behind"


def test_from_training_to_prediction(project: Project) -> None:
    """Solo trains the whole baseline; what it reaches over five seeds is asserted in the exhaustive form."""
    whole = project.answers["preset"] == "solo"
    done = project.make("train", *(() if whole else ("ARGS=--trainer.max-epochs 3",)), env=FAST, timeout=900)
    run = newest_run(project)
    assert str(run.relative_to(project.path)) in done.stdout
    environment = json.loads((run / "environment.json").read_text("utf-8"))
    assert environment["commit"] == project.run("git", "rev-parse", "HEAD").stdout.strip()
    assert environment["dirty"] is False
    assert list((run / "tensorboard").iterdir())
    done = project.make("evaluate", env=FAST)
    assert read_accuracy(run) >= (0.97 if whole else 0.3)
    assert f"{read_accuracy(run):.4f}" in done.stdout
    for name, drawn in (("confusion_matrix", 5_000), ("mistakes", 10_000)):
        png = (run / f"evaluation/test/{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) > drawn, "empty axes have fewer bytes"
    project.make("export", env=FAST)
    project.run(project.python, ROOT / "tests/write_digits.py", "digits")
    done = project.make("predict", "ARGS=digits --format jsonl", env=FAST)
    right, count = count_right(done.stdout)
    assert count == 10
    assert right >= (9 if whole else 2)
    table = project.make("predict", "ARGS=digits", env=FAST).stdout.splitlines()
    assert len([line for line in table if line.startswith("digits/") and line.endswith("%")]) == 10
    shutil.rmtree(project.path / "digits")
    assert not changed_files(project), "runs are not for git"


def test_smoke_command(project: Project) -> None:
    if project.answers["preset"] == "solo":
        assert project.make("smoke", check=False).returncode == 2
        return
    project.make("smoke", env=FAST)
    assert newest_run(project).parent.name == "debug-one-step"
    assert (newest_run(project) / "model.onnx").is_file()


def test_help_is_light(project: Project) -> None:
    listing = project.cli("--help", env=FAST).stdout
    commands = [line.split()[0] for line in listing.splitlines() if line.startswith("  ")]
    assert {"train", "evaluate", "export", "predict", "check", "hardware"} <= set(commands)
    code = """
import json, runpy, sys
package, heavy, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_module(package, run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in heavy.split() if name in sys.modules]))
"""
    for arguments in (["--help"], *([command, "--help"] for command in commands)):
        done = project.run(project.python, "-c", code, project.package, " ".join(HEAVY), *arguments, env=FAST)
        *text, loaded = done.stdout.splitlines()
        assert json.loads(loaded) == [], arguments
        assert text[0].startswith("usage: python -m ")
        assert arguments == ["--help"] or arguments[0] in text[0]


def test_prediction_without_the_framework(project: Project, tmp_path: Path) -> None:
    """With the base dependencies alone, as the image for serving has them."""
    uv = shutil.which("uv") or project.path / ".venv/bin/uv"
    project.run(uv, "venv", "--quiet", tmp_path / "venv")
    install = (uv, "pip", "install", "--quiet", "--python", tmp_path / "venv", "--constraints", "constraints.txt")
    project.run(*install, "--editable", ".")
    python = tmp_path / "venv/bin/python"
    for name in ("torch", "tensorflow", "keras", "onnx", "sklearn", "matplotlib"):
        assert project.run(python, "-c", f"import {name}", check=False).returncode == 1
    project.run(project.python, ROOT / "tests/write_digits.py", tmp_path / "digits")
    done = project.run(python, "-m", project.package, "predict", tmp_path / "digits", "--format", "jsonl", env=FAST)
    assert done.stdout == project.cli("predict", tmp_path / "digits", "--format", "jsonl", env=FAST).stdout
    assert count_right(done.stdout)[1] == 10
    done = project.run(python, "-m", project.package, "train", check=False, env=FAST)
    assert done.returncode != 0


@IN_DEPTH
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_baseline_over_five_seeds(framework: str, tmp_path: Path) -> None:
    project = workspace(tmp_path / "project", framework)
    accuracies = []
    for seed in range(5):
        run = project.train(f"seed-{seed}", "--seed", str(seed), timeout=900)
        project.cli("evaluate", run)
        accuracies.append(read_accuracy(run))
        print(f"seed {seed}: {accuracies[-1]:.4f}")
    assert mean(accuracies) >= 0.975, accuracies


def test_make_without_a_target_lists_every_command(project: Project) -> None:
    listing = project.run("make", "--no-print-directory").stdout.splitlines()
    targets = {line.split()[0] for line in listing}
    assert {"setup", "train", "evaluate", "export", "predict", "test", "lint"} <= targets
    assert all(len(line.split(maxsplit=1)) == 2 for line in listing)
    assert not changed_files(project)
    if project.answers["framework"] == "pytorch":
        assert os.access(project.path / "launch/ddp.sh", os.X_OK)
