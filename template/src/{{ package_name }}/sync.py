"""Tell a tracker all of a run; what it was told before is not told again."""

import argparse
import sys

from tqdm import tqdm

from .errors import UserError, redact
from .run import find_run
from .tracking import open_mirror


def main(args: argparse.Namespace) -> None:
    runs = [find_run(path) for path in args.runs or [None]]
    failed = 0
    for run in tqdm(runs, "sync", unit="run", disable=None if len(runs) > 1 else True, leave=False):
        if run.may_be_training:
            where = "process {pid} on {host}".format(**run.read_status())
            tqdm.write(f"{run.path}: {where} is training it; if not, delete its status.json", file=sys.stderr)
            failed += 1
            continue
        mirror = open_mirror(args.tracker, run)
        mirror.tell_all()
        failed += mirror.failed
        if not mirror.failed:
            tqdm.write(redact(f"{run.path}: {args.tracker} has it  {mirror.tracker.where}".rstrip()))
    if failed:
        raise UserError(f"{args.tracker}: was not told all of {failed} of {len(runs)} runs", exit_code=1)
