// What somebody chose goes to the server, and the slate that comes back goes on the page.
// Titles and ids enter the document as text only. An answer counts only if nothing was asked after it.

const PATIENCE = 15_000; // milliseconds of silence after which a server counts as gone
const LOADING = 150; // milliseconds before the page says that it waits

const $ = (id) => document.getElementById(id);
const copyOf = (template) => $(template).content.firstElementChild.cloneNode(true);
const nameOf = (item) => item.title || item.item_id;
const sideOf = (item) => (item.title ? item.item_id : ""); // what stands beside the name
const ids = (items) => items.map((item) => item.item_id);
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

let bundle = null; // what the server says of itself
let token = null; // lives here and nowhere else
let user = null; // an id
const chosen = []; // items, the latest last
const excluded = []; // items
let shown = null; // the answer on the page

// ---- Requests ----

/** What stopped a request. Status 0: no answer. `wait`: seconds after which another try may help. */
class Problem extends Error {
  constructor(message, status, wait = null) {
    super(message);
    Object.assign(this, { status, wait });
  }
}

/** The seconds in a Retry-After header, which holds a number or a date. */
function secondsIn(header) {
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(1, Math.ceil(seconds)) : null;
}

async function call(path, { body, signal } = {}) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const stops = [AbortSignal.timeout(PATIENCE), ...(signal ? [signal] : [])];
  let response, text;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal: AbortSignal.any(stops),
    });
    text = await response.text();
  } catch {
    throw new Problem("The server does not answer.", 0);
  }
  if (response.ok && !text) return null;
  let data = null;
  try {
    data = JSON.parse(text);
  } catch {
    if (response.ok) throw new Problem("The answer of the server is not JSON.", response.status);
  }
  if (response.ok) return data;
  const said = data?.detail ?? data?.title ?? `The server answers with status ${response.status}.`;
  const busy = response.status === 429 || response.status === 503;
  const wait = secondsIn(response.headers.get("Retry-After") ?? "") ?? 5;
  throw new Problem(busy ? `The server is busy. ${said}` : said, response.status, busy ? wait : null);
}

/** Signals for requests of one kind: each new one aborts the one before. */
function latest() {
  let controller = null;
  return () => {
    controller?.abort();
    controller = new AbortController();
    return controller.signal;
  };
}

function debounced(milliseconds, work) {
  let timer = null;
  const cancel = () => clearTimeout(timer);
  const later = () => {
    cancel();
    timer = setTimeout(work, milliseconds);
  };
  return Object.assign(later, { cancel });
}

// ---- What the server says of itself ----

async function meet(signal) {
  const first = bundle === null;
  bundle = await call("/v1/bundle", { signal });
  if (first) $("size").value = bundle.slate_size;
  $("size").max = bundle.num_actions;
  $("groups").hidden = !bundle.groups;
  $("explores").hidden = !bundle.explores;
  $("users").textContent = `Start from one of ${count(bundle.users, "known user")}`;
  $("user-form").hidden = bundle.users === 0 || user !== null;
  $("catalogue").textContent = count(bundle.num_actions, "item");
  $("trained").textContent = `slates of ${bundle.slate_size}, ${bundle.reward}`;
  $("digest").textContent = bundle.digest.slice(0, 12);
  $("digest").title = bundle.digest;
}

// ---- Asking for a slate ----

function question() {
  const most = $("most").valueAsNumber;
  return {
    ...(user === null ? { items: ids(chosen) } : { user, newer: ids(chosen) }),
    k: $("size").valueAsNumber,
    exclude: ids(excluded),
    exclude_seen: $("seen").checked,
    explore: bundle.explores && $("explore").checked,
    ...(bundle.groups && most >= 1 && { max_per_group: most }),
  };
}

const newest = latest();
let failures = 0;
let countdown = null;

async function refresh() {
  clearTimeout(countdown);
  const signal = newest();
  const slow = setTimeout(() => $("slate").setAttribute("aria-busy", "true"), LOADING);
  try {
    if (bundle === null) await meet(signal);
    const answer = await call("/v1/slates", { body: question(), signal });
    if (answer.bundle !== bundle.digest) await meet(signal); // the server has opened another bundle
    if (signal.aborted) return;
    failures = 0;
    calm();
    show(answer);
  } catch (problem) {
    if (!signal.aborted) complain(problem);
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) $("slate").removeAttribute("aria-busy");
  }
}

const update = debounced(80, () => {
  if ($("controls").querySelector(":invalid")) return;
  refresh();
});

function calm() {
  const inside = document.activeElement.closest(".notice") !== null;
  $("notice").hidden = $("token-form").hidden = true;
  $("answer").classList.remove("stale");
  $("trouble").textContent = "";
  if (inside) $("slate-title").focus();
}

/** Says what went wrong with the slate, and tries again by itself where that may help. */
function complain(problem) {
  if (!(problem instanceof Problem)) throw problem;
  $("answer").classList.add("stale");
  if (problem.status === 401) return askForToken();
  failures = problem.status === 0 ? failures + 1 : 0;
  $("token-form").hidden = true;
  $("notice").hidden = false;
  if ($("trouble").textContent !== problem.message) $("trouble").textContent = problem.message;
  const old = shown ? "The slate below is the one before. " : "";
  let left = problem.status === 0 ? Math.min(2 ** failures, 30) : problem.wait;
  $("countdown").textContent = old;
  if (left === null) return;
  const tick = () => {
    if (left === 0) return refresh();
    $("countdown").textContent = `${old}Next try in ${left} s.`;
    left -= 1;
    countdown = setTimeout(tick, 1000);
  };
  tick();
}

function askForToken() {
  $("notice").hidden = true;
  $("token-form").hidden = false;
  $("token").setAttribute("aria-invalid", token !== null);
  if (token !== null) $("token-hint").textContent = "The server does not take this token. Try another one.";
  if (document.activeElement === document.body) $("token").focus();
}

// ---- Showing a slate ----

let rows = new Map(); // item id → element

function show(answer) {
  const list = $("slate");
  const before = new Map((shown?.slate ?? []).map((item, place) => [item.item_id, place]));
  const tops = new Map([...rows].map(([id, row]) => [id, row.getBoundingClientRect().top]));
  const focus = focused(list);
  const scores = answer.slate.map((item) => item.score);
  const scale = { low: Math.min(0, ...scores), high: Math.max(0, ...scores) };
  const size = Math.max(scale.high, -scale.low);
  scale.digits = size > 0 ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(size)))) : 0;

  rows = new Map();
  const moves = { fresh: 0, moved: 0 };
  answer.slate.forEach((item, place) => {
    const row = rowOf(answer, item, place, scale);
    rows.set(item.item_id, row);
    if (shown) mark(row.querySelector(".moved"), place, before.get(item.item_id), moves);
  });
  list.replaceChildren(...rows.values());
  refocus(focus, list, $("slate-title"));
  if (shown) glide(tops);

  const news = [moves.fresh && `${moves.fresh} new`, moves.moved && `${moves.moved} moved`].filter(Boolean);
  const updated = shown ? ` updated: ${news.join(", ") || "as before"}` : "";
  $("status").textContent = `Slate of ${count(answer.slate.length, "item")}${updated}`;
  $("remark").textContent = remarks(answer).join(" ");
  $("milliseconds").textContent = `${answer.milliseconds.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`;
  $("request").textContent = answer.request_id;
  $("copy").hidden = false;
  $("again").hidden = !answer.explored;
  shown = answer;
}

function remarks(answer) {
  const known = chosen.length > 0 || user !== null;
  return [
    answer.cold && `Nothing is ${known ? "known of this choice" : "chosen yet"}: a stranger gets this slate.`,
    answer.explored && "Chance took part in this slate.",
    answer.short && "No more items are left.",
    answer.ignored.length > 0 && `Not in the catalogue: ${answer.ignored.join(", ")}.`,
  ].filter(Boolean);
}

function rowOf(answer, item, place, { low, high, digits }) {
  const row = copyOf("row-template");
  const part = (name) => row.querySelector(`.${name}`);
  part("rank").textContent = place + 1;
  part("title").textContent = nameOf(item);
  part("id").textContent = sideOf(item);
  part("group").textContent = item.group ?? "";
  part("score").textContent = item.score.toFixed(digits);
  part("bar").style.setProperty("--part", high > low ? (item.score - low) / (high - low) : 0);
  for (const unseen of row.querySelectorAll(".acts .unseen")) unseen.textContent = `: ${nameOf(item)}`;
  part("choose").addEventListener("click", () => add(chosen, item));
  part("leave").addEventListener("click", () => add(excluded, item));
  part("liked").hidden = !bundle.logs;
  const event = { request_id: answer.request_id, position: place, value: 1, event_id: uuid() };
  part("liked").addEventListener("click", () => like(row, item, event));
  return row;
}

/** Says how an item moved since the slate before. */
function mark(element, place, old, moves) {
  if (old === place) return;
  const up = old - place;
  element.textContent = old === undefined ? "new" : up > 0 ? `↑${up}` : `↓${-up}`;
  element.classList.add(old === undefined ? "fresh" : up > 0 ? "up" : "down");
  if (old !== undefined) {
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", up > 0 ? `up ${up}` : `down ${-up}`);
  }
  moves[old === undefined ? "fresh" : "moved"] += 1;
}

/** Lets rows glide from where they stood. */
function glide(tops) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [id, row] of rows) {
    const from = tops.get(id) - row.getBoundingClientRect().top;
    if (from) row.animate([{ transform: `translateY(${from}px)` }, {}], { duration: 220, easing: "ease-out" });
    if (!tops.has(id)) row.animate([{ opacity: 0 }, {}], { duration: 220 });
  }
}

/** Where the focus stands in a list, as (entry, button), so that it survives a new list. */
function focused(list) {
  const entry = [...list.children].findIndex((child) => child.contains(document.activeElement));
  return entry < 0 ? null : { entry, name: document.activeElement.classList[1] };
}

function refocus(focus, list, otherwise) {
  if (focus === null) return;
  const entry = list.children[Math.min(focus.entry, list.children.length - 1)];
  (entry?.querySelector(`.${focus.name}`) ?? otherwise).focus();
}

// ---- Feedback ----

/** A random UUID, also where the page came over plain HTTP and randomUUID is missing. */
function uuid() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
}

/** Sends one event. A second try sends the same event id, so the log counts the event once. */
async function like(row, item, event) {
  const button = row.querySelector(".liked");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  const say = (verb, state, why = "") => {
    button.querySelector(".verb").textContent = verb;
    row.querySelector(".said").textContent = why;
    row.dataset.feedback = state;
  };
  const slow = setTimeout(() => say("Sending", "sending"), LOADING);
  try {
    await call("/v1/feedback", { body: event });
    clearTimeout(slow);
    say("Stored", "stored");
    $("status").textContent = `Feedback stored: ${nameOf(item)}`;
  } catch (problem) {
    clearTimeout(slow);
    button.removeAttribute("aria-disabled");
    const again = problem.wait === null ? "" : ` Next try in ${problem.wait} s.`;
    say("Liked", "failed", `Not stored. ${problem.message}${again}`);
    $("status").textContent = `Feedback not stored: ${nameOf(item)}. ${problem.message}${again}`;
    if (problem.status === 401) askForToken();
    if (problem.wait !== null) setTimeout(() => like(row, item, event), problem.wait * 1000);
  }
}

// ---- What was chosen ----

/** Adds an item to one of the lists, once. */
function add(items, item) {
  if (!ids(items).includes(item.item_id)) items.push(item);
  changed();
  if (items === chosen) $("chosen").scrollTop = $("chosen").scrollHeight;
}

function drop(items, item) {
  items.splice(items.indexOf(item), 1);
  changed();
}

function forget() {
  user = null;
  changed();
}

function pickOf(item, label, remove) {
  const pick = copyOf("pick-template");
  pick.querySelector(".title").textContent = nameOf(item);
  pick.querySelector(".side").textContent = sideOf(item);
  pick.querySelector(".unseen").textContent = `${label} ${nameOf(item)}`;
  pick.querySelector("button").addEventListener("click", remove);
  return pick;
}

function fill(list, picks, otherwise) {
  const focus = focused(list);
  list.replaceChildren(...picks);
  refocus(focus, list, otherwise);
}

/** Draws the lists of picks and asks for the slate that follows from them. */
function changed() {
  const picks = chosen.map((item) => pickOf(item, "Remove", () => drop(chosen, item)));
  if (user !== null) picks.unshift(pickOf({ item_id: `User ${user}`, title: null }, "Remove", forget));
  const left = excluded.map((item) => pickOf(item, "Allow", () => drop(excluded, item)));
  $("user-form").hidden = !bundle?.users || user !== null;
  $("left-out").hidden = left.length === 0;
  fill($("chosen"), picks, $("query"));
  fill($("excluded"), left, $("slate-title"));
  $("clear").hidden = picks.length + left.length === 0;
  update();
}

// ---- Search: a combobox with a listbox ----

const input = $("query");
const newestSearch = latest();
let options = []; // the items in the listbox
let optionsFor = null; // the text that they answer
let active = -1;

async function find() {
  const signal = newestSearch();
  const text = input.value.trim();
  const slow = setTimeout(() => open("Searching …"), LOADING);
  try {
    const { items } = await call(`/v1/items?q=${encodeURIComponent(text)}&limit=20`, { signal });
    if (signal.aborted) return;
    [options, optionsFor] = [items, text];
    const none = text ? `Nothing has “${text}” in its title or id` : "The catalogue is empty";
    open(items.length === 0 ? none : text ? count(items.length, "item") : "Most popular");
    activate(text ? items.findIndex((item) => !ids(chosen).includes(item.item_id)) : -1);
  } catch (problem) {
    if (signal.aborted) return;
    close();
    if (problem.status === 401) askForToken();
    else open(problem.message);
  } finally {
    clearTimeout(slow);
  }
}

const search = debounced(120, find);

function open(message) {
  $("found").textContent = message;
  $("options").replaceChildren(
    ...options.map((item, place) => {
      const option = copyOf("option-template");
      const taken = ids(chosen).includes(item.item_id);
      option.id = `option-${place}`;
      option.querySelector(".title").textContent = nameOf(item);
      option.querySelector(".side").textContent = taken ? "chosen" : sideOf(item);
      option.setAttribute("aria-selected", "false");
      option.setAttribute("aria-disabled", String(taken));
      option.addEventListener("click", () => pick(place));
      return option;
    }),
  );
  $("popup").hidden = false;
  $("options").hidden = options.length === 0;
  input.setAttribute("aria-expanded", String(options.length > 0));
}

function close() {
  search.cancel();
  newestSearch();
  [options, optionsFor] = [[], null];
  $("popup").hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function activate(place) {
  $("options").children[active]?.setAttribute("aria-selected", "false");
  active = place;
  const option = $("options").children[place];
  if (!option) return input.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  input.setAttribute("aria-activedescendant", option.id);
}

function pick(place) {
  const item = options[place];
  if (!item || ids(chosen).includes(item.item_id)) return;
  input.value = "";
  close();
  add(chosen, item);
}

input.addEventListener("input", search);
input.addEventListener("click", () => $("popup").hidden && find());
input.addEventListener("blur", close);
$("popup").addEventListener("pointerdown", (event) => event.preventDefault()); // the focus stays in the field
input.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    if (options.length === 0) find();
    else activate((active < 0 && step < 0 ? options.length - 1 : active + step + options.length) % options.length);
  } else if (event.key === "Enter") {
    if (optionsFor === input.value.trim()) pick(active);
    else find();
  } else if (event.key === "Escape") {
    if ($("popup").hidden) input.value = "";
    close();
  }
});

// ---- The other controls ----

for (const [id, by] of [["fewer", -1], ["more", 1]]) {
  $(id).addEventListener("click", () => {
    $("size").stepUp(by);
    update();
  });
}
$("controls").addEventListener("input", update);
$("controls").addEventListener("change", (event) => event.target.reportValidity());
for (const id of ["again", "retry"]) $(id).addEventListener("click", refresh);
$("clear").addEventListener("click", () => {
  chosen.length = excluded.length = 0;
  forget();
  input.focus();
});
$("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  user = $("user").value.trim() || null;
  $("user").value = "";
  changed();
  input.focus();
});
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim() || null;
  refresh();
});
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("request").textContent);
    $("copy").textContent = "Copied";
    setTimeout(() => ($("copy").textContent = "Copy"), 2000);
  } catch {
    getSelection().selectAllChildren($("request")); // no clipboard over plain HTTP
  }
});

refresh();
