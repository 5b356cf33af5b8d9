// SPDX-License-Identifier: Apache-2.0
// Helpers that build the page. Text is inserted as text nodes and attributes, never as markup,
// because names, samples and messages are arbitrary text of users and models.
const dom = (() => {
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child === undefined || child === null || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }

  const el = (tag, attributes = {}, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // Returns a name that may be broken after "_", before it has to be broken within a word.
  const name = (text) =>
    String(text)
      .split("_")
      .flatMap((part, i) => (i > 0 ? ["_", el("wbr"), part] : [part]));

  // Returns a table. Columns are strings or {text, number}; rows are lists of strings, nodes or
  // {text, ...}.
  function table(caption, columns, rows) {
    const isNumeric = columns.map((column) => typeof column === "object" && column.number);
    const cell = (value, i) =>
      el(
        i === 0 ? "th" : "td",
        { scope: i === 0 ? "row" : null, class: isNumeric[i] ? "number" : null },
        value instanceof Node ? value : (value?.text ?? value),
      );
    return el(
      "table",
      {},
      el("caption", {}, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map((column, i) =>
            el(
              "th",
              { scope: "col", class: isNumeric[i] ? "number" : null },
              column instanceof Node ? column : (column.text ?? column),
            ),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) => el("tr", {}, row.map(cell))),
      ),
    );
  }

  // Returns a horizontally scrolling box that can be reached with the keyboard.
  const scroller = (label, ...children) =>
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);

  // Returns a table of a figure's numbers, built on demand. `build` returns [columns, rows].
  function numbers(caption, build) {
    const holder = scroller(caption);
    const details = el("details", { class: "numbers" }, el("summary", {}, "The numbers"), holder);
    const draw = () => {
      if (details.open) holder.replaceChildren(table(caption, ...build()));
    };
    details.addEventListener("toggle", draw);
    return { node: details, draw };
  }

  // Returns a button that copies the result of `text()` and reports success.
  function copyButton(label, text) {
    const said = el("span", { class: "said", role: "status" });
    const button = el("button", { type: "button", class: "quiet" }, label);
    button.addEventListener("click", async () => {
      said.textContent = (await copy(text())) ? "Copied" : "The browser refused to copy";
      setTimeout(() => (said.textContent = ""), 2500);
    });
    return el("span", { class: "copy" }, button, said);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Some browsers do not let a page from disk use the clipboard directly.
      const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // Returns a choice of one of several options, as a row of radio buttons.
  function choice(legend, name, options, chosen, onChoose) {
    return el(
      "fieldset",
      { class: "choice" },
      el("legend", {}, legend),
      el(
        "span",
        { class: "segments" },
        options.map(([value, label]) =>
          el(
            "label",
            {},
            el("input", {
              type: "radio",
              name,
              value,
              checked: value === chosen,
              onchange: () => onChoose(value),
            }),
            el("span", {}, label),
          ),
        ),
      ),
    );
  }

  // Returns a slider from 0 to `max`. `textOf(value)` returns the text next to it and the spoken
  // text.
  function slider(id, label, { max, step, value }, textOf, onInput) {
    const output = el("output", { class: id, for: id });
    const input = el("input", { type: "range", id, min: "0", max, step, value });
    const say = (text) => {
      output.textContent = text.shown;
      input.setAttribute("aria-valuetext", text.spoken);
    };
    say(textOf(value));
    input.addEventListener("input", () => {
      say(textOf(Number(input.value)));
      onInput(Number(input.value));
    });
    return el("div", { class: "slider" }, el("label", { for: id }, label), input, output);
  }

  // Returns columns of numbers, for table().
  const numeric = (names) => names.map((text) => ({ text, number: true }));

  const section = (id, title, ...children) =>
    el(
      "section",
      { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, title),
      ...children,
    );

  const figure = (title, note, ...children) =>
    el(
      "figure",
      {},
      el(
        "figcaption",
        {},
        saveButtons(title),
        el("h3", {}, title),
        note && el("p", { class: "note" }, note),
      ),
      ...children,
    );

  return {
    el,
    svg,
    name,
    table,
    scroller,
    numbers,
    copyButton,
    choice,
    slider,
    numeric,
    section,
    figure,
  };
})();
