// The paste box of the advisor. What is pasted stays in the page.
import { box, el, words } from "./dom.mjs";

function suspect(found, at) {
  return el("li", { class: "live-suspect" },
    el("p", {}, el("strong", { "data-out": at ? null : "first" }, words(found.id)), ` (${found.kind}, ${found.score.toFixed(2)})`),
    el("ul", {}, ...found.evidence.map((line) => el("li", {}, line))),
    el("p", {}, "First: ", found.actions[0]), el("p", {}, "Not yet: ", found.dont));
}

export async function advisor(mount, model) {
  const [before, beforeRow] = box("textarea", "before", "A page of /metrics before the load (may stay empty)", { rows: 6 });
  const [after, afterRow] = box("textarea", "after", "A page of /metrics during or after the load", { rows: 6 });
  const limit = (name, label, value) => {
    const id = `live-${name}`;
    const box = el("input", { id, type: "number", min: 0.001, step: "any", value });
    return [box, el("div", { class: "live-control" }, el("label", { for: id }, label), box)];
  };
  const [ttft, ttftRow] = limit("ttft", "TTFT limit (s)", 1);
  const [itl, itlRow] = limit("itl", "ITL limit (s)", 0.1);
  const answer = el("div", { class: "live-answer", "aria-live": "polite" });
  const button = el("button", { type: "submit", class: "live-button" }, "Diagnose");
  const form = el("form", { class: "live-form" }, beforeRow, afterRow, ttftRow, itlRow, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = { before: before.value, after: after.value, slo: { ttft: Number(ttft.value), itl: Number(itl.value) } };
    const told = await model.ask("advise", given);
    answer.replaceChildren(
      el("ol", {}, ...told.suspects.slice(0, 4).map(suspect)),
      ...(told.unknown.length ? [el("p", {}, "Unknown:"), el("ul", {}, ...told.unknown.map(([, how]) => el("li", {}, how)))] : []),
      ...told.notes.map((note) => el("p", { class: "live-note" }, note)));
  });
  mount.replaceChildren(form, answer);
  mount.dataset.ready = "true";
}
