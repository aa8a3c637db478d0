// Puts a form in front of each folded answer. Every sentence and score was computed at build time.
(() => {
  const el = (name, attributes, ...children) => {
    const node = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.append(...children);
    return node;
  };
  const scores = new Map();

  const choices = (legend, name, options) => el("fieldset", {}, el("legend", {}, legend),
    ...options.map(([value, words]) => el("label", {},
      el("input", { type: "radio", name, value, required: "" }), words)));

  function start(place) {
    const data = JSON.parse(place.dataset.drill);
    const answer = place.querySelector(".drill-answer");
    const said = el("div", { class: "drill-said", role: "status" });
    const form = el("form", { class: "drill-form" },
      choices("First suspect", `${data.key}-suspect`, data.suspects),
      choices("First action", `${data.key}-action`, data.actions),
      el("button", { type: "submit" }, "Do it"));
    answer.hidden = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const chosen = (name) => form.elements[`${data.key}-${name}`].value;
      const suspect = data.suspects.find(([key]) => key === chosen("suspect"));
      const action = data.actions.find(([key]) => key === chosen("action"));
      if (!scores.has(data.key)) scores.set(data.key, [suspect[0] === data.truth, action[3]]);
      const all = [...scores.values()];
      const right = all.filter(([one]) => one).length;
      const mean = all.reduce((sum, [, score]) => sum + score, 0) / all.length;
      said.replaceChildren(
        el("p", {}, el("strong", {}, "Suspect. "), suspect[2]),
        el("p", {}, el("strong", {}, "Action. "), action[2]),
        el("p", {}, `First choices so far: ${right} of ${all.length} suspects right, `
          + `${Math.round(100 * mean)} % of the goodput that was to be had.`));
      answer.hidden = false;
      answer.open = true;
    });
    answer.before(form, said);
  }

  document.querySelectorAll("[data-drill]").forEach(start);
})();
