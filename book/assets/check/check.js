// Keeps the ticks of the self-check in this browser, and compares a typed number with the answer
// that was computed when the site was built.
(() => {
  const PREFIX = "frontier-serving-lab.check.";
  const el = (name, attributes, ...children) => {
    const node = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.append(...children);
    return node;
  };
  // A browser may forbid storage (private windows): the boxes then work until the page is left.
  const stored = (key) => { try { return localStorage.getItem(PREFIX + key); } catch { return null; } };
  const store = (key, on) => {
    try { if (on) localStorage.setItem(PREFIX + key, "1"); else localStorage.removeItem(PREFIX + key); } catch { /* see above */ }
  };

  const items = [...document.querySelectorAll("[data-check]")];
  const count = document.querySelector("[data-check-count]");
  const boxes = items.map((item) => item.querySelector("input[type=checkbox]"));
  const told = () => {
    const done = boxes.filter((box) => box.checked).length;
    if (count) count.firstElementChild.textContent = `${done} of ${boxes.length} ticked`;
  };

  items.forEach((item, at) => {
    const { key, value, tolerance } = JSON.parse(item.dataset.check);
    const box = boxes[at];
    const set = (on) => { box.checked = on; store(key, on); told(); };
    box.checked = stored(key) === "1";
    box.addEventListener("change", () => set(box.checked));
    const typed = el("input", { type: "text", inputmode: "decimal", autocomplete: "off" });
    const said = el("span", { role: "status" });
    const form = el("form", {}, el("label", {}, "Your number ", typed, ` ${item.dataset.unit || ""}`),
      el("button", { type: "submit" }, "Compare"), said);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const number = Number(typed.value.replaceAll(",", "").trim());
      if (typed.value.trim() === "" || !Number.isFinite(number)) {
        said.textContent = "Type a number, such as 1,234.5.";
        return;
      }
      const right = Math.abs(number - value) <= tolerance * Math.abs(value) + 1e-9;
      item.classList.toggle("right", right);
      const off = number / value;
      said.textContent = right ? "Right, and ticked."
        : off > 0 ? `Not yet: ${off > 1 ? "too large" : "too small"}, by a factor of ${(off > 1 ? off : 1 / off).toPrecision(2)}.`
          : "Not yet: the answer is above 0.";
      if (right) set(true);
    });
    item.querySelector("details").before(form);
  });
  if (count) {
    const clear = el("button", { type: "button", class: "checks-clear" }, "Clear all ticks");
    clear.addEventListener("click", () => {
      items.forEach((item, at) => { boxes[at].checked = false; store(JSON.parse(item.dataset.check).key, false); });
      told();
    });
    count.replaceChildren(el("span", {}), " ", clear);
  }
  told();
})();
