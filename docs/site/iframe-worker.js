// Search in pages that are opened from disk: browsers allow no worker there, so a hidden frame runs its script.
// The theme's search looks for this name. Elsewhere, nothing changes.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inside.importScripts = async (...urls) => {
      for (const next of urls) await this.load(next);
    };
    this.loaded = this.load(url);
  }

  load(url) {
    const script = this.inside.document.createElement("script");
    script.src = url;
    return new Promise((resolve, reject) => {
      script.onload = resolve;
      script.onerror = reject;
      this.inside.document.body.append(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") Object.assign(window, { IFrameWorker, Worker: IFrameWorker });
