"""`check` answers each way of breaking the contract with one line that names the file and the function."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from owners import TASKS, install
from workspace import EXHAUSTIVE, FRAMEWORKS, HERE, Workspace

Answer = dict[str, str | int]


@dataclass(frozen=True)
class Mistake:
    """What an owner gets wrong, as replacements in the files of one task, and what `check` must say of it."""

    name: str
    where: str
    says: str
    task: str
    file: str
    changes: tuple[tuple[str, str], ...]


def tabular(name: str, where: str, says: str, file: str, *changes: tuple[str, str]) -> Mistake:
    return Mistake(name, where, says, "tabular", file, changes)


def sequence(name: str, where: str, says: str, file: str, *changes: tuple[str, str]) -> Mistake:
    return Mistake(name, where, says, "sequence", file, changes)


LIST = 'return {"text": tokens, "label": labels}'
SERIALIZER = """
    @field_serializer("mean")
    def _short(self, mean: tuple[float, ...]) -> list[float]:
        return [round(value, 1) for value in mean]
"""
NOISY = """class Noisy(ArrayExamples):
    def read(self, indices, seeds):
        batch = super().read(indices, seeds)
        noise = np.random.default_rng().random(1, np.float32) if seeds is None else np.float32(0)
        return batch | {"columns": batch["columns"] + noise}


"""
NORMALISED = '(batch["columns"] - self.mean) / self.std'
HUBER = 'Loss(functional.huber_loss(outputs["target"], target, reduction="sum", delta=delta), len(target))'
MOMENTS = 'moments = {"target": target.sum(), "target_squared": target.square().sum()}'
ANSWER = 'return {"target": target * self.facts.target_std + self.facts.target_mean}'

DETACHED = (HUBER, HUBER.replace('outputs["target"], target', 'outputs["target"].detach(), target'))
ITEM = (HUBER, HUBER.replace("delta=delta)", "delta=delta).item()"))
COUNTS = (HUBER, HUBER.replace("len(target))", "target * 0 + 1)"))
UNUSED = ('self.register_buffer("std"', 'self.unused = nn.Linear(3, 3)\n        self.register_buffer("std"')
FLAT = ("noise.astype(np.float32) * std}", 'noise.astype(np.float32) * std, "target": batch["target"][:, 0]}')
INIT = "    def __init__(self, settings, facts):\n        self.settings, self.facts = settings, facts\n"
UNBASED = ("class Task(BaseTask):\n", "class Task:\n" + INIT)
LAMBDA = ("return Regressor(settings, facts)", "return lambda batch: Regressor(settings, facts)(batch)")


def ordered(order: str) -> tuple[str, str]:
    return "split(369, 442), facts)", f"split(369, 442), facts, lambda generator: {order})"


MISTAKES = [
    # data.py and the facts
    tabular(
        "no-datasets",
        "data.py: build_datasets",
        "return Datasets, got tuple",
        "data.py",
        ("return Datasets(split(0, 300), split(300, 369), split(369, 442), facts)", "return split(0, 300), facts"),
    ),
    tabular(
        "no-validation",
        "data.py: build_datasets",
        "give val examples, got none",
        "data.py",
        ("split(300, 369)", "split(300, 300)"),
    ),
    tabular(
        "facts-of-another-type",
        "data.py: build_datasets",
        "give facts of type DataFacts, got dict",
        "data.py",
        ("split(369, 442), facts)", "split(369, 442), facts.model_dump())"),
    ),
    tabular(
        "facts-rounded",
        "settings.py: DataFacts",
        "be equal after a round trip through JSON",
        "settings.py",
        ("import Field", "import Field, field_serializer"),
        ("    target_std: float\n", "    target_std: float\n" + SERIALIZER),
    ),
    tabular(
        "facts-untyped",
        "settings.py: DataFacts",
        "be equal after a round trip through JSON",
        "settings.py",
        ("from pydantic", "from typing import Any\n\nfrom pydantic"),
        ("columns: tuple[str, ...]", "columns: Any"),
    ),
    tabular(
        "float64",
        "data.py: train.read",
        "give float32 for 'columns', got float64",
        "data.py",
        ('data_raw.csv.gz", np.float32)', 'data_raw.csv.gz")'),
    ),
    tabular(
        "float64-by-augmentation",
        "data.py: train.read",
        "give float32 for 'columns', got float64",
        "data.py",
        ("noise.astype(np.float32)", "noise"),
    ),
    sequence(
        "list",
        "data.py: train.read",
        "return a dict of ndarray, got list",
        "data.py",
        (LIST, "return [tokens, labels]"),
    ),
    sequence(
        "lists-in-a-dict",
        "data.py: train.read",
        "return a dict of ndarray, got {'text': 'ndarray', 'label': 'list'}",
        "data.py",
        (LIST, LIST.replace("labels}", "labels.tolist()}")),
    ),
    sequence(
        "rows-missing",
        "data.py: train.read",
        "give 8 rows of 'text', got (7, ",
        "data.py",
        (LIST, LIST.replace("tokens", "tokens[1:]")),
    ),
    sequence(
        "labels-flat",
        "data.py: train.read",
        "give 8 rows of 'label'",
        "data.py",
        (LIST, LIST.replace("labels}", "labels.reshape(-1)}")),
    ),
    tabular(
        "augmentation-seeded-by-the-batch",
        "data.py: train.read",
        "give the same 'columns' for an example alone and among others",
        "data.py",
        ("uniforms(seeds,", "uniforms(seeds[:1],"),
    ),
    tabular(
        "augmentation-without-seed",
        "data.py: train.read",
        "give the same 'columns' for the same seeds",
        "data.py",
        ("uniforms(seeds, len(std))", "np.random.default_rng().random((len(seeds), len(std)))"),
    ),
    tabular(
        "noise-in-validation",
        "data.py: val.read",
        "give the same 'columns' for the same seeds",
        "data.py",
        ("def build_datasets", NOISY + "def build_datasets"),
        ("return ArrayExamples(", "return Noisy("),
    ),
    sequence(
        "order-out-of-range",
        "data.py: order",
        "give int64 indices in [0, 1200)",
        "data.py",
        ('kind="stable")]', 'kind="stable")] + 1'),
    ),
    sequence(
        "order-in-two-dimensions",
        "data.py: order",
        "give int64 indices in [0, 1200)",
        "data.py",
        ("return np.concatenate(", "return np.stack("),
    ),
    # model.py
    tabular(
        "tensor",
        "model.py: the model",
        "return a dict of Tensor, got Tensor",
        "model.py",
        ('return {"target": self.layers(' + NORMALISED + ")}", "return self.layers(" + NORMALISED + ")"),
    ),
    tabular(
        "normalised-by-the-batch",
        "model.py: the model",
        "give the same 'target' for an example alone and among others",
        "model.py",
        (NORMALISED, '(batch["columns"] - batch["columns"].mean(0)) / self.std'),
    ),
    sequence(
        "padding-read",
        "model.py: the model",
        "give the same 'labels' for an example alone and among others",
        "model.py",
        ("batch_first=True)", "batch_first=True, bidirectional=True)"),
        ("nn.Linear(settings.width,", "nn.Linear(2 * settings.width,"),
    ),
    # task.py
    tabular(
        "no-loss",
        "task.py: compute_loss",
        "return Loss(total, count), got Tensor",
        "task.py",
        (HUBER, HUBER.removeprefix("Loss(").removesuffix(", len(target))")),
    ),
    tabular(
        "mean",
        "task.py: compute_loss",
        "give sums: 'loss' of all rows is that of each row added up",
        "task.py",
        ('"sum"', '"mean"'),
    ),
    sequence(
        "mean-of-tokens",
        "task.py: compute_loss",
        "give sums: 'loss' of all rows is that of each row added up",
        "task.py",
        ('reduction="sum"', 'reduction="mean"'),
    ),
    sequence(
        "padding-counted",
        "task.py: compute_loss",
        "give sums: 'count' of all rows is that of each row added up",
        "task.py",
        ("(labels != NO_LABEL).sum()", "1"),
    ),
    tabular(
        "loss-of-each-row",
        "task.py: compute_loss",
        "give a scalar total, got (8, 1)",
        "task.py",
        ('"sum"', '"none"'),
    ),
    tabular(
        "loss-not-finite",
        "task.py: compute_loss",
        "give a finite total on the first batch, got nan",
        "task.py",
        ('outputs["target"], target, reduction', 'outputs["target"] * float("nan"), target, reduction'),
    ),
    sequence(
        "count-zero",
        "task.py: compute_loss",
        "give a count above 0, as a scalar, got tensor(0)",
        "task.py",
        ("(labels != NO_LABEL).sum()", "(labels < NO_LABEL).sum()"),
    ),
    tabular(
        "sums-of-means",
        "task.py: compute_sums",
        "give sums: 'error' of all rows is that of each row added up",
        "task.py",
        ("error.abs().sum()", "error.abs().mean()"),
    ),
    tabular(
        "sums-named-loss",
        "task.py: compute_sums",
        'leave the names "loss" and "count" free',
        "task.py",
        ('{"error": error', '{"loss": error'),
    ),
    tabular(
        "sums-as-floats",
        "task.py: compute_sums",
        "return a dict of Tensor",
        "task.py",
        ("error.abs().sum()", "error.abs().sum().item()"),
    ),
    tabular(
        "metrics-none",
        "task.py: compute_metrics",
        "return dict, got float",
        "task.py",
        ("        return {\n", "        return 0.5\n        return {\n"),
    ),
    tabular(
        "monitor-unknown",
        "task.py: monitor",
        "be one of loss, r2, mae, got accuracy",
        "task.py",
        ('Monitor("r2"', 'Monitor("accuracy"'),
    ),
    sequence(
        "report",
        "task.py: build_report",
        "return Report, got dict",
        "task.py",
        ('return Report({"per label": rows})', 'return {"per label": rows}'),
    ),
    tabular(
        "signature-unknown-input",
        "task.py: signature",
        "name inputs among columns, target, got column",
        "task.py",
        ('Input("columns"', 'Input("column"'),
    ),
    tabular(
        "signature-shape",
        "task.py: signature",
        "give 'columns' the shape of the data, (10,), got (11,)",
        "task.py",
        ('"numbers", (len(columns),)', '"numbers", (len(columns) + 1,)'),
    ),
    sequence(
        "signature-dtype",
        "task.py: signature",
        "give 'text' the dtype of the data, int64, got int32",
        "task.py",
        ('"int64"', '"int32"'),
    ),
    tabular(
        "signature-none",
        "task.py: signature",
        "return Signature, got tuple",
        "task.py",
        ("return Signature(inputs, ", "return (inputs, "),
    ),
    tabular(
        "predict-shape",
        "task.py: predict",
        "give 'target' [B, *(1,)], got (8,)",
        "task.py",
        (ANSWER, ANSWER.replace("target *", "target[:, 0] *")),
    ),
    sequence(
        "predict-without-time",
        "task.py: predict",
        "give 'labels' [B, *('time', 4)], got (8, 4)",
        "task.py",
        ('["logits"].softmax(2)', '["logits"].softmax(2).mean(1)'),
    ),
    tabular(
        "predict-name",
        "task.py: predict",
        "return 'target', which the signature names, got progression",
        "task.py",
        (ANSWER, ANSWER.replace('"target"', '"progression"')),
    ),
    tabular(
        "predict-tensor",
        "task.py: predict",
        "return a dict of Tensor, got Tensor",
        "task.py",
        (ANSWER, "return target"),
    ),
    # what training and prediction would stumble over later
    tabular("detached", "model.py: the model", "use all its weights in the loss", "task.py", DETACHED),
    tabular("unused-weights", "model.py: the model", "use all its weights in the loss", "model.py", UNUSED),
    tabular("total-is-a-number", "task.py: compute_loss: total", "return Tensor, got float", "task.py", ITEM),
    tabular("count-of-each-row", "task.py: compute_loss", "give a count above 0, as a scalar", "task.py", COUNTS),
    sequence(
        "sums-of-varying-shape",
        "task.py: compute_sums",
        "give 'tokens' one shape, whatever the rows",
        "task.py",
        ('"tokens": labels.bincount(minlength=count)', '"tokens": labels.bincount()'),
    ),
    sequence(
        "text-in-a-batch",
        "data.py: train.read",
        "give float32 for 'name', got <U",
        "data.py",
        (LIST, LIST.replace("labels}", 'labels, "name": np.array([str(i) for i in indices])}')),
    ),
    tabular("train-unlike-val", "data.py: train.read", "give what val.read gives", "data.py", FLAT),
    tabular(
        "order-of-floats",
        "data.py: order",
        "give int64 indices in [0, 300)",
        "data.py",
        ordered("np.arange(300) * 0.5"),
    ),
    tabular("order-empty", "data.py: order", "give int64 indices in [0, 300)", "data.py", ordered("np.arange(0)")),
    tabular(
        "order-without-the-generator",
        "data.py: order",
        "give the same order for the same generator",
        "data.py",
        ordered("np.random.default_rng().permutation(300)"),
    ),
    tabular(
        "names-of-outputs",
        "task.py: signature",
        "give 'target' as many names as its last axis is long",
        "task.py",
        ("(self.facts.target,)", '(self.facts.target, "other")'),
    ),
    tabular(
        "names-of-inputs",
        "task.py: signature",
        "give 'columns' a name for each of 10, got 9",
        "task.py",
        ("names=columns)", "names=columns[:9])"),
    ),
    sequence(
        "axis-of-no-input",
        "task.py: signature",
        "give 'labels' varying axes that an input has",
        "task.py",
        ('("time", len(labels))', '("length", len(labels))'),
    ),
    tabular(
        "monitor-a-tuple",
        "task.py: monitor",
        "return Monitor, got tuple",
        "task.py",
        ('Monitor("r2", "max")', '("r2", "max")'),
    ),
    tabular(
        "monitor-mode",
        "task.py: monitor",
        'be "min" or "max", got maximum',
        "task.py",
        ('Monitor("r2", "max")', 'Monitor("r2", "maximum")'),
    ),
    tabular(
        "metric-named-loss",
        "task.py: compute_metrics",
        'leave the name "loss" free',
        "task.py",
        ('"mae": float', '"loss": float'),
    ),
    sequence(
        "table-of-arrays",
        "task.py: build_report",
        "give tables of text and Python's own numbers",
        "task.py",
        ('"tokens": int(tokens)', '"tokens": tokens.astype("int64")'),
    ),
    sequence(
        "picture-by-name",
        "task.py: build_report",
        "give pictures as the bytes of a PNG",
        "task.py",
        ('Report({"per label": rows})', 'Report({"per label": rows}, {"p": "x.png"})'),
    ),
    tabular("no-task", "task.py: Task", "return BaseTask, got Task", "task.py", UNBASED),
    tabular("no-model", "model.py: build_model", "return Module, got function", "model.py", LAMBDA),
]
EXCEPTIONS = [
    tabular(
        "in-build-datasets",
        "data.py: build_datasets",
        "KeyError",
        "data.py",
        ('distribution("scikit-learn")', '{}["scikit-learn"]'),
    ),
    tabular(
        "in-augment",
        "data.py: add_noise",
        "KeyError: 'column'",
        "data.py",
        ('batch["columns"] + noise', 'batch["column"] + noise'),
    ),
    sequence("without-seeds", "data.py: read", "TypeError", "data.py", ("if seeds is not None:", "if True:")),
    sequence(
        "in-order", "data.py: order", "IndexError", "data.py", ("train.lengths[bucket]", "train.lengths[bucket + 1000]")
    ),
    tabular("in-build-model", "model.py: build_model", "AttributeError", "model.py", ("facts.columns", "facts.column")),
    tabular(
        "in-forward",
        "model.py: forward",
        "KeyError: 'column'",
        "model.py",
        (NORMALISED, NORMALISED.replace("columns", "column")),
    ),
    tabular(
        "in-compute-loss",
        "task.py: compute_loss",
        "KeyError: 'targets'",
        "task.py",
        ('outputs["target"], target, red', 'outputs["targets"], target, red'),
    ),
    tabular(
        "in-compute-sums",
        "task.py: compute_sums",
        "KeyError: 'targets'",
        "task.py",
        ('outputs["target"] - target', 'outputs["targets"] - target'),
    ),
    tabular(
        "in-compute-metrics",
        "task.py: compute_metrics",
        "KeyError: 'errors'",
        "task.py",
        ('sums["error"]', 'sums["errors"]'),
    ),
    sequence(
        "in-build-report",
        "task.py: build_report",
        "KeyError: 'guesses'",
        "task.py",
        ('sums["tokens"], sums["correct"]', 'sums["tokens"], sums["guesses"]'),
    ),
    tabular(
        "in-signature", "task.py: signature", "AttributeError", "task.py", ("self.facts.target,", "self.facts.name,")
    ),
    tabular(
        "in-predict", "task.py: predict", "KeyError: 'targets'", "task.py", ('inputs)["target"]', 'inputs)["targets"]')
    ),
    tabular(
        "in-training-only",
        "model.py: forward",
        "KeyError: 'column'",
        "model.py",
        ('return {"target": self', 'if self.training:\n            batch["column"]\n        return {"target": self'),
    ),
    tabular(
        "import", "model.py: the file", "ModuleNotFoundError", "model.py", ("import torch\n", "import torchvision\n")
    ),
]


LOSS = 'tf.reduce_sum(keras.losses.huber(target, outputs["target"], delta))'
LOSS_AND_COUNT = f"Loss({LOSS}, tf.size(target))"
TOKENS = "tf.math.bincount(tf.boolean_mask(labels, there), minlength=count)"
SOFTMAX = 'tf.nn.softmax(run_model(model, inputs)["logits"])'
CALL = 'return {"logits": self.head(self.recurrent(self.embedding(batch["text"])))}'
DENSE = '{"target": layers.Dense(1)(features)}'
OUTPUT = 'outputs["target"], delta'
ERROR = "tf.reduce_sum(abs(error))"
# The same mistakes in TensorFlow, where their text, or what is said of them, is another.
IN_TENSORFLOW: dict[str, dict[str, Any]] = {
    "tensor": {"changes": ((DENSE, "layers.Dense(1)(features)"),)},
    "normalised-by-the-batch": {
        "changes": (
            (
                "layers.Rescaling([1 / std for std in facts.std], offset)(columns)",
                "columns - keras.ops.mean(columns, 0)",
            ),
        )
    },
    "padding-read": {
        "changes": (
            (
                "layers.GRU(settings.width, return_sequences=True)",
                "layers.Bidirectional(layers.GRU(8, return_sequences=True))",
            ),
        )
    },
    "no-loss": {"changes": ((LOSS_AND_COUNT, LOSS),)},
    "mean": {"changes": (("tf.reduce_sum(keras", "tf.reduce_mean(keras"),)},
    "mean-of-tokens": {"changes": (("tf.reduce_sum(losses", "tf.reduce_mean(losses"),)},
    "padding-counted": {"changes": ((", tf.reduce_sum(there))", ", 1)"),)},
    "loss-of-each-row": {
        "says": "give a scalar total, got (8,)",
        "changes": ((LOSS, LOSS.removeprefix("tf.reduce_sum(").removesuffix(")")),),
    },
    "loss-not-finite": {"changes": ((OUTPUT, 'outputs["target"] * float("nan"), delta'),)},
    "count-zero": {
        "says": "give a count above 0, as a scalar, got tf.Tensor(0.0",
        "changes": ((", tf.reduce_sum(there))", ", tf.reduce_sum(there) * 0)"),),
    },
    "sums-of-means": {"changes": ((ERROR, "tf.reduce_mean(abs(error))"),)},
    "sums-named-loss": {"changes": (('{"error": tf', '{"loss": tf'),)},
    "sums-as-floats": {"changes": ((ERROR, f"float({ERROR})"),)},
    "predict-without-time": {"changes": ((SOFTMAX, f"tf.reduce_mean({SOFTMAX}, 1)"),)},
    "detached": {"changes": ((OUTPUT, 'tf.stop_gradient(outputs["target"]), delta'),)},
    "unused-weights": {"changes": ((DENSE, DENSE.replace("}", ', "other": layers.Dense(2)(features)}')),)},
    "total-is-a-number": {"changes": ((LOSS, f"float({LOSS})"),)},
    "count-of-each-row": {"changes": (("tf.size(target))", "target * 0 + 1)"),)},
    "sums-of-varying-shape": {"changes": ((TOKENS, TOKENS.replace(", minlength=count", "")),)},
    "no-model": {"says": "return Model, got function", "changes": (("return keras", "return lambda batch: keras"),)},
    "in-forward": {
        "where": "model.py: call",
        "says": "KeyError: 'texts'",
        "task": "sequence",
        "changes": ((CALL, CALL.replace('"text"', '"texts"')),),
    },
    "in-compute-loss": {"changes": ((OUTPUT, 'outputs["targets"], delta'),)},
    "in-training-only": {
        "where": "model.py: call",
        "task": "sequence",
        "changes": ((CALL, f'if training:\n            batch["column"]\n        {CALL}'),),
    },
    "import": {"changes": (("import keras\n", "import keras_cv\n"),)},
}
# What runs as long as tensors have values, and fails in a graph.
ONLY_IN_TENSORFLOW = [
    tabular("value-in-loss", "task.py: compute_loss", "TypeError", "task.py", ("tf.size(target))", "len(target))")),
    tabular(
        "value-in-sums", "task.py: compute_sums", "AttributeError", "task.py", (ERROR, f"tf.constant({ERROR}.numpy())")
    ),
    tabular(
        "value-in-predict",
        "task.py: predict",
        "",
        "task.py",
        (ANSWER, f"if target[0] > 0:\n            target += 0\n        {ANSWER}"),
    ),
]


def chosen(mistakes: list[Mistake], framework: str) -> list[Mistake]:
    """The mistakes for a framework; for the second those that differ there, and all in the exhaustive form."""
    if framework == "pytorch":
        return mistakes
    found = [replace(each, **IN_TENSORFLOW.get(each.name, {})) for each in mistakes]
    found = [replace(each, says=each.says.replace("got Tensor", "got EagerTensor")) for each in found]
    found = [each for each in found if EXHAUSTIVE or each.name in IN_TENSORFLOW]
    return found + (ONLY_IN_TENSORFLOW if mistakes is EXCEPTIONS else [])


def cases(mistakes: list[Mistake]) -> pytest.MarkDecorator:
    """Each mistake in each framework."""
    pairs = [(framework, mistake) for framework in FRAMEWORKS for mistake in chosen(mistakes, framework)]
    ids = [f"{framework}-{mistake.name}" for framework, mistake in pairs]
    return pytest.mark.parametrize(("framework", "mistake"), pairs, ids=ids, indirect=["framework"], scope="module")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def pristine(framework: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    return {task: install(task, tmp_path_factory.mktemp(task) / "project", framework) for task in TASKS}


@pytest.fixture(scope="module")
def run_check(framework: str, pristine: dict[str, Workspace]) -> Iterator[Callable[[Workspace], Answer]]:
    project = pristine["tabular"]
    command = [str(project.python), str(HERE / "check_server.py"), project.package, framework]
    environment = project.env | {"PYTHONPATH": ""}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        requests, answers = server.stdin, server.stdout

        def run(project: Workspace) -> Answer:
            print(project.path, file=requests, flush=True)
            answer: Answer = json.loads(answers.readline())
            return answer

        yield run
        requests.close()


def plant(mistake: Mistake, project: Workspace, dest: Path) -> Workspace:
    """A copy of the project with the mistake in it."""
    copy = Workspace(dest / "project")
    ignored = shutil.ignore_patterns(".venv", "__pycache__")
    shutil.copytree(project.path, copy.path, ignore=ignored)
    file = copy.path / "src" / copy.package / mistake.file
    text = file.read_text("utf-8")
    for old, new in mistake.changes:
        assert text.count(old) == 1, f"{mistake.file} of {mistake.task} must hold once: {old}"
        text = text.replace(old, new)
    file.write_text(text, "utf-8")
    return copy


@pytest.mark.parametrize("task", TASKS)
def test_nothing_is_said_of_files_that_keep_it(
    task: str, pristine: dict[str, Workspace], run_check: Callable[[Workspace], Answer]
) -> None:
    answer = run_check(pristine[task])
    assert answer["returncode"] == 0, answer["stderr"]
    assert "keep the contract" in str(answer["stdout"])


@cases(MISTAKES)
def test_a_mistake_is_one_line(
    mistake: Mistake, pristine: dict[str, Workspace], run_check: Callable[[Workspace], Answer], tmp_path: Path
) -> None:
    answer = run_check(plant(mistake, pristine[mistake.task], tmp_path))
    lines = str(answer["stderr"]).splitlines()
    assert answer["returncode"] == 2, answer
    assert len(lines) == 1, answer["stderr"]
    assert lines[0].startswith(f"error: {mistake.where} must {mistake.says}")


@cases(EXCEPTIONS)
def test_an_exception_is_that_line_and_the_traceback(
    mistake: Mistake, pristine: dict[str, Workspace], run_check: Callable[[Workspace], Answer], tmp_path: Path
) -> None:
    answer = run_check(plant(mistake, pristine[mistake.task], tmp_path))
    lines = str(answer["stderr"]).splitlines()
    assert answer["returncode"] == 2, answer
    assert lines[0].startswith(f"error: {mistake.where} must run, got ")
    assert mistake.says in lines[0]
    assert any(f'{mistake.file}", line' in line for line in lines), "the traceback leads to the owner's line"
