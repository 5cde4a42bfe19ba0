"""The `slate` command: the same function as the binary's."""

import shutil
import signal
import sys
import sysconfig

from . import _native


def program() -> str:
    """The installed script."""
    return shutil.which("slate", path=sysconfig.get_path("scripts")) or "slate"


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # Python would only take note of Ctrl-C, and look at its notes after the command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["slate", *sys.argv[1:]], program())
