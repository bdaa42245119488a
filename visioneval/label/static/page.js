"use strict";
// The labelling page. Everything that a suite or a model wrote is set as text, never as markup.

const token = new URLSearchParams(location.search).get("token") ?? "";
const $ = (id) => document.getElementById(id);
const state = { rater: "", item: null, deck: null, asks: [], active: 0, stage: 0, busy: false, pace: [], kept: new Set(), urls: new Map() };
const SCREENS = ["work", "start", "end", "broken"];
const COMMANDS = "ynusiz";
const MOST_BUTTONS = 11;

class Refused extends Error {}

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

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

function picture(id) {
  if (!state.urls.has(id)) {
    const found = call(`/api/picture/${id}`).then((reply) => reply.blob()).then((blob) => URL.createObjectURL(blob));
    found.catch(() => state.urls.delete(id));
    state.urls.set(id, found);
  }
  return state.urls.get(id);
}

function forget(kept) {
  const before = state.kept;  // an item's pictures may still be on their way to the screen when it is left
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
    show(deck);
  } catch (error) {
    trouble(error);
  } finally {
    state.busy = false;
  }
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
  for (const stage of deck.item?.stages ?? []) for (const one of stage.pictures) kept.add(one.id);
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
  state.asks = item.asks.map((ask, index) => makeAsk(ask, index, given[ask.key], letters));
  $("asks").replaceChildren(...state.asks.map((ask) => ask.box));
  $("stages").replaceChildren(...(item.stages.length > 1 ? item.stages.map(stageButton) : []));
  $("scroll").scrollTop = 0;
  setActive(Math.max(0, firstOpen(0)));
  setView(1, 0, 0);
  setStage(0);
  if (document.activeElement === document.body) $("prompt").focus({ preventScroll: true });
  $("said").textContent = `Item ${state.deck.done + 1} of ${state.deck.total}`;
}

function showEnd(deck) {
  screen("end");
  const skipped = deck.skipped === 1 ? "1 was skipped." : `${deck.skipped} were skipped.`;
  $("end-text").textContent = `${deck.total} of ${deck.total} are through${deck.skipped ? `; ${skipped}` : "."} Every answer is kept.`;
  $("reopen").hidden = !deck.skipped;
  $("end-title").focus();
}

// ---- the pictures ----

function stageButton(stage, index) {
  const key = index === 0 ? [" ", el("kbd", {}, "I")] : [];
  return el("button", { type: "button", onclick: () => setStage(index) }, stage.title, ...key);
}

async function setStage(index) {
  const stages = state.item.stages;
  state.stage = (index + stages.length) % stages.length;
  [...$("stages").children].forEach((button, at) => button.setAttribute("aria-pressed", at === state.stage));
  const shown = stages[state.stage].pictures;
  $("work").classList.toggle("two", shown.length > 1);
  const panes = shown.map((one) => pane(one, shown.length > 1));
  const item = state.item;
  const ready = Promise.all(panes.map((each) => each.ready));
  await Promise.race([ready, new Promise((done) => setTimeout(done, 250))]);
  if (item !== state.item || stages[state.stage].pictures !== shown) return;
  $("panes").replaceChildren(...panes.map((each) => each.figure));
  setView(view.zoom, view.x, view.y);
  await ready;
  if (item !== state.item) return;
  watch.run();
  setView(view.zoom, view.x, view.y);
  for (const id of state.deck.soon) picture(id).catch(() => {});
  for (const stage of stages) for (const one of stage.pictures) if (one.kind === "image") picture(one.id).catch(() => {});
}

function pane(shown, captioned) {
  const film = shown.kind === "film";
  const made = film ? el("video", { controls: true, loop: true, "aria-label": shown.title }) : el("img", { alt: shown.title, draggable: "false" });
  const frame = el("div", { class: "frame" });
  const gone = () => frame.replaceChildren(el("p", {}, "This picture cannot be shown. Skip it, or answer what you can."));
  const ready = shown.kind === "missing" ? Promise.resolve(gone()) : picture(shown.id).then(async (url) => {
    made.src = url;
    if (!film) await made.decode();
    frame.replaceChildren(made);
  }).catch(gone);
  if (!film) listenToFrame(frame);
  return { ready, figure: el("figure", { class: "pane" }, ...(captioned ? [el("figcaption", {}, shown.title)] : []), frame) };
}

// Zoom and place, shared by all pictures of an item, in parts of the frame: x and y are the picture's top left corner.
const view = { zoom: 1, x: 0, y: 0 };
const MOST_ZOOM = 24;

function fitScale() {
  const image = $("panes").querySelector("img");
  if (!image?.naturalWidth) return 1;
  return Math.min(image.clientWidth / image.naturalWidth, image.clientHeight / image.naturalHeight) * devicePixelRatio;
}

function setView(zoom, x, y) {
  view.zoom = Math.min(MOST_ZOOM, Math.max(1, zoom));
  view.x = Math.min(0, Math.max(1 - view.zoom, x));
  view.y = Math.min(0, Math.max(1 - view.zoom, y));
  const scale = fitScale() * view.zoom;
  for (const image of $("panes").querySelectorAll("img")) {
    image.style.transform = `translate(${view.x * 100}%, ${view.y * 100}%) scale(${view.zoom})`;
    image.classList.toggle("sharp", scale > 3);
    image.parentElement.classList.toggle("near", view.zoom > 1);
  }
  $("percent").textContent = `${Math.round(scale * 100)}%`;
}

function zoomBy(factor, at = { x: 0.5, y: 0.5 }) {
  const zoom = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor));
  const grown = zoom / view.zoom;
  setView(zoom, at.x - (at.x - view.x) * grown, at.y - (at.y - view.y) * grown);
}

function fitOrActual(at) {
  if (view.zoom > 1) return setView(1, 0, 0);
  const actual = 1 / fitScale();
  return zoomBy(actual > 1.1 ? actual : 2.5, at);
}

function listenToFrame(frame) {
  const fingers = new Map();
  const inFrame = (event) => {
    const box = frame.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  let moved = false;
  frame.addEventListener("wheel", (event) => { event.preventDefault(); zoomBy(Math.exp(-event.deltaY * 0.002), inFrame(event)); }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, inFrame(event));
    moved = false;
    if (view.zoom > 1 || fingers.size > 1) frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    const from = fingers.get(event.pointerId);
    if (!from) return;
    const to = inFrame(event);
    moved ||= Math.hypot(to.x - from.x, to.y - from.y) > 0.004;
    const before = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, to);
    if (before > 0.02) zoomBy(spread() / before, to);
    else if (fingers.size === 1 && view.zoom > 1) setView(view.zoom, view.x + to.x - from.x, view.y + to.y - from.y);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => fingers.delete(event.pointerId));
  frame.addEventListener("click", (event) => { if (!moved) fitOrActual(inFrame(event)); });
}

// ---- the questions ----

function makeAsk(ask, index, given, letters) {
  const choices = ask.type === "yes_no" ? [true, false] : ask.choices;
  const made = { ...ask, choices, keys: new Map(), inputs: [] };
  const optional = ask.required ? [] : [" ", el("small", {}, ask.type === "tags" ? "any, or none" : "if you like")];
  const body = ask.type === "text" ? textBody(made, given) : choices.length > MOST_BUTTONS && ask.type === "scale" ? numberBody(made, given) : choiceBody(made, index, given, letters);
  made.box = el("fieldset", { class: "ask" }, el("legend", {}, ask.ask, ...optional), body);
  made.box.addEventListener("focusin", () => setActive(index));
  made.box.addEventListener("input", (event) => {
    keepDraft();
    $("trouble").hidden = true;
    if (event.target.type === "radio") setActive(nextOpen(index));
  });
  return made;
}

function wording(ask, choice) {
  if (ask.type === "yes_no") return choice ? "Yes" : "No";
  if (ask.type === "pair") return choice === "tie" ? "Tie" : choice.toUpperCase();
  return String(choice);
}

function keyOf(ask, choice, at, letters) {
  if (ask.type === "yes_no") return choice ? "y" : "n";
  if (ask.type === "pair") return choice[0];
  if (ask.type === "tags") {
    const found = [...choice.toLowerCase(), ..."abcdefghjklmopqrtvwx"].find((letter) => /[a-z]/.test(letter) && !letters.has(letter));
    if (found) letters.add(found);
    return found ?? "";
  }
  const digits = ask.type === "scale" && ask.choices.every((step) => Number.isInteger(step) && step >= 0 && step <= 9);
  return digits ? String(choice) : at < 9 ? String(at + 1) : "";
}

function choiceBody(ask, index, given, letters) {
  const many = ask.type === "tags";
  const chosen = many ? given ?? [] : given === undefined ? [] : [given];
  const order = ask.type === "pair" ? ["a", "tie", "b"] : ask.choices;
  ask.choices = order;
  const boxes = order.map((choice, at) => {
    const key = keyOf(ask, choice, at, letters);
    const input = el("input", { type: many ? "checkbox" : "radio", name: `ask${index}`, value: at, checked: chosen.includes(choice) });
    ask.inputs.push(input);
    if (key) ask.keys.set(key, input);
    const text = wording(ask, choice);
    const hint = key && key !== text.toLowerCase() ? [el("kbd", { "aria-hidden": "true" }, key.toUpperCase())] : [];
    return el("label", { class: "choice" }, input, el("span", {}, text), ...hint);
  });
  return el("div", { class: ["yes_no", "scale", "pair"].includes(ask.type) ? "choices even" : "choices" }, ...boxes);
}

function textBody(ask, given) {
  const area = el("textarea", { rows: 2, maxlength: 10000, "aria-label": ask.ask, placeholder: "/ to write" });
  area.value = given ?? "";
  ask.inputs.push(area);
  return area;
}

function numberBody(ask, given) {
  const [low, high] = [ask.choices[0], ask.choices.at(-1)];
  const input = el("input", { type: "number", min: low, max: high, step: ask.step, "aria-label": ask.ask, placeholder: `${low} to ${high}` });
  input.value = given ?? "";
  ask.inputs.push(input);
  return input;
}

function read(ask) {
  const [first] = ask.inputs;
  if (ask.type === "text") return first.value.trim() || null;
  if (first.type === "number") return first.value === "" || !first.validity.valid ? null : Number(first.value);
  const chosen = ask.choices.filter((_, at) => ask.inputs[at].checked);
  return ask.type === "tags" ? chosen : chosen[0] ?? null;
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

function setActive(index) {
  state.active = index;
  state.asks.forEach((ask, at) => ask.box.classList.toggle("active", at === index));
  state.asks[index]?.box.scrollIntoView({ block: "nearest" });
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
  ["Enter", "next"], ["S", "skip"], ["U", "undo"], ["I", "next picture: input, side by side, mask"], ["Z", "fit, or actual size"], ["+ \u2212", "zoom; drag to move"],
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
  if (!$("end").hidden && event.key.toLowerCase() === "u") undo();
  if ($("work").hidden) return;
  const writing = event.target.matches("textarea, input[type=number]");
  if (event.key === "Escape" && writing) event.target.blur();
  else if (event.key === "Enter" && !event.shiftKey && !event.target.matches("button")) submit();
  else if (writing || !(keyed(event.key.toLowerCase(), event.repeat))) return;
  event.preventDefault();
}

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
  addEventListener("resize", () => setView(view.zoom, view.x, view.y));
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
