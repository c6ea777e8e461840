"""Search for better settings: many runs around one experiment, and what they tell."""

import argparse
import importlib
import signal

from tqdm import tqdm

from ..cli import ENGINES
from ..config import load_config
from ..errors import UserError
from ..run import check_name
from .report import best, show, write_best
from .space import check_space, describe, read_space
from .trial import Search, Trial

ENDED = {
    "sigopt": "SigOpt is closed",
    "hyperas": "Hyperas is no longer kept up",
    "losswise": "Losswise is closed, and was a tracker",
}


def main(args: argparse.Namespace) -> None:
    if args.engine not in ENGINES:
        reason = ENDED.get(args.engine, f"no engine {args.engine!r}")
        raise UserError(f"--engine: {reason}; this project has: {', '.join(ENGINES)}")
    if args.trials < 1 or args.workers < 1:
        raise UserError("--trials and --workers take whole numbers above 0")
    name = args.search_name or f"{args.space.stem}-search"
    check_name("--search-name", name)
    space = read_space(args.space)
    config = load_config(space.experiment, args.flags, args)
    check_space(space, args.space, config)
    folder = config.runs_dir / name
    search = Search(folder, space, config, args.trials, args.workers)
    engine = importlib.import_module(f".engines.{args.engine}", __name__)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # which an engine may have taken
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    search.open()
    before = sum(trial.state != "running" for trial in search.read())
    total = min(args.trials, space.size or args.trials)
    print(f"{total} trials of {', '.join(space.parameters)} by {args.engine}, in {folder}")
    with tqdm(total=total, initial=min(before, total), desc="search", unit="trial", leave=False, disable=None) as bar:

        def say(trial: Trial) -> None:
            first = best(search.read())
            score = f"val/{trial.metric} {trial.value:.4f}" if trial.value is not None else ""
            so_far = f"(best {first.value:.4f}, trial {first.number})" if first else ""
            reached = trial.error if trial.state == "failed" else f"{score}  {so_far}"
            bar.update()
            tqdm.write(f"trial {trial.number}  {trial.state}  {reached}  {describe(trial.parameters)}")
            write_best(search)

        try:
            engine.run(search, say)
        except KeyboardInterrupt:
            raise UserError("interrupted, and saved; the same command goes on", exit_code=130) from None
    if search.read():
        show(search)
