"""The examples run as they stand."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(*words: object, folder: Path) -> str:
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "quickstart.py", folder=tmp_path)
    assert "item_id" in printed and "ease" in printed and "slate serve bundle" in printed
    assert (tmp_path / "bundle" / "bundle.toml").exists()


def test_custom_reward(log: Path, tmp_path: Path) -> None:
    # Its vectors have the usual length, which the small log does not allow.
    from common import slate

    larger = tmp_path / "log.csv"
    shape = ["--users", 400, "--actions", 300, "--density", 0.1, "--ceiling-users", 50]
    assert slate("synth", *shape, "--out", larger).returncode == 0
    printed = run(EXAMPLES / "custom_reward.py", larger, "user_id", "item_id", folder=tmp_path)
    assert "runs/usual" in printed and "popularity" in printed


def test_the_notebook(tmp_path: Path) -> None:
    data = os.environ.get("FAST_SLATE_DATA")
    if not data or not (Path(data) / "ml-latest-small").exists():
        pytest.skip("ml-latest-small is not in $FAST_SLATE_DATA")
    import nbformat
    from nbclient import NotebookClient

    os.environ["SECONDS_TO_LOOK"] = "5"
    notebook = nbformat.read(EXAMPLES / "movielens.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    formats = {kind for output in shown for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= formats
