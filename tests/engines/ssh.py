"""A machine that ssh reaches: an address of this machine's loopback, behind a real SSH server and OpenSSH's client."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import asyncssh

HOST = "127.0.0.2"  # on Linux as good as 127.0.0.1; Horovod takes it for another machine


@contextmanager
def reached_by_ssh(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """HOST, as long as the block runs; yields a folder for PATH, whose `ssh` has the key that opens it."""

    async def run(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        command = str(process.command)
        shell = await asyncio.create_subprocess_shell(command, stdin=nothing, stdout=pipe, stderr=pipe, env=env)
        output, errors = await shell.communicate()
        process.stdout.write(output)
        process.stderr.write(errors)
        process.exit(shell.returncode or 0)

    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user.write_private_key(folder / "user")
    (folder / "user").chmod(0o600)
    user.write_public_key(folder / "authorized")
    loop = asyncio.new_event_loop()
    listen = asyncssh.listen(
        HOST,
        0,
        server_host_keys=[host],
        authorized_client_keys=str(folder / "authorized"),
        process_factory=run,
        encoding=None,
    )
    server = loop.run_until_complete(listen)
    port = server.get_port()
    (folder / "known").write_text(f"[{HOST}]:{port} {host.export_public_key().decode()}")
    options = f"Port {port}\nIdentityFile {folder}/user\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\n"
    (folder / "config").write_text(f"Host {HOST}\n{options}")
    (folder / "bin").mkdir()
    client = folder / "bin/ssh"
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    client.chmod(0o755)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield client.parent
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
