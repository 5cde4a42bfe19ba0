"""Every n-th system call of a kind fails, and what a verb then does: faults.py SLATE WORK WRITES READS [VERB...]

`strace` makes the N-th call of a kind fail, N = 1, 2, … until a run ends without a fault, and counts the faults that it
really made; of writes every WRITES-th N is tried, of reads every READS-th. A run ends identical (the fault did no harm), or with one line of error; begun again
without faults, the verb must write what it writes undisturbed. Then situations: a full disk, a folder that may not be written,
no standard output, signals, two processes at once, a clock that jumps. A line of JSON each.
"""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verbs import RESUMED, VERBS, Bench, differences, digests, end, environment, reference, said, served

# Whoever began this may have had signals ignored, as nohup does.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
slate, work, writes, reads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
bench = Bench(slate, work)
WRITES = "write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,ftruncate,fallocate,copy_file_range"
KINDS = {"ENOSPC": (WRITES, writes), "EIO": ("read,pread64,readv", reads), "ENOLCK": ("flock", 1)}
ONE_THREAD = {**environment(), "RAYON_NUM_THREADS": "1"}
PLACE = work / "place"


def problem(told: subprocess.CompletedProcess, mute: bool) -> str | None:
    """What is wrong with how a verb ended; `mute` if it could not say anything."""
    text = told.stderr.decode(errors="replace")
    if told.returncode < 0 or told.returncode > 2 or "panicked" in text:
        return f"ended with {told.returncode}: {text[-300:]}"
    if told.returncode and not mute and len(re.findall(r"^error: ", text, re.M)) != 1:
        return f"no line of error: {text[-300:]}"
    return None


def settled(verb: str, told: subprocess.CompletedProcess, wanted: tuple, mute: bool, row: dict, at: object) -> None:
    """Judges a run that was disturbed, begins it again, and counts."""
    files, loose, _ = wanted
    wrong = problem(told, mute)
    if not bench.whole(verb, PLACE):
        wrong = "half-written under its final name"
    if told.returncode == 0 or bench.is_done(verb, PLACE):
        row["no_harm"] += 1
    else:
        row["clean_error"] += wrong is None
        again = subprocess.run(bench.words(verb, PLACE), capture_output=True, env=environment())
        if again.returncode != 0:
            wrong = wrong or f"cannot go on: {again.stderr.decode()[-300:]}"
    if wrong is None:
        bench.finish(verb, PLACE)
        other = differences(digests(PLACE), files, loose)
        wrong = f"others: {other}" if other else None
    if wrong:
        row.setdefault("wrong", []).append({"at": at, "what": wrong})


def injected(verb: str, error: str, wanted: tuple) -> None:
    calls, stride = KINDS[error]
    row = {"verb": verb, "fault": error, "every": stride, "injected": 0, "runs": 0, "not_started": 0, "no_harm": 0, "clean_error": 0}
    at = 1
    while True:
        bench.begin(PLACE)
        with tempfile.NamedTemporaryFile("r") as trace:
            inject = f"inject={calls}:error={error}:when={at}"
            strace = ["strace", "-f", "-qq", "-o", trace.name, "-e", f"trace={calls}", "-e", inject]
            told = subprocess.run([*strace, *bench.words(verb, PLACE)], capture_output=True, env=ONE_THREAD, timeout=300)
            hits = [line for line in trace if "(INJECTED)" in line]
        if not hits:
            break
        row["runs"] += 1
        row["injected"] += len(hits)
        if told.returncode == 127:  # the dynamic loader could not read a library
            row["not_started"] += 1
        else:
            settled(verb, told, wanted, any("write(2" in line for line in hits), row, at)
        at += stride
    said(row, not row["injected"] or "wrong" in row)


def situation(verb: str, name: str, wanted: tuple, run) -> None:
    row = {"verb": verb, "fault": name, "injected": 1, "runs": 1, "no_harm": 0, "clean_error": 0}
    bench.begin(PLACE)
    told = run(bench.words(verb, PLACE))
    if told is None:
        return
    settled(verb, told, wanted, False, row, name)
    said(row, "wrong" in row)


def signalled(number: int, seconds: float):
    def run(words: list[str]) -> subprocess.CompletedProcess:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        time.sleep(seconds / 2)
        process.send_signal(number)
        out, text = process.communicate()
        # A process that a signal ends says nothing, and need not; a training that it stops ends with 130.
        if process.returncode < 0 or process.returncode == 130:
            return subprocess.CompletedProcess(words, 1, out, b"error: a signal\n")
        return subprocess.CompletedProcess(words, process.returncode, out, text)

    return run


def without_output(words: list[str]) -> subprocess.CompletedProcess:
    reader, writer = os.pipe()
    os.close(reader)
    told = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, env=environment())
    os.close(writer)
    return told


def at_once(words: list[str]) -> subprocess.CompletedProcess:
    """Both may end well where the second finds it done; one at least must."""
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) for _ in range(2)]
    told = [subprocess.CompletedProcess(words, process.wait(), *process.communicate()) for process in both]
    told.sort(key=lambda one: one.returncode)
    if told[0].returncode == 0 and told[1].returncode and (wrong := problem(told[1], False)):
        return subprocess.CompletedProcess(words, 101, b"", wrong.encode())
    return told[0] if told[0].returncode == 0 else told[1]


def mounted(options: str):
    """The place is a file system of its own."""

    def run(words: list[str]) -> subprocess.CompletedProcess | None:
        small = PLACE / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", small], capture_output=True).returncode:
            small.rmdir()
            print(f"LEFT OUT: no file system may be mounted here ({options})", file=sys.stderr)
            return None
        try:
            there = [word.replace(str(PLACE / "out"), str(small / "out")) for word in words if word != "--resume"]
            told = subprocess.run(there, capture_output=True, env=environment())
            left = sorted(path.name for path in small.iterdir() if not path.name.startswith("."))
            if told.returncode and left and words[1] not in RESUMED:
                return subprocess.CompletedProcess(words, 101, b"", f"left {left}".encode())
            # What there was room for goes on outside.
            if (small / "out").is_dir():
                shutil.copytree(small / "out", PLACE / "out")
            elif (small / "out").exists():
                shutil.copy(small / "out", PLACE / "out")
            return told
        finally:
            subprocess.run(["umount", small], check=True)
            small.rmdir()

    return run


def with_clock(words: list[str]) -> subprocess.CompletedProcess | None:
    """The wall clock falls back by a year, then leaps ahead by two, every few hundred times that it is read."""
    source, library = work / "clock.c", work / "clock.so"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <time.h>\nstatic long asked;\n"
        "int clock_gettime(clockid_t id, struct timespec *at) {\n"
        "  static int (*real)(clockid_t, struct timespec *);\n"
        '  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");\n'
        "  int said = real(id, at);\n"
        "  if (id == CLOCK_REALTIME) at->tv_sec += (asked++ / 3 % 3 - 1) * 31536000L;\n"
        "  return said;\n}\n"
    )
    built = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True)
    if built.returncode:
        print(f"LEFT OUT: no C compiler for a clock that jumps: {built.stderr.decode()[-200:]}", file=sys.stderr)
        return None
    return subprocess.run(words, capture_output=True, env={**environment(), "LD_PRELOAD": str(library)})


for verb in [verb for verb in sys.argv[5:] if verb in VERBS] if sys.argv[5:] else VERBS:
    wanted = reference(bench, verb, PLACE)
    for error in KINDS:
        injected(verb, error, wanted)
    situation(verb, "full disk", wanted, mounted("size=64k"))
    situation(verb, "read-only folder", wanted, mounted("ro"))
    situation(verb, "no standard output", wanted, without_output)
    situation(verb, "SIGTERM", wanted, signalled(signal.SIGTERM, wanted[2]))
    situation(verb, "SIGHUP", wanted, signalled(signal.SIGHUP, wanted[2]))
    situation(verb, "two at once", wanted, at_once)
    situation(verb, "a clock that jumps", wanted, with_clock)
shutil.rmtree(PLACE, ignore_errors=True)


def hanging() -> None:
    """The disk of a server's log takes eight seconds for each sync, for twenty seconds, as a network folder that hangs."""
    log = work / "hanging"
    shutil.rmtree(log, ignore_errors=True)
    process, port = served(bench, bench.made / "bundle", log, "--timeout", "4")
    row = {"verb": "server", "fault": "a disk that hangs", "slates": 0, "slowest_ms": 0, "stored": 0, "refused": 0, "live": True}

    def ask(path: str, body: dict | None = None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {}

    def both(at: int) -> int:
        """A slate, and what came of it."""
        started = time.perf_counter()
        status, slate = ask("/v1/slates", {"user": "1"})
        row["slates"] += status == 200
        row["slowest_ms"] = max(row["slowest_ms"], round(1e3 * (time.perf_counter() - started)))
        event = {"request_id": slate["request_id"], "position": 0, "value": 1, "event_id": str(at)}
        status, _ = ask("/v1/feedback", event)
        row["stored" if status == 204 else "refused"] += 1
        row["live"] &= ask("/livez")[0] == 200
        return status

    both(0)
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=8000000"]
    strace = subprocess.Popen([*slow, "-p", str(process.pid)])
    asked, until = 1, time.time() + 20
    while time.time() < until:
        both(asked)
        asked += 1
    strace.send_signal(signal.SIGINT)
    strace.wait()
    started = time.time()
    while both(asked) != 204:
        asked += 1
        time.sleep(0.1)
    row["back_after_s"] = round(time.time() - started, 1)
    process.terminate()
    process.wait()
    said(row, not row["live"])


if not sys.argv[5:] or "server" in sys.argv[5:]:
    hanging()
end()
