"""The command line. Nothing heavy is imported before a command has been parsed."""

import argparse
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .errors import UserError

PROGRAM = f"python -m {__package__}"
COMMANDS = {
    "train": "train a model, or go on with a run",
    "evaluate": "measure a run's model on a split: metrics, tables, pictures",
    "export": "write a run's model for prediction: model.onnx and model.json",
    "predict": "predict files or folders with an exported model",
    "check": "pass one tiny batch through your four files",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for a failure, 2 for bad input, 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = build_parser(words[0] if words else "").parse_args(words)
        if args.command is None:
            build_parser("").print_help()
            return 0
        importlib.import_module(f".{args.command}", __package__).main(args)
    except UserError as error:
        return _report(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        return _report(UserError(f"{error.filename or 'writing'}: {error.strerror}", exit_code=1))
    return 0


def build_parser(command: str) -> argparse.ArgumentParser:
    """The parser of all commands, with the settings of the configuration only where `command` takes them."""
    parser = Parser(prog=PROGRAM, description="Commands of this project; each has its own --help.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {name: commands.add_parser(name, help=text, description=text) for name, text in COMMANDS.items()}
    _add_train(parsers["train"])
    for name in ("evaluate", "export"):
        parsers[name].add_argument("run", nargs="?", type=Path, help="a run directory (default: the newest)")
        parsers[name].add_argument("--checkpoint", choices=["best", "last"], default="best")
    parsers["evaluate"].add_argument("--split", choices=["val", "test"], default="test")
    parsers["export"].add_argument("--format", choices=["onnx", "pt2", "torchscript"], default="onnx")
    predict = parsers["predict"]
    predict.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files, or folders of them")
    predict.add_argument("--model", type=Path, metavar="RUN", help="folder with model.onnx (default: the newest run)")
    predict.add_argument("--format", choices=["table", "jsonl"], default="table")
    _add_experiment(parsers["check"])
    if command in ("train", "check"):
        from .config import add_flags

        parser_of_settings = parsers[command]
        options = parser_of_settings.format_usage().split(" ", 1)[1].strip()
        parser_of_settings.usage = f"{options} [--section.key VALUE ...]"
        parser_of_settings.set_defaults(flags=add_flags(parser_of_settings))
    return parser


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_experiment(parser)
    parser.add_argument(
        "--resume",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="RUN",
        help="go on with a run from its last checkpoint (default: the newest run)",
    )
    parser.add_argument("--run-name", help="name of the run directory; a run that has it already goes on")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")


def _add_experiment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--experiment", type=Path, metavar="FILE", help="YAML file (default: configs/experiment/baseline.yaml)"
    )


def _report(error: UserError) -> int:
    if os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr)
        if error.cause_matters and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
    return error.exit_code
