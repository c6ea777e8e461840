"""A run that was stopped, in whatever way, ends where an uninterrupted one ends."""

import json
import os
import random
import shlex
import signal
from pathlib import Path

import pytest

from workspace import (
    EXHAUSTIVE,
    FIRST_FRAMEWORK,
    FRAMEWORKS,
    SMALL,
    Workspace,
    differences,
    error_line,
    last_step,
    read_metrics,
    snapshot,
    status,
    wait_until,
    workspace,
)

THREE_EPOCHS = (*SMALL, "--trainer.max-epochs", "3", "--trainer.checkpoint-every", "10")
STEPS_PER_EPOCH, STEPS = 35, 105
SEED = int(os.environ.get("MLSTACK_SEED", "2"))


def kill_points() -> list[tuple[int, ...]]:
    """Steps at which a run is killed: before the first checkpoint, twice within epochs; then anywhere."""
    draw = random.Random(SEED)
    first = draw.randrange(1, 8)
    twice = (draw.randrange(12, STEPS_PER_EPOCH), draw.randrange(2 * STEPS_PER_EPOCH, STEPS - 10))
    more = [(draw.randrange(1, STEPS - 5),) for _ in range(8 if EXHAUSTIVE else 0)]
    return [(first,), twice, *more]


def train_with_kills(project: Workspace, name: str, steps: tuple[int, ...], *arguments: str) -> Path:
    """Train, kill the process each time it has logged one of the steps, and resume to the end."""
    run = project.run_dir(name)
    for number, step in enumerate(steps):
        begin = ("--resume", str(run)) if number else ("--run-name", name)
        with project.started_cli("train", *begin, *arguments) as process:
            wait_until(lambda step=step: last_step(run) >= step, process, f"step {step}")  # type: ignore[misc]
            process.kill()
            process.wait()
        print(f"killed after step {last_step(run)}, MLSTACK_SEED={SEED}")
        assert status(run) == "running"
    project.cli("train", "--resume", run)
    return run


def resume_problems(project: Workspace, reference: Path, resumed: Path) -> list[str]:
    """What tells a resumed run from the uninterrupted one."""
    apart = differences(project, reference, resumed)
    problems = [f"{part} differs by {by}" for part, by in apart.items() if by]
    expected, got = read_metrics(reference), read_metrics(resumed)
    problems += [
        f"metric {key}: {expected.get(key)}, {got.get(key)}"
        for key in expected | got
        if expected.get(key) != got.get(key)
    ]
    if status(resumed) != "finished":
        problems.append(f"status: {status(resumed)}")
    return problems


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("resume") / "project", request.param)


@pytest.fixture(scope="module")
def uninterrupted(project: Workspace) -> Path:
    run = project.train("uninterrupted", *THREE_EPOCHS)
    assert last_step(run) == STEPS
    return run


@pytest.mark.parametrize("steps", kill_points(), ids=lambda steps: "then".join(map(str, steps)))
def test_killed_and_resumed(project: Workspace, uninterrupted: Path, steps: tuple[int, ...]) -> None:
    resumed = train_with_kills(project, f"killed-{'-'.join(map(str, steps))}", steps, *THREE_EPOCHS)
    assert not resume_problems(project, uninterrupted, resumed)


SIGNALS = [signal.SIGINT, *([signal.SIGTERM] if EXHAUSTIVE else [])]


@FIRST_FRAMEWORK
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: signal.Signals(number).name)
def test_interrupted_run_says_how_to_go_on(project: Workspace, uninterrupted: Path, number: signal.Signals) -> None:
    run = project.run_dir(f"stopped-{number.name}")
    with project.started_cli("train", "--run-name", run.name, *THREE_EPOCHS) as process:
        wait_until(lambda: last_step(run) >= STEPS_PER_EPOCH + 3, process, "the second epoch")
        process.send_signal(number)
        assert process.wait(60) == 130
    assert status(run) == "interrupted"
    *before, line = (project.path / "err.txt").read_text("utf-8").splitlines()
    assert not [text for text in before if text.startswith("error") or "Traceback" in text]
    assert line.startswith("error: interrupted, and saved")
    command = shlex.split(line[line.index("python -m") :])
    assert command[:4] == ["python", "-m", project.package, "train"]
    project.cli(*command[3:])
    assert not resume_problems(project, uninterrupted, run)


@FIRST_FRAMEWORK
def test_a_run_stopped_at_the_last_step_of_an_epoch_goes_on(project: Workspace, uninterrupted: Path) -> None:
    words = (project.package, str(STEPS_PER_EPOCH), "train", "--run-name", "epoch", *THREE_EPOCHS)
    assert project.script("stop_at_step.py", *words, check=False).returncode == 130
    run = project.run_dir("epoch")
    assert last_step(run) == STEPS_PER_EPOCH
    project.cli("train", "--resume", run)
    assert not resume_problems(project, uninterrupted, run)


@FIRST_FRAMEWORK
def test_runs_are_reproducible_and_seeds_matter(project: Workspace, uninterrupted: Path) -> None:
    again = project.train("again", *THREE_EPOCHS)
    assert not resume_problems(project, uninterrupted, again)
    other = project.train("other", *THREE_EPOCHS, "--seed", "1")
    assert len(resume_problems(project, uninterrupted, other)) > STEPS


def test_accumulated_gradients_are_those_of_the_whole_batch(project: Workspace) -> None:
    # Too gentle for a difference in the last bit to grow, where it turns a ReLU on or off.
    sgd = (*SMALL, "--optimizer.name", "sgd", "--optimizer.learning-rate", "0.005", "--trainer.max-steps", "20")
    whole = project.train("whole", *sgd)
    parts = project.train("parts", *sgd, "--trainer.accumulation-steps", "4")
    assert differences(project, whole, parts)["last model"] < 1e-5
    expected, got = read_metrics(whole), read_metrics(parts)
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-5)


@FIRST_FRAMEWORK
@pytest.mark.parametrize(
    ("flag", "value", "key"),
    [("--seed", "1", "seed"), ("--data.source", "image-folder", "data"), ("--model.width", "16", "model")],
    ids=["seed", "data", "model"],
)
def test_a_resumed_run_keeps_its_seed_data_and_model(
    project: Workspace, uninterrupted: Path, flag: str, value: str, key: str
) -> None:
    before = snapshot(uninterrupted)
    more = ("--data.folder", "src") if key == "data" else ()
    done = project.cli("train", "--resume", uninterrupted, flag, value, *more, check=False)
    assert done.returncode == 2
    assert key in error_line(done) and "cannot change" in error_line(done)
    assert snapshot(uninterrupted) == before


@FIRST_FRAMEWORK
def test_the_newest_run_goes_on_where_it_is_given_more_epochs(project: Workspace, uninterrupted: Path) -> None:
    before = snapshot(uninterrupted)
    run = project.train("newest", *SMALL, "--trainer.max-epochs", "1")
    project.cli("train", "--resume")
    assert last_step(run) == STEPS_PER_EPOCH
    project.cli("train", "--resume", "--trainer.max-epochs", "2")
    assert last_step(run) == 2 * STEPS_PER_EPOCH
    assert status(run) == "finished"
    assert snapshot(uninterrupted) == before


@FIRST_FRAMEWORK
def test_early_stopping(project: Workspace) -> None:
    nothing_learned = ("--optimizer.name", "sgd", "--optimizer.learning-rate", "1e-20")
    run = project.train("patient", *SMALL, *nothing_learned, "--trainer.max-epochs", "20", "--trainer.patience", "2")
    assert last_step(run) == 3 * STEPS_PER_EPOCH
    assert status(run) == "finished"


@FIRST_FRAMEWORK
def test_debug_experiments(project: Workspace) -> None:
    def train(experiment: str) -> Path:
        project.cli("train", "--experiment", f"configs/experiment/{experiment}.yaml", "--run-name", "debug")
        run = project.run_dir("debug", experiment)
        assert status(run) == "finished"
        return run

    assert last_step(train("debug-one-step")) == 1
    losses = [
        value
        for (_, _, split, name), value in read_metrics(train("debug-overfit")).items()
        if (split, name) == ("train", "loss")
    ]
    assert losses[-1] < 0.1 < 1 < losses[0]
    events = json.loads((train("debug-profile") / "trace.json").read_text("utf-8"))["traceEvents"]
    assert any("conv" in str(event.get("name")) for event in events)
