// The labeling page. Text from a suite or a model is always set as text, never as markup.

import { dropDraft, readDraft, saveDraft, watch } from "./drafts.js";
import { listenToKeys, replayKeys } from "./keys.js";
import { $, el, showError, showScreen, state } from "./page.js";
import { arrangePanes, setStage, stageButton } from "./panes.js";
import { answers, askBox, firstOpen, setActive } from "./questions.js";
import { Refused, call, releaseImages } from "./requests.js";
import { fitOrActual, setView, zoomBy } from "./zoom.js";

const COMMANDS = "ynusiz";  // letters that no tag gets

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
  $("after-text").textContent = progress.after.text;
  $("command").textContent = progress.after.command;
  const run = location.pathname.match(/\/label\/([^/]+)\/$/);  // in a viewer, which has a page of agreement
  $("after-link").hidden = !run;
  if (run) $("after-link").querySelector("a").href = `../../agreement/${run[1]}/`;
  $("end-title").focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("command").textContent);
    $("status").textContent = $("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("command"));
  }
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

async function begin(rater) {
  try {
    const progress = await (await call(`api/item?rater=${encodeURIComponent(rater)}`)).json();
    state.rater = progress.rater;
    history.replaceState(null, "", `?${new URLSearchParams({ rater: progress.rater })}`);
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
  listenToKeys({ submit, skip, undo });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") return watch.run();
    watch.rest();
    return saveDraft(answers());
  });
  addEventListener("pagehide", () => saveDraft(answers()));
  addEventListener("resize", () => { arrangePanes(); setView(); });
  $("panel").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  $("name-form").addEventListener("submit", (event) => { event.preventDefault(); begin($("name").value.trim()); });
  const clicks = { skip, undo, "end-undo": undo, reopen: () => send("api/reopen", {}), help: () => $("keys").showModal(), in: () => zoomBy(1.4), out: () => zoomBy(1 / 1.4), fit: () => fitOrActual(), who: () => { saveDraft(answers()); askName(state.rater); }, copy };
  for (const [id, handler] of Object.entries(clicks)) $(id).addEventListener("click", handler);
  // After a click, Enter must submit, not press the clicked button again.
  document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest("button")?.blur(); });
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
