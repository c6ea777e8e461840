"""The command line. Nothing heavy is imported before a command's arguments have been parsed."""

import argparse
import difflib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .errors import UserError
from .framework import EXPORT_FORMATS, NAME

BASELINE = Path("configs/experiment/baseline.yaml")
OWNERS = {"settings.py", "data.py", "model.py", "task.py"}
PROGRAM = f"python -m {__package__}"
ENGINES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("search/engines/[!_]*.py")))
SEARCH = {"search": "search for better settings: many runs around an experiment, and which was the best"}
COMMANDS = {
    "train": "train a model, or go on with a run",
    **(SEARCH if ENGINES else {}),
    "evaluate": "measure a run's model: metrics, tables, pictures",
    "export": "write a run's model for prediction: model.onnx and model.json",
    "runs": "list and compare runs: what each reached, and the settings that differ",
    "sync": "tell a tracker all of a run, after an outage or when it is new",
    "predict": "predict files or folders with an exported model",
    "check": "pass one tiny batch through your four files",
    "hardware": f"show what there is to train on, and whether {NAME} fits it",
    "schema": "write the JSON schemas from which an editor completes configs/",
}


# Of the folder or the disk that a command writes to, and nobody's mistake in code.
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0].split("=")[0]
        near = difflib.get_close_matches(unknown, self._option_string_actions, n=1)
        raise UserError(f"{message}{f'; did you mean {near[0]}?' if near else ''} (see: {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for a failure, 2 for bad input, 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
            print("\n".join([f"usage: {PROGRAM} COMMAND ...; each command has its own --help\n", *lines]))
            return 0
        if words[0] not in COMMANDS:
            raise UserError(f"{words[0]}: no such command; there are: {', '.join(COMMANDS)}")
        args = build_parser(words[0]).parse_args(words[1:])
        if words[0] in ("train", "check") and resolve_config(args):
            return 0
        importlib.import_module(f".{words[0]}", __package__).main(args)
    except UserError as error:
        return _report(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
            return _report(UserError.of(error))
        if (line := _explain_owner_error(error)) is None:
            raise
        print(f"error: {' '.join(line.split())}", file=sys.stderr)
        traceback.print_exception(error)
        return 2
    return 0


def resolve_config(args: argparse.Namespace) -> bool:
    """Set args.config, before anything heavy is imported; returns whether showing it was all that was asked for."""
    from .config import check_batch, dump_config, load_config
    from .run import find_run

    args.run = None
    if getattr(args, "resume", None) is not None:
        if args.experiment:
            raise UserError("--resume takes the run's own configuration: leave --experiment out")
        newest = args.resume == Path()
        args.run = find_run(None if newest else args.resume, runs_dir=getattr(args, "runs_dir", None))
    args.config = load_config(args.run.config if args.run else args.experiment or BASELINE, args.flags, args)
    check_batch(args.config, int(os.environ.get("WORLD_SIZE", "1")))
    if getattr(args, "dry_run", False):
        print(dump_config(args.config), end="")
        return True
    return False


def build_parser(command: str) -> Parser:
    parser = Parser(prog=f"{PROGRAM} {command}", description=COMMANDS[command], allow_abbrev=False)
    add = parser.add_argument
    if command in ("train", "check"):
        add("--experiment", type=Path, metavar="FILE", help=f"YAML file (default: {BASELINE})")
    if command == "search":
        space = "YAML file with what to vary (default: configs/search/baseline.yaml)"
        add("--space", type=Path, default=Path("configs/search/baseline.yaml"), metavar="FILE", help=space)
        engines = f"any of: {', '.join(ENGINES)} (default: {ENGINES[0]})"
        add("--engine", default=ENGINES[0], metavar="NAME", help=engines)
        add("--trials", type=int, default=20, metavar="N", help="runs in all, those of before included (default: 20)")
        add("--workers", type=int, default=1, metavar="N", help="trials at the same time, each on a GPU (default: 1)")
        add("--search-name", metavar="NAME", help="of the folder of all its runs; a search that has it already goes on")
    if command == "train":
        resume = "go on with a run from its last checkpoint (default: the newest run)"
        add("--resume", nargs="?", type=Path, const=Path(), metavar="RUN", help=resume)
        add("--run-name", metavar="NAME", help="name of the run directory; a run that has it already goes on")
        add("--dry-run", action="store_true", help="print the resolved configuration and stop")
    if command in ("evaluate", "export"):
        add("run", nargs="?", type=Path, metavar="RUN", help="a run directory (default: the newest)")
        add("--checkpoint", choices=["best", "last"], default="best", help="default: best")
    if command == "evaluate":
        add("--split", choices=["val", "test"], default="test", help="default: test")
    if command == "export":
        add("--format", choices=EXPORT_FORMATS, default="onnx", help="default: onnx")
    if command == "runs":
        add("runs", nargs="*", type=Path, metavar="RUN", help="run directories (default: all, the newest first)")
        where = "only runs for which it holds, such as status=finished or val/accuracy>0.9"
        add("--where", action="append", default=[], metavar="KEY=VALUE", help=where)
        add("--sort", metavar="KEY", help="by a metric or a setting, the lowest first; --sort=-KEY: the highest")
        add("--limit", type=int, default=20, metavar="N", help="show so many (default: 20)")
        add("--format", choices=["table", "jsonl"], default="table", help="default: table")
        add("--plot", type=Path, metavar="FILE", help="draw their curves instead, such as curves.png")
    if command == "sync":
        add("runs", nargs="*", type=Path, metavar="RUN", help="run directories (default: the newest)")
        from .tracking import AVAILABLE

        add("--tracker", required=True, choices=AVAILABLE, help="one that this project has")
    if command == "predict":
        add("paths", nargs="+", type=Path, metavar="PATH", help="files, or folders of them")
        add("--model", type=Path, metavar="RUN", help="folder with model.onnx (default: the newest run that has one)")
        add("--format", choices=["table", "jsonl"], default="table", help="default: table")
    if command in ("train", "check", "search"):
        from .config import add_flags

        parser.usage = parser.format_usage().removeprefix("usage: ").strip() + " [--section.key VALUE ...]"
        parser.set_defaults(flags=add_flags(parser))
    return parser


def _report(error: UserError) -> int:
    if str(error) and os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _explain_owner_error(error: Exception) -> str | None:
    """One line for an exception that was raised in, or below, one of the owner's four files."""
    problem = f"got {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and Path(error.filename or "").name in OWNERS:
        return f"{Path(error.filename or '').name}: must be valid Python, {problem}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, NotImplementedError) and Path(frames[-1].filename).name == "contract.py":
        return f"task.py: Task must have {error}, got none"
    if isinstance(error, (AttributeError, ImportError)):
        for name in OWNERS:  # such as "module 'package.data' has no attribute 'build_datasets'"
            if f"'{__package__}.{name.removesuffix('.py')}'" in str(error):
                return f"{name}: the file must have all that contract.py names, {problem}"
    for frame in frames:
        file = Path(frame.filename)
        if file.parent == Path(__file__).parent and file.name in OWNERS:
            return f"{file.name}: {'the file' if frame.name == '<module>' else frame.name} must run, {problem}"
    return None
