// The index of runs: search, two ticks that make a comparison, and a notice when runs have changed.

const form = document.getElementById("choose");
const search = document.getElementById("search");
const notice = document.getElementById("live");
const boxes = () => [...document.querySelectorAll('#choose input[name="run"]')];
const chosen = () => boxes().filter((box) => box.checked);

function showChoice() {
  const number = chosen().length;
  document.getElementById("compare").disabled = number !== 2;
  document.getElementById("chosen").textContent =
    number === 2 ? "Compares the later run with the earlier one." : number > 2 ? "Untick all but two." : `Tick ${number ? "one more run" : "two runs"} to compare them.`;
}

// Shows the runs and lines with all words, also after a reload.
function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const part of document.querySelectorAll("[data-search]")) {
    const text = part.dataset.search.toLowerCase();
    part.hidden = !words.every((word) => text.includes(word));
  }
  document.getElementById("nothing").hidden = document.querySelector("tr[data-search]:not([hidden])") !== null;
  history.replaceState(null, "", search.value ? `?${new URLSearchParams({ search: search.value })}` : "./");
}

function say(text, address) {
  const parts = [text];
  if (address) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = "Show them";
    parts.push(" ", link);
  }
  notice.replaceChildren(...parts);
  notice.hidden = false;
}

async function poll() {
  try {
    const reply = await fetch("changes", { cache: "no-store" });
    if (!reply.ok) throw new Error();
    const { version } = await reply.json();
    if (version !== document.body.dataset.version) {
      // a page that somebody works with is not replaced under their hands
      if (!chosen().length && (document.activeElement === document.body || !document.hasFocus())) return keepPlaceAndReload();
      say("Runs have changed.", location.search || "./");
    } else notice.hidden = true;
  } catch {
    say("The server does not respond: this page may be out of date.");
  }
  setTimeout(poll, Number(document.body.dataset.poll) * 1000);
}

function keepPlaceAndReload() {
  sessionStorage.setItem("visioneval-place", String(scrollY));
  location.reload();
}

if (form) {
  search.value = new URLSearchParams(location.search).get("search") ?? "";
  search.addEventListener("input", filter);
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
  form.addEventListener("change", showChoice);
  filter();
  showChoice();
}
const place = sessionStorage.getItem("visioneval-place");
sessionStorage.removeItem("visioneval-place");
if (place !== null) scrollTo(0, Number(place));
setTimeout(poll, Number(document.body.dataset.poll) * 1000);
