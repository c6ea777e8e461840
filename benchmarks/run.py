"""Measure the template and a project made from it against floors, and print a table. `make bench` runs this.

    make bench                            everything, in about a quarter of an hour
    make bench ARGS="step ddp"            only these
    make bench ARGS=--write               and put the table into docs/benchmarks.md
    make bench ARGS=--profile-step        what each line of the training loop costs, and of a bare one

The time that something takes never makes this fail.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.metadata import version
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import copier

from history import append, commit, git
from measure import Sample, Samples, choose_size, clock, interleave, quartiles
from support import ROOT, WIDE, Project, render, setup_env, template_source
from workspace import workspace

HERE = Path(__file__).resolve().parent
DOCS = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"


@dataclass(frozen=True)
class Row:
    """One line of the table; "-" where there is nothing to compare."""

    what: str
    ours: str
    floor: str = "-"
    ratio: str = "-"
    floor_twice: str = "-"
    cpu_ratio: str = "-"
    target: str = "-"

    def __str__(self) -> str:
        return f"| {' | '.join(asdict(self).values())} |"


HEADER = Row("what", "ours", "floor", "ratio", "floor / floor", "ratio, CPU time", "target")


class Bench:
    """What the measurements share: a folder, an environment for commands, and a project with a trained model."""

    def __init__(self, folder: Path, repeats: int) -> None:
        self.folder = folder
        self.repeats = repeats
        self.repeats_in_process = max(31, repeats) if repeats >= 11 else repeats  # cheap, and in blocks of many calls
        self.numbers = count()
        # Many set this in containers; a user's machine keeps what Python has compiled.
        self.env = {key: value for key, value in setup_env().items() if key != "PYTHONDONTWRITEBYTECODE"}

    @cached_property
    def project(self) -> Project:
        return self.prepare("pytorch")

    @cached_property
    def tensorflow_project(self) -> Project:
        return self.prepare("tensorflow")

    def prepare(self, framework: str) -> Project:
        print(f"prepare a project ({framework}): copy, setup, train, export", file=sys.stderr, flush=True)
        project = render(self.folder / framework, framework=framework)
        self.call("make", "setup", cwd=project.path)
        self.call(project.python, "-m", project.package, "train", "--trainer.max-epochs", "1", cwd=project.path)
        self.call(project.python, "-m", project.package, "export", cwd=project.path)
        return project

    def fresh(self) -> Path:
        return self.folder / f"fresh-{next(self.numbers)}"

    def call(self, *words: str | Path, cwd: Path | None = None) -> str:
        """Run a command, quietly unless it fails; what it printed."""
        command, nothing = [str(word) for word in words], subprocess.DEVNULL
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=self.env, stdin=nothing, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def script(self, name: str, *arguments: str | Path, project: Project | None = None) -> str:
        """Run one of the scripts here with a project's interpreter, on one thread; its progress is shown."""
        project = project or self.project
        command = [str(word) for word in (project.python, HERE / name, *arguments)]
        env = self.env | {"PYTHONPATH": str(project.path / "src")}
        env |= dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout

    def compare(
        self,
        what: str,
        ours: Callable[[], Sample],
        floor: Callable[[], Sample],
        target: str = "-",
        repeats: int | None = None,
    ) -> tuple[Row, Samples]:
        """Interleave ours, the floor, and the floor once more."""
        samples = interleave(what, {"ours": ours, "floor": floor, "floor again": floor}, repeats or self.repeats)
        return tabulate(what, samples, target), samples


def tabulate(what: str, samples: Samples, target: str = "-") -> Row:
    wall, cpu = ([{name: sample[i] for name, sample in round_.items()} for round_ in rounds(samples)] for i in (0, 1))
    return Row(
        what,
        duration(statistics.median(round_["ours"] for round_ in wall)),
        duration(statistics.median(round_["floor"] for round_ in wall)),
        spread([round_["ours"] / round_["floor"] for round_ in wall]),
        spread([round_["floor again"] / round_["floor"] for round_ in wall]),
        spread([round_["ours"] / round_["floor"] for round_ in cpu if round_["floor"] > 0]),
        target,
    )


def rounds(samples: Samples) -> Iterator[dict[str, Sample]]:
    for values in zip(*samples.values(), strict=True):
        yield {name: Sample(*value) for name, value in zip(samples, values, strict=True)}


def duration(seconds: float) -> str:
    unit, name = next((each for each in ((1, "s"), (1e-3, "ms")) if seconds >= each[0]), (1e-6, "µs"))
    return f"{seconds / unit:.3g} {name}"


def spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, middle, high = quartiles(values)
    return f"**{middle:.3f}** ({low:.3f} to {high:.3f})"


def bench_copy(bench: Bench) -> Iterator[Row]:
    """`copier copy`, against a template of the rendered files: as many and as large, without questions and Jinja."""
    copier_command = Path(sys.executable).with_name("copier")

    def in_process(source: Path, data: dict[str, str]) -> Sample:
        dest = bench.fresh()
        sample = clock(lambda: copier.run_copy(str(source), dest, data=data, defaults=True, quiet=True))
        shutil.rmtree(dest)
        return sample

    def as_a_command(source: Path, data: dict[str, str]) -> Sample:
        dest = bench.fresh()
        words: list[str | Path] = [copier_command, "copy", "--quiet", "--defaults", source, dest]
        words += [word for key, value in data.items() for word in ("--data", f"{key}={value}")]
        sample = clock(lambda: bench.call(*words))
        shutil.rmtree(dest)
        return sample

    for preset in ("solo", "large-org"):
        plain = render(bench.folder / f"plain-{preset}", preset=preset)
        for measure in (in_process, as_a_command):
            what = f"`copier copy`, {preset}, {len(plain.files())} files, {measure.__name__.replace('_', ' ')}"
            ours = partial(measure, template_source(), {"preset": preset})
            yield bench.compare(what, ours, partial(measure, plain.path, {}), "≤ 1.15")[0]


def bench_update(bench: Bench) -> Iterator[Row]:
    """`copier update` over one changed module, against a plain template with the same files and the same change."""
    copier_command = Path(sys.executable).with_name("copier")

    def versions(name: str, files: Path, changed: str) -> Path:
        """A project of the first of two versions of a template; the second is there to be taken."""
        template, project = bench.folder / f"{name}-template", bench.folder / f"{name}-project"
        shutil.copytree(files, template)
        for number in (1, 2):
            if number == 2:
                append(template / changed, "# new\n")
            else:
                git(template, "init", "--quiet")
            commit(template, f"v{number}", f"v{number}")
        git(template, "gc", "--quiet", "--prune=now")
        copier.run_copy(str(template), project, vcs_ref="v1", data={}, defaults=True, quiet=True)
        git(project, "init", "--quiet")
        commit(project, "Begin")
        return project

    plain = render(bench.folder / "plain-files").path
    count_ = len(Project(plain).files())
    answers = plain / "{{ _copier_conf.answers_file }}.jinja"
    answers.write_text("{{ _copier_answers | to_nice_yaml -}}\n", "utf-8")
    (plain / ".copier-answers.yml").unlink()
    module = "template/src/{{ package_pytorch }}/train.py"
    projects = {
        "ours": versions("ours", template_source(), module),
        "floor": versions("floor", plain, "src/my_model/train.py"),
    }

    def in_process(project: Path) -> Sample:
        dest = Path(shutil.copytree(project, bench.fresh()))
        sample = clock(lambda: copier.run_update(dest, defaults=True, overwrite=True, quiet=True))
        shutil.rmtree(dest)
        return sample

    def as_a_command(project: Path) -> Sample:
        dest = Path(shutil.copytree(project, bench.fresh()))
        sample = clock(lambda: bench.call(copier_command, "update", "--quiet", "--defaults", cwd=dest))
        shutil.rmtree(dest)
        return sample

    for measure in (in_process, as_a_command):
        what = f"`copier update`, solo, {count_} files, {measure.__name__.replace('_', ' ')}"
        ours, floor = (partial(measure, projects[name]) for name in ("ours", "floor"))
        yield bench.compare(what, ours, floor, "≤ 1.15")[0]


def bench_step(bench: Bench) -> Iterator[Row]:
    """The training loop with its logging, against a bare one (step.py, bare.py)."""
    targets = {"2.4": "≤ 1.10", "5.5": "≤ 1.05"}
    for line in bench.script("step.py", *targets, "--repeats", str(bench.repeats_in_process)).splitlines():
        found = json.loads(line)
        size = f"width {found['width']}, batch {found['batch_size']}"
        what = f"training step of about {found['milliseconds']} ms ({size})"
        yield tabulate(what, found["samples"], targets[str(found["milliseconds"])])


def bench_step_tensorflow(bench: Bench) -> Iterator[Row]:
    """TensorFlow's training loop with its logging, against a bare tf.function (step.py, bare_tensorflow.py)."""
    repeats = str(bench.repeats_in_process)
    found = json.loads(bench.script("step.py", "7.5", "--repeats", repeats, project=bench.tensorflow_project))
    size = f"width {found['width']}, batch {found['batch_size']}"
    yield tabulate(f"TensorFlow: training step of about 7.5 ms ({size})", found["samples"], "≤ 1.10")


def bench_trackers(bench: Bench) -> Iterator[Row]:
    """The training loop with all four trackers, against the same with none (step.py --trackers)."""
    words = ("step.py", "--trackers", "5.5", "--repeats", str(bench.repeats))
    project = workspace(bench.fresh(), trackers=WIDE["trackers"])
    found = json.loads(bench.script(*words, project=project).splitlines()[-1])  # after what the trackers say
    size = f"width {found['width']}, batch {found['batch_size']}"
    what = f"four trackers, training step of about 5.5 ms ({size}); floor: the same step with none"
    yield tabulate(what, found["samples"], "≤ 1.02")


def bench_ddp(bench: Bench) -> Iterator[Row]:
    """launch/ddp.sh on two processes, against a bare script under torchrun; examples a second, without start-up."""
    project, group, width, epochs = bench.project, 4, 96, 3
    torchrun: list[str | Path] = [
        project.python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]

    def bare(size: int) -> Sample:
        options = {"width": width, "batch-size": size, "epochs": epochs, "group": group}
        words: list[str | Path] = [*torchrun, HERE / "bare.py", *flags(options)]
        return Sample(float(bench.call(*words).split()[-1]), 0)

    def ours(size: int) -> Sample:
        name = f"ddp-{next(bench.numbers)}"
        trainer = {"device": "cpu", "max-epochs": epochs, "global-batch-size": size, "log-every": group}
        options = {"model.width": width} | {f"trainer.{key}": value for key, value in trainer.items()}
        launch = ("launch/ddp.sh", "--nproc-per-node", "2", "--run-name", name, "--")
        bench.call(*launch, *flags(options), cwd=project.path)
        metrics = project.path / "runs" / "baseline" / name / "metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
        speeds = [line for line in lines if line["name"] == "examples_per_second"]
        # Where the line before is of the same epoch, no start-up and no evaluation lies between the two.
        full = [b for a, b in pairwise(speeds) if a["epoch"] == b["epoch"] and b["step"] - a["step"] == group]
        return Sample(statistics.median(size / line["value"] for line in full), 0)

    print("choose a batch size for two processes", file=sys.stderr, flush=True)
    size = choose_size(lambda size: bare(size).wall, 0.075, 32, 64)
    what = f"DDP, two processes, a step (width {width}, batch {size})"
    row, samples = bench.compare(what, partial(ours, size), partial(bare, size))
    yield row
    speed = {name: statistics.median(size / sample.wall for sample in taken) for name, taken in samples.items()}
    ratio = [each["floor"].wall / each["ours"].wall for each in rounds(samples)]
    control = [each["floor"].wall / each["floor again"].wall for each in rounds(samples)]
    what, ours_, floor = "the same, examples a second", f"{speed['ours']:.0f}", f"{speed['floor']:.0f}"
    yield Row(what, ours_, floor, spread(ratio), spread(control), target="≥ 0.95")


def flags(options: Mapping[str, object]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def bench_help(bench: Bench) -> Iterator[Row]:
    """CPU time of `train --help`, against importing what it cannot do without, and against Python alone."""
    project = bench.project

    def cpu(*words: str) -> Sample:
        seconds = clock(lambda: bench.call(project.python, *words, cwd=project.path)).cpu
        return Sample(seconds, seconds)

    for code in ("import pydantic_settings", "pass"):
        what = f"CPU time of `train --help`; floor: `python -c '{code}'`"
        ours, floor = partial(cpu, "-m", project.package, "train", "--help"), partial(cpu, "-c", code)
        yield bench.compare(what, ours, floor, "≤ 0.45 s")[0]


def bench_epoch(bench: Bench) -> Iterator[Row]:
    """From `copier copy` to the end of the first epoch with packages cached, against installing the packages alone."""
    project, copier_command = bench.project, Path(sys.executable).with_name("copier")
    uv = Path(shutil.which("uv") or project.path / ".venv" / "bin" / "uv")
    wanted = bench.folder / "requirements.txt"
    wanted.write_text(bench.call(uv, "pip", "freeze", "--python", project.python, "--exclude-editable"), "utf-8")
    stages: dict[str, list[float]] = {"copy": [], "setup": [], "train": []}

    def ours() -> Sample:
        dest = bench.fresh()
        commands: list[tuple[str | Path, ...]] = [
            (copier_command, "copy", "--quiet", "--defaults", template_source(), dest),
            ("make", "-C", dest, "setup"),
            ("make", "-C", dest, "train", "ARGS=--trainer.max-epochs 1"),
        ]
        taken = [clock(partial(bench.call, *words)) for words in commands]
        for seconds, sample in zip(stages.values(), taken, strict=True):
            seconds.append(sample.wall)
        shutil.rmtree(dest)
        return Sample(sum(sample.wall for sample in taken), sum(sample.cpu for sample in taken))

    def floor() -> Sample:
        dest = bench.fresh()

        def install() -> None:
            bench.call(uv, "venv", dest)
            bench.call(uv, "pip", "install", "--python", dest, "-r", wanted)

        sample = clock(install)
        shutil.rmtree(dest)
        return sample

    # Few rounds: each leaves three environments of thousands of folders, which some file systems delete slowly.
    rounds_ = min(3, bench.repeats)
    what = f"`copier copy` to the first epoch, {rounds_} rounds; floor: `uv pip install` alone"
    yield bench.compare(what, ours, floor, "< 60 s", rounds_)[0]
    for stage, seconds in stages.items():
        low, middle, high = quartiles(seconds[1:])
        yield Row(f"of that, {stage}", f"{duration(middle)} ({duration(low)} to {duration(high)})")


def bench_predict(bench: Bench) -> Iterator[Row]:
    """Predicting one picture: the Predictor against onnxruntime alone, and the command against a bare script."""
    project = bench.project
    run = next((project.path / "runs").glob("*/*/model.onnx")).parent
    samples = json.loads(bench.script("predict.py", run, "--repeats", str(bench.repeats_in_process)))
    yield tabulate("`Predictor.predict`, one picture; floor: onnxruntime's session", samples)
    bench.call(project.python, ROOT / "tests" / "write_digits.py", bench.folder / "pictures")
    picture = next((bench.folder / "pictures").iterdir())
    ours = partial(bench.call, project.python, "-m", project.package, "predict", picture, "--model", run)
    floor = partial(bench.call, project.python, HERE / "bare_predict.py", run / "model.onnx", picture)
    yield bench.compare("`predict`, one picture; floor: a bare script", partial(clock, ours), partial(clock, floor))[0]


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "copy": bench_copy,
    "update": bench_update,
    "step": bench_step,
    "step-tensorflow": bench_step_tensorflow,
    "trackers": bench_trackers,
    "ddp": bench_ddp,
    "help": bench_help,
    "epoch": bench_epoch,
    "predict": bench_predict,
}


def describe(bench: Bench, command: str, load: float) -> str:
    """The machine, the versions, the date, and the command that makes the table."""
    cpu = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).is_file():
        models = [line.partition(": ")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    names = ("torch", "onnxruntime", "pydantic-settings")
    ask = f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {names}), sep=', ')"
    versions = f"copier {version('copier')}, {bench.call(bench.project.python, '-c', ask).strip()}"
    return (
        f"`{command}` on {datetime.now(UTC):%Y-%m-%d}: {cpu}, {os.cpu_count()} cores, {platform.system()}, "
        f"load average {load:.1f} at the start; Python {platform.python_version()}, {versions}. Medians of "
        f"{bench.repeats} rounds ({bench.repeats_in_process} of the training step and the Predictor), with quartiles."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"any of: {', '.join(SECTIONS)}")
    parser.add_argument("--repeats", type=int, default=11, help="rounds of each measurement")
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCS.relative_to(ROOT)}")
    parser.add_argument("--profile-step", action="store_true", help="what each line of the training loop costs")
    args = parser.parse_args()
    chosen = args.sections or list(SECTIONS)
    if unknown := set(chosen) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="mlstack-bench-") as folder:
        bench = Bench(Path(folder), args.repeats)
        if args.profile_step:
            print(bench.script("step.py", "--lines", "2.4", "5.5"))
            return
        rows = [row for name in chosen for row in SECTIONS[name](bench)]
        command = " ".join(["make bench", *([f'ARGS="{" ".join(chosen)}"'] if args.sections else [])])
        text = "\n".join([describe(bench, command, load), "", str(HEADER), "|---" * 7 + "|", *map(str, rows)])
        print(f"\n{text}", flush=True)
        if args.write:
            before, rest = DOCS.read_text("utf-8").split(BEGIN)
            DOCS.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
        print(f"remove {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(template_source())


if __name__ == "__main__":
    main()
