// Sliders and choices, drawn from a list of parameters; their values live in the address.
import { el, number } from "./dom.mjs";

const STEPS = 400;

const isWhole = (p) => p.whole || p.scale === "whole" || p.unit === "tokens";

const fromSlider = (p, x) => {
  const share = x / STEPS;
  const value = p.scale === "log" ? p.min * (p.max / p.min) ** share : p.min + (p.max - p.min) * share;
  return isWhole(p) ? Math.round(value) : Number(value.toPrecision(3));
};
const toSlider = (p, value) => Math.round(STEPS * (p.scale === "log"
  ? Math.log(value / p.min) / Math.log(p.max / p.min) : (value - p.min) / (p.max - p.min)));

export class Settings {
  constructor(parameters, tables) {
    this.parameters = parameters;
    this.tables = tables;
    this.values = {};
    this.reset();
  }

  reset() {
    for (const p of this.parameters) this.values[p.name] = p.default;
  }

  choices(p) {
    return p.choices || Object.keys(this.tables[p.kind]).sort();
  }

  // Takes what it knows, in range; the rest is left alone.
  take(given) {
    for (const p of this.parameters) {
      if (!(p.name in given)) continue;
      const value = given[p.name];
      if (p.kind) {
        if (this.choices(p).includes(value)) this.values[p.name] = value;
      } else if (value !== "" && Number.isFinite(Number(value))) {
        this.values[p.name] = Math.min(p.max, Math.max(p.min, Number(value)));
      }
    }
  }

  takeAddress() {
    this.take(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  }

  keepInAddress() {
    const changed = this.parameters.filter((p) => this.values[p.name] !== p.default)
      .map((p) => [p.name, this.values[p.name]]);
    history.replaceState(null, "",
      changed.length ? "#" + new URLSearchParams(changed) : location.pathname + location.search);
  }
}

export function control(p, settings, changed) {
  const id = `live-${p.name}`;
  const shown = el("output", { for: id, class: "live-value" });
  const help = { id, "aria-describedby": `${id}-help` };
  const input = p.kind
    ? el("select", help, ...settings.choices(p).map((name) => el("option", { value: name }, name)))
    : el("input", { ...help, type: "range", min: 0, max: STEPS, step: 1 });
  const show = () => {
    const value = settings.values[p.name];
    if (p.kind) { input.value = value; return; }
    input.value = toSlider(p, value);
    const text = isWhole(p) ? Math.round(value).toLocaleString("en") : number(value);
    shown.textContent = p.unit ? `${text} ${p.unit}` : text;
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    settings.values[p.name] = p.kind ? input.value : fromSlider(p, Number(input.value));
    show();
    changed();
  });
  show();
  const node = el("div", { class: "live-control" }, el("label", { for: id }, p.label), shown, input,
    el("small", { id: `${id}-help` }, p.help));
  return { p, node, show };
}
