"""The page of a running server goes in; checks and screenshots come out. `run.sh` says how to start it."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from page import Page, wait_until

QUICK = bool(os.environ.get("QUICK"))
WIDTHS = [390] if QUICK else [390, 1280]
SCHEMES = ["light", "dark"]
SLATE = os.environ["SLATE"]


class Server:
    """`slate serve BUNDLE` with a log, or a server at a URL that somebody else started."""

    def __init__(self, source):
        self.log = self.process = None
        if re.match(r"https?://", source):
            self.url = source.rstrip("/")
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self.log = tempfile.mkdtemp(prefix="slate-log-")
        command = [SLATE, "serve", source, "--listen", address, "--log", self.log]
        self.process = subprocess.Popen(command, stdout=sys.stderr)
        wait_until(self.ready, "the server is ready", seconds=60)

    def ready(self):
        if self.process.poll() is not None:
            sys.exit(f"{SLATE} serve ended with status {self.process.returncode}")
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def feedback_rows(log):
    """The rows of feedback in a log folder, as `slate log check` counts them."""
    output = subprocess.run([SLATE, "log", "check", log, "--json"], check=True, capture_output=True, text=True)
    counts = json.loads(output.stdout)["feedback"]
    return counts["rows"] if isinstance(counts, dict) else counts


def done(text):
    print(f"ok  {text}", flush=True)


def first_visit(page, name):
    """Nothing is chosen: a stranger's slate, and words that say so."""
    page.open()
    assert page.bundle["logs"], "the server has no log: start it with --log"
    assert "stranger" in page.text("remark"), page.text("remark")
    assert len(page.slate()) == page.bundle["slate_size"]
    page.inspect(f"{name}-empty")
    done(f"{name}: a stranger's slate")


def choosing(page, name):
    """Three items are searched and chosen; the slate changes with each."""
    page.key("ESCAPE", "query")
    for item in page.popular(3):
        before = page.slate()
        page.search(page.word_of(item))
        assert page.get("return document.activeElement.id") == "query"
        if item is page.chosen_first:
            page.inspect(f"{name}-search")
        page.choose(item)
        assert page.slate() != before, "the slate did not change"
        assert page.name_of(item) in page.text("chosen")
        assert page.name_of(item) not in page.titles(), "what was chosen is hidden from the slate"
    assert re.search(r"Slate of \d+ items updated", page.text("status")), page.text("status")
    assert "stranger" not in page.text("remark")
    done(f"{name}: three items are chosen, and the slate follows")


def controls(page, name):
    """K, what stays off the slate, and what comes back."""
    size = len(page.slate())
    page.ask(lambda: page.click("#more"))
    assert len(page.slate()) == size + 1
    page.ask(lambda: page.click("#fewer"))
    gone = page.titles()[1]
    page.ask(lambda: page.click("#slate .row:nth-child(2) .leave"))
    assert gone not in page.titles() and gone in page.text("excluded")
    focus = page.get("return document.activeElement.closest('#slate .row') !== null")
    assert focus, "the focus stays in the slate"
    page.ask(lambda: page.click("#excluded .remove"))
    assert gone in page.titles()
    page.ask(lambda: page.click("#slate .row:nth-child(2) .leave"))
    page.ask(lambda: page.click("#seen"))
    page.ask(lambda: page.click("#seen"))
    if page.bundle["explores"]:
        page.ask(lambda: page.click("#explore"))
        assert "Chance" in page.text("remark")
        page.ask(lambda: page.click("#again"))
        page.ask(lambda: page.click("#explore"))
    if page.bundle.get("groups"):
        page.ask(lambda: page.type("#most", "1"))
        page.ask(lambda: page.type("#most", ""))
    done(f"{name}: the controls change the slate")


def feedback(page, name):
    """An item of the slate is liked, and the row says that the server stored it."""
    page.click("#slate .row:nth-child(1) .liked")
    wait_until(lambda: "Stored" in page.css("#slate .row:nth-child(1) .liked"), "the feedback is stored")
    assert "Feedback stored" in page.text("status")
    page.inspect(f"{name}-filled")
    done(f"{name}: feedback is stored")


def known_user(page, name):
    if page.bundle["users"] == 0:
        return
    page.ask(lambda: page.submit("user", os.environ.get("KNOWN_USER", "1")))
    assert "User" in page.text("chosen")
    page.ask(lambda: page.click("#clear"))
    assert "stranger" in page.text("remark")
    done(f"{name}: a known user, and starting over")


def keyboard(page, name):
    """Everything again without a mouse: no stop is invisible, none is a trap."""
    page.open()
    item = page.popular(1)[0]
    page.tab_to("query")
    page.keys(page.word_of(item))
    page.wait_for_options()
    page.key("ESCAPE")
    assert page.get("return document.getElementById('popup').hidden"), "Escape closes the list"
    page.key("ARROW_DOWN")
    page.wait_for_options()
    page.choose(item)
    page.tab_to("more")
    page.ask(lambda: page.key("ENTER"))
    page.tab_to("seen")
    page.ask(lambda: page.key("SPACE"))
    page.tab_to(None, "liked")
    page.key("ENTER")
    wait_until(lambda: "stored" in page.text("status"), "the feedback is stored")
    page.tab_to(None, "leave")
    page.ask(lambda: page.key("ENTER"))
    page.tab_to(None, "remove")
    page.ask(lambda: page.key("ENTER"))
    stops = page.tour()
    assert {"query", "size", "seen", "copy"} <= {stop["id"] for stop in stops}, stops
    faint = [stop for stop in stops if not stop["outlined"]]
    assert not faint, f"focus is not visible on {faint}"
    done(f"{name}: by keyboard alone, {len(stops)} stops")


def refusals(page, name):
    """Refusals that a healthy server does not give, made up in the page's own fetch."""
    page.open()
    page.answer("/v1/slates", 422, {"detail": "There is no user “<b>9</b>”."})
    page.click("#more")
    wait_until(lambda: "<b>9</b>" in page.text("trouble"), "the page shows the detail of a 422")
    page.inspect(f"{name}-refused")

    page.answer("/v1/slates", 503, {"detail": "Too many requests wait."}, {"Retry-After": "1"})
    page.click("#more")
    wait_until(lambda: "busy" in page.text("trouble"), "the page says that the server is busy")
    assert "Next try in" in page.text("countdown")
    page.ask(page.answer_all, "the page tries again after Retry-After")
    assert page.get("return document.getElementById('notice').hidden")

    page.answer("/v1/feedback", 429, {"detail": "Slower, please."}, {"Retry-After": "1"})
    page.click("#slate .row:nth-child(1) .liked")
    wait_until(lambda: "Not stored" in page.css("#slate .row .said"), "the row says that the feedback is not stored")
    page.answer_all()
    wait_until(lambda: "Stored" in page.css("#slate .row .liked"), "the feedback is sent again")
    sent = page.get("return window.asked.filter(({ path }) => path === '/v1/feedback').map(({ body }) => body)")
    assert len(sent) == 2 and sent[0] == sent[1], f"both tries send one event: {sent}"
    assert sent[0]["position"] == 0 and sent[0]["value"] == 1 and sent[0]["event_id"], sent

    page.answer("/v1/", 401, {"detail": "A token, please."})
    page.click("#more")
    wait_until(lambda: not page.get("return document.getElementById('token-form').hidden"), "the page asks for a token")
    page.inspect(f"{name}-token")
    page.answer_all()
    page.ask(lambda: page.submit("token", "swordfish"))
    assert page.get("return window.asked.at(-1).token") == "Bearer swordfish"
    assert "swordfish" not in page.get("return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")

    sly = "<img src=x onerror=alert(1)>"
    slate = [{"item_id": sly, "title": sly, "group": sly, "score": -0.5}]
    page.answer("/v1/slates", 200, {"request_id": sly, "bundle": page.bundle["digest"], "milliseconds": 1,
                                    "slate": slate, "ignored": [sly], "cold": False, "short": True, "explored": False})
    page.ask(lambda: page.click("#fewer"))
    assert page.titles() == [sly] and page.get("return document.querySelectorAll('main img').length") == 0

    page.answer("/v1/slates", None)  # silence
    page.click("#more")
    wait_until(lambda: page.get("return document.getElementById('slate').ariaBusy === 'true'"), "the page says that it waits")
    page.inspect(f"{name}-waiting")
    page.answer_all()
    page.ask(lambda: page.click("#more"), "a new question ends the wait for the old one")
    assert sly not in page.titles()
    assert page.get("return document.getElementById('slate').ariaBusy") is None
    done(f"{name}: refusals, a token, markup in a title, silence")


def server_gone(page, server, looks):
    """The page stays usable without a server, says so, and comes back by itself."""
    page.open()
    for item in page.popular(2):
        page.search(page.word_of(item))
        page.choose(item)
    page.no_complaints()
    server.stop()
    if server.process is None:
        page.offline(True)
    page.click("#more")
    wait_until(lambda: "does not answer" in page.text("trouble"), "the page says that the server is gone")
    for width, scheme in looks:
        page.look(width, scheme)
        page.inspect(f"{width}-{scheme}-gone")
    if server.process is None:
        page.ask(lambda: page.offline(False), "the page comes back by itself")
    done("without a server")


def main():
    server = Server(sys.argv[1])
    shots = pathlib.Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="slate-page-"))
    page = Page(server.url, shots)
    looks = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
    try:
        for width, scheme in looks:
            page.look(width, scheme)
            for step in (first_visit, choosing, controls, feedback, known_user):
                step(page, f"{width}-{scheme}")
        for width in WIDTHS:
            page.look(width, "light")
            keyboard(page, f"{width}")
            refusals(page, f"{width}")
        server_gone(page, server, looks)
        page.only_from_here()
        if server.log:
            rows = feedback_rows(server.log)
            assert rows >= 1, "no feedback reached the log"
            done(f"{rows} rows of feedback in the log")
    finally:
        server.stop()
        page.close()
    print(f"screenshots: {shots}")


started = time.monotonic()
main()
print(f"all: {time.monotonic() - started:.0f} s")
