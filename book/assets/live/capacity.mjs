// The capacity calculator: sliders, the memory of one GPU as bars, what fits, and its arithmetic.
import { Settings, control } from "./controls.mjs";
import { el, table } from "./dom.mjs";

const whole = (value) => value.toLocaleString("en");
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;
const tokens = (value) => value == null ? "no limit" : `${whole(value)} tokens`;

function budget(told) {
  const [[, memory]] = told.terms;
  const rows = [...told.terms.slice(1).map(([name, size, why]) => [name, -size, why]),
    ["for KV", Math.max(0, told.available), "what is left"]];
  return el("div", { class: "live-bars live-bytes" }, ...rows.map(([name, size, why]) =>
    el("div", { class: name === "for KV" ? "live-bar live-top" : "live-bar", title: why },
      el("span", { class: "live-bar-name" }, name),
      el("span", { class: "live-track", "aria-hidden": "true" },
        el("span", { class: "live-fill", style: `width:${(100 * Math.min(1, size / memory)).toFixed(1)}%` })),
      el("span", { class: "live-bar-value" }, gib(size)))));
}

function longest(told) {
  const limit = told.model_max_len;
  const cut = limit && (told.longest == null || told.longest > limit);
  return cut ? `${tokens(told.longest)} of memory; the model ends at ${tokens(limit)}` : tokens(told.longest);
}

function numbers(told, values) {
  const [least, most] = told.range;
  return table([
    ["Weights, all GPUs", gib(told.weights)],
    ["KV per token and GPU", `${whole(told.kv_bytes_per_token)} B`],
    ["Tokens that fit", `${whole(told.tokens)} (${whole(least)} to ${whole(most)})`],
    [`Requests of ${whole(values.length)} tokens at once`, `${told.max_concurrency.toFixed(2)}`],
    ["Largest batch", `${whole(told.batch)}, bound by ${told.limit}`],
    ["Tokens in flight then", whole(told.tokens_in_flight)],
    ["Longest context of one request", longest(told)],
    [`Longest with ${whole(values.sequences)} at once`, tokens(told.longest_together)],
  ]);
}

function draw(told, values) {
  if (!told.fits) {
    return [el("p", { class: "live-verdict" }, el("strong", { "data-out": "batch" }, "Nothing fits"),
      `: ${gib(-told.available)} more are needed on each GPU before the first token. `
      + "Take more GPUs, weights with fewer bits, fewer tokens per step or a higher share."), budget(told)];
  }
  return [
    el("p", { class: "live-verdict" }, el("strong", { "data-out": "batch" }, whole(told.batch)),
      ` requests of ${whole(values.length)} tokens at once, bound by ${told.limit}`),
    budget(told), numbers(told, values),
    el("p", { class: "live-head" }, "The arithmetic"),
    el("dl", { class: "live-sums" }, ...told.arithmetic.flatMap(([name, line]) =>
      [el("dt", {}, name), el("dd", {}, line)])),
    ...told.notes.map((note) => el("p", { class: "live-note" }, note)),
    el("p", { class: "live-head" }, "The flags"),
    ...told.flags.flatMap(([engine, version, line]) =>
      [el("pre", { class: "live-flags", tabindex: 0 }, line), el("p", { class: "live-note" }, `${engine}: ${version}`)]),
    el("p", { class: "live-note" }, "An estimate, not a measurement: the activation peak comes from shapes. "
      + "The range doubles it and adds 1 GiB of CUDA graphs, or halves it."),
  ];
}

export async function capacity(mount, model, parameters, tables) {
  const settings = new Settings(parameters, tables);
  settings.takeAddress();
  const answer = el("div", { class: "live-answer", "aria-live": "polite" });
  let turn = 0;
  const update = async () => {
    const mine = ++turn;
    const values = { ...settings.values };
    const told = await model.ask("report", values);
    if (mine === turn) answer.replaceChildren(...draw(told, values));
  };
  const changed = () => {
    settings.keepInAddress();
    update();
  };
  const controls = parameters.map((p) => control(p, settings, changed));
  const nodes = (first) => controls.filter((one) => Boolean(one.p.first) === first).map((one) => one.node);
  const form = el("form", { class: "live-form" }, ...nodes(true),
    el("details", {}, el("summary", {}, "More"), ...nodes(false)));
  form.addEventListener("submit", (event) => event.preventDefault());
  await update();
  mount.replaceChildren(form, answer);
  mount.dataset.ready = "true";
}
