"""Where a table is: a directory, or a location in an object store that delta-rs supports, with storage options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.fs as pa_fs

from midstream.errors import BadOption
from midstream.local_paths import absolute_path

__all__ = ["TableLocation"]

_UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "MOUNT_ALLOW_UNSAFE_RENAME", "ALLOW_UNSAFE_RENAME")
"""Options of delta-rs with which concurrent commits can overwrite each other, in S3 and on file systems."""


class TableLocation(msgspec.Struct, frozen=True):
    """A table's address and delta-rs's storage options, in the form that is sent to cells."""

    address: str
    """An absolute path, or a URL with a scheme other than ``file``."""
    storage_options: dict[str, str] = {}

    @classmethod
    def of(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> TableLocation:
        """Parse a path or URL given by the user. Paths are made absolute: cells run in other directories.

        >>> TableLocation.of("file:///data/my%20table").address
        '/data/my table'
        """
        address = absolute_path(path, "a table")
        if "://" not in address and (unquote(address) != address or "\\" in address):
            # delta-rs would write to one directory, and read another one.
            raise BadOption(
                f'a table cannot be in "{address}"',
                detail="delta-rs does not take paths with a backslash, or with % and two hexadecimal digits.",
                hint="Use another directory.",
            )
        if storage_options is not None and not isinstance(storage_options, Mapping):
            raise BadOption(f"storage_options is {storage_options!r}", hint='Give a dict: {"aws_region": "eu-west-1"}.')
        options = {str(name): str(value) for name, value in (storage_options or {}).items()}
        given = {name.upper(): value for name, value in {**os.environ, **options}.items()}
        for name in _UNSAFE:
            if given.get(name, "").lower() in ("1", "true", "yes", "on", "y", "t"):
                raise BadOption(
                    f"the storage option {name} is set",
                    detail="With it, two writers of a table can overwrite each other's commits.",
                    hint="Remove it: delta-rs commits by conditional writes, which S3 supports, and by hard links.",
                )
        return cls(address.rstrip("/") or "/", options)

    @property
    def directory(self) -> Path | None:
        """The table's directory on a file system; None in an object store."""
        return None if "://" in self.address else Path(self.address)

    def open_file(self, name: str) -> pa.NativeFile:
        """Open a new file in the table for writing."""
        if self.directory is not None:
            path = self.directory / name
            path.parent.mkdir(exist_ok=True, parents=True)
            return pa_fs.LocalFileSystem().open_output_stream(str(path))
        return self._store().open_output_stream(name)

    def remove_file(self, name: str) -> None:
        """Remove a file of the table; no error if it is gone already."""
        if self.directory is not None:
            (self.directory / name).unlink(missing_ok=True)
            return
        try:
            self._store().delete_file(name)
        except FileNotFoundError:
            return

    def _store(self) -> pa_fs.FileSystem:
        from deltalake.fs import DeltaStorageHandler

        return pa_fs.PyFileSystem(DeltaStorageHandler(self.address, self.storage_options))
