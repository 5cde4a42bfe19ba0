"""The command of this environment, and a policy that trains within a second."""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from fast_slate import SlatePolicy

SETTINGS = {
    "prepare.min_user_interactions": 5,
    "prepare.latent_dim": 16,
    "method.samples": 8,
    "evaluation.count": 2,
    "context.folds": 2,
}
NAMES = {"user": "user_id", "item": "item_id"}


def slate(*words: object) -> subprocess.CompletedProcess[str]:
    """Runs the command that came with the wheel."""
    program = Path(sysconfig.get_path("scripts")) / "slate"
    words = [str(word) for word in words]
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=300)


def python(code: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def policy(**parameters: object) -> SlatePolicy:
    """A policy that trains within a second on the small log."""
    settings = {**SETTINGS, **parameters.pop("settings", {})}
    return SlatePolicy(**{"embeddings": "svd", "steps": 20, "settings": settings, **parameters})


def trainer(**parameters: object) -> SlatePolicy:
    """The same policy, for data that are prepared already."""
    own = policy(embeddings="auto", **parameters)
    own.settings = {key: of for key, of in own.settings.items() if not key.startswith("prepare.")}
    return own


def model(run: Path) -> bytes:
    """The parameters after the last step, as a bundle has them."""
    with tempfile.TemporaryDirectory() as folder:
        SlatePolicy.load(run, checkpoint="last").save(Path(folder) / "bundle")
        return (Path(folder) / "bundle" / "model.safetensors").read_bytes()
