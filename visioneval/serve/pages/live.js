// A served report follows its run: it says what is new, and shows it at once while its overview is open.

const box = document.getElementById("live");
const wait = 2000;
const key = "visioneval-place";

const say = (text, address) => {
  const parts = [text];
  if (address) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = "Show it";
    parts.push(" ", link);
  }
  box.replaceChildren(...parts);
  box.hidden = false;
};

const showChange = (state) => {
  const count = `${state.cells.toLocaleString("en")} of ${state.planned.toLocaleString("en")} cells`;
  if (document.body.dataset.view === "cell" || document.body.dataset.view === "gallery") {
    say(`This run has changed: ${state.state}, ${count}.`, `../${location.hash}`);
    return false;
  }
  sessionStorage.setItem(key, String(scrollY));
  location.replace(`../${location.hash}`);
  return true;
};

const poll = async () => {
  try {
    const reply = await fetch("../state", { cache: "no-store", headers: { accept: "application/json" } });
    const state = await reply.json();
    if (!reply.ok) say(`This page is out of date: ${state.error}`);
    else if (state.version !== box.dataset.version && showChange(state)) return;
  } catch {
    say("The server does not respond: this page may be out of date.");
  }
  setTimeout(poll, wait);
};

const place = sessionStorage.getItem(key);
sessionStorage.removeItem(key);
if (place !== null) scrollTo(0, Number(place));
setTimeout(poll, wait);
