// Runs the package's own Python under MicroPython, away from the page's thread.
import { loadMicroPython } from "../micropython/micropython.mjs";

const here = new URL(".", import.meta.url);
const text = async (name) => {
  const answer = await fetch(new URL(name, here));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.text();
};

// Each kind of page: the module whose Page answers it, and the data that it takes.
const KINDS = {
  selector: ["selector.page", "tables.json", "parameters.json"],
  fill: ["selector.filling", "tables.json", "parameters.json"],
  advisor: ["advisor.page", "decision_table.json"],
  capacity: ["calculator.page", "capacity_tables.json", "capacity_parameters.json"],
};

async function start() {
  const mp = await loadMicroPython({ heapsize: 8 << 20, url: new URL("../micropython/micropython.wasm", here).href });
  mp.runPython("import sys\nsys.path.insert(0, '/')");
  return mp;
}

const ready = start();
const manifest = text("manifest.json").then(JSON.parse);
const written = new Set();

async function load(mp, names) {
  const fresh = names.filter((name) => !written.has(name));
  const sources = await Promise.all(fresh.map(text));
  fresh.forEach((name, at) => {
    const parts = name.split("/").slice(1);
    parts.slice(0, -1).forEach((_, depth) => {
      const folder = "/" + parts.slice(0, depth + 1).join("/");
      if (!written.has(folder)) { mp.FS.mkdir(folder); written.add(folder); }
    });
    mp.FS.writeFile("/" + parts.join("/"), sources[at]);
    written.add(name);
  });
}

async function open(kind) {
  const [name, ...data] = KINDS[kind];
  const [mp, files, ...texts] = await Promise.all([ready, manifest, ...data.map(text)]);
  await load(mp, files[kind]);
  texts.forEach((one, at) => mp.globals.set(`_data${at}`, one));
  const given = texts.map((_, at) => `_data${at}`).join(", ");
  mp.runPython(`from minilab.judge.${name} import Page as _P\n_${kind} = _P(${given})`);
  return mp.globals.get("_" + kind);
}

const pages = {};
const page = (kind) => (pages[kind] ??= open(kind));

onmessage = async ({ data: { id, kind, method, given } }) => {
  try {
    const answer = (await page(kind))[method](JSON.stringify(given));
    postMessage({ id, answer: JSON.parse(answer) });
  } catch (error) {
    postMessage({ id, error: String(error.message || error) });
  }
};
