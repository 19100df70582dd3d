"""A process of its own for each cell, which any Python worker of the machine can use.

Spark hands a cell to whichever idle worker comes first. With one cell per machine, or executors of one core, that is
always the same one; otherwise a cell would meet another process every other batch, and be restored from its windows.
Then cells live in hosts: a worker passes the micro-batch on, and results and changes of state back.

    worker ── version, commands, packs ───▶ host    has the cell with that version, or needs its durable state
    worker ◀── results, changes, figures ── host    results go to Spark, changes to the state store

Results that go to a table are written to files by the host, and the worker gets the names of these.

A host is a cache, no more: what it holds is used only if it has the version that is in Spark's state store, so that a
host may be killed at any moment. It ends by itself when the process that Spark's workers come from ends, or after ten
idle minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec
import pyarrow as pa

from midstream import errors
from midstream.delta.result_files import ResultFile, ResultTarget, results_as_files
from midstream.errors import MidstreamError
from midstream.runtime.cell_cache import CellCache
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.framing import frame_prefix, read_frame
from midstream.runtime.messages import CellFigures, Command, encode
from midstream.runtime.state_backend import StateBackend

__all__ = ["HostFailure", "HostedCell", "main", "serve"]

IDLE_SECONDS = 600.0
"""A host without work for so long ends; the next batch restores the cell."""
START_SECONDS = 120.0
"""How long a host may take to start before a worker gives up (a loaded machine compiles for some time)."""
_LOOK_SECONDS = 2.0
_BUFFER_BYTES = 4 << 20


class Work(msgspec.Struct, frozen=True, tag="work"):
    """A micro-batch for the cell with this version; its packs are the bodies of the frame."""

    version: str
    commands: list[Command]
    target: ResultTarget | None = None
    """Where results are to be written to; None: they go to the worker."""


class StateNeeded(msgspec.Struct, frozen=True, tag="state needed"):
    """The host does not have the cell with this version."""


class State(msgspec.Struct, frozen=True, tag="state"):
    """What the state backend holds, by key; the values are the bodies of the frame."""

    setup: CellSetup
    keys: list[str]


class Results(msgspec.Struct, frozen=True, tag="results"):
    """Results follow, as an Arrow stream."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The micro-batch is done: the changes of the state backend, whose values are the bodies of the frame."""

    figures: CellFigures
    removed: list[str]
    put: list[str]
    files: list[ResultFile] = []
    """Those that results were written to."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The micro-batch failed; ``error_type`` is the class of an error of midstream's, None of any other."""

    error: str
    error_type: str | None = None
    detail: str | None = None
    hint: str | None = None


HostMessage = Work | StateNeeded | State | Results | Done | Failed


class HostedCell:
    """A cell in its host, as a worker sees it."""

    def __init__(self, run: str, cell: int) -> None:
        self._path = _directory() / hashlib.sha256(f"{run} {cell}".encode()).hexdigest()[:24]

    def work(
        self,
        setup: CellSetup,
        version: str,
        backend: StateBackend,
        commands: list[Command],
        packs: list[bytes],
        target: ResultTarget | None = None,
    ) -> Iterator[pa.RecordBatch | ResultFile | CellFigures]:
        """The results of a micro-batch, and last the cell's figures, after the state backend was updated.

        With a target, the results are the files that they were written to.
        """
        with self._connected() as connection:
            stream = _stream(connection)
            _send(stream, Work(version, commands, target), packs)
            answer, values = _receive(stream)
            if isinstance(answer, StateNeeded):
                kept = dict(backend.items())
                _send(stream, State(setup, list(kept)), list(kept.values()))
                answer, values = _receive(stream)
            if isinstance(answer, Results):
                with pa.ipc.open_stream(stream) as reader:
                    yield from reader
                answer, values = _receive(stream)
            if isinstance(answer, Failed):
                raise _failure(answer)
            assert isinstance(answer, Done), answer
            for key in answer.removed:
                backend.remove(key)
            for key, value in zip(answer.put, values, strict=True):
                backend.put(key, value)
            yield from answer.files
            yield answer.figures

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
        serving = "import sys; from midstream.runtime.cell_host import main; main(*sys.argv[1:])"
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
        self.setup: CellSetup | None = None
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
        _send(self._stream, StateNeeded())
        answer, values = _receive(self._stream)
        assert isinstance(answer, State), answer
        self.setup = answer.setup
        return zip(answer.keys, values, strict=True)


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
    assert isinstance(request, Work), request
    backend = _RemoteStateBackend(stream)

    def make() -> DurableCell:
        kept = dict(backend.items())
        assert backend.setup is not None
        return DurableCell.from_kept(backend.setup, kept)

    writer: pa.ipc.RecordBatchStreamWriter | None = None
    answer: HostMessage
    files: list[ResultFile] = []
    try:
        worked = cells.work(("", 0), request.version, make, backend, request.commands, packs)
        results: Iterator[pa.RecordBatch | ResultFile | CellFigures] = worked
        if request.target is not None:
            results = results_as_files(worked, request.target)
        for result in results:
            if isinstance(result, CellFigures):
                figures = result
                continue
            if isinstance(result, ResultFile):
                files.append(result)
                continue
            if writer is None:
                _send(stream, Results())
                writer = pa.ipc.new_stream(stream, result.schema)
            writer.write_batch(result)
        answer = Done(figures, list(backend.removed), list(backend.values), files)
    except (OSError, EOFError):
        raise
    except MidstreamError as error:
        answer = Failed(error.message, type(error).__name__, error.detail, error.hint)
    except Exception:
        answer = Failed(traceback.format_exc())
    if writer is not None:
        writer.close()
    _send(stream, answer, list(backend.values.values()) if isinstance(answer, Done) else [])


def _failure(answer: Failed) -> Exception:
    """What a host failed with: midstream's own error as if the cell were here, anything else with its traceback."""
    if answer.error_type is None:
        return HostFailure(answer.error)
    kind: type[MidstreamError] = getattr(errors, answer.error_type)
    return kind(answer.error, detail=answer.detail, hint=answer.hint)


def _stream(connection: socket.socket) -> IO[bytes]:
    return cast("IO[bytes]", connection.makefile("rwb", _BUFFER_BYTES))


def _send(stream: IO[bytes], message: HostMessage, values: Sequence[bytes] = ()) -> None:
    stream.write(frame_prefix(encode(message), [len(value) for value in values]))
    for value in values:
        stream.write(value)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[HostMessage, list[bytes]]:
    header, values = read_frame(stream)
    return msgspec.json.decode(header, type=HostMessage), values


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
