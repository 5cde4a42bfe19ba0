"""A run's folder ↔ storage that all machines reach: a folder, or an object store.

Files are kept under the digest of their content, and a manifest, written last, names them. So what a
manifest names is there, whatever was interrupted, and what did not change is sent once.

Whoever claims the storage last owns it: a job that was given up for dead, and is not, finds the name of
another and ends. What a store that was interrupted left behind stays, for nobody knows whose it is.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path

import pyarrow.fs

_MANIFEST = "manifest.json"
_OWNER = "owner"
_OBJECTS = "objects"


class Storage:
    """The storage at an address: a path, or what ``pyarrow.fs.FileSystem.from_uri`` reads."""

    def __init__(self, address: str) -> None:
        if "://" not in address:
            address = Path(address).absolute().as_uri()
        self.address = address
        self._files, self._root = pyarrow.fs.FileSystem.from_uri(address)
        self._name = uuid.uuid4().hex
        # The digests of the manifest that this process read or wrote last.
        self._named: set[str] = set()

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])

    def _is_there(self, path: str) -> bool:
        found = self._files.get_file_info(path)
        return bool(found.type == pyarrow.fs.FileType.File)

    def _read(self, name: str) -> bytes | None:
        if not self._is_there(self._at(name)):
            return None
        with self._files.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read())

    def claim(self) -> None:
        """From now on this process alone may store here."""
        self._write(self._at(_OWNER), self._name.encode(), again=True)

    def _require_own(self) -> None:
        if self._read(_OWNER) != self._name.encode():
            raise ValueError(
                f"{self.address}: another job has begun to store its run here, so that this one ends; "
                "give each run a storage of its own"
            )

    def manifest(self) -> dict[str, str] | None:
        """The digest of each file; none where nothing was stored."""
        manifest = self._read(_MANIFEST)
        return None if manifest is None else dict(json.loads(manifest))

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
        self._named = set(manifest.values())
        return True

    def store(self, folder: Path, without: set[str]) -> None:
        """Stores the files of ``folder``, but for those below the names ``without``.

        Raises
        ------
        ValueError
            Another process has claimed the storage.
        """
        self._require_own()
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
        self._require_own()
        self._write(self._at(_MANIFEST), json.dumps(manifest).encode(), again=True)
        digests = set(manifest.values())
        self._named, replaced = digests, self._named - digests
        self._require_own()
        for digest in sorted(replaced):
            self._files.delete_file(self._at(_OBJECTS, digest))

    def _write(self, path: str, content: bytes, *, again: bool) -> None:
        if not again and self._is_there(path):
            return
        parent = path.rsplit("/", 1)[0]
        local = isinstance(self._files, pyarrow.fs.LocalFileSystem)
        if local:
            self._files.create_dir(parent, recursive=True)
        # An object store shows an object whole or not at all; a folder shows it when it is moved.
        beside = f"{path}.{self._name}.part" if local else path
        with self._files.open_output_stream(beside) as stream:
            stream.write(content)
        if local:
            self._files.move(beside, path)
