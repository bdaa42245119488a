// How long an item was visible, and answers that are not sent yet.

import { state } from "./page.js";

export const watch = {
  seconds: 0,
  since: null,
  begin(seconds) { this.seconds = seconds; this.since = null; },
  run() { if (this.since === null && document.visibilityState === "visible") this.since = performance.now(); },
  rest() { this.seconds = this.read(); this.since = null; },
  read() { return this.seconds + (this.since === null ? 0 : (performance.now() - this.since) / 1000); },
};

const draftKey = () => `draft ${state.rater} ${state.item.id}`;
export function saveDraft(answers) {
  if (!state.item) return;
  try {
    localStorage.setItem(draftKey(), JSON.stringify({ answers, seconds: watch.read() }));
  } catch { /* without storage, a reload only loses the draft */ }
}
export function dropDraft(seconds) {
  state.pace = [...state.pace, seconds].slice(-20);
  try { localStorage.removeItem(draftKey()); } catch { /* as above */ }
}
export function readDraft() {
  try {
    return JSON.parse(localStorage.getItem(draftKey())) ?? {};
  } catch {
    return {};
  }
}
