"""A debugging session, as the editor holds it with debugpy's adapter (the Debug Adapter Protocol)."""

import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from peer import Message, Peer


class Debugger(Peer):
    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes], env: Mapping[str, str]) -> None:
        super().__init__(incoming, outgoing)
        self.env, self.sent = env, 0  # `env` is the terminal's
        self.terminal: subprocess.Popen[bytes] | None = None

    def answer(self, message: Message) -> bool:
        if message["type"] != "request":
            return False
        assert message["command"] == "runInTerminal", message
        ask = message["arguments"]
        self.terminal = subprocess.Popen(
            ask["args"],
            cwd=ask["cwd"],
            env={**self.env, **ask.get("env", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        reply = {"type": "response", "request_seq": message["seq"], "command": message["command"], "success": True}
        self.send(reply | {"seq": 0, "body": {"processId": self.terminal.pid}})
        return True

    def ask(self, command: str, **arguments: Any) -> int:
        self.sent += 1
        self.send({"seq": self.sent, "type": "request", "command": command, "arguments": arguments})
        return self.sent

    def request(self, command: str, **arguments: Any) -> Message:
        return self.reply(self.ask(command, **arguments))

    def reply(self, number: int) -> Message:
        reply = self.wait_for(lambda message: message.get("request_seq") == number)
        assert reply["success"], reply
        body: Message = reply.get("body", {})
        return body

    def event(self, name: str) -> Message:
        event = self.wait_for(lambda message: message.get("event") in (name, "terminated"))
        assert event["event"] == name, "ended before"
        body: Message = event.get("body", {})
        return body

    def begin(self, command: str, configuration: Message, file: Path, line: int) -> None:
        """Launch or attach, with a breakpoint."""
        self.request("initialize", adapterID="debugpy", pathFormat="path", supportsRunInTerminalRequest=True)
        started = self.ask(command, **configuration)
        self.event("initialized")
        self.request("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": line}])
        self.request("configurationDone")
        self.reply(started)

    def attach(self, file: Path, line: int) -> "Debugger":
        """A session with a process that the debugged one has started, with a breakpoint."""
        child = self.event("debugpyAttach")
        connection = socket.create_connection((child["connect"]["host"], child["connect"]["port"]))
        session = Debugger(connection.makefile("rb"), connection.makefile("wb"), self.env)
        session.begin("attach", child, file, line)
        return session

    def wait_for_breakpoint(self) -> Message:
        """The frame that it has stopped in."""
        stopped = self.event("stopped")
        assert stopped["reason"] == "breakpoint"
        frame: Message = self.request("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
        return frame

    def locals(self, frame: Message) -> dict[str, str]:
        (scope,) = [each for each in self.request("scopes", frameId=frame["id"])["scopes"] if each["name"] == "Locals"]
        found = self.request("variables", variablesReference=scope["variablesReference"])["variables"]
        return {variable["name"]: variable["value"] for variable in found}
