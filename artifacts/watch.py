"""Runs a command, prints what it prints, and appends a line of JSON to a file: its wall time, the sampled
peak of its anonymous memory (RssAnon, which mapped files are no part of), and the kernel's peak of its
resident memory. Ends with the command's exit code.

    python3 watch.py FILE COMMAND ARGUMENT...
"""

import json
import os
import subprocess
import sys
import time


def memory(pid):
    """RssAnon and VmHWM in KiB, or nothing once the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as lines:
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(fields[name].split()[0]) for name in ("RssAnon", "VmHWM") if name in fields}


log, command = sys.argv[1], sys.argv[2:]
started = time.monotonic()
process = subprocess.Popen(command)
anonymous = resident = 0
while process.poll() is None:
    now = memory(process.pid)
    anonymous = max(anonymous, now.get("RssAnon", 0))
    resident = max(resident, now.get("VmHWM", 0))
    time.sleep(0.02)
row = {
    "command": [os.path.basename(command[0]), *command[1:]],
    "seconds": round(time.monotonic() - started, 2),
    "anonymous_gib": round(anonymous / 2**20, 3),
    "resident_gib": round(resident / 2**20, 3),
    "code": process.returncode,
}
with open(log, "a") as file:
    file.write(json.dumps(row) + "\n")
print(f"{row['seconds']} s, anonymous memory {row['anonymous_gib']} GiB, exit code {row['code']}", file=sys.stderr)
sys.exit(process.returncode)
