// SPDX-License-Identifier: Apache-2.0
// Returns the view: the reader's choices, and the functions that redraw when they change.
function createView(report) {
  const listeners = [];
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const view = {
    alpha: format.isNumber(report.smoothing)
      ? Math.min(0.999, Math.max(0, report.smoothing))
      : 0.98,
    // Bands and noise of many groups would cover each other; the reader can switch them on.
    band: report.groups.length <= 6 ? "sd" : "none",
    log: false,
    raw: report.groups.length <= 4,
    hidden: new Set(),
    theme: media.matches ? "dark" : "light",
    themeChosen: false,

    // Calls `draw(kind)` on every change; kind is "alpha" for the slider, which must be fast.
    listen: (draw) => listeners.push(draw),
    set(changes, kind = "view") {
      Object.assign(view, changes);
      document.documentElement.dataset.theme = view.theme;
      for (const draw of listeners) draw(kind);
    },
  };

  document.documentElement.dataset.theme = view.theme;
  media.addEventListener("change", (event) => {
    if (!view.themeChosen) view.set({ theme: event.matches ? "dark" : "light" });
  });

  // Paper is light and narrow, and canvases do not adapt, so they are redrawn before and after.
  let onScreen = null;
  const print = (printing) => {
    if (printing === (onScreen !== null)) return;
    const theme = printing ? "light" : onScreen;
    onScreen = printing ? view.theme : null;
    document.documentElement.classList.toggle("printing", printing);
    view.set({ theme }, "print");
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  window.matchMedia("print").addEventListener("change", (event) => print(event.matches));
  return view;
}

// Colors that remain distinct with every kind of color vision (at least 17 apart in CIELAB under
// Machado's models of protanopia, deuteranopia and tritanopia, and with a contrast of 3:1 to the
// page), and dashes as a second distinction. Seven colors and four dashes are 28 combinations.
const palette = (() => {
  const light = ["#1244a9", "#a92e00", "#00974d", "#9b5f7e", "#c27f00", "#333229", "#4775bc"];
  const dark = ["#7596ff", "#e47738", "#3bea95", "#db7db2", "#ffc539", "#d1f1e8", "#96d7ff"];
  const dashes = [[], [9, 4], [2, 3], [10, 3, 2, 3]];
  return {
    color: (theme, group) => (theme === "dark" ? dark : light)[group % light.length],
    dash: (group) => dashes[group % dashes.length],
  };
})();

const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function withAlpha(hex, alpha) {
  return (
    hex +
    Math.round(alpha * 255)
      .toString(16)
      .padStart(2, "0")
  );
}

// Returns a short line in a group's color and dashes.
function swatch(view, group) {
  const line = dom.svg("line", {
    x1: 1,
    x2: 27,
    y1: 5,
    y2: 5,
    "stroke-width": 3,
    "stroke-dasharray": palette.dash(group).join(" "),
    stroke: palette.color(view.theme, group),
  });
  view.listen(() => line.setAttribute("stroke", palette.color(view.theme, group)));
  return dom.svg("svg", { class: "swatch", width: 28, height: 10, "aria-hidden": "true" }, line);
}
