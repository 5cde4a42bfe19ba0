"""A run's folder ↔ storage that all machines reach: a folder, or an object store.

Files are kept under the digest of their content, and a manifest, written last, names them. So what a
manifest names is there, whatever was interrupted, and what did not change is sent once.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

_MANIFEST = "manifest.json"
_OBJECTS = "objects"


class Storage:
    """The storage at an address: a path, or what ``pyarrow.fs.FileSystem.from_uri`` reads."""

    def __init__(self, address: str) -> None:
        if "://" not in address:
            address = Path(address).absolute().as_uri()
        self.address = address
        self._files, self._root = pyarrow.fs.FileSystem.from_uri(address)

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])

    def _is_there(self, path: str) -> bool:
        found = self._files.get_file_info(path)
        return bool(found.type == pyarrow.fs.FileType.File)

    def manifest(self) -> dict[str, str] | None:
        """The digest of each file; none where nothing was stored."""
        if not self._is_there(self._at(_MANIFEST)):
            return None
        with self._files.open_input_stream(self._at(_MANIFEST)) as stream:
            return dict(json.loads(stream.read()))

    def fetch(self, folder: Path) -> bool:
        """Writes the files to ``folder``; false where nothing was stored."""
        manifest = self.manifest()
        if manifest is None:
            return False
        for name, digest in manifest.items():
            with self._files.open_input_stream(self._at(_OBJECTS, digest)) as stream:
                content = stream.read()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{self.address}: {name} is not what was stored")
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{self.address}: {name} leads out of the folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return True

    def store(self, folder: Path, without: set[str]) -> None:
        """Stores the files of ``folder``, but for those below the names ``without``."""
        manifest = {}
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not path.is_file() or name.parts[0] in without:
                continue
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # an old checkpoint, removed meanwhile
                continue
            digest = hashlib.sha256(content).hexdigest()
            manifest[name.as_posix()] = digest
            self._write(self._at(_OBJECTS, digest), content, again=False)
        self._write(self._at(_MANIFEST), json.dumps(manifest).encode(), again=True)
        self._forget(set(manifest.values()))

    def _write(self, path: str, content: bytes, *, again: bool) -> None:
        if not again and self._is_there(path):
            return
        parent = path.rsplit("/", 1)[0]
        local = isinstance(self._files, pyarrow.fs.LocalFileSystem)
        if local:
            self._files.create_dir(parent, recursive=True)
        # An object store shows an object whole or not at all; a folder shows it when it is moved.
        beside = f"{path}.part" if local else path
        with self._files.open_output_stream(beside) as stream:
            stream.write(content)
        if local:
            self._files.move(beside, path)

    def _forget(self, digests: set[str]) -> None:
        """Deletes what the manifest does not name."""
        selector: Any = pa.fs.FileSelector(self._at(_OBJECTS), allow_not_found=True)
        for found in self._files.get_file_info(selector):
            if found.base_name not in digests:
                self._files.delete_file(found.path)
