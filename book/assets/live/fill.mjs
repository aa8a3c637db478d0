// Sets the sliders from a pasted or chosen text: pages of /metrics, or a run log. It stays in the page.
import { box, el } from "./dom.mjs";

const COUNTED = "Seconds that the counters cover (empty: since the server's start)";

function said(told) {
  const list = (title, rows, show) => rows.length
    ? [el("p", { class: "live-head" }, title), el("ul", {}, ...rows.map((row) => el("li", {}, ...show(row))))] : [];
  return [
    ...list("Read", told.how, ([name, how]) => [el("strong", {}, name), ` ${told.values[name]}: ${how}`]),
    ...list("Not read", told.unread, ([name, why]) => [el("strong", {}, name), `: ${why}`]),
    ...told.notes.map((note) => el("p", { class: "live-note" }, note)),
  ];
}

// The counters of one file reach from the server's start to the time of the file; of two, from one to the other.
async function chosen(files) {
  const inOrder = [...files].sort((a, b) => a.lastModified - b.lastModified).slice(-2);
  const texts = await Promise.all(inOrder.map((file) => file.text()));
  const times = inOrder.map((file) => file.lastModified / 1000);
  const between = times.length > 1 && times[1] - times[0] >= 1 ? times[1] - times[0] : null;
  return { before: texts.length > 1 ? texts[0] : "", after: texts.at(-1) ?? "", seconds: between, now: times.at(-1) };
}

export function fillBox(model, apply) {
  const [before, beforeRow] = box("textarea", "before", "A page of /metrics from before (may stay empty)", { rows: 4 });
  const [after, afterRow] = box("textarea", "after", "A page of /metrics from during the load, or the lines of a run log", { rows: 4 });
  const [files, filesRow] = box("input", "files", "Or files: one run log, or one or two pages of one server", { type: "file", multiple: true });
  const [seconds, secondsRow] = box("input", "seconds", COUNTED, { type: "number", min: 1, step: "any" });
  const answer = el("div", { class: "live-read", "aria-live": "polite" });
  const form = el("form", { class: "live-form" }, beforeRow, afterRow, filesRow, secondsRow,
    el("button", { type: "submit", class: "live-button" }, "Set the sliders"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = files.files.length ? await chosen(files.files)
      : { before: before.value, after: after.value, seconds: null, now: Date.now() / 1000 };
    if (seconds.value) given.seconds = Number(seconds.value);
    const told = await model.ask("fill", given, "fill");
    apply(told.values);
    answer.replaceChildren(...said(told));
  });
  return el("details", { class: "live-fill-box" },
    el("summary", {}, "Set the sliders from your server's metrics or from a run log"),
    el("p", { class: "live-note" }, "What you paste or choose is read in this page and goes nowhere."), form, answer);
}
