// Data that comes in parts: as scripts beside the page, or as inert blocks within it.

const parts = new Map();
const awaited = new Map();
const scripts = window.trustedTypes
  ? window.trustedTypes.createPolicy("visioneval", { createScriptURL: checkedPart })
  : { createScriptURL: checkedPart };

function checkedPart(address) {
  if (!/^data\/[a-z]+(-\d+)?\.js$/.test(address)) throw new TypeError(`not a part of this report: ${address}`);
  return address;
}

/** What a data file calls. */
visioneval.take = (name, data) => {
  parts.set(name, data);
};

/** A part that is here already, if it is. */
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

/** A promise of a part, which is loaded once. */
function load(name) {
  const here = part(name);
  if (here !== undefined) return Promise.resolve(here);
  if (!awaited.has(name)) awaited.set(name, new Promise((resolve, reject) => fetchPart(name, resolve, reject)));
  return awaited.get(name);
}

function fetchPart(name, resolve, reject) {
  const script = document.createElement("script");
  script.src = scripts.createScriptURL(`data/${name}.js`);
  script.addEventListener("load", () => {
    script.remove();
    if (parts.has(name)) resolve(parts.get(name));
    else reject(new Error(`data/${name}.js holds something else`));
  });
  script.addEventListener("error", () => {
    script.remove();
    awaited.delete(name);
    reject(new Error(`data/${name}.js is missing: keep the whole folder of the report together`));
  });
  document.head.append(script);
}
