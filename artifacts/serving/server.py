"""A `slate serve` in a process of its own, for the other scripts here."""
import json
import re
import subprocess
import time
import urllib.request


class Server:
    def __init__(self, slate, bundle, *flags, cores=None, port=0):
        pin = ["taskset", "-c", cores] if cores else []
        self.started = time.monotonic()
        command = [*pin, slate, "serve", bundle, "--listen", f"127.0.0.1:{port}", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"on (http://\S+)", line):
                self.address = found[1]
                return
        raise SystemExit(f"{' '.join(command)} has ended")

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def gib(self):
        """Memory now and at its peak."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return [int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 2**20 for name in ("VmRSS", "VmHWM")]

    def stop(self):
        self.process.terminate()
        self.process.wait()
