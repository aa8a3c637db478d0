// Finds the live models of a page and gives each its face. The numbers come from the worker only.
import { selector } from "./selector.mjs";
import { advisor } from "./advisor.mjs";
import { capacity } from "./capacity.mjs";

// What draws each kind, and the data that it draws from.
const FACES = {
  selector: [selector, "parameters.json", "scenarios.json", "tables.json"],
  advisor: [advisor],
  capacity: [capacity, "capacity_parameters.json", "capacity_tables.json"],
};

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

  ask(method, given, kind = this.kind) {
    const id = ++this.last;
    this.worker.postMessage({ id, kind, method, given });
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
  const [face, ...names] = FACES[kind];
  Promise.all(names.map((name) => json(root, name)))
    .then((data) => face(mount, model, ...data))
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
