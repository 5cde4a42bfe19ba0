"""The `slate` command: the same function as the binary's."""

import os
import shutil
import signal
import sys
import sysconfig

from . import _native


def program() -> str:
    """The installed script: of this environment, of ``pip install --user``, or one on the PATH."""
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
    ]
    found = shutil.which("slate", path=os.pathsep.join(folders)) or shutil.which("slate")
    if found is None:
        raise FileNotFoundError(
            f"slate: the command is not in {' or '.join(folders)}, nor on the PATH; put the folder "
            "that pip installed it to on the PATH"
        )
    return found


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # Python would only take note of Ctrl-C, and look at its notes after the command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["slate", *sys.argv[1:]], shutil.which(sys.argv[0]) or program())
