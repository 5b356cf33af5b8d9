// SPDX-License-Identifier: Apache-2.0
// Loss by step: smoothed curves, their spread over seeds, the whole run and both ends of it.

// Max points in one figure; longer curves are thinned out (after smoothing).
const mostPoints = 2e5;

// Losses of all runs, and their smoothed curves, computed once for each alpha.
class LossCurves {
  constructor(report) {
    this.report = report;
    this.losses = report.runs.map((run) => run.loss ?? []);
    this.length = this.losses.reduce((most, loss) => Math.max(most, loss.length), 0);
    this.raw = this.losses.map((loss) => stats.smooth(loss, 0));
    this.rawGroups = this.byGroup(this.raw);
    this.alpha = null;
  }
  // Averages the curves of each group. Diverged runs would dominate mean and deviation in their
  // last steps, so they are drawn separately and count only if a group has no other runs.
  byGroup(curves) {
    return this.report.groups.map((group) => {
      const kept = group.runs.filter((run) => this.report.runs[run].status !== "diverged");
      return stats.across(
        (kept.length > 0 ? kept : group.runs).map((run) => curves[run]),
        this.length,
      );
    });
  }
  at(alpha) {
    if (alpha !== this.alpha) {
      this.alpha = alpha;
      this.smooth = alpha === 0 ? this.raw : this.losses.map((loss) => stats.smooth(loss, alpha));
      this.groups = alpha === 0 ? this.rawGroups : this.byGroup(this.smooth);
    }
    return this;
  }
}

// Returns the edges of a group's band.
function bandEdges(group, band) {
  if (band === "range") return [group.high, group.low];
  return [1, -1].map((sign) =>
    group.mean.map((mean, i) => mean + sign * (group.n[i] > 1 ? group.sd[i] : 0)),
  );
}

function onlySomeDiverged(report, group) {
  const lost = group.runs.filter((run) => report.runs[run].status === "diverged").length;
  return lost > 0 && lost < group.runs.length;
}

// Returns the lines of a pane: for every drawn group the unsmoothed mean in the background, the
// band or the runs, and the mean.
function lossLines(report, view, curves, first, last) {
  const lines = [];
  const bands = [];
  const add = (values, color, extra) =>
    lines.push({ values, color, dash: [], width: 1, ...extra }) - 1;
  const drawn = view.drawn();
  if (view.raw && view.alpha > 0) {
    const opacity = drawn.length <= 3 ? 0.3 : 0.18;
    for (const index of drawn) {
      const faint = withAlpha(view.color(index), opacity);
      add(curves.rawGroups[index].mean, faint, { background: "bulk" });
    }
  }
  for (const index of drawn) {
    const group = report.groups[index];
    const color = view.color(index);
    const several = group.runs.length > 1;
    if (several && (view.band === "sd" || view.band === "range")) {
      const [upper, lower] = bandEdges(curves.groups[index], view.band);
      const edge = withAlpha(color, 0.35);
      bands.push({
        upper: add(upper, edge, { width: 0.75 }),
        lower: add(lower, edge, { width: 0.75 }),
        fill: withAlpha(color, 0.14),
      });
    }
    // A diverging run may have any loss, so the part outside of the other runs' axis is clipped.
    const mixed = onlySomeDiverged(report, group);
    for (const run of group.runs) {
      if (mixed && report.runs[run].status === "diverged") {
        add(curves.smooth[run], color, { background: "cut" });
      } else if (several && view.band === "seeds") {
        add(curves.smooth[run], withAlpha(color, 0.4));
      }
    }
  }
  for (const index of drawn) {
    add(curves.groups[index].mean, view.color(index), { width: 2.25, dash: view.dash(index) });
  }
  const { x, ys } = stats.forDrawing(
    lines.map((line) => line.values),
    first,
    last,
    mostPoints,
  );
  return { x, bands, lines: lines.map((line, i) => ({ ...line, values: ys[i] })) };
}

function lossSection(report, view, legend, curves) {
  const length = curves.length;
  if (length === 0) return null;
  const first = Math.min(report.windows?.first ?? 100, length);
  const last = Math.min(report.windows?.last ?? 200, length);
  const panes = [
    {
      name: `The whole run, ${format.plural(length, "step")}`,
      from: 1,
      to: length,
      height: 340,
      whole: true,
    },
    { name: `The first ${format.plural(first, "step")}`, from: 1, to: first, height: 260 },
    {
      name: `The last ${format.plural(last, "step")}`,
      from: length - last + 1,
      to: length,
      height: 260,
    },
  ];

  function showAt(x, aloud) {
    const groups = curves.at(view.alpha).groups;
    const pointed = Math.min(length, Math.max(1, Math.round(x ?? length)));
    legend.show(
      x === null ? `smoothed, at the end` : `smoothed, step ${format.count(pointed)}`,
      groups.map((group, index) => {
        const step = x === null ? group.n.findLastIndex((n) => n > 0) + 1 : pointed;
        const n = group.n[step - 1];
        const all = report.groups[index].runs.length;
        if (!n) return "–";
        return format.loss(group.mean[step - 1]) + (all > 1 && n < all ? ` (${n} of ${all})` : "");
      }),
      aloud,
    );
  }
  const onCursor = (source) => (x, aloud) => {
    for (const pane of panes) if (pane.chart !== source()) pane.chart.showCursor(x);
    showAt(x, aloud);
  };
  for (const pane of panes) {
    pane.chart = new LineChart(
      `Smoothed training loss by step: ${pane.name}. The arrow keys move the cursor; the ` +
        `numbers are in the table below.`,
      pane.height,
      onCursor(() => pane.chart),
    );
  }

  const several = report.groups.some((group) => group.runs.length > 1);
  const numbers = dom.numbers(
    "Smoothed training loss at chosen steps: mean ± standard deviation over seeds (runs)",
    () => {
      const groups = curves.at(view.alpha).groups;
      const tenths = Array.from({ length: 10 }, (_, i) => Math.round((length * (i + 1)) / 10));
      const steps = stats
        .distinct([1, 2, 5, 10, 20, 50, 100, ...tenths])
        .filter((step) => step >= 1 && step <= length);
      return [
        ["step", ...dom.numeric(view.drawn().map((index) => report.groups[index].name))],
        steps.map((step) => [
          format.count(step),
          ...view.drawn().map((index) => {
            const group = groups[index];
            const n = group.n[step - 1];
            const mean = format.loss(group.mean[step - 1]);
            return n > 1
              ? `${mean} ± ${format.loss(group.sd[step - 1])} (${n})`
              : n === 1
                ? `${mean} (1)`
                : "–";
          }),
        ]),
      ];
    },
  );

  const draw = () => {
    curves.at(view.alpha);
    for (const pane of panes) {
      pane.chart.draw({
        ...lossLines(report, view, curves, pane.from, pane.to),
        log: view.log,
        shade:
          pane.whole && length > first + last
            ? [
                [1, first],
                [length - last + 1, length],
              ]
            : [],
      });
    }
    showAt(null, false);
    numbers.draw();
  };
  view.listen(draw);

  return dom.section(
    "loss",
    "Training loss",
    lossControls(view, several),
    dom.figure(
      panes[0].name,
      paneNote(report, several, length > first + last),
      panes[0].chart.host,
    ),
    dom.el(
      "div",
      { class: "pair" },
      panes.slice(1).map((pane) => dom.figure(pane.name, null, pane.chart.host)),
    ),
    numbers.node,
  );
}

function paneNote(report, several, shaded) {
  const words = [
    several
      ? "Each run is smoothed on its own, over every step; lines are means over seeds."
      : "Smoothed over every step; the faint line is the loss itself.",
    several &&
      report.groups.some((group) => onlySomeDiverged(report, group)) &&
      "Runs that diverged are thin lines of their own, and not in the means.",
    shaded && "The shaded ends are drawn larger below.",
  ]
    .filter(Boolean)
    .join(" ");
  return [words, dom.el("span", { class: "on-screen" }, " Drag to zoom, double-click to go back.")];
}

// Returns "0.96, about 25 steps".
function alphaText(alpha) {
  if (alpha === 0) return "off";
  const steps = format.plural(Math.round(1 / (1 - alpha)), "step");
  return `${Number(alpha.toFixed(alpha < 0.99 ? 2 : 4))}, about ${steps}`;
}

// The slider moves in even steps of log(1 - alpha), which look like even steps of smoothness.
function lossControls(view, several) {
  const toPlace = (alpha) => -Math.log10(1 - alpha);
  const toAlpha = (place) =>
    place <= 0 ? 0 : Math.min(view.alphaMax, Math.round((1 - 10 ** -place) * 1e4) / 1e4);
  const first = Number(toPlace(view.alpha).toFixed(2));
  view.alpha = toAlpha(first); // a value that the slider can return to
  let waiting = 0;
  const slider = dom.slider(
    "alpha",
    "Smoothing α",
    { max: toPlace(view.alphaMax).toFixed(2), step: 0.01, value: first },
    (place) => {
      const text = alphaText(toAlpha(place));
      return { shown: text, spoken: text };
    },
    (place) => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => view.set({ alpha: toAlpha(place) }, "alpha"));
    },
  );
  return dom.el(
    "div",
    { class: "controls" },
    slider,
    several &&
      dom.choice(
        "Over seeds",
        "band",
        [
          ["sd", "mean ± sd"],
          ["range", "min–max"],
          ["seeds", "every run"],
          ["none", "mean"],
        ],
        view.band,
        (band) => view.set({ band }),
      ),
    dom.choice(
      "Loss axis",
      "axis",
      [
        ["linear", "linear"],
        ["log", "log"],
      ],
      view.log ? "log" : "linear",
      (axis) => view.set({ log: axis === "log" }),
    ),
    dom.el(
      "label",
      { class: "check" },
      dom.el("input", {
        type: "checkbox",
        id: "raw",
        checked: view.raw,
        onchange: (event) => view.set({ raw: event.target.checked }),
      }),
      "unsmoothed",
    ),
  );
}
