// SPDX-License-Identifier: Apache-2.0
// Compares two results, the better one first, as Comparison::Ranked in runtime/study/comparison.h
// does: those of two finished runs, by the share of diverged runs and then by the mean loss.
function byOutcome(a, b) {
  const key = (result) => [
    format.isNumber(result?.mean) ? 0 : 1,
    result?.runs < 2 ? 1 : 0,
    result?.diverged > 0 ? result.diverged / (result.diverged + result.runs) : 0,
    result?.mean ?? 0,
  ];
  const [x, y] = [key(a), key(b)];
  const i = x.findIndex((value, at) => value !== y[at]);
  return i < 0 ? 0 : x[i] - y[i];
}

// Returns the order of the groups, the best result first; those without a result come last.
function byResult(groups) {
  return groups
    .map((_, index) => index)
    .sort((a, b) => byOutcome(groups[a].result, groups[b].result) || a - b);
}

// Returns the weight of the past with which smoothing begins, and its max. The average covers about
// a fortieth of the run, at most 50 steps, and never more than a quarter of it: a longer one would
// show the beginning of a run in its end.
function smoothingOf(report) {
  const steps = report.steps || 1;
  const alphaOf = (window) => 1 - 1 / Math.max(1, window);
  return {
    alpha: alphaOf(Math.min(50, Math.floor(steps / 40))),
    alphaMax: alphaOf(Math.min(1000, Math.max(2, Math.floor(steps / 4)))),
  };
}

// Returns the horizontal axes of curves by name, as far as the data have them. An axis is a function
// of a group and returns the amount of one step, because amounts grow evenly during training.
function axesOfCurves(report) {
  const { groups } = report;
  const axes = {
    steps: () => 1,
    tokens: (index) => groups[index].tokens_per_step,
    FLOPs: (index) => groups[index].tokens_per_step * groups[index].flops_per_token,
    seconds: (index) => report.seconds_per_step?.[index],
  };
  const has = ([, amount]) =>
    groups.every((group, index) => group.runs.length === 0 || amount(index) > 0);
  return Object.fromEntries(Object.entries(axes).filter(has));
}

// Returns the view: the reader's choices, and the functions that redraw when they change.
//
// A group whose curves are drawn has a slot, which is its color, and no two have the same. If there
// are more groups than colors, the reader picks groups, and a group that is not picked has no slot.
function createView(report) {
  const { groups } = report;
  const listeners = [];
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const order = byResult(groups);
  const many = groups.length > palette.size;
  const slots = new Map();
  const takeSlot = (index) => {
    if (slots.has(index)) return;
    const taken = new Set(slots.values());
    slots.set(index, many ? palette.slots.find((slot) => !taken.has(slot)) : index);
  };
  // Returns true for the groups that the headline compares.
  const isAtBest = (index) =>
    !report.best || report.best.models[groups[index].model]?.cell === groups[index].cell;
  // Returns the groups that are drawn first: all; or each model at its best setting, if that is not
  // too many; or the best three, the baseline and the worst.
  function firstShown() {
    if (!many) return order;
    if (report.models.length <= palette.size) {
      return report.models
        .map((_, model) => order.find((index) => isAtBest(index) && groups[index].model === model))
        .filter((index) => index !== undefined);
    }
    const ranked = order.filter(
      (index) => isAtBest(index) && format.isNumber(groups[index].result?.mean),
    );
    const baseline = order.find((index) => isAtBest(index) && view.isBaseline(index));
    return [...new Set([...ranked.slice(0, 3), baseline, ranked.at(-1)])].filter(
      (index) => index !== undefined,
    );
  }
  const view = {
    ...smoothingOf(report),
    axes: axesOfCurves(report),
    x: "steps",
    band: "none",
    log: false,
    raw: true,
    order,
    many,
    shown: new Set(),
    theme: media.matches ? "dark" : "light",
    themeChosen: false,

    // Return the position of a step of a group on the axis, the step at a position, and a position
    // as text.
    positionOf: (index, step) => step * view.axes[view.x](index),
    stepAt: (index, x) => Math.max(1, Math.round(x / view.axes[view.x](index))),
    positionText: (x) =>
      view.x === "steps" ? `step ${format.count(x)}` : `${format.amount(x)} ${view.x}`,
    // Returns how a chart labels the axis.
    xAxis: () =>
      view.x === "steps" ? { xLabel: "step" } : { xLabel: view.x, xFormat: format.amount },

    isShown: (index) => view.shown.has(index),
    // Returns the drawn groups, the best result first.
    drawn: () => order.filter((index) => view.shown.has(index)),
    // The differences of a study are against its first model.
    isBaseline: (index) => report.models.length > 1 && groups[index].model === 0,
    isFull: () => view.shown.size >= palette.size,
    toggle(index) {
      const shown = new Set(view.shown);
      if (shown.delete(index)) {
        if (many) slots.delete(index);
      } else if (shown.size < palette.size) {
        takeSlot(index);
        shown.add(index);
      }
      view.set({ shown });
    },
    color: (index) =>
      slots.has(index) ? palette.color(view.theme, slots.get(index)) : palette.none(view.theme),
    dash: (index) => (slots.has(index) ? palette.dash(slots.get(index)) : []),

    // Calls `draw(kind)` on every change; kind is "alpha" for the slider, which must be fast.
    listen: (draw) => listeners.push(draw),
    set(changes, kind = "view") {
      Object.assign(view, changes);
      document.documentElement.dataset.theme = view.theme;
      for (const draw of listeners) draw(kind);
    },
  };

  for (const index of firstShown()) {
    takeSlot(index);
    view.shown.add(index);
  }
  // Bands of many groups would cover each other; the reader can switch them on.
  if (view.shown.size <= 6) view.band = "sd";
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
// page), and dashes as a second distinction.
const palette = (() => {
  const { light, dark, dashes } = JSON.parse(document.getElementById("palette").textContent);
  return {
    size: light.length,
    slots: light.map((_, slot) => slot),
    color: (theme, slot) => (theme === "dark" ? dark : light)[slot],
    none: (theme) => (theme === "dark" ? "#7d868f" : "#8a929a"), // of a group without a slot
    dash: (slot) => dashes[slot % dashes.length],
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

// Returns a short line in a group's color and dashes, invisible if the group has no slot.
function swatch(view, group) {
  const line = dom.svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-width": 3 });
  const look = { class: "swatch", width: 28, height: 10, "aria-hidden": "true" };
  const node = dom.svg("svg", look, line);
  const draw = () => {
    line.setAttribute("stroke", view.color(group));
    line.setAttribute("stroke-dasharray", view.dash(group).join(" "));
    node.classList.toggle("none", view.many && !view.isShown(group));
  };
  draw();
  view.listen((kind) => kind !== "alpha" && draw());
  return node;
}
