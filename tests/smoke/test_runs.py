"""`runs` shows all runs side by side, from their directories alone."""

import json
import os
import shutil
from pathlib import Path

import pytest

from workspace import SMALL, Workspace, error_line, last_step, read_accuracy, read_metrics, wait_until, workspace

ONE_EPOCH = (*SMALL, "--trainer.max-epochs", "1", "--tracking.trackers", "[]")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Three runs: one finished, one measured, one killed."""
    made = workspace(tmp_path_factory.mktemp("runs") / "project")
    made.train("plain", *ONE_EPOCH)
    measured = made.train("measured", *ONE_EPOCH, "--trainer.max-epochs", "3", "--seed", "1")
    made.cli("evaluate", measured)
    with made.started_cli("train", "--run-name", "killed", *ONE_EPOCH, "--trainer.max-epochs", "500") as process:
        wait_until(lambda: last_step(made.run_dir("killed")) > 0, process, "it trains")
        process.kill()
        process.wait()
    return made


def listed(project: Workspace, *arguments: str) -> list[str]:
    lines = project.cli("runs", *arguments, "--format", "jsonl").stdout.splitlines()
    return [json.loads(line)["run"] for line in lines]


def test_a_table_has_what_was_reached_and_the_settings_that_differ(project: Workspace) -> None:
    head, *rows = (line.split() for line in project.cli("runs").stdout.splitlines())
    assert head[:3] == ["run", "status", "steps"] and {"val/loss", "test/accuracy", "seed", "max_epochs"} < {*head}
    assert "width" not in head, "all have the same"
    assert [(row[0], row[1]) for row in rows] == [
        ("baseline/killed", "killed"),
        ("baseline/measured", "finished"),
        ("baseline/plain", "finished"),
    ]
    assert dict(zip(head, rows[1], strict=True))["max_epochs"] == "3"


def test_metrics_are_those_of_the_best_checkpoint(project: Workspace) -> None:
    run = project.run_dir("measured")
    line = json.loads(project.cli("runs", run, "--format", "jsonl").stdout)
    losses = {
        step: value for (step, _, split, name), value in read_metrics(run).items() if (split, name) == ("val", "loss")
    }
    best = min(losses, key=lambda step: losses[step])
    assert line["val/loss"] == losses[best]
    assert line["val/accuracy"] in [
        v for k, v in read_metrics(run).items() if k[0] == best and k[2:] == ("val", "accuracy")
    ]
    assert line["test/accuracy"] == read_accuracy(run)
    assert line["path"] == str(run)


def test_a_run_is_not_trained_by_a_process_that_got_its_pid(project: Workspace, tmp_path: Path) -> None:
    run = project.run_dir("killed")
    left = json.loads((run / "status.json").read_text("utf-8"))
    reused = Path(shutil.copytree(run, tmp_path / "reused"))
    for began, status in (("1", "killed"), (left["began"], "killed"), (process_began(), "running")):
        (reused / "status.json").write_text(json.dumps(left | {"pid": os.getpid(), "began": began}), "utf-8")
        assert json.loads(project.cli("runs", reused, "--format", "jsonl").stdout)["status"] == status


def process_began() -> str:
    return Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19]


def test_a_score_that_is_no_number_is_not_the_best(project: Workspace, tmp_path: Path) -> None:
    run = Path(shutil.copytree(project.run_dir("measured"), tmp_path / "nan"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    next(row for row in rows if (row["split"], row["name"]) == ("val", "loss"))["value"] = float("nan")
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    kept, damaged = (
        json.loads(project.cli("runs", each, "--format", "jsonl").stdout)["val/loss"]
        for each in (project.run_dir("measured"), run)
    )
    assert damaged == kept


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--where", "status=finished"), ["measured", "plain"]),
        (("--where", "status=finished", "--where", "seed>0"), ["measured"]),
        (("--where", "trainer.max_epochs<=3", "--sort", "trainer.max_epochs"), ["plain", "measured"]),
        (("--sort=-trainer.max_epochs",), ["killed", "measured", "plain"]),
        (("--sort", "test/accuracy", "--limit", "1"), ["measured"]),
        (("--where", "test/accuracy>1"), []),
        (("--where", "optimizer.learning_rate=5e-3", "--limit", "1"), ["killed"]),
        (("--where", "status=[a*"), []),
    ],
    ids=" ".join,
)
def test_runs_are_chosen_and_sorted(project: Workspace, arguments: tuple[str, ...], names: list[str]) -> None:
    assert listed(project, *arguments) == names


def test_curves_are_drawn(project: Workspace, tmp_path: Path) -> None:
    done = project.cli("runs", "--plot", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert done.stdout == f"wrote {tmp_path}/curves.png\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--where", "seed"), "--where seed: write KEY=VALUE"),
        (("--where", "sed=1"), "sed: no run has it; did you mean seed?"),
        (("--where", "status>3"), "status is 'killed'"),
        (("--sort", "val/los"), "did you mean val/loss?"),
        (("nowhere",), "nowhere: no such run directory"),
        (("--plot", "nowhere/curves.png"), "--plot nowhere/curves.png: "),
        (("--plot", "curves.xyz"), "--plot curves.xyz: Format 'xyz' is not supported"),
    ],
)
def test_a_mistake_is_one_line(project: Workspace, arguments: tuple[str, ...], says: str) -> None:
    done = project.cli("runs", *arguments, check=False)
    assert done.returncode == 2
    assert says in error_line(done)


def test_no_framework_is_needed(project: Workspace) -> None:
    code = (
        "import sys; from my_model.cli import main; main(['runs']); print([*{'torch', 'matplotlib'} & {*sys.modules}])"
    )
    assert project.run(project.python, "-c", code).stdout.splitlines()[-1] == "[]"
