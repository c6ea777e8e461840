"""Make a release: check, put the version into CHANGELOG.md, commit, tag, and record the commit in releases.json.

    make release VERSION=0.1.0

The record is a commit of its own, since a commit cannot hold its own name. Nothing is pushed.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CHANGELOG, RELEASES = ROOT / "CHANGELOG.md", ROOT / "releases.json"
UNRELEASED = "## Unreleased\n"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def as_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def find_problem(version: str) -> str | None:
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        return f"VERSION must be three numbers such as 0.1.0, not {version!r}"
    if git("status", "--porcelain"):
        return "git status lists changes; commit them first"
    releases = json.loads(RELEASES.read_text("utf-8"))
    newest = max(releases, key=as_numbers, default="0.0.0")
    if as_numbers(version) <= as_numbers(newest):
        return f"{version} must be above {newest}, the newest release"
    if git("tag", "--list", f"v{version}"):
        return f"there is a tag v{version} already"
    changes = CHANGELOG.read_text("utf-8").partition(UNRELEASED)[2].partition("\n## ")[0]
    if not changes.strip():
        return "CHANGELOG.md says nothing under Unreleased"
    return None


def release(version: str) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    text = CHANGELOG.read_text("utf-8")
    CHANGELOG.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({today})\n", 1), "utf-8")
    git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"Version {version}")
    releases = json.loads(RELEASES.read_text("utf-8")) | {version: git("rev-parse", "HEAD")}
    RELEASES.write_text(json.dumps(releases, indent=2) + "\n", "utf-8")
    git("commit", "--quiet", "--all", "--message", f"Record release {version}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--tests", default="make lint test", help="what must pass first")
    args = parser.parse_args()
    if problem := find_problem(args.version):
        sys.exit(f"error: {problem}")
    if subprocess.run(shlex.split(args.tests), cwd=ROOT).returncode:
        sys.exit(f"error: {args.tests} fails; nothing was released")
    release(args.version)
    print(f"v{args.version} is tagged; publish it: git push --atomic origin HEAD v{args.version}")


if __name__ == "__main__":
    main()
