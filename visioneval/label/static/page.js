// The labeling page. Everything that a suite or a model wrote is set as text, never as markup.

import { el, makeAsk, read, wording } from "/asks.js";
import { fitOrActual, listenToFrame, setView, zoomBy } from "/zoom.js";

const token = new URLSearchParams(location.search).get("token") ?? "";
const $ = (id) => document.getElementById(id);
const state = { rater: "", item: null, deck: null, asks: [], active: 0, stage: 0, busy: false, typed: [], pace: [], kept: new Set(), urls: new Map() };
const SCREENS = ["work", "start", "end", "broken"];
const COMMANDS = "ynusiz";

class Refused extends Error {}

function screen(name) {
  for (const each of SCREENS) $(each).hidden = each !== name;
  $("bar").hidden = name === "start" || name === "broken";
}

// ---- the server ----

async function call(path, body) {
  const headers = { "x-visioneval-token": token };
  const options = body ? { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) } : { headers };
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Nothing is lost: start it again, and press Enter to try again.");
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => ({ error: `status ${reply.status}` }));
  throw reply.status === 403 || reply.status === 409 ? new Refused(told.error) : new Error(`Not kept: ${told.error}`);
}

function image(id) {
  if (!state.urls.has(id)) {
    const found = call(`/api/image/${id}`).then((reply) => reply.blob()).then((blob) => URL.createObjectURL(blob));
    found.catch(() => state.urls.delete(id));
    state.urls.set(id, found);
  }
  return state.urls.get(id);
}

function forget(kept) {
  const before = state.kept;  // an item's images may still be on their way to the screen when it is left
  state.kept = kept;
  for (const [id, url] of state.urls) {
    if (kept.has(id) || before.has(id)) continue;
    state.urls.delete(id);
    url.then((made) => URL.revokeObjectURL(made), () => {});
  }
}

async function send(path, body) {
  if (state.busy) return;
  state.busy = true;
  try {
    const deck = await (await call(path, { rater: state.rater, ...body })).json();
    if (body.item) dropDraft(body.seconds);
    state.busy = false;
    show(deck);
    replay();
  } catch (error) {
    state.busy = false;
    state.typed = [];
    trouble(error);
  }
}

// Keys that were quicker than the server were meant for the item that it brought.
function replay() {
  while (state.typed.length && !state.busy && !$("work").hidden) act(state.typed.shift());
}

function trouble(error) {
  if (error instanceof Refused) {
    $("broken-text").textContent = `${error.message}. What you answered is kept.`;
    screen("broken");
    return;
  }
  const place = $("start").hidden ? $("trouble") : $("name-trouble");
  place.textContent = error.message;
  place.hidden = false;
}

// ---- time in sight, and what is not sent yet ----

const watch = {
  seconds: 0,
  since: null,
  begin(seconds) { this.seconds = seconds; this.since = null; },
  run() { if (this.since === null && document.visibilityState === "visible") this.since = performance.now(); },
  rest() { this.seconds = this.read(); this.since = null; },
  read() { return this.seconds + (this.since === null ? 0 : (performance.now() - this.since) / 1000); },
};

const draftKey = () => `draft ${state.rater} ${state.item.id}`;
function keepDraft() {
  if (!state.item) return;
  try {
    localStorage.setItem(draftKey(), JSON.stringify({ answers: answers(), seconds: watch.read() }));
  } catch { /* a full or forbidden storage costs a reload its draft alone */ }
}
function dropDraft(seconds) {
  state.pace = [...state.pace, seconds].slice(-20);
  try { localStorage.removeItem(draftKey()); } catch { /* as above */ }
}
function readDraft() {
  try {
    return JSON.parse(localStorage.getItem(draftKey())) ?? {};
  } catch {
    return {};
  }
}

// ---- the item ----

function show(deck) {
  state.deck = deck;
  state.item = deck.item;
  $("trouble").hidden = true;
  $("count").textContent = `${deck.done} of ${deck.total}`;
  $("left").textContent = timeLeft(deck.total - deck.done);
  $("meter").firstElementChild.style.width = `${deck.total ? (100 * deck.done) / deck.total : 100}%`;
  $("meter").setAttribute("aria-valuemax", deck.total);
  $("meter").setAttribute("aria-valuenow", deck.done);
  $("who").textContent = deck.rater;
  $("undo").disabled = $("end-undo").disabled = !deck.can_undo;
  document.title = `${deck.done}/${deck.total} Label`;
  if (deck.item) showItem(deck.item);
  else showEnd(deck);
  const kept = new Set(deck.soon);
  for (const stage of deck.item?.stages ?? []) for (const one of stage.images) kept.add(one.id);
  forget(kept);
}

function timeLeft(items) {
  if (state.pace.length < 5 || items === 0) return "";
  const median = [...state.pace].sort((a, b) => a - b)[Math.floor(state.pace.length / 2)];
  return `about ${Math.ceil((median * items) / 60)} min left`;
}

function showItem(item) {
  screen("work");
  const draft = readDraft();
  watch.begin(draft.seconds ?? 0);
  $("prompt").textContent = item.prompt;
  const facts = [["Criteria", item.criteria], ["Where", item.region], ["Case", item.case]];
  $("facts").replaceChildren(
    ...facts.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  );
  const given = { ...item.given, ...draft.answers };
  const letters = new Set(COMMANDS);
  state.asks = item.asks.map((ask, index) => askBox(ask, index, given[ask.key], letters));
  $("asks").replaceChildren(...state.asks.map((ask) => ask.box));
  $("stages").replaceChildren(...(item.stages.length > 1 ? item.stages.map(stageButton) : []));
  $("scroll").scrollTop = 0;
  setActive(Math.max(0, firstOpen(0)), false);
  scrollTo(0, 0);
  setView(1, 0, 0);
  setStage(0);
  if (document.activeElement === document.body) $("prompt").focus({ preventScroll: true });
  $("said").textContent = `Item ${state.deck.done + 1} of ${state.deck.total}`;
}

function showEnd(deck) {
  screen("end");
  $("end-title").textContent = deck.skipped ? "Through, but for the skipped ones" : "All done";
  const skipped = deck.skipped === 1 ? "1 was skipped." : `${deck.skipped} were skipped.`;
  $("end-text").textContent = `${deck.total - deck.skipped} of ${deck.total} are answered${deck.skipped ? `; ${skipped}` : "."} Every answer is kept.`;
  $("reopen").hidden = !deck.skipped;
  $("end-title").focus();
}

// ---- the images ----

function stageButton(stage, index) {
  const key = index === 0 ? [" ", el("kbd", {}, "I")] : [];
  return el("button", { type: "button", onclick: () => setStage(index) }, stage.title, ...key);
}

async function setStage(index) {
  const stages = state.item.stages;
  state.stage = (index + stages.length) % stages.length;
  [...$("stages").children].forEach((button, at) => button.setAttribute("aria-pressed", at === state.stage));
  const shown = stages[state.stage].images;
  $("work").classList.toggle("two", shown.length > 1);
  const panes = shown.map((one) => pane(one, shown.length > 1));
  const item = state.item;
  const ready = Promise.all(panes.map((each) => each.ready));
  await Promise.race([ready, new Promise((done) => setTimeout(done, 250))]);
  if (item !== state.item || stages[state.stage].images !== shown) return;
  $("panes").replaceChildren(...panes.map((each) => each.figure));
  setView();
  await ready;
  if (item !== state.item) return;
  layOut();
  watch.run();
  setView();
  for (const id of state.deck.soon) image(id).catch(() => {});
  for (const stage of stages) for (const one of stage.images) if (one.kind === "image") image(one.id).catch(() => {});
}

// Two wide images stand one above the other where that shows them larger.
function layOut() {
  const first = $("panes").querySelector("img");
  const { clientWidth: wide, clientHeight: high } = $("panes");
  const larger = (across, down) => Math.min(wide / across / first.naturalWidth, high / down / first.naturalHeight);
  $("work").classList.toggle("stacked", Boolean(first) && $("panes").children.length > 1 && larger(1, 2) > 1.15 * larger(2, 1));
}

function pane(shown, captioned) {
  const video = shown.kind === "video";
  const made = video ? el("video", { controls: true, loop: true, "aria-label": shown.title }) : el("img", { alt: shown.title, draggable: "false" });
  const frame = el("div", { class: "frame" });
  const gone = () => frame.replaceChildren(el("p", {}, "This image cannot be shown. Skip it, or answer what you can."));
  const ready = shown.kind === "missing" ? Promise.resolve(gone()) : image(shown.id).then(async (url) => {
    made.src = url;
    if (!video) await made.decode();
    frame.replaceChildren(made);
  }).catch(gone);
  if (!video) listenToFrame(frame);
  return { ready, figure: el("figure", { class: "pane" }, ...(captioned ? [el("figcaption", {}, shown.title)] : []), frame) };
}

// ---- the questions ----

// The box of a question, which says when it is used.
function askBox(ask, index, given, letters) {
  const made = makeAsk(ask, index, given, letters);
  made.box.addEventListener("focusin", () => setActive(index));
  made.box.addEventListener("input", (event) => {
    keepDraft();
    $("trouble").hidden = true;
    if (event.target.type === "radio") setActive(nextOpen(index));
  });
  return made;
}

const answers = () => Object.fromEntries(state.asks.map((ask) => [ask.key, read(ask)]));
const isOpen = (ask) => ask.required && read(ask) === null;

function firstOpen(from) {
  const after = state.asks.findIndex((ask, at) => at >= from && isOpen(ask));
  return after >= 0 ? after : state.asks.findIndex(isOpen);
}

function nextOpen(index) {
  const open = firstOpen(index + 1);
  return open >= 0 ? open : Math.min(index + 1, state.asks.length - 1);
}

function setActive(index, seen = true) {
  state.active = index;
  state.asks.forEach((ask, at) => ask.box.classList.toggle("active", at === index));
  if (seen) state.asks[index]?.box.scrollIntoView({ block: "nearest" });
}

function press(key) {
  const order = [state.active, firstOpen(0), ...state.asks.keys()];
  const at = order.find((index) => state.asks[index]?.keys.has(key));
  if (at === undefined) return false;
  const ask = state.asks[at];
  const input = ask.keys.get(key);
  input.checked = ask.type === "tags" ? !input.checked : true;
  const off = input.checked ? "" : "not ";
  $("said").textContent = `${ask.ask} ${off}${wording(ask, ask.choices[ask.inputs.indexOf(input)])}`;
  if (ask.type === "tags") setActive(at);
  input.dispatchEvent(new Event("input", { bubbles: true }));
  return true;
}

function submit() {
  const open = firstOpen(0);
  if (open >= 0) {
    trouble(new Error(`Still open: ${state.asks[open].ask}`));
    setActive(open);
    return;
  }
  send("/api/answer", { item: state.item.id, answers: answers(), seconds: watch.read() });
}

const skip = () => send("/api/skip", { item: state.item.id, seconds: watch.read() });
const undo = () => { if (state.deck?.can_undo) send("/api/undo", {}); };

// ---- keys ----

const KEYS = [
  ["Y N", "yes, no"], ["1 \u2013 9", "a step or a choice of the marked question"], ["A T B", "of a pair: A, tie, B"],
  ["letters", "tags, as shown on them"], ["/", "write; Esc leaves the text"], ["\u2191 \u2193", "the question before, after"],
  ["Enter", "next"], ["S", "skip"], ["U", "undo"], ["I", "next image: input, both, mask"], ["Z", "fit, or actual size"], ["+ \u2212", "zoom; drag to move"],
];

const COMMANDS_BY_KEY = {
  u: undo, s: skip, z: () => fitOrActual(), "?": () => $("keys").showModal(),
  i: () => setStage(state.stage + 1), "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4),
  "/": () => state.asks.find((ask) => ask.type === "text")?.inputs[0].focus(),
  arrowup: () => setActive(Math.max(0, state.active - 1)),
  arrowdown: () => setActive(Math.min(state.asks.length - 1, state.active + 1)),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("keys").open) return;
  if (!$("end").hidden && "uU?".includes(event.key)) COMMANDS_BY_KEY[event.key.toLowerCase()]();
  if ($("work").hidden) return;
  if (state.busy) {
    if (!event.repeat) state.typed.push(event.key);
    event.preventDefault();
    return;
  }
  const writing = event.target.matches("textarea, input[type=number]");
  if (event.key === "Escape" && writing) event.target.blur();
  else if (event.key === "Enter" && !event.shiftKey && !event.target.matches("button")) submit();
  else if (writing || !(keyed(event.key.toLowerCase(), event.repeat))) return;
  event.preventDefault();
}

const act = (key) => (key === "Enter" ? submit() : keyed(key.toLowerCase(), false));

function keyed(key, repeated) {
  if (press(key)) return true;
  const command = COMMANDS_BY_KEY[key];
  if (command && !(repeated && "us".includes(key))) command();
  return Boolean(command);
}

// ---- the beginning ----

async function begin(rater) {
  try {
    const deck = await (await call(`/api/item?rater=${encodeURIComponent(rater)}`)).json();
    state.rater = deck.rater;
    history.replaceState(null, "", `?${new URLSearchParams({ token, rater: deck.rater })}`);
    show(deck);
  } catch (error) {
    if (!(error instanceof Refused)) askName(rater);
    trouble(error);
  }
}

function askName(rater) {
  screen("start");
  $("name-trouble").hidden = true;
  $("name").value = rater;
  $("name").focus();
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") return watch.run();
    watch.rest();
    return keepDraft();
  });
  addEventListener("pagehide", keepDraft);
  addEventListener("resize", () => { layOut(); setView(); });
  $("panel").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  $("name-form").addEventListener("submit", (event) => { event.preventDefault(); begin($("name").value.trim()); });
  const clicks = { skip, undo, "end-undo": undo, reopen: () => send("/api/reopen", {}), help: COMMANDS_BY_KEY["?"], in: () => zoomBy(1.4), out: () => zoomBy(1 / 1.4), fit: () => fitOrActual(), who: () => { keepDraft(); askName(state.rater); } };
  for (const [id, act] of Object.entries(clicks)) $(id).addEventListener("click", act);
  // Enter must go on after a click, not press the clicked button again.
  document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest("button")?.blur(); });
  $("key-list").replaceChildren(...KEYS.flatMap(([key, about]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, about)]));
}

async function open() {
  listen();
  const named = new URLSearchParams(location.search).get("rater");
  try {
    const rater = named ?? (await (await call("/api/start")).json()).rater;
    if (rater) await begin(rater);
    else askName("");
  } catch (error) {
    if (!(error instanceof Refused)) askName(named ?? "");
    trouble(error);
  }
}

open();
