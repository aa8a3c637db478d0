// Runs the package's own Python under MicroPython, away from the page's thread.
import { loadMicroPython } from "../micropython/micropython.mjs";

const here = new URL(".", import.meta.url);
const text = async (name) => {
  const answer = await fetch(new URL(name, here));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.text();
};

async function start() {
  const [names, mp] = await Promise.all([
    text("manifest.json").then(JSON.parse),
    loadMicroPython({ heapsize: 8 << 20, url: new URL("../micropython/micropython.wasm", here).href }),
  ]);
  const sources = await Promise.all(names.map(text));
  const made = new Set();
  names.forEach((name, at) => {
    const parts = name.split("/").slice(1);
    parts.slice(0, -1).forEach((_, depth) => {
      const folder = "/" + parts.slice(0, depth + 1).join("/");
      if (!made.has(folder)) { mp.FS.mkdir(folder); made.add(folder); }
    });
    mp.FS.writeFile("/" + parts.join("/"), sources[at]);
  });
  mp.runPython("import sys\nsys.path.insert(0, '/')");
  return mp;
}

const ready = start();
const pages = {};

async function page(kind) {
  if (kind in pages) return pages[kind];
  const mp = await ready;
  if (kind === "selector") {
    mp.globals.set("_tables", await text("tables.json"));
    mp.globals.set("_parameters", await text("parameters.json"));
    mp.runPython("from minilab.judge.selector.page import Page as _S\n_selector = _S(_tables, _parameters)");
  } else {
    mp.globals.set("_table", await text("decision_table.json"));
    mp.runPython("from minilab.judge.advisor.page import Page as _A\n_advisor = _A(_table)");
  }
  return (pages[kind] = mp.globals.get("_" + kind));
}

onmessage = async ({ data: { id, kind, method, given } }) => {
  try {
    const answer = (await page(kind))[method](JSON.stringify(given));
    postMessage({ id, answer: JSON.parse(answer) });
  } catch (error) {
    postMessage({ id, error: String(error.message || error) });
  }
};
