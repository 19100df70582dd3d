"""The Python of the tests' Spark: forked from a process that has loaded everything.

Spark starts Python when a query starts (to ask its operator what state it keeps) and for workers, these start Python
for cells, and each process loads pandas, Numba and midstream for itself: more processor time than most micro-batches of
a test take. Here a *server* loads them once. What Spark calls as Python is a *client*, which hands its arguments,
environment and files to the server and lives as long as the process that is forked for it. A worker looks for garbage
after every task; what was loaded before the fork is not looked through.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

__all__ = ["SERVER", "client"]

SERVER = "MIDSTREAM_TESTS_WARM_PYTHON"
"""The variable that names the server's socket."""
DAEMON = "pyspark.daemon"
QUESTIONER = "pyspark.sql.streaming.transform_with_state_driver_worker"
_FILES = (0, 1, 2)


def client(folder: str) -> str:
    """An executable that is called like Python."""
    path = os.path.join(folder, "python")
    with open(path, "w") as script:
        script.write(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "$@"\n')
    os.chmod(path, 0o755)
    return path


def _as_client(arguments: list[str]) -> None:
    """Let the server do it, if it is something that needs what is loaded; else become an ordinary Python."""
    if arguments[0] == "-c" or arguments[:2] in (["-m", DAEMON], ["-m", QUESTIONER]):
        with contextlib.suppress(OSError, KeyError), socket.socket(socket.AF_UNIX) as asked:
            asked.connect(os.environ[SERVER])
            variables = [f"{name}={value}" for name, value in os.environ.items()]
            socket.send_fds(asked, [b"!"], _FILES)
            asked.sendall("\0".join([os.getcwd(), str(len(arguments)), *arguments, *variables]).encode())
            asked.shutdown(socket.SHUT_WR)
            if asked.recv(1):
                # Until the process that was forked has ended.
                asked.recv(1)
                sys.exit()
    os.execv(sys.executable, [sys.executable, *arguments])


def _as_server(path: str) -> None:
    """Fork a process for each client, until standard input ends."""
    import gc
    import select
    import signal

    _load()
    # Workers start Python for cells.
    sys.executable = client(os.path.dirname(path))
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        while True:
            ready, _, _ = select.select([0, listening], [], [])
            if listening not in ready:
                return
            asked, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                _become(asked)
            asked.close()


def _load() -> None:
    """What a worker needs, also the compiled code."""
    from itertools import islice

    import pandas  # noqa: F401
    import pyspark.sql.worker
    import pyspark.worker  # noqa: F401

    import midstream.spark.cell_work
    import midstream.spark.packing  # noqa: F401
    from midstream import ContinuousQuery
    from tests.spark.sliding import QUERIES, STREAMS, micro_batches

    query = ContinuousQuery(next(iter(QUERIES.values())), STREAMS)
    first, second = islice(query.plans(), 2)
    run = query.run_locally(first)
    for rows in micro_batches(3, 1):
        run.push(rows)
    run.migrate(second)
    run.finish()


def _become(asked: socket.socket) -> None:
    """In a process of its own: do what the client was asked for."""
    _, files, _, _ = socket.recv_fds(asked, 1, len(_FILES))
    received = b""
    while part := asked.recv(1 << 16):
        received += part
    directory, count, *others = received.decode().split("\0")
    arguments, variables = others[: int(count)], others[int(count) :]
    for number, file in zip(_FILES, files, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    asked.sendall(b"!")
    try:
        _do(arguments)
        sys.stdout.flush()
    except SystemExit:
        pass
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(0)


def _do(arguments: list[str]) -> None:
    kind, what, *sys.argv[1:] = arguments
    if kind == "-c":
        # As it was when it was started: signals for the others are not for it.
        os.setsid()
        exec(what, {"__name__": "__main__"})
    elif what == DAEMON:
        from pyspark.daemon import manager

        manager()
    else:
        from pyspark.sql.streaming import transform_with_state_driver_worker as questioner
        from pyspark.worker_util import get_sock_file_to_executor

        with get_sock_file_to_executor() as connection:
            questioner.main(connection, connection)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _as_server(sys.argv[2])
    else:
        _as_client(sys.argv[1:])
