// View routing and keyboard shortcuts of the report.

const VIEWS = ["overview", "gallery", "cell"];
const report = { index: null, state: parseState(location.hash), shown: [], lastCell: -1 };

async function start() {
  addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
  const help = document.getElementById("help");
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  document.querySelector(".skip").addEventListener("click", (event) => { // the address names the view
    event.preventDefault();
    document.getElementById("main").focus();
  });
  watchScrolling(document);
  await route();
}

async function route() {
  report.state = parseState(location.hash);
  const { view } = report.state;
  for (const name of VIEWS) document.getElementById(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === (view === "cell" ? "gallery" : view)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.view = view;
  if (view === "overview") return;
  try {
    report.index ??= await load("index");
    if (view === "gallery") await showGallery();
    else await showCell();
  } catch (error) {
    document.getElementById(`view-${view}`).replaceChildren(el("p", { class: "notice", role: "alert", text: error.message }));
  }
}

function onKey(event) {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && report.state.view === "cell" && !document.querySelector("dialog[open]")) return backToGallery();
  if (typing && event.target.type !== "range") return;
  const { view } = report.state;
  const act = {
    "/": () => openSearch(),
    g: () => (view === "cell" ? backToGallery() : go("#gallery")),
    o: () => go("#overview"),
    "?": () => document.getElementById("help").showModal(),
    j: () => view === "cell" && step(1),
    k: () => view === "cell" && step(-1),
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  } else if (view === "cell" && report.stage?.key(event.key)) event.preventDefault();
  else if (view === "cell" && /^[1-9]$/.test(event.key)) report.stage?.choose(Number(event.key) - 1);
}

function go(address) {
  location.hash = address;
}

function backToGallery() {
  go(addressOf("gallery", report.state.filters));
}

start();
