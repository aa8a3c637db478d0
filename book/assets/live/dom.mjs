// Small helpers: elements, numbers, times.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

export const number = (value, digits = 3) =>
  value == null ? "no bound" : Number(value.toPrecision(digits)).toLocaleString("en");

export const time = (seconds) =>
  seconds == null ? "without bound"
    : seconds < 1 ? `${number(seconds * 1e3)} ms` : `${number(seconds)} s`;

export const words = (id) => id.replaceAll("_", " ");

export function table(rows, head) {
  const body = el("tbody", {}, ...rows.map((row) =>
    el("tr", {}, ...row.map((cell, at) => at ? el("td", {}, cell) : el("th", { scope: "row" }, cell)))));
  return el("table", { class: "table live-table" },
    head ? el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", { scope: "col" }, cell)))) : null, body);
}

// A labelled field over the whole width, and its row.
export function box(tag, name, label, attributes) {
  const id = `live-${name}`;
  const field = el(tag, { id, ...(tag === "textarea" ? { spellcheck: "false" } : {}), ...attributes });
  return [field, el("div", { class: "live-control live-wide" }, el("label", { for: id }, label), field)];
}
