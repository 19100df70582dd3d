"""A process of its own for each cell, which any Python worker of the machine can use.

Spark hands a cell to whichever idle worker comes first. With one cell per machine, or executors of one core, that is
always the same one; otherwise a cell would meet another process every other batch, and be made again from its windows.
Then cells live in hosts: a worker passes the micro-batch on, and results and changes of state back.

    worker ── version, commands, packs ───▶ host    has the cell with that version, or asks for its durable state
    worker ◀── results, changes, metrics ── host    results go to Spark, changes to the state store

A host is a cache, no more: what it holds is used only if it has the version that is in Spark's state store, so that a
host may be killed at any moment. It ends by itself when the process that Spark's workers come from ends, or after ten
idle minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from midstream import errors
from midstream.errors import MidstreamError
from midstream.spark.cell_cache import CellCache
from midstream.spark.durable_cell import CellSetup, DurableCell, StateBackend

__all__ = ["HostFailure", "HostedCell", "main", "serve"]

IDLE_SECONDS = 600.0
"""A host without work for so long ends; the next batch makes the cell again."""
START_SECONDS = 120.0
"""How long a host may take to start before a worker gives up (a loaded machine compiles for some time)."""
_LOOK_SECONDS = 2.0
_BUFFER_BYTES = 4 << 20


class HostedCell:
    """A cell in its host, as a worker sees it."""

    def __init__(self, run: str, cell: int) -> None:
        self._path = _directory() / hashlib.sha256(f"{run} {cell}".encode()).hexdigest()[:24]

    def work(
        self,
        setup: CellSetup,
        version: str,
        backend: StateBackend,
        commands: list[Mapping[str, Any]],
        packs: list[bytes],
    ) -> Iterator[pa.RecordBatch | dict[str, Any]]:
        """The results of a micro-batch, and last the cell's metrics, after the state backend was updated."""
        with self._connected() as connection:
            stream = _stream(connection)
            _send(stream, {"version": version, "commands": commands}, packs)
            answer, values = _receive(stream)
            if answer["kind"] == "lacking":
                kept = dict(backend.items())
                _send(stream, {"setup": asdict(setup), "keys": list(kept)}, list(kept.values()))
                answer, values = _receive(stream)
            if answer["kind"] == "results":
                with pa.ipc.open_stream(stream) as reader:
                    yield from reader
                answer, values = _receive(stream)
            if answer["kind"] == "failed":
                raise _failure(answer)
            for key in answer["removed"]:
                backend.remove(key)
            for key, value in zip(answer["put"], values, strict=True):
                backend.put(key, value)
            yield answer["metrics"]

    def _connected(self) -> socket.socket:
        """A connection to the host, which is started if there is none."""
        deadline = time.monotonic() + START_SECONDS
        with contextlib.suppress(OSError):
            return self._connect()
        with open(self._path.with_suffix(".lock"), "w") as lock:
            # Of several workers one starts the host; the others find it when they come to hold the lock.
            fcntl.flock(lock, fcntl.LOCK_EX)
            host: subprocess.Popen[bytes] | None = None
            while True:
                with contextlib.suppress(OSError):
                    return self._connect()
                if host is None:
                    host = self._start()
                if host.poll() is not None or time.monotonic() > deadline:
                    raise HostFailure(f"the process for a cell did not start (exit code {host.poll()})")
                time.sleep(0.02)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection

    def _start(self) -> subprocess.Popen[bytes]:
        serving = "import sys; from midstream.spark.cell_host import main; main(*sys.argv[1:])"
        return subprocess.Popen(
            [sys.executable, "-c", serving, str(self._path), str(os.getppid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            # Spark may have shipped packages to the worker.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


class HostFailure(RuntimeError):
    """The host could not do its work; the text says why."""


class _RemoteStateBackend:
    """The worker's state backend, as the host sees it: read to restore the cell, changed when the batch is done."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.setup: Mapping[str, Any] = {}
        self.values: dict[str, bytes] = {}
        self.removed: dict[str, None] = {}

    def get(self, key: str) -> bytes | None:
        raise AssertionError("the worker has read the version")

    def put(self, key: str, value: bytes) -> None:
        self.removed.pop(key, None)
        self.values[key] = value

    def remove(self, key: str) -> None:
        self.values.pop(key, None)
        self.removed[key] = None

    def items(self) -> Iterable[tuple[str, bytes]]:
        _send(self._stream, {"kind": "lacking"})
        answer, values = _receive(self._stream)
        self.setup = answer["setup"]
        return zip(answer["keys"], values, strict=True)


def serve(path: Path, parent: int) -> None:
    """Be the host of a cell: one micro-batch after the other, until the parent or the work ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(_LOOK_SECONDS)
    own = path.stat().st_ino
    cells = CellCache()
    last_work = time.monotonic()
    while _is_alive(parent) and time.monotonic() - last_work < IDLE_SECONDS and _is_still(path, own):
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        connection.settimeout(None)
        # The worker may die at any moment.
        with connection, contextlib.suppress(OSError, EOFError), _stream(connection) as stream:
            _serve_batch(stream, cells)
        last_work = time.monotonic()
    if _is_still(path, own):
        path.unlink()
        path.with_suffix(".lock").unlink(missing_ok=True)


def _serve_batch(stream: IO[bytes], cells: CellCache) -> None:
    request, packs = _receive(stream)
    backend = _RemoteStateBackend(stream)

    def make() -> DurableCell:
        kept = dict(backend.items())
        return DurableCell.from_kept(CellSetup(**backend.setup), kept)

    writer: pa.ipc.RecordBatchStreamWriter | None = None
    try:
        for result in cells.work(("", 0), request["version"], make, backend, request["commands"], packs):
            if isinstance(result, dict):
                metrics = result
                continue
            if writer is None:
                _send(stream, {"kind": "results"})
                writer = pa.ipc.new_stream(stream, result.schema)
            writer.write_batch(result)
        answer: dict[str, Any] = {
            "kind": "done",
            "metrics": metrics,
            "removed": list(backend.removed),
            "put": list(backend.values),
        }
    except (OSError, EOFError):
        raise
    except MidstreamError as error:
        answer = {"kind": "failed", "error": error.message, "type": type(error).__name__}
        answer |= {"detail": error.detail, "hint": error.hint}
    except Exception:
        answer = {"kind": "failed", "error": traceback.format_exc()}
    if writer is not None:
        writer.close()
    _send(stream, answer, list(backend.values.values()) if answer["kind"] == "done" else [])


def _failure(answer: Mapping[str, Any]) -> Exception:
    """What a host failed with: midstream's own error as if the cell were here, anything else with its traceback."""
    if "type" not in answer:
        return HostFailure(answer["error"])
    kind: type[MidstreamError] = getattr(errors, answer["type"])
    return kind(answer["error"], detail=answer["detail"], hint=answer["hint"])


def _stream(connection: socket.socket) -> IO[bytes]:
    return cast("IO[bytes]", connection.makefile("rwb", _BUFFER_BYTES))


def _send(stream: IO[bytes], header: Mapping[str, Any], values: list[bytes] | None = None) -> None:
    values = values or []
    head = json.dumps({**header, "lengths": [len(value) for value in values]}).encode()
    stream.write(len(head).to_bytes(8, "little"))
    stream.write(head)
    for value in values:
        stream.write(value)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    header = json.loads(_exactly(stream, int.from_bytes(_exactly(stream, 8), "little")))
    return header, [_exactly(stream, length) for length in header.pop("lengths")]


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the other side is gone")
    return data


def _directory() -> Path:
    """A directory that only this user can use."""
    path = Path(tempfile.gettempdir()) / f"midstream-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Of the path itself: a link that another user has put there leads wherever they like, later perhaps elsewhere.
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise HostFailure(
            f"{path} is not a directory that only this user can use; remove it, or set TMPDIR to another one"
        )
    return path


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_still(path: Path, inode: int) -> bool:
    """Whether the path still leads to this host."""
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False


def main(path: str, parent: str) -> None:
    """What a host process runs."""
    serve(Path(path), int(parent))
