"""Runs a command and prints its wall time and memory: the sampled peak of anonymous memory
(RssAnon, which mapped files are not part of) and the kernel's peak of resident memory.

    python3 watch.py COMMAND ARGUMENT...
"""

import subprocess
import sys
import time


def status(pid):
    with open(f"/proc/{pid}/status") as lines:
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(fields[name].split()[0]) for name in ("RssAnon", "VmHWM") if name in fields}


def main():
    started = time.monotonic()
    process = subprocess.Popen(sys.argv[1:])
    anonymous = resident = 0
    while process.poll() is None:
        try:
            now = status(process.pid)
        except (FileNotFoundError, ProcessLookupError):
            break
        anonymous = max(anonymous, now.get("RssAnon", 0))
        resident = max(resident, now.get("VmHWM", 0))
        time.sleep(0.05)
    code = process.wait()
    print(
        f"wall {time.monotonic() - started:.1f} s, peak RssAnon {anonymous / 2**20:.2f} GiB, "
        f"peak resident {resident / 2**20:.2f} GiB, exit code {code}",
        file=sys.stderr,
    )
    sys.exit(code)


if __name__ == "__main__":
    main()
