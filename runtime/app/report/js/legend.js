// SPDX-License-Identifier: Apache-2.0
// Creates the legend: the groups as buttons that stay visible above all figures. They hide or show
// a group everywhere, and display its value at the cursor.
function createLegend(report, view) {
  const buttons = report.groups.map((group, index) => {
    const value = dom.el("span", { class: "chip-value" });
    const button = dom.el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": "true",
        onclick: () => {
          const hidden = new Set(view.hidden);
          if (!hidden.delete(index)) hidden.add(index);
          view.set({ hidden });
        },
      },
      swatch(view, index),
      dom.el("span", { class: "chip-name" }, group.name),
      value,
    );
    return { button, value };
  });
  view.listen(() =>
    buttons.forEach(({ button }, index) =>
      button.setAttribute("aria-pressed", String(!view.hidden.has(index))),
    ),
  );

  const place = dom.el("span", { class: "legend-place" });
  const spoken = dom.el("span", { class: "offscreen", role: "status" });
  const all = report.groups.map((_, index) => index);
  const many = report.groups.length > 4;
  const node = dom.el(
    "div",
    { class: "legend", role: "group", "aria-label": "Models in the figures" },
    dom.el(
      "div",
      { class: "chips" },
      buttons.map(({ button }) => button),
      many &&
        dom.el(
          "button",
          { type: "button", class: "quiet", onclick: () => view.set({ hidden: new Set() }) },
          "All",
        ),
      many &&
        dom.el(
          "button",
          { type: "button", class: "quiet", onclick: () => view.set({ hidden: new Set(all) }) },
          "None",
        ),
    ),
    place,
    spoken,
  );

  // Shows `values`, one text per group; they are spoken if the reader moves with the keyboard.
  function show(where, values, aloud) {
    place.textContent = where;
    values.forEach((text, index) => (buttons[index].value.textContent = text));
    spoken.textContent = aloud
      ? `${where}: ` +
        values
          .map((text, i) => (view.hidden.has(i) ? "" : `${report.groups[i].name} ${text}`))
          .filter(Boolean)
          .join(", ")
      : "";
  }
  return { node, show };
}
