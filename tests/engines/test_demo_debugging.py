"""The launch configuration "Demo": a breakpoint in the app holds when a browser opens the page."""

import json
import socket
import sys
from pathlib import Path

from debugger import Debugger
from peer import server
from workspace import IN_DEPTH, SMALL, workspace


@IN_DEPTH
def test_a_breakpoint_in_the_demo_holds(browser: str, tmp_path: Path) -> None:
    from demo import is_healthy, opened

    project = workspace(tmp_path / "project")
    project.cli("export", project.train("run", *SMALL, "--trainer.max-steps", "1"))
    launches = json.loads((project.path / ".vscode/launch.json").read_text("utf-8"))["configurations"]
    (configuration,) = [each for each in launches if each["name"] == "Demo"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"STREAMLIT_SERVER_PORT": str(port), "STREAMLIT_SERVER_HEADLESS": "true"}
    env |= configuration.get("env", {})
    configuration |= {"python": [str(project.python)], "cwd": str(project.path), "env": env}
    file = project.path / "app/main.py"
    line = file.read_text("utf-8").splitlines().index("page.run()") + 1
    with server([sys.executable, "-m", "debugpy.adapter"], project.path, project.env) as streams:
        debugger = Debugger(*streams, project.env)
        debugger.begin("launch", configuration, file, line)
        while not is_healthy(port):
            assert debugger.terminal and debugger.terminal.poll() is None
        with opened(browser, 1280, 900) as page:
            page.goto(f"http://127.0.0.1:{port}")
            frame = debugger.wait_for_breakpoint()
            assert (frame["line"], frame["source"]["path"]) == (line, str(file))
            assert debugger.locals(frame)["title"] == "'My model'"
        debugger.request("disconnect", terminateDebuggee=True)
        assert debugger.terminal
        debugger.terminal.communicate(timeout=120)
