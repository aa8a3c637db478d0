// Finds the live models of a page and gives each its face. The numbers come from the worker only.
import { selector } from "./selector.mjs";
import { advisor } from "./advisor.mjs";

const FACES = { selector, advisor };

export class Model {
  constructor(kind) {
    this.kind = kind;
    this.waiting = new Map();
    this.last = 0;
    this.worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      const [resolve, reject] = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if ("error" in data) reject(new Error(data.error));
      else resolve(data.answer);
    };
  }

  ask(method, given) {
    const id = ++this.last;
    this.worker.postMessage({ id, kind: this.kind, method, given });
    return new Promise((resolve, reject) => this.waiting.set(id, [resolve, reject]));
  }
}

export async function json(root, name) {
  const answer = await fetch(new URL(`live/${name}`, root));
  return answer.json();
}

function start(mount) {
  const root = new URL(mount.dataset.root, document.baseURI);
  const kind = mount.dataset.live;
  const model = new Model(kind);
  const names = kind === "selector" ? ["parameters.json", "scenarios.json", "tables.json"] : [];
  Promise.all(names.map((name) => json(root, name)))
    .then((data) => FACES[kind](mount, model, ...data))
    .catch((error) => {
      const note = document.createElement("p");
      note.textContent = `The live model could not start (${error.message}); what stands above is the default.`;
      mount.append(note);
    });
}

// The runtime is half a megabyte: fetched only when its place comes near the window.
const near = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    start(target);
  }
}, { rootMargin: "600px" });
document.querySelectorAll("[data-live]").forEach((mount) => near.observe(mount));
