// The labeling page. Text from a suite or a model is always set as text, never as markup.

import { el, createAsk, read, choiceText } from "./asks.js";
import { fitOrActual, listenToFrame, setView, zoomBy } from "./zoom.js";

const token = new URLSearchParams(location.search).get("token") ?? "";
const $ = (id) => document.getElementById(id);
const state = { rater: "", item: null, progress: null, asks: [], active: 0, stage: 0, busy: false, typed: [], pace: [], needed: new Set(), urls: new Map() };
const SCREENS = ["work", "start", "end", "broken"];
const COMMANDS = "ynusiz";

class Refused extends Error {}

function showScreen(name) {
  for (const id of SCREENS) $(id).hidden = id !== name;
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
    throw new Error("The server does not respond. Your answers are safe: restart the server, then press Enter to try again.");
  }
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => ({ error: `status ${reply.status}` }));
  throw reply.status === 403 || reply.status === 409 ? new Refused(problem.error) : new Error(`Not saved: ${problem.error}`);
}

function image(id) {
  if (!state.urls.has(id)) {
    const url = call(`api/image/${id}`).then((reply) => reply.blob()).then((blob) => URL.createObjectURL(blob));
    url.catch(() => state.urls.delete(id));
    state.urls.set(id, url);
  }
  return state.urls.get(id);
}

function releaseImages(needed) {
  const previous = state.needed;  // images of the previous item may still be loading
  state.needed = needed;
  for (const [id, url] of state.urls) {
    if (needed.has(id) || previous.has(id)) continue;
    state.urls.delete(id);
    url.then((address) => URL.revokeObjectURL(address), () => {});
  }
}

async function send(path, body) {
  if (state.busy) return;
  state.busy = true;
  try {
    const progress = await (await call(path, { rater: state.rater, ...body })).json();
    if (body.item) dropDraft(body.seconds);
    state.busy = false;
    show(progress);
    replayKeys();
  } catch (error) {
    state.busy = false;
    state.typed = [];
    showError(error);
  }
}

// Keys pressed while a request was running apply to the new item.
function replayKeys() {
  while (state.typed.length && !state.busy && !$("work").hidden) handleKey(state.typed.shift());
}

function showError(error) {
  if (error instanceof Refused) {
    $("broken-text").textContent = `${error.message}. Your answers are saved.`;
    showScreen("broken");
    return;
  }
  const box = $("start").hidden ? $("trouble") : $("name-trouble");
  box.textContent = error.message;
  box.hidden = false;
}

// ---- viewing time and drafts ----

const watch = {
  seconds: 0,
  since: null,
  begin(seconds) { this.seconds = seconds; this.since = null; },
  run() { if (this.since === null && document.visibilityState === "visible") this.since = performance.now(); },
  rest() { this.seconds = this.read(); this.since = null; },
  read() { return this.seconds + (this.since === null ? 0 : (performance.now() - this.since) / 1000); },
};

const draftKey = () => `draft ${state.rater} ${state.item.id}`;
function saveDraft() {
  if (!state.item) return;
  try {
    localStorage.setItem(draftKey(), JSON.stringify({ answers: answers(), seconds: watch.read() }));
  } catch { /* without storage, a reload only loses the draft */ }
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

function show(progress) {
  state.progress = progress;
  state.item = progress.item;
  $("trouble").hidden = true;
  $("count").textContent = `${progress.done} of ${progress.total}`;
  $("left").textContent = timeLeft(progress.total - progress.done);
  $("meter").firstElementChild.style.width = `${progress.total ? (100 * progress.done) / progress.total : 100}%`;
  $("meter").setAttribute("aria-valuemax", progress.total);
  $("meter").setAttribute("aria-valuenow", progress.done);
  $("rater").textContent = progress.rater;
  $("undo").disabled = $("end-undo").disabled = !progress.can_undo;
  document.title = `${progress.done}/${progress.total} Label`;
  if (progress.item) showItem(progress.item);
  else showEnd(progress);
  const needed = new Set(progress.soon);
  for (const stage of progress.item?.stages ?? []) for (const entry of stage.images) needed.add(entry.id);
  releaseImages(needed);
}

function timeLeft(items) {
  if (state.pace.length < 5 || items === 0) return "";
  const median = [...state.pace].sort((a, b) => a - b)[Math.floor(state.pace.length / 2)];
  return `about ${Math.ceil((median * items) / 60)} min left`;
}

function showItem(item) {
  showScreen("work");
  const draft = readDraft();
  watch.begin(draft.seconds ?? 0);
  $("prompt").textContent = item.prompt;
  const facts = [["Criteria", item.criteria], ["Region", item.region], ["Text", item.text], ["Case", item.case]];
  $("facts").replaceChildren(
    ...facts.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  );
  const values = { ...item.given, ...draft.answers };
  const letters = new Set(COMMANDS);
  state.asks = item.asks.map((ask, index) => askBox(ask, index, values[ask.key], letters));
  $("asks").replaceChildren(...state.asks.map((ask) => ask.box));
  $("stages").replaceChildren(...(item.stages.length > 1 ? item.stages.map(stageButton) : []));
  $("scroll").scrollTop = 0;
  setActive(Math.max(0, firstOpen(0)), false);
  scrollTo(0, 0);
  setView(1, 0, 0);
  setStage(0);
  if (document.activeElement === document.body) $("prompt").focus({ preventScroll: true });
  $("status").textContent = `Item ${state.progress.done + 1} of ${state.progress.total}`;
}

function showEnd(progress) {
  showScreen("end");
  $("end-title").textContent = progress.skipped ? "Done, except for skipped items" : "All done";
  const skipped = progress.skipped === 1 ? "1 was skipped." : `${progress.skipped} were skipped.`;
  $("end-text").textContent = `${progress.total - progress.skipped} of ${progress.total} answered${progress.skipped ? `; ${skipped}` : "."} All answers are saved.`;
  $("reopen").hidden = !progress.skipped;
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
  const entries = stages[state.stage].images;
  $("work").classList.toggle("two", entries.length > 1);
  const panes = entries.map((entry) => pane(entry, entries.length > 1));
  const item = state.item;
  const ready = Promise.all(panes.map((view) => view.ready));
  await Promise.race([ready, new Promise((done) => setTimeout(done, 250))]);
  if (item !== state.item || stages[state.stage].images !== entries) return;
  $("panes").replaceChildren(...panes.map((view) => view.figure));
  setView();
  await ready;
  if (item !== state.item) return;
  arrangePanes();
  watch.run();
  setView();
  for (const id of state.progress.soon) image(id).catch(() => {});
  for (const stage of stages) for (const entry of stage.images) if (entry.kind === "image") image(entry.id).catch(() => {});
}

// Stacks two images vertically if that shows them larger.
function arrangePanes() {
  const first = $("panes").querySelector("img");
  const { clientWidth: wide, clientHeight: high } = $("panes");
  const larger = (across, down) => Math.min(wide / across / first.naturalWidth, high / down / first.naturalHeight);
  $("work").classList.toggle("stacked", Boolean(first) && $("panes").children.length > 1 && larger(1, 2) > 1.15 * larger(2, 1));
}

function pane(entry, hasCaption) {
  const video = entry.kind === "video";
  const element = video ? el("video", { controls: true, loop: true, "aria-label": entry.title }) : el("img", { alt: entry.title, draggable: "false" });
  const frame = el("div", { class: "frame" });
  const showMissing = () => frame.replaceChildren(el("p", {}, "This image cannot be shown. Skip the item, or answer what you can."));
  const ready = entry.kind === "missing" ? Promise.resolve(showMissing()) : image(entry.id).then(async (url) => {
    element.src = url;
    if (!video) await element.decode();
    frame.replaceChildren(element);
  }).catch(showMissing);
  if (!video) listenToFrame(frame);
  return { ready, figure: el("figure", { class: "pane" }, ...(hasCaption ? [el("figcaption", {}, entry.title)] : []), frame) };
}

// ---- the questions ----

// The field of a question, with its event handlers.
function askBox(ask, index, value, letters) {
  const field = createAsk(ask, index, value, letters);
  field.box.addEventListener("focusin", () => setActive(index));
  field.box.addEventListener("input", (event) => {
    saveDraft();
    $("trouble").hidden = true;
    if (event.target.type === "radio") setActive(nextOpen(index));
  });
  return field;
}

const answers = () => Object.fromEntries(state.asks.map((ask) => [ask.key, read(ask)]));
const isOpen = (ask) => ask.required && read(ask) === null;

function firstOpen(from) {
  const after = state.asks.findIndex((ask, at) => at >= from && isOpen(ask));
  return after >= 0 ? after : state.asks.findIndex(isOpen);
}

function nextOpen(index) {
  const next = firstOpen(index + 1);
  return next >= 0 ? next : Math.min(index + 1, state.asks.length - 1);
}

function setActive(index, seen = true) {
  state.active = index;
  state.asks.forEach((ask, at) => ask.box.classList.toggle("active", at === index));
  if (seen) state.asks[index]?.box.scrollIntoView({ block: "nearest" });
}

function pressChoice(key) {
  const order = [state.active, firstOpen(0), ...state.asks.keys()];
  const at = order.find((index) => state.asks[index]?.keys.has(key));
  if (at === undefined) return false;
  const ask = state.asks[at];
  const input = ask.keys.get(key);
  input.checked = ask.type === "tags" ? !input.checked : true;
  const off = input.checked ? "" : "not ";
  $("status").textContent = `${ask.ask} ${off}${choiceText(ask, ask.choices[ask.inputs.indexOf(input)])}`;
  if (ask.type === "tags") setActive(at);
  input.dispatchEvent(new Event("input", { bubbles: true }));
  return true;
}

function submit() {
  const next = firstOpen(0);
  if (next >= 0) {
    showError(new Error(`Not answered: ${state.asks[next].ask}`));
    setActive(next);
    return;
  }
  send("api/answer", { item: state.item.id, answers: answers(), seconds: watch.read() });
}

const skip = () => send("api/skip", { item: state.item.id, seconds: watch.read() });
const undo = () => { if (state.progress?.can_undo) send("api/undo", {}); };

// ---- keys ----

const KEYS = [
  ["Y N", "yes, no"], ["1 \u2013 9", "choice or score of the active question"], ["A T B", "for a pair: A, tie, B"],
  ["letters", "tags, as shown"], ["/", "write text; Esc leaves the field"], ["\u2191 \u2193", "previous, next question"],
  ["Enter", "next"], ["S", "skip"], ["U", "undo"], ["I", "next image: input, both, mask"], ["Z", "fit or actual size"], ["+ \u2212", "zoom; drag to move"],
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
  else if (writing || !(runKey(event.key.toLowerCase(), event.repeat))) return;
  event.preventDefault();
}

const handleKey = (key) => (key === "Enter" ? submit() : runKey(key.toLowerCase(), false));

function runKey(key, repeated) {
  if (pressChoice(key)) return true;
  const command = COMMANDS_BY_KEY[key];
  if (command && !(repeated && "us".includes(key))) command();
  return Boolean(command);
}

// ---- start ----

async function begin(rater) {
  try {
    const progress = await (await call(`api/item?rater=${encodeURIComponent(rater)}`)).json();
    state.rater = progress.rater;
    history.replaceState(null, "", `?${new URLSearchParams({ token, rater: progress.rater })}`);
    show(progress);
  } catch (error) {
    if (!(error instanceof Refused)) askName(rater);
    showError(error);
  }
}

function askName(rater) {
  showScreen("start");
  $("name-trouble").hidden = true;
  $("name").value = rater;
  $("name").focus();
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") return watch.run();
    watch.rest();
    return saveDraft();
  });
  addEventListener("pagehide", saveDraft);
  addEventListener("resize", () => { arrangePanes(); setView(); });
  $("panel").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  $("name-form").addEventListener("submit", (event) => { event.preventDefault(); begin($("name").value.trim()); });
  const clicks = { skip, undo, "end-undo": undo, reopen: () => send("api/reopen", {}), help: COMMANDS_BY_KEY["?"], in: () => zoomBy(1.4), out: () => zoomBy(1 / 1.4), fit: () => fitOrActual(), who: () => { saveDraft(); askName(state.rater); } };
  for (const [id, handler] of Object.entries(clicks)) $(id).addEventListener("click", handler);
  // After a click, Enter must submit, not press the clicked button again.
  document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest("button")?.blur(); });
  $("key-list").replaceChildren(...KEYS.flatMap(([key, description]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, description)]));
}

async function start() {
  listen();
  const named = new URLSearchParams(location.search).get("rater");
  try {
    const rater = named ?? (await (await call("api/start")).json()).rater;
    if (rater) await begin(rater);
    else askName("");
  } catch (error) {
    if (!(error instanceof Refused)) askName(named ?? "");
    showError(error);
  }
}

start();
