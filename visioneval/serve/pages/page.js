// What the parts of the label page share: its elements, its state and its screens.

import { Refused } from "./requests.js";

const SCREENS = ["work", "start", "end", "broken"];

export const $ = (id) => document.getElementById(id);
export const state = { rater: "", item: null, progress: null, asks: [], active: 0, stage: 0, busy: false, typed: [], pace: [] };

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function showScreen(name) {
  for (const id of SCREENS) $(id).hidden = id !== name;
  $("bar").hidden = name === "start" || name === "broken";
}

export function showError(error) {
  if (error instanceof Refused) {
    $("broken-text").textContent = `${error.message}. Your answers are saved.`;
    showScreen("broken");
    return;
  }
  const box = $("start").hidden ? $("trouble") : $("name-trouble");
  box.textContent = error.message;
  box.hidden = false;
}
