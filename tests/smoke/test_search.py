"""`search` runs real trials, loses none of them, and its best experiment is as good as it says."""

import json
import os
import shlex
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from support import ROOT, WIDE
from workspace import (
    EXHAUSTIVE,
    FIRST_FRAMEWORK,
    FRAMEWORKS,
    SMALL,
    Workspace,
    error_line,
    last_step,
    read_metrics,
    status,
    wait_until,
    workspace,
)

QUICK = (*SMALL, "--trainer.max-epochs", "2", "--tracking.trackers", "[]")
EPOCHS = 40
LONG = (*SMALL, "--trainer.max-epochs", str(EPOCHS), "--tracking.trackers", "[]")
PARAMETERS = {
    "optimizer.learning_rate": {"type": "log", "low": 0.0001, "high": 0.1},
    "optimizer.weight_decay": {"type": "float", "low": 0.0, "high": 1.0},
    "model.depth": {"type": "int", "low": 1, "high": 3},
    "optimizer.name": {"type": "choice", "values": ["adamw", "sgd"]},
}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = workspace(tmp_path_factory.mktemp("search") / "project", request.param, **WIDE)
    write_space(made, "wide")
    return made


def write_space(project: Workspace, name: str, **values: Any) -> Path:
    file = project.path / f"configs/search/{name}.yaml"
    file.write_text(yaml.safe_dump({"parameters": PARAMETERS, "pruning": False, **values}), "utf-8")
    return file.relative_to(project.path)


def search(project: Workspace, name: str, *arguments: str | Path, space: str = "wide", **options: Any) -> Any:
    words = ("search", "--space", f"configs/search/{space}.yaml", "--search-name", name, *arguments)
    return project.cli(*words, **options)


def trials(project: Workspace, name: str) -> list[dict[str, Any]]:
    files = sorted((project.path / "runs" / name).glob("trial-*/trial.json"))
    found = [json.loads(file.read_text("utf-8")) for file in files]
    assert [trial["number"] for trial in found] == list(range(len(found)))
    return found


def losses(run: Path) -> list[float]:
    return [value for (_, _, split, name), value in read_metrics(run).items() if (split, name) == ("val", "loss")]


def int_range(low: int, high: int) -> dict[str, Any]:
    return {"type": "int", "low": low, "high": high}


def is_png(file: Path) -> bool:
    return file.read_bytes().startswith(b"\x89PNG")


def allowed(parameters: Mapping[str, Any]) -> bool:
    return (
        0.0001 <= parameters["optimizer.learning_rate"] <= 0.1
        and 0 <= parameters["optimizer.weight_decay"] <= 1
        and parameters["model.depth"] in (1, 2, 3)
        and parameters["optimizer.name"] in ("adamw", "sgd")
    )


# Whatever trains the trials, an engine sees their scores alone.
SEARCHES = [("pytorch", "optuna", 5), ("pytorch", "hyperopt", 2), ("pytorch", "ray", 2), ("tensorflow", "optuna", 2)]
SEARCHES += [("tensorflow", "hyperopt", 2), ("tensorflow", "ray", 2)] if EXHAUSTIVE else []


@pytest.mark.parametrize(("project", "engine", "count"), SEARCHES, indirect=["project"], scope="module")
def test_the_best_of_a_search_trains_to_the_same_score(project: Workspace, engine: str, count: int) -> None:
    folder = project.path / "runs" / engine
    said = search(project, engine, "--engine", engine, "--trials", str(count), "--workers", "2", *QUICK).stdout
    found = trials(project, engine)
    assert [trial["state"] for trial in found] == ["finished"] * count and all(
        allowed(each["parameters"]) for each in found
    )
    for trial in found:
        run = folder / f"trial-{trial['number']:04d}"
        assert trial["value"] == min(losses(run)) and [value for _, value in trial["curve"]] == losses(run)
        config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
        for key, value in trial["parameters"].items():
            section, name = key.split(".")
            assert config[section][name] == value
    best = min(found, key=lambda trial: trial["value"])
    assert said.count("(best ") == count and f"(best {best['value']:.4f}, trial {best['number']})" in said
    assert f"{count} finished" in said and "optimizer.weight_decay" in said
    assert is_png(folder / "history.png")
    assert count < 5 or is_png(folder / "importance.png")
    command = shlex.split(said.splitlines()[-1])
    assert command[-5:] == ["-m", project.package, "train", "--experiment", f"runs/{engine}/best.yaml"]
    assert " ".join(command) in (folder / "best.yaml").read_text("utf-8")
    project.run("env", *[project.python if word == "python" else word for word in command], "--run-name", "again")
    assert min(losses(project.path / f"runs/{engine}-best/again")) == best["value"]


@FIRST_FRAMEWORK
def test_a_killed_worker_is_one_failed_trial(project: Workspace) -> None:
    words = (
        "search",
        "--space",
        "configs/search/wide.yaml",
        "--search-name",
        "killed",
        "--trials",
        "3",
        "--workers",
        "2",
    )
    run = project.path / "runs/killed/trial-0001"
    with project.started_cli(*words, *QUICK) as process:
        wait_until(lambda: (run / "metrics.jsonl").is_file(), process, "trial 1 trains")
        os.kill(json.loads((run / "status.json").read_text("utf-8"))["pid"], signal.SIGKILL)
        assert process.wait(180) == 0
    found = trials(project, "killed")
    assert [trial["state"] for trial in found] == ["finished", "failed", "finished"]
    assert found[1]["error"] == "killed by SIGKILL"
    assert "1 failed" in (project.path / "out.txt").read_text("utf-8")


STOPS = [("optuna", signal.SIGKILL), ("optuna", signal.SIGINT)]
if EXHAUSTIVE:
    STOPS += [("optuna", number) for number in (signal.SIGTERM, signal.SIGHUP)]
    STOPS += [("ray", number) for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)]


@FIRST_FRAMEWORK
@pytest.mark.parametrize(("engine", "number"), STOPS)
def test_a_search_that_was_stopped_goes_on(project: Workspace, engine: str, number: signal.Signals) -> None:
    name = f"{engine}-{number.name}"
    first = ("search", "--space", "configs/search/wide.yaml", "--search-name", name, "--engine", engine)
    words = (*first, "--trials", "2", "--workers", "2")
    runs = [project.path / f"runs/{name}/trial-000{each}" for each in range(2)]
    with project.started_cli(*words, *LONG) as process:
        wait_until(lambda: all(map(last_step, runs)), process, "both train")
        process.send_signal(number)
        ended = process.wait(60)
    if number != signal.SIGKILL:
        assert ended == 130
        assert (
            (project.path / "err.txt")
            .read_text("utf-8")
            .endswith("error: interrupted, and saved; the same command goes on\n")
        )
        assert [status(run) for run in runs] == ["interrupted"] * 2
    assert [trial["state"] for trial in trials(project, name)] == ["running"] * 2
    project.cli(*words, *LONG)
    assert [trial["state"] for trial in trials(project, name)] == ["finished"] * 2
    for run in runs:
        assert len(losses(run)) == EPOCHS, "each epoch once"
        said = (run / "output.txt").read_text("utf-8")
        # A killed search leaves its trials training, and the next one waits for these, if they have not ended by then.
        trained = said.count("run runs/") - said.count("nothing is left to do")
        assert trained == (1 if number == signal.SIGKILL else 2)


@FIRST_FRAMEWORK
def test_ray_replaces_a_killed_worker(project: Workspace) -> None:
    """Its trial trains on, and another worker follows it."""
    words = ("search", "--space", "configs/search/wide.yaml", "--search-name", "replaced", "--engine", "ray")
    run = project.path / "runs/replaced/trial-0000"
    with project.started_cli(*words, "--trials", "1", *LONG) as process:
        wait_until(lambda: last_step(run) > 0, process, "trial 0 trains")
        training = json.loads((run / "status.json").read_text("utf-8"))["pid"]
        worker = int(Path(f"/proc/{training}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        assert b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
        os.kill(worker, signal.SIGKILL)
        assert process.wait(180) == 0
    assert [trial["state"] for trial in trials(project, "replaced")] == ["finished"]
    assert len(losses(run)) == EPOCHS, "each epoch once"


@FIRST_FRAMEWORK
def test_two_searches_share_the_trials(project: Workspace) -> None:
    """As on two machines that see the same folder."""
    words = ("search", "--space", "configs/search/wide.yaml", "--search-name", "shared", "--trials", "4")
    with project.started_cli(*words, *QUICK) as process:
        search(project, "shared", "--trials", "4", *QUICK)
        assert process.wait(180) == 0
    found = trials(project, "shared")
    assert [trial["state"] for trial in found] == ["finished"] * 4
    assert len({trial["owner"]["pid"] for trial in found}) == 2
    assert len({json.dumps(trial["parameters"]) for trial in found}) == 4


@FIRST_FRAMEWORK
def test_a_trial_is_claimed_once(project: Workspace) -> None:
    """However many processes ask at the same time."""
    claimed = json.loads(project.script("search_claims.py", "runs/claims").stdout)
    assert len(claimed) == 4
    assert sorted(number for numbers in claimed for number in numbers) == list(range(60)), claimed


@FIRST_FRAMEWORK
def test_a_grid_is_every_combination_once(project: Workspace) -> None:
    parameters = {"model.depth": int_range(1, 2), "optimizer.name": PARAMETERS["optimizer.name"]}
    write_space(project, "grid", parameters=parameters, sampler="grid")
    search(project, "grid", "--trials", "99", "--workers", "2", *SMALL, *("--trainer.max-steps", "2"), space="grid")
    combinations = Counter(
        (each["parameters"]["model.depth"], each["parameters"]["optimizer.name"]) for each in trials(project, "grid")
    )
    assert combinations == Counter((depth, name) for depth in (1, 2) for name in ("adamw", "sgd"))


@FIRST_FRAMEWORK
def test_a_poor_trial_is_pruned(project: Workspace) -> None:
    """One that learns nothing, after trials that did well."""
    rates = {"optimizer.learning_rate": {"type": "choice", "values": [1e-12]}}
    write_space(project, "poor", parameters=rates, pruning=True)
    search(project, "poor", "--engine", "wandb", *LONG, space="poor")  # begins, and trains nothing
    for number in range(5):
        folder = project.path / f"runs/poor/trial-{number:04d}"
        folder.mkdir()
        good = {
            "number": number,
            "state": "finished",
            "value": 0.1,
            "curve": [[epoch, 0.1] for epoch in range(1, EPOCHS + 1)],
        }
        parameters = {"optimizer.learning_rate": 1e-12}
        (folder / "trial.json").write_text(json.dumps(good | {"parameters": parameters}), "utf-8")
        (folder / "experiment.yaml").write_text("seed: 0\n", "utf-8")
    said = search(project, "poor", "--engine", "optuna", "--trials", "6", *LONG, space="poor").stdout
    last = trials(project, "poor")[5]
    assert last["state"] == "pruned" and len(last["curve"]) < EPOCHS
    assert "trial 5  pruned" in said and "5 finished, 1 pruned" in said
    assert status(project.path / "runs/poor/trial-0005") == "interrupted"


@FIRST_FRAMEWORK
def test_trials_are_children_of_their_search_in_mlflow(project: Workspace) -> None:
    words = ("--trials", "2", "--workers", "2", *SMALL, "--trainer.max-steps", "2")
    search(project, "children", *words, "--tracking.trackers", '["mlflow"]')
    code = """
from mlflow import MlflowClient
client = MlflowClient("sqlite:///runs/mlflow.db")
experiment = client.get_experiment_by_name("my_model/children").experiment_id
runs = {run.info.run_name: run for run in client.search_runs([experiment])}
(parent,) = (run for run in runs.values() if run.data.tags.get("search") == "children")
trials = [runs["trial-0000"], runs["trial-0001"]]
assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {parent.info.run_id}, runs
assert {run.info.status for run in runs.values()} == {"FINISHED"}
"""
    project.run(project.python, "-c", code)


@FIRST_FRAMEWORK
def test_a_sweep_of_wandb_starts_our_training(project: Workspace) -> None:
    said = search(project, "sweep", "--engine", "wandb", "--trials", "7", *SMALL, "--trainer.max-steps", "2").stdout
    assert said.splitlines()[-1].split() == ["wandb", "sweep", "runs/sweep/sweep.yaml"]
    sweep = yaml.safe_load((project.path / "runs/sweep/sweep.yaml").read_text("utf-8"))
    assert sweep["metric"] == {"name": "val/loss", "goal": "minimize"} and sweep["run_cap"] == 7
    schema = json.loads((ROOT / "tests/render/schemas/sweep.schema.json").read_text("utf-8"))
    jsonschema.Draft7Validator(schema).validate(sweep)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(sweep | {"method": "tpe"})
    values = {"optimizer.learning-rate": 0.01, "optimizer.weight-decay": 0.5, "model.depth": 2, "optimizer.name": "sgd"}
    assert sweep["parameters"].keys() == values.keys()
    # As `wandb agent` fills the command in.
    filled = {"${env}": ["/usr/bin/env"], "${interpreter}": [str(project.python)]}
    filled["${args_no_boolean_flags}"] = [f"--{name}={value}" for name, value in values.items()]
    words = [word for part in sweep["command"] for word in filled.get(part, [part])]
    project.run(
        *words, "--run-name", "agent", env={"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "abc123", "WANDB_MODE": "offline"}
    )
    run = project.run_dir("agent", "sweep")
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    assert config["optimizer"]["learning_rate"] == 0.01 and config["optimizer"]["name"] == "sgd"
    assert list(run.glob("tracking/wandb/offline-run-*-abc123")), "the agent's run is another"


@FIRST_FRAMEWORK
def test_a_sweep_of_wandb_can_switch_off_what_the_experiment_has(project: Workspace) -> None:
    """The agent names a flag that is true, and leaves out one that is false."""
    experiment = project.path / "configs/experiment/compiled.yaml"
    experiment.write_text("trainer:\n  compile: true\n  max_epochs: 1\n", "utf-8")
    compile_or_not = {"trainer.compile": {"type": "choice", "values": [True, False]}}
    others = {"trainer.max_epochs": {"type": "choice", "values": [1, 2]}}
    write_space(project, "flags", parameters=compile_or_not | others, experiment="configs/experiment/compiled.yaml")
    search(project, "flags", "--engine", "wandb", space="flags")
    base = yaml.safe_load((project.path / "runs/flags/base.yaml").read_text("utf-8"))
    assert base["trainer"]["compile"] is False and base["trainer"]["max_epochs"] == 1


@FIRST_FRAMEWORK
@pytest.mark.parametrize(
    ("space", "arguments", "line"),
    [
        ({}, ["--engine", "sigopt"], "--engine: SigOpt is closed; this project has: hyperopt, optuna, ray, wandb"),
        ({}, ["--engine", "hyperas"], "--engine: Hyperas is no longer kept up; this project has: "),
        ({}, ["--engine", "opptuna"], "--engine: no engine 'opptuna'; this project has: "),
        ({}, ["--trials", "0"], "--trials and --workers take whole numbers above 0"),
        ({}, ["--model.depth", "2"], "--model.depth: is searched by configs/search/mistake.yaml; leave one out"),
        ({}, ["--search-name", "../a"], "--search-name ../a: may hold letters, digits"),
        ({"parameters": {}}, [], "configs/search/mistake.yaml: parameters: "),
        ({"sampler": "grid"}, [], "mistake.yaml: a grid needs optimizer.learning_rate to be an int or a choice"),
        ({"samples": 3}, [], "configs/search/mistake.yaml: samples: no such key; did you mean sampler?"),
        ({"experiment": "configs/experiment/none.yaml"}, [], "configs/experiment/none.yaml: no such file"),
        ({"model.width": int_range(8, 10)}, [], "parameters.model.width: 10: Input should be a multiple of 4"),
        ({"model.width": int_range(8, 32)}, [], "parameters.model.width: 9: Input should be a multiple of 4"),
        ({"model.width": {"type": "log", "low": 8, "high": 64}}, [], "Input should be a valid integer"),
        ({"data.folder": {"type": "choice", "values": ["s3://a:b@host/c"]}}, [], "data.folder: holds a secret"),
        ({"model.widht": int_range(8, 12)}, [], "model.widht: cannot be searched; did you mean model.width?"),
        ({"model.width": int_range(12, 8)}, [], "model.width.int: high must be some steps above low"),
        ({"model.width": {"type": "real"}}, [], "parameters.model.width: Input tag 'real' found"),
        ({"runs_dir": {"type": "choice", "values": ["a"]}}, [], "parameters.runs_dir: cannot be searched"),
        ({"task.label_smoothing": {"type": "log", "low": 0, "high": 1}}, [], "log: low must be above 0 for log"),
    ],
)
def test_a_mistake_is_one_line(project: Workspace, space: dict[str, Any], arguments: list[str], line: str) -> None:
    varied = {key: value for key, value in space.items() if isinstance(value, dict) and key != "parameters"}
    top = {key: value for key, value in space.items() if key not in varied}
    write_space(project, "mistake", **({"parameters": varied} if varied else {}) | top)
    done = search(project, "mistake", *arguments, space="mistake", check=False)
    assert done.returncode == 2
    assert line in error_line(done)
    assert not (project.path / "runs/mistake").exists()


@FIRST_FRAMEWORK
def test_another_space_is_another_search(project: Workspace) -> None:
    search(project, "first", "--engine", "wandb", *QUICK)
    done = search(project, "first", "--engine", "wandb", *QUICK, "--seed", "1", check=False)
    assert done.returncode == 2
    assert error_line(done).endswith("begun with another config.seed (0, is now 1); choose another --search-name")


@FIRST_FRAMEWORK
def test_a_damaged_trial_is_one_line_and_a_copy_is_none(project: Workspace) -> None:
    search(project, "damaged", "--engine", "wandb", *QUICK)
    for name in ("trial-0000", "trial-0000-copy"):
        (project.path / "runs/damaged" / name).mkdir()
        (project.path / "runs/damaged" / name / "trial.json").write_text("{}", "utf-8")
    done = search(project, "damaged", *QUICK, check=False)
    assert done.returncode == 2
    problem = "runs/damaged/trial-0000/trial.json: is not a trial as this version writes it"
    assert error_line(done) == f"error: {problem}; remove runs/damaged/trial-0000, and another takes its place"


@FIRST_FRAMEWORK
def test_a_gpu_is_counted_once(project: Workspace, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA RTX 4070 Laptop GPU (UUID: GPU-1)'\n", "utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    code = "import os; from my_model.search.workers import visible_gpus; os.environ.pop('CUDA_VISIBLE_DEVICES', 0)"
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert project.run(project.python, "-c", f"{code}; print(visible_gpus())", env={"PATH": path}).stdout == "['0']\n"


@FIRST_FRAMEWORK
def test_engines_beat_random_search(project: Workspace) -> None:
    lines = map(json.loads, project.script("search_planted.py").stdout.splitlines())
    found = {name: (best, late) for name, best, late in lines}
    chance_best, chance_late = found.pop("random")
    assert len(found) == 2
    for best, late in found.values():
        assert best < chance_best, found
        assert late < 0.6 * chance_late, f"learns too little from what it is told: {found}, by chance {chance_late}"
