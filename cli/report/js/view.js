// SPDX-License-Identifier: Apache-2.0
// What the reader has chosen, and who redraws when it changes.
function createView(report) {
  const listeners = [];
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const view = {
    alpha: format.isNumber(report.smoothing)
      ? Math.min(0.999, Math.max(0, report.smoothing))
      : 0.98,
    // Many groups would bury each other under bands and noise; the reader can ask for them.
    band: report.groups.length <= 6 ? "sd" : "none",
    log: false,
    raw: report.groups.length <= 4,
    hidden: new Set(),
    theme: media.matches ? "dark" : "light",
    themeChosen: false,

    // Calls `draw(kind)` on every change; kind is "alpha" for the slider, which wants to be quick.
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

  // Paper is light and narrow, and a canvas does not know: it is drawn again before and after.
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

// Colours that stay apart for every kind of colour vision (at least 17 apart in CIELAB under
// Machado's models of protanopia, deuteranopia and tritanopia, and 3:1 from the page), with dashes
// as a second sign. Seven colours and four dashes make 28 pairs before one comes back.
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

// A short line in a group's colour and dashes.
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
