// SPDX-License-Identifier: Apache-2.0
// Creates the legend: the groups as buttons that stay visible above all figures. They hide or show
// a group everywhere, and display its value at the cursor. If there are more groups than colors, it
// has only those that are drawn, and the ranking chooses them.
function createLegend(report, view) {
  const buttons = report.groups.map((group, index) => {
    const value = dom.el("span", { class: "chip-value" });
    const button = dom.el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": "true",
        title: view.many ? "Remove from the figures" : null,
        onclick: () => view.toggle(index),
      },
      swatch(view, index),
      dom.el("span", { class: "chip-name" }, group.name),
      value,
    );
    return { button, value };
  });
  view.listen(() =>
    buttons.forEach(({ button }, index) => {
      button.setAttribute("aria-pressed", String(view.isShown(index)));
      button.hidden = view.many && !view.isShown(index);
    }),
  );

  const place = dom.el("span", { class: "legend-place" });
  const spoken = dom.el("span", { class: "offscreen", role: "status" });
  const node = dom.el(
    "div",
    { class: "legend", role: "group", "aria-label": "Models in the figures" },
    dom.el(
      "div",
      { class: "chips" },
      view.order.map((index) => buttons[index].button),
      view.many && dom.el("a", { class: "choose", href: "#results" }, "Choose models"),
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
        view
          .drawn()
          .map((index) => `${report.groups[index].name} ${values[index]}`)
          .join(", ")
      : "";
  }
  return { node, show };
}
