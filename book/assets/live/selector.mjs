// The selector's sliders and its answer. Parameters, ranges and help are data of the package.
import { Settings, control } from "./controls.mjs";
import { el, number, table, time, words } from "./dom.mjs";
import { fillBox } from "./fill.mjs";

function bars(told) {
  return el("div", { class: "live-bars" }, ...told.bars.map(([name, value]) => {
    const full = value == null ? 1 : Math.min(1, value);
    const mine = name === told.bottleneck;
    return el("div", { class: mine ? "live-bar live-top" : "live-bar" },
      el("span", { class: "live-bar-name" }, words(name)),
      el("span", { class: "live-track", "aria-hidden": "true" },
        el("span", { class: "live-fill", style: `width:${(100 * full).toFixed(1)}%` })),
      el("span", { class: "live-bar-value" }, value == null ? "no bound" : value.toFixed(2)));
  }));
}

function numbers(told) {
  const then = told.recommended;
  const row = (name, key, show) => [name, show(told[key]), show(then[key])];
  return table([
    ["Deployment", told.layout, then.layout],
    row("TTFT (mean)", "ttft", time),
    row("ITL (mean gap)", "itl", time),
    row("A gap with a prompt in it", "stall", time),
    row("Requests within the SLO", "attainment", (x) => `${number(100 * x)} %`),
    row("Goodput per GPU", "goodput_per_gpu", (x) => `${number(x)} requests/s`),
    row("Tokens in flight", "tokens_in_flight", (x) => number(x)),
    row("Price of a million good tokens", "cost_per_million_good_tokens", (x) => number(x)),
  ], ["", "now", "with the stack"]);
}

function lists(told, flips) {
  const use = told.stack.map(([lever, why, price]) =>
    el("li", {}, el("strong", {}, words(lever)), `: ${why}. It costs: ${price}.`));
  const reasons = new Map();
  told.avoid.forEach(([lever, why]) => reasons.set(why, [...(reasons.get(why) || []), words(lever)]));
  const leave = [...reasons].map(([why, levers]) => el("li", {}, el("strong", {}, levers.join(", ")), `: ${why}.`));
  const turn = (flips || []).map(([name, lever, value, above]) =>
    el("li", {}, `${name} ${above ? "above" : "below"} ${number(value)}: use ${words(lever)}`));
  return el("div", {},
    el("p", { class: "live-head" }, "Use"), use.length ? el("ul", {}, ...use) : el("p", {}, "Nothing: the defaults meet the limits."),
    el("p", { class: "live-head" }, "Do not rush into"), el("ul", {}, ...leave),
    el("p", { class: "live-head" }, "Where it flips"),
    flips == null ? el("p", {}, "…") : turn.length ? el("ul", { class: "live-flips" }, ...turn)
      : el("p", {}, "Nowhere near these settings."));
}

export async function selector(mount, model, parameters, scenarios, tables) {
  const settings = new Settings(parameters, tables);
  settings.takeAddress();
  let turn = 0;
  let pause;
  const answer = el("div", { class: "live-answer", "aria-live": "polite" });
  const update = async () => {
    const mine = ++turn;
    const told = await model.ask("report", settings.values);
    if (mine !== turn) return;
    draw(told, null);
    clearTimeout(pause);
    pause = setTimeout(async () => {
      const found = await model.ask("flips", settings.values);
      if (mine === turn) draw(told, found);
    }, 400);
  };
  const draw = (told, found) => {
    if (!told.fits) {
      answer.replaceChildren(el("p", {}, `${settings.values.model} needs ${number(told.weights_gb)} GB for its weights, `
        + `which do not fit on these GPUs. Take more of them, or larger ones.`));
      return;
    }
    const band = told.band
      ? Object.entries(told.band).map(([name, [low, high]]) => `${name.toUpperCase()} × ${low.toFixed(2)} to ${high.toFixed(2)}`).join(", ")
      : null;
    answer.replaceChildren(
      el("p", { class: "live-verdict" }, "Nearest to its limit: ", el("strong", { "data-out": "bottleneck" }, words(told.bottleneck)),
        told.after === told.bottleneck ? "" : `, then ${words(told.after)}`),
      bars(told), numbers(told), lists(told, found),
      el("p", { class: "live-note" }, "A model, not a benchmark. ", band
        ? `Four of five measurements lay within ${band} of it.`
        : "Nobody has measured how far off it is for this model and GPU."));
  };
  const changed = () => {
    settings.keepInAddress();
    update();
  };
  const controls = parameters.map((p) => control(p, settings, changed));
  const refresh = () => controls.forEach((one) => one.show());
  const pick = el("select", { id: "live-scenario" }, el("option", { value: "" }, "choose…"),
    ...scenarios.map((one) => el("option", { value: one.id }, one.label)));
  pick.addEventListener("change", () => {
    const chosen = scenarios.find((one) => one.id === pick.value);
    if (!chosen) return;
    settings.reset();
    settings.take(chosen.values);
    refresh();
    changed();
  });
  const first = controls.filter((one) => one.p.first).map((one) => one.node);
  const rest = controls.filter((one) => !one.p.first).map((one) => one.node);
  const form = el("form", { class: "live-form" },
    el("div", { class: "live-control" }, el("label", { for: "live-scenario" }, "Scenario"), pick),
    ...first, el("details", {}, el("summary", {}, "More: tails, tenants, formats, limits, price"), ...rest));
  form.addEventListener("submit", (event) => event.preventDefault());
  const fill = fillBox(model, (values) => {
    settings.take(values);
    refresh();
    changed();
  });
  await update();
  mount.replaceChildren(form, fill, answer);
  mount.dataset.ready = "true";
}
