"""Print docs/options.md: every question, its answers, and what each preset answers. `make options` writes it."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Options

Made by `make options` from `copier.yml` and `presets/`. Every answer is recorded in a project's `.copier-answers.yml`;
[updating.md](updating.md) tells how to change one.
"""


def show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def show_choices(question: dict[str, Any]) -> str:
    choices = question.get("choices")
    if choices is None:
        return "yes or no" if question["type"] == "bool" else "text"
    if isinstance(choices, list):
        return ", ".join(f"`{value}`" for value in choices)
    return "<br>".join(f"`{value}`: {label}" for label, value in choices.items())


def table(*rows: list[str]) -> str:
    head, *body = ("| " + " | ".join(cells) + " |" for cells in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def build() -> str:
    settings = yaml.safe_load((ROOT / "copier.yml").read_text("utf-8"))
    names = settings["preset"]["choices"].values()
    presets = {name: yaml.safe_load((ROOT / "presets" / f"{name}.yml").read_text("utf-8")) for name in names}
    questions = {name: value for name, value in settings.items() if name[0] != "_" and "help" in value}
    choices = [name for name in questions if name != "preset" and name in presets["solo"]]
    first = [
        [f"`{name}`", question["help"], show_choices(question)]
        for name, question in questions.items()
        if name not in choices
    ]
    second = [
        [f"`{name}`", question["help"], show_choices(question), *(show(preset[name]) for preset in presets.values())]
        for name, question in questions.items()
        if name in choices
    ]
    return "\n".join(
        [
            HEAD,
            "## Asked every time\n",
            table(["option", "question", "answers"], *first),
            "\n## Chosen by the preset; asked after yes to `review`\n",
            table(["option", "question", "answers", *presets], *second),
        ]
    )


if __name__ == "__main__":
    print(build())
