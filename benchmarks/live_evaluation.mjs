// Times the page's models under MicroPython: node live_evaluation.mjs FOLDER MICROPYTHON < ASKED
// FOLDER holds what a worker of the page fetches. Prints JSON: seconds of each call, and answers' sizes.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, micropython] = process.argv.slice(2);
const { kinds, asked } = JSON.parse(readFileSync(0, "utf8"));
const read = (name) => readFileSync(join(folder, name), "utf8");
const began = performance.now();
const { loadMicroPython } = await import(pathToFileURL(join(micropython, "micropython.mjs")).href);
const mp = await loadMicroPython({ heapsize: 8 << 20, url: join(micropython, "micropython.wasm") });
mp.runPython("import sys\nsys.path.insert(0, '/')");
const manifest = JSON.parse(read("manifest.json"));
const made = new Set();
const pages = {};
for (const [kind, [module, ...data]] of Object.entries(kinds)) {
  for (const name of manifest[kind]) {
    const parts = name.split("/").slice(1);
    parts.slice(0, -1).forEach((_, depth) => {
      const place = "/" + parts.slice(0, depth + 1).join("/");
      if (!made.has(place)) { mp.FS.mkdir(place); made.add(place); }
    });
    mp.FS.writeFile("/" + parts.join("/"), read(name));
  }
  data.forEach((name, at) => mp.globals.set(`_d${at}`, read(name)));
  const given = data.map((_, at) => `_d${at}`).join(", ");
  mp.runPython(`from minilab.judge.${module} import Page as _P\n_${kind} = _P(${given})`);
  pages[kind] = mp.globals.get("_" + kind);
}
const live = (performance.now() - began) / 1e3;
const calls = asked.map(([kind, method, given]) => {
  const text = JSON.stringify(given);
  const [start, used] = [performance.now(), process.cpuUsage()];
  const answer = pages[kind][method](text);
  const { user, system } = process.cpuUsage(used);
  return { kind, method, seconds: (performance.now() - start) / 1e3, cpu: (user + system) / 1e6, answer };
});
console.log(JSON.stringify({ live, calls }));
