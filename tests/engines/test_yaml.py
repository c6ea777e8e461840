"""What redhat.vscode-yaml does with configs/experiment and configs/search: its server, with the project's settings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from peer import Message, Peer, server
from workspace import Workspace, workspace


class Editor(Peer):
    """Gives the language server its settings, and tells it of open files and of changes on disk."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes], folder: Path) -> None:
        super().__init__(incoming, outgoing)
        own = json.loads((folder / ".vscode" / "settings.json").read_text("utf-8"))
        yaml = {key.removeprefix("yaml."): value for key, value in own.items() if key.startswith("yaml.")}
        self.settings = {"yaml": yaml | {"schemaStore": {"enable": False}}}  # no download
        self.requests = 0
        self.versions: dict[str, int] = {}
        root = {"uri": folder.as_uri(), "name": folder.name}
        client = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self.request("initialize", {"rootUri": root["uri"], "workspaceFolders": [root], "capabilities": client})
        self.notify("initialized", {})
        self.notify("workspace/didChangeConfiguration", {"settings": self.settings})

    def answer(self, message: Message) -> bool:
        if "id" not in message or "method" not in message:
            return False
        result = None
        if message["method"] == "workspace/configuration":
            result = [self.settings.get(item["section"], {}) for item in message["params"]["items"]]
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return True

    def notify(self, method: str, params: Message) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Message) -> Any:
        number = self.requests = self.requests + 1
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        reply = self.wait_for(lambda message: message.get("id") == number)
        assert "error" not in reply, reply
        return reply["result"]

    def show(self, file: Path, text: str) -> None:
        """Open the file with this text in the editor, or replace the text."""
        uri = file.as_uri()
        version = self.versions[uri] = self.versions.get(uri, 0) + 1
        document = {"uri": uri, "languageId": "yaml", "version": version, "text": text}
        if version == 1:
            self.notify("textDocument/didOpen", {"textDocument": document})
        else:
            self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def wait_for_problem(self, file: Path, text: str) -> list[str]:
        """What is said of the file, as soon as something holds the text; an empty text: as soon as nothing is said."""

        def said(message: Message) -> list[str]:
            return [problem["message"] for problem in message["params"]["diagnostics"]]

        def fits(message: Message) -> bool:
            published = message.get("method") == "textDocument/publishDiagnostics"
            if not published or message["params"]["uri"] != file.as_uri():
                return False
            return any(text in line for line in said(message)) if text else not said(message)

        return said(self.wait_for(fits))

    def complete(self, file: Path, line: int, character: int) -> dict[str, str]:
        """What is offered there, with its description."""
        where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": character}}
        offered = self.request("textDocument/completion", where)["items"]
        return {item["label"]: item.get("documentation", "") for item in offered}


@pytest.fixture
def project(tmp_path: Path) -> Workspace:
    return workspace(tmp_path / "project")


@pytest.fixture
def editor(yaml_language_server: str, project: Workspace) -> Iterator[Editor]:
    with server([yaml_language_server, "--stdio"], project.path) as streams:
        editor = Editor(*streams, project.path)
        file = project.path / "configs/experiment/wrong.yaml"
        editor.show(file, "trainer:\n  max_epoch: 3\n")
        editor.wait_for_problem(file, "max_epoch")  # until the schema is in use
        yield editor


def test_a_misspelt_key_is_underlined_and_nothing_that_is_shipped(project: Workspace, editor: Editor) -> None:
    for file in sorted((project.path / "configs/experiment").glob("*.yaml")):
        text = file.read_text("utf-8")
        editor.show(file, f"{text}max_epoch: 3\n")
        assert editor.wait_for_problem(file, "max_epoch") == ["Property max_epoch is not allowed."]
        editor.show(file, text)
        editor.wait_for_problem(file, "")


def test_a_space_of_a_search_is_checked_and_completed(project: Workspace, editor: Editor) -> None:
    file = project.path / "configs/search/wrong.yaml"
    editor.show(file, "parameters:\n  model.widht: { type: int, low: 1, high: 3 }\n")
    assert editor.wait_for_problem(file, "widht") == ["Property model.widht is not allowed."]
    for shipped in sorted((project.path / "configs/search").glob("*.yaml")):
        editor.show(shipped, shipped.read_text("utf-8"))
        editor.wait_for_problem(shipped, "")
    editor.show(file, "parameters:\n  \n")
    assert {"model.width", "optimizer.learning_rate"} <= editor.complete(file, 1, 2).keys()


def test_keys_are_completed(project: Workspace, editor: Editor) -> None:
    file = project.path / "configs/experiment/baseline.yaml"
    before, found, after = file.read_text("utf-8").partition("trainer:\n")
    assert found
    editor.show(file, f"{before}{found}  \n{after}")
    offered = editor.complete(file, line=before.count("\n") + 1, character=2)
    assert offered["patience"] == "stop after so many epochs without a better model"
    assert "momentum" not in offered, "of another section"


def test_a_key_of_the_owners_is_completed(project: Workspace, editor: Editor) -> None:
    file, new = project.path / "configs/experiment/new.yaml", "model:\n  \n"
    editor.show(file, new)
    assert "dropout" not in editor.complete(file, 1, 2)
    settings = project.path / "src" / project.package / "settings.py"
    known = "    width: int ="
    more = '    dropout: float = Field(0.0, ge=0, lt=1, description="share of activations left out")\n'
    settings.write_text(settings.read_text("utf-8").replace(known, more + known), "utf-8")
    project.cli("schema")
    schema = project.path / "configs/experiment.schema.json"
    editor.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": schema.as_uri(), "type": 2}]})
    assert editor.complete(file, 1, 2)["dropout"] == "share of activations left out"
