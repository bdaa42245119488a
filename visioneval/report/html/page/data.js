// Loads data in parts: from scripts beside the page, or from inert blocks in the page.

const parts = new Map();
const pending = new Map();
const scripts = window.trustedTypes
  ? window.trustedTypes.createPolicy("visioneval", { createScriptURL: checkedPart })
  : { createScriptURL: checkedPart };

function checkedPart(address) {
  if (!/^data\/[a-z]+(-\d+)?\.js$/.test(address)) throw new TypeError(`not a data file of this report: ${address}`);
  return address;
}

/** Called by every data file. */
visioneval.take = (name, data) => {
  parts.set(name, data);
};

/** A part, if it is already loaded. */
function part(name) {
  if (!parts.has(name)) {
    const block = document.getElementById(name);
    if (block && block.type === "application/json") {
      parts.set(name, JSON.parse(block.textContent));
      block.remove();
    }
  }
  return parts.get(name);
}

/** A promise of a part. Each part is loaded once. */
function load(name) {
  const loaded = part(name);
  if (loaded !== undefined) return Promise.resolve(loaded);
  if (!pending.has(name)) pending.set(name, new Promise((resolve, reject) => fetchPart(name, resolve, reject)));
  return pending.get(name);
}

function fetchPart(name, resolve, reject) {
  const script = document.createElement("script");
  script.src = scripts.createScriptURL(`data/${name}.js`);
  script.addEventListener("load", () => {
    script.remove();
    if (parts.has(name)) resolve(parts.get(name));
    else reject(new Error(`data/${name}.js does not contain its data`));
  });
  script.addEventListener("error", () => {
    script.remove();
    pending.delete(name);
    reject(new Error(`data/${name}.js is missing: keep all files of the report folder together`));
  });
  document.head.append(script);
}
