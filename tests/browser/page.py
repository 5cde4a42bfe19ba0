"""A page in headless Chromium: what a person does there, and what a person could complain about."""

import base64
import json
import os
import pathlib
import time
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

AXE = pathlib.Path(os.environ["AXE"]).read_text()

# Runs in the page: `window.made` says what fetch answers, `window.asked` what it was asked.
FETCH = """
const real = window.fetch;
window.made = {};
window.asked = [];
window.fetch = (path, options = {}) => {
  window.asked.push({ path, token: options.headers?.Authorization ?? null, body: options.body && JSON.parse(options.body) });
  const key = Object.keys(window.made).find((start) => path.startsWith(start));
  if (key === undefined) return real(path, options);
  const { status, body, headers } = window.made[key];
  if (status !== null) return Promise.resolve(new Response(JSON.stringify(body), { status, headers }));
  return new Promise((_, fail) => options.signal.addEventListener("abort", () => fail(options.signal.reason)));
};
"""


def wait_until(condition, what, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


class Page:
    def __init__(self, url, shots):
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        self.url, self.shots, self.bundle, self.requests = url, shots, None, []
        shots.mkdir(parents=True, exist_ok=True)

    def close(self):
        self.driver.quit()

    # What a person does.

    def open(self):
        self.driver.get(f"{self.url}/")
        wait_until(lambda: self.text("request") != "–", "the first slate")
        self.get(FETCH)
        self.bundle = self.api("/v1/bundle")

    def look(self, width, scheme):
        height = 844 if width < 600 else 900
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        self.width = width

    def click(self, selector):
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def type(self, selector, text):
        field = self.driver.find_element(By.CSS_SELECTOR, selector)
        field.send_keys(Keys.CONTROL, "a", Keys.NULL, text or Keys.DELETE)

    def submit(self, field, text):
        self.type(f"#{field}", text)
        self.key("ENTER")

    def keys(self, text):
        ActionChains(self.driver).send_keys(text).perform()

    def key(self, name, field=None):
        if field:
            self.get(f"document.getElementById('{field}').focus()")
        self.keys(getattr(Keys, name))

    def search(self, text):
        self.type("#query", text)
        self.wait_for_options()

    def wait_for_options(self):
        script = "return document.querySelector('#popup:not([hidden]) [role=option][aria-selected=true]') !== null"
        wait_until(lambda: self.get(script), "the list of items")

    def choose(self, item):
        """Goes to the item with the arrow keys and takes it."""
        for _ in range(20):
            active = self.driver.find_element(By.CSS_SELECTOR, "[role=option][aria-selected=true]")
            assert active.get_attribute("id") == self.get("return document.activeElement.getAttribute('aria-activedescendant')")
            if active.find_element(By.CLASS_NAME, "title").text == self.name_of(item):
                return self.ask(lambda: self.key("ENTER"))
            self.key("ARROW_DOWN")
        raise AssertionError(f"{self.name_of(item)} is not in the list")

    def ask(self, act, what="a new slate"):
        """Does something that brings a new slate, and waits for the slate."""
        before = self.text("request")
        act()
        wait_until(lambda: self.text("request") != before, what)

    def tab_to(self, element, name=None):
        """Presses Tab until the element with this id, or a visible button of this class, has the focus."""
        script = "return [document.activeElement.id, ...document.activeElement.classList]"
        for _ in range(60):
            if (element or name) in self.get(script):
                return
            self.key("TAB")
        raise AssertionError(f"Tab does not reach {element or name}")

    def tour(self):
        """All stops of Tab, until the first one comes again."""
        script = """
            const at = document.activeElement, style = getComputedStyle(at);
            window.stops ??= []; let place = window.stops.indexOf(at);
            if (place < 0) window.stops.push(at);
            return {body: at === document.body, seen: place >= 0, id: at.id, classes: at.className,
                outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2};"""
        stops = []
        for _ in range(200):
            self.key("TAB")
            stop = self.get(script)
            if stop["seen"]:
                return [one for one in stops if not one["body"]]
            stops.append(stop)
        raise AssertionError("Tab never comes round")

    # What stands there.

    def text(self, element):
        return self.get("return document.getElementById(arguments[0]).textContent", element)

    def css(self, selector):
        return self.get("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def titles(self):
        return self.get("return [...document.querySelectorAll('#slate .title')].map((title) => title.textContent)")

    def slate(self):
        return self.get("return [...document.querySelectorAll('#slate .row')].map((row) => row.querySelector('.title').textContent + row.querySelector('.id').textContent)")

    def popular(self, number):
        items = self.api(f"/v1/items?q=&limit={number}")["items"]
        self.chosen_first = items[0]
        return items

    @staticmethod
    def name_of(item):
        return item["item_id"] if item["title"] is None else item["title"]

    @staticmethod
    def word_of(item):
        """What to type so that the item is among the first twenty."""
        return item["item_id"] if item["title"] is None else max(item["title"].split(), key=len).strip("(),.:")

    def api(self, path):
        script = "const done = arguments[1]; fetch(arguments[0]).then((answer) => answer.json()).then(done)"
        return self.driver.execute_async_script(script, path)

    # What the server would not do by itself.

    def answer(self, path, status, body=None, headers=None):
        made = {"status": status, "body": body, "headers": headers or {}}
        self.get("window.made = { [arguments[0]]: arguments[1] }", path, made)

    def answer_all(self):
        self.get("window.made = {}")

    def offline(self, gone):
        self.cdp("Network.enable")
        self.cdp("Network.emulateNetworkConditions", offline=gone, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    # What a person could complain about.

    def inspect(self, name):
        """Takes a screenshot; nothing may be wide, small or hard to perceive."""
        time.sleep(0.25)  # transitions end
        self.shot(name)
        overflow = self.get("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{name}: {overflow} px too wide"
        small = self.get(SMALL, 44 if self.width < 600 else 24)
        assert not small, f"{name}: small targets {small}"
        self.get(AXE)
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run().then(({ violations }) => done(violations))")
        bad = [f"{one['id']} ({one['impact']}): {[node['target'] for node in one['nodes']]}" for one in found]
        grave = [text for one, text in zip(found, bad) if one["impact"] in ("serious", "critical")]
        assert not grave, f"{name}: {grave}"
        for text in bad:
            print(f"    {name}: {text}")

    def shot(self, name):
        full = self.get("return Math.max(innerHeight, document.documentElement.scrollHeight)")
        clip = {"x": 0, "y": 0, "width": self.width, "height": full, "scale": 1}
        image = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        (self.shots / f"{name}.png").write_bytes(base64.b64decode(image))

    def no_complaints(self):
        """The console is empty; a violation of the content security policy would stand there."""
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        assert not console, console

    def only_from_here(self):
        """No request left the server's origin, and the page came with a strict policy."""
        here = urlsplit(self.url).netloc
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
        away = [url for url in asked if urlsplit(url).netloc != here and not url.startswith("data:")]
        assert asked and not away, away
        for event in events:
            response = event["params"].get("response", {}) if event["method"] == "Network.responseReceived" else {}
            if response.get("url") == f"{self.url}/":
                headers = {name.lower(): value for name, value in response["headers"].items()}
                assert "default-src 'self'" in headers.get("content-security-policy", ""), headers
        print(f"ok  {len(asked)} addresses, all of {here}")

    def get(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)


# Runs in the page: visible buttons and fields under so many pixels; a label counts with its checkbox.
SMALL = """
const least = arguments[0];
return [...document.querySelectorAll("button, input")].filter((one) => {
  const box = (one.type === "checkbox" ? one.closest("label") : one).getBoundingClientRect();
  return box.width > 0 && (box.height < least - 2 || box.width < least - 2); // 2: the border around the stepper
}).map((one) => one.id || one.className);
"""
