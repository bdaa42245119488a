// Requests to the server, and the images that it sent.

const urls = new Map();
let shown = new Set();

// The server refuses this page, for good.
export class Refused extends Error {}

export async function call(path, body) {
  const options = body ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) } : {};
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

export function image(id) {
  if (!urls.has(id)) {
    const url = call(`api/image/${id}`).then((reply) => reply.blob()).then((blob) => URL.createObjectURL(blob));
    url.catch(() => urls.delete(id));
    urls.set(id, url);
  }
  return urls.get(id);
}

export function releaseImages(needed) {
  const previous = shown;  // images of the previous item may still be loading
  shown = needed;
  for (const [id, url] of urls) {
    if (needed.has(id) || previous.has(id)) continue;
    urls.delete(id);
    url.then((address) => URL.revokeObjectURL(address), () => {});
  }
}
