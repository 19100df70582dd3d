"""An object store like S3 for tests: moto's server, in a process and with an environment of its own.

The environment is made once, in ``.moto/`` of the clone: what moto needs does not go together with all that midstream's
development does. Where it cannot be made, tests are skipped with the reason.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from urllib.error import URLError

import pytest

from midstream.delta.location import TableLocation

__all__ = ["ObjectStore"]

ENVIRONMENT = Path(__file__).parent.parent.parent / ".moto"
REQUIREMENTS = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
MAKING_SECONDS = 240


class ObjectStore:
    """A running server with one bucket."""

    def __init__(self) -> None:
        python = _python()
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        command = [str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.options = {
            "aws_endpoint_url": self._url,
            "aws_allow_http": "true",
            "aws_access_key_id": "someone",
            "aws_secret_access_key": "secret",
            "aws_region": "eu-west-1",
        }

    def __enter__(self) -> ObjectStore:
        for _ in range(600):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{self._url}/bucket", method="PUT")).close()
                return self
            except URLError:
                assert self._process.poll() is None, "the server has ended"
                time.sleep(0.05)
        raise TimeoutError("the server did not start")

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.wait()

    def place(self) -> TableLocation:
        """Where there is no table yet."""
        return TableLocation.of(f"s3://bucket/{uuid.uuid4().hex}/t", self.options)


def _python() -> Path:
    """The Python of moto's environment, which is made unless it is there."""
    directory, stamp = ENVIRONMENT / "environment", ENVIRONMENT / "ready"
    python = directory / "bin" / "python"
    contents = "\n".join([sys.version, *REQUIREMENTS])
    ENVIRONMENT.mkdir(exist_ok=True)
    with open(ENVIRONMENT / "lock", "w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python.exists() and stamp.exists() and stamp.read_text() == contents:
            return python
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        for command in ([sys.executable, "-m", "venv", "--clear", str(directory)], pip):
            try:
                environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MAKING_SECONDS)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{REQUIREMENTS[0]} cannot be installed: no answer in {MAKING_SECONDS} s")
            if done.returncode:
                pytest.skip(f"{REQUIREMENTS[0]} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        stamp.write_text(contents)
    return python
