"""Other tasks in a project whose owner replaced the four files, and nothing else: every command works."""

import json
import shutil
import signal
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from owners import TASKS, install
from workspace import EXHAUSTIVE, FIRST, FRAMEWORKS, Workspace, differences, read_metrics, status

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# Fifteen steps an epoch: the end, at step 36, and the kill, after step 22, lie within epochs.
SHORT = ("--trainer.max-steps", "36", "--trainer.checkpoint-every", "4", "--trainer.log-every", "1")
KILLED_AFTER = 22
# Plain SGD shows a wrong factor in the gradient, which AdamW would hide.
PLAIN = ("--optimizer.name", "sgd", "--optimizer.learning-rate", "0.03")
FEWER = {"tabular": (), "sequence": ("--data.examples", "300")}
WITHOUT_DROPOUT = {"tabular": ("--model.dropout", "0"), "sequence": ()}
KILL = """
import os, signal, sys
from {package} import cli, train

def train_step(loop, batches, original=train.train_step):
    original(loop, batches)
    if loop.state.step == {step}:
        os.kill(os.getpid(), signal.SIGKILL)

train.train_step = train_step
sys.exit(cli.main(sys.argv[1:]))
"""
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Owned:
    """A project for one of the tasks, and the runs that several tests look at."""

    project: Workspace
    task: str

    def short(self, name: str, *arguments: str) -> Path:
        return self.project.train(name, *SHORT, *FEWER[self.task], *arguments)

    def short_on_two(self, name: str, *arguments: str) -> Path:
        """The same on two processes."""
        words = ("train", "--run-name", name, *SHORT, *FEWER[self.task], *arguments)
        self.project.run(self.project.python, *TORCHRUN, "-m", self.project.package, *words)
        return self.project.run_dir(name)

    @cached_property
    def whole(self) -> Path:
        """A short run that nothing interrupted."""
        return self.short("whole")

    @cached_property
    def plain(self) -> Path:
        """A short run with SGD, in one process."""
        return self.short("plain", *PLAIN, *WITHOUT_DROPOUT[self.task])

    @cached_property
    def learned(self) -> Path:
        """The task's own experiment, evaluated and exported."""
        run = self.project.train("learned")
        self.project.cli("evaluate", run)
        self.project.cli("export", run)
        return run

    @cached_property
    def test_lines(self) -> Lines:
        shown = self.project.script("write_examples.py", self.project.package).stdout
        return [json.loads(line) for line in shown.splitlines()]

    def predict(self, lines: Lines) -> Lines:
        file = self.project.path / "lines.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        shown = self.project.cli("predict", file, "--model", self.learned, "--format", "jsonl").stdout
        return [json.loads(line) for line in shown.splitlines()]


# Each task and each framework once; all pairs in the exhaustive form.
OWNED = ["sequence-pytorch", "tabular-tensorflow"]
if EXHAUSTIVE:
    OWNED = [f"{task}-{framework}" for framework in FRAMEWORKS for task in TASKS]


@pytest.fixture(scope="module", params=OWNED)
def owned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Owned:
    task, framework = request.param.split("-")
    return Owned(install(task, tmp_path_factory.mktemp(task) / "project", framework), task)


def of(*names: str) -> pytest.MarkDecorator:
    """For these tasks or frameworks alone."""
    chosen = [owned for owned in OWNED if set(names) & set(owned.split("-"))]
    return pytest.mark.parametrize("owned", chosen, indirect=True)


# Of files that are the same text in both frameworks; in the exhaustive form with both.
SHARED = of(*FIRST)
SEQUENCE = of("sequence")


def weights_apart(owned: Owned, one: Path, other: Path) -> float:
    return differences(owned.project, one, other)["last model"]


def times(run: Path) -> list[tuple[int, float]]:
    """(step, time) of every line of metrics.jsonl."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return [(line["step"], line["time"]) for line in lines]


def metrics_of(run: Path) -> dict[str, float]:
    """What `evaluate` wrote of the test set."""
    metrics: dict[str, float] = json.loads((run / "evaluation" / "test" / "metrics.json").read_text("utf-8"))
    return metrics


def flat(value: Any) -> list[float]:
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


def close(one: Any, other: Any, tolerance: float = 1e-5) -> bool:
    """Whether two answers of `predict` hold the same numbers."""
    pairs = zip(flat(one), flat(other), strict=True)
    return all(abs(a - b) <= tolerance * max(1, abs(b)) for a, b in pairs)


def test_check_accepts_the_four_files(owned: Owned) -> None:
    assert "keep the contract" in owned.project.cli("check").stdout


def test_style_and_types_hold(owned: Owned) -> None:
    project = owned.project
    project.run(project.python, "-m", "ruff", "check", ".")
    project.run(project.python, "-m", "ruff", "format", "--check", ".")
    project.run(project.python, "-m", "mypy")


@SHARED
def test_data_and_settings_know_no_framework(owned: Owned) -> None:
    for name in ("settings.py", "data.py"):
        text = (owned.project.path / "src" / owned.project.package / name).read_text("utf-8")
        assert not [word for word in ("torch", "tensorflow", "keras", "backend") if word in text]


def test_a_killed_run_ends_where_an_uninterrupted_one_does(owned: Owned) -> None:
    project, run = owned.project, owned.project.run_dir("killed")
    code = KILL.format(package=project.package, step=KILLED_AFTER)
    words = ("train", "--run-name", run.name, *SHORT, *FEWER[owned.task])
    killed = project.run(project.python, "-c", code, *words, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert status(run) == "running"
    kept = [entry for entry in times(run) if entry[0] <= 20]
    project.cli("train", "--resume", run)
    assert status(run) == "finished"
    assert times(run)[: len(kept)] == kept, "did not go on from the checkpoint of step 20"
    assert weights_apart(owned, run, owned.whole) == 0
    assert read_metrics(run) == read_metrics(owned.whole)


@SHARED
def test_threads_that_read_ahead_change_nothing(owned: Owned) -> None:
    run = owned.short("threads", "--trainer.read-workers", "2")
    assert weights_apart(owned, run, owned.whole) == 0


@SEQUENCE
def test_the_order_that_the_data_gives_is_followed(owned: Owned) -> None:
    unsorted = owned.short("unsorted", "--data.bucket-size", "1")
    assert weights_apart(owned, unsorted, owned.whole) > 0


@of("pytorch")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_learn_what_one_does(owned: Owned, strategy: str) -> None:
    two = owned.short_on_two(strategy, "--trainer.strategy", strategy, *PLAIN, *WITHOUT_DROPOUT[owned.task])
    assert weights_apart(owned, two, owned.plain) < 1e-5
    one_log, two_log = read_metrics(owned.plain), read_metrics(two)
    assert one_log.keys() == two_log.keys()
    assert all(abs(two_log[key] - value) < 1e-4 * max(1, abs(value)) for key, value in one_log.items())


@of("pytorch")
def test_two_processes_measure_what_one_does(owned: Owned) -> None:
    """On a model that has hardly learned, so that no metric is at its best, and a split of odd size."""
    project, words = owned.project, ("evaluate", owned.plain, "--checkpoint", "last")
    folder = owned.plain / "evaluation" / "test"
    project.cli(*words)
    one, tables, logged = metrics_of(owned.plain), (folder / "tables.json").read_bytes(), len(times(owned.plain))
    shutil.rmtree(folder)
    shown = project.run(project.python, *TORCHRUN, "-m", project.package, *words).stdout
    two = metrics_of(owned.plain)
    assert (folder / "tables.json").read_bytes() == tables
    assert one.keys() == two.keys()
    assert all(two[name] == pytest.approx(one[name], rel=1e-5) for name in one if name != "checkpoint")
    assert shown.count("(last checkpoint) on test") == 1
    news = [name for name in one if two[name] != one[name]]
    assert len(times(owned.plain)) == logged + len(news), "logged by each process, or again though nothing changed"


def test_it_learns(owned: Owned) -> None:
    metrics = metrics_of(owned.learned)
    if owned.task == "tabular":
        assert metrics["r2"] > 0.35
        assert 20 < metrics["mae"] < 55
    else:
        assert metrics["accuracy"] > 0.95


def test_predictions_are_as_good_as_evaluate_says(owned: Owned) -> None:
    """Every example of the test set through the exported model, compared with the truth here."""
    answers = owned.predict(owned.test_lines)
    pairs = list(zip(owned.test_lines, answers, strict=True))
    metrics = metrics_of(owned.learned)
    if owned.task == "tabular":
        errors = [abs(answer["target"][0] - line["target"][0]) for line, answer in pairs]
        assert sum(errors) / len(errors) == pytest.approx(metrics["mae"], rel=1e-4)
    else:
        right = [
            guess == label
            for line, answer in pairs
            for guess, label in zip(answer["label"], line["label"], strict=True)
        ]
        assert sum(right) / len(right) == pytest.approx(metrics["accuracy"], abs=1e-9)


def test_an_example_among_others_is_predicted_as_alone(owned: Owned) -> None:
    texts = ("a", "]a[b[c]", "", "[?é[" * 9)
    chosen = [{"text": text} for text in texts] if owned.task == "sequence" else owned.test_lines[:3]
    name = "labels" if owned.task == "sequence" else "target"
    together = owned.predict(chosen)
    for line, answer in zip(chosen, together, strict=True):
        assert close(owned.predict([line])[0][name], answer[name])
    if owned.task == "sequence":
        assert [len(answer["labels"]) for answer in together] == [len(text) for text in texts]
        assert together[1]["label"] == ["outside", "outside", "open", "inside", "inside", "inside", "close"]


@SEQUENCE
def test_tokens_come_as_text_as_words_or_as_numbers(owned: Owned) -> None:
    text = "]a[b[é]"  # the model has never seen an é
    vocabulary = json.loads((owned.learned / "model.json").read_text("utf-8"))["inputs"][0]["names"]
    numbers = [vocabulary.index(token) if token in vocabulary else 1 for token in text]
    forms: Lines = [{"text": text}, {"text": list(text)}, {"text": numbers}]
    one, *others = (answer["labels"] for answer in owned.predict(forms))
    assert all(close(other, one) for other in others)


def test_an_example_that_does_not_fit_is_named(owned: Owned) -> None:
    wrong, reason = (
        ({"columns": {"age": 50}}, "input columns: missing columns sex, bmi")
        if owned.task == "tabular"
        else ({"texts": "abc"}, "input text: missing; got texts")
    )
    (owned.project.path / "wrong.jsonl").write_text(json.dumps(wrong) + "\n", "utf-8")
    done = owned.project.cli("predict", "wrong.jsonl", "--model", owned.learned, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
