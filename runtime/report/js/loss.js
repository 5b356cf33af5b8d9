// SPDX-License-Identifier: Apache-2.0
// Training loss: smoothed curves, their spread over seeds, the whole run and both ends of it.

const lossLabel = "loss (nats)";

// Losses of all runs, and their smoothed curves, computed once for each alpha. A loss is the mean of
// a block of steps, whose last steps are in `ends` by group.
class LossCurves {
  constructor(report) {
    this.report = report;
    this.losses = report.runs.map((run) => run.loss ?? []);
    const everyStep = new Map(); // by the number of steps, because equal arrays are the same
    this.ends = report.groups.map((group) => {
      if (group.steps) return Float64Array.from(group.steps);
      const length = Math.max(0, ...group.runs.map((run) => this.losses[run].length));
      if (!everyStep.has(length))
        everyStep.set(
          length,
          Float64Array.from({ length }, (_, i) => i + 1),
        );
      return everyStep.get(length);
    });
    this.sizes = report.groups.map((group) =>
      group.steps?.map((end, i, all) => end - (all[i - 1] ?? 0)),
    );
    this.length = report.groups.reduce(
      (most, group, index) =>
        group.runs.reduce(
          (step, run) => Math.max(step, this.ends[index][this.losses[run].length - 1] ?? 0),
          most,
        ),
      0,
    );
    this.raw = this.ofRuns((loss) => Float64Array.from(loss, (value) => value ?? NaN));
    this.rawGroups = this.byGroup(this.raw);
    this.unsmoothed = report.groups.map((group, index) => this.unsmoothedOf(group, index));
    this.alpha = null;
    this.positions = new Map();
  }
  // Returns {ends, mean}: the mean at every step, or at the lowest and the highest of a block, which
  // stand at its first and at its last step.
  unsmoothedOf(group, index) {
    const { mean } = this.rawGroups[index];
    if (!group.extremes) return { ends: this.ends[index], mean };
    const points = [];
    let next = 0;
    group.steps.forEach((end, i) => {
      const size = this.sizes[index][i];
      if (size === 1) points.push([end, mean[i]]);
      else
        points.push(
          [end - size + 1, group.extremes[next++] ?? NaN],
          [end, group.extremes[next++] ?? NaN],
        );
    });
    return {
      ends: Float64Array.from(points, ([end]) => end),
      mean: Float64Array.from(points, ([, loss]) => loss),
    };
  }
  // Returns make(losses, sizes of their blocks) of each run.
  ofRuns(make) {
    return this.losses.map((loss, run) => make(loss, this.sizes[this.report.runs[run].group]));
  }
  // Averages the curves of each group. Diverged runs would dominate mean and deviation in their
  // last steps, so they are drawn separately and count only if a group has no other runs.
  byGroup(curves) {
    return this.report.groups.map((group, index) => {
      const kept = group.runs.filter((run) => this.report.runs[run].status === "finished");
      return stats.across(
        (kept.length > 0 ? kept : group.runs).map((run) => curves[run]),
        this.ends[index].length,
      );
    });
  }
  at(alpha) {
    if (alpha !== this.alpha) {
      this.alpha = alpha;
      this.smooth =
        alpha === 0 ? this.raw : this.ofRuns((loss, sizes) => stats.smooth(loss, alpha, sizes));
      this.groups = alpha === 0 ? this.rawGroups : this.byGroup(this.smooth);
    }
    return this;
  }
  // Returns the number of steps of a group: those that were planned, as far as any run is.
  stepsOf(index) {
    return Math.min(this.report.groups[index].max_steps ?? this.length, this.length);
  }
  // Returns the index of the block that has a step of a group, -1 behind the last one.
  blockOf(index, step, ends = this.ends[index]) {
    return ends.findIndex((end) => end >= step);
  }
  // Returns {at, values}: the values of a group's curve from one step to another and their positions
  // on the view's axis. Equal positions are the same array.
  part(index, view, values, [first, last] = [1, Infinity], ends = this.ends[index]) {
    const begin = this.blockOf(index, first, ends);
    const end = this.blockOf(index, last, ends);
    const range = [begin < 0 ? ends.length : begin, end < 0 ? ends.length : end + 1];
    const step = view.positionOf(index, 1);
    const key = [step, ...range].join();
    if (!this.positions.has(ends)) this.positions.set(ends, new Map());
    const known = this.positions.get(ends);
    if (!known.has(key))
      known.set(
        key,
        ends.slice(...range).map((at) => at * step),
      );
    return { at: known.get(key), values: values.slice(...range) };
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
// band or the runs, and the mean. rangeOf(group) are its first and last step.
function lossLines(report, view, curves, rangeOf) {
  const lines = [];
  const bands = [];
  const add = (index, values, color, extra, kind = "") => {
    const name = `${report.groups[index].name}${kind}`;
    return lines.push({ index, name, values, color, dash: [], width: 1, ...extra }) - 1;
  };
  const drawn = view.drawn();
  if (view.raw && view.alpha > 0) {
    const opacity = drawn.length <= 3 ? 0.3 : 0.18;
    for (const index of drawn) {
      const faint = withAlpha(view.color(index), opacity);
      const { ends, mean } = curves.unsmoothed[index];
      add(index, mean, faint, { background: "bulk", ends }, ", unsmoothed");
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
        upper: add(index, upper, edge, { width: 0.75 }, ", upper"),
        lower: add(index, lower, edge, { width: 0.75 }, ", lower"),
        fill: withAlpha(color, 0.14),
      });
    }
    // A diverging run may have any loss, so the part outside of the other runs' axis is clipped.
    const mixed = onlySomeDiverged(report, group);
    for (const run of group.runs) {
      const seed = `, seed ${report.runs[run].seed}`;
      if (mixed && report.runs[run].status === "diverged") {
        add(index, curves.smooth[run], color, { background: "cut" }, seed);
      } else if (several && view.band === "seeds") {
        add(index, curves.smooth[run], withAlpha(color, 0.4), {}, seed);
      }
    }
  }
  for (const index of drawn) {
    const look = { width: 2.25, dash: view.dash(index) };
    add(index, curves.groups[index].mean, view.color(index), look);
  }
  const { x, ys } = stats.join(
    lines.map(({ index, values, ends }) => curves.part(index, view, values, rangeOf(index), ends)),
  );
  return { x, bands, lines: lines.map((line, i) => ({ ...line, values: ys[i] })) };
}

// Returns the table of a figure of curves at chosen steps, or at tenths of another axis:
// textOf(group, block) is the text of a cell.
function tableOfCurves(report, view, curves, steps, textOf) {
  const drawn = view.drawn();
  const longest = Math.max(...drawn.map((index) => view.positionOf(index, curves.stepsOf(index))));
  const rows =
    view.x === "steps" ? steps : Array.from({ length: 10 }, (_, i) => (longest * (i + 1)) / 10);
  return [
    [view.xAxis().xLabel, ...dom.numeric(drawn.map((index) => report.groups[index].name))],
    rows.map((x) => [
      view.x === "steps" ? format.count(x) : format.amount(x),
      ...drawn.map((index) => {
        const block = curves.blockOf(index, view.stepAt(index, x));
        return block < 0 ? "–" : textOf(index, block);
      }),
    ]),
  ];
}

function lossSection(report, view, legend, curves) {
  const length = curves.length;
  if (length === 0) return null;
  const first = Math.min(report.windows?.first ?? 100, length);
  const last = Math.min(report.windows?.last ?? 200, length);
  const beginning = () => [1, first];
  const end = (index) => {
    const steps = curves.stepsOf(index);
    return [Math.max(1, steps - last + 1), steps];
  };
  const panes = [
    {
      name: `The whole run, ${format.plural(length, "step")}`,
      rangeOf: () => [1, length],
      height: 340,
      whole: true,
    },
    { name: `The first ${format.plural(first, "step")}`, rangeOf: beginning, height: 260 },
    { name: `The last ${format.plural(last, "step")}`, rangeOf: end, height: 260 },
  ];
  // Returns the parts of the whole run that the other panes show, if these are nearly the same for
  // all models and do not overlap.
  function shade() {
    const parts = [beginning, end].map((rangeOf) => {
      const ranges = view
        .drawn()
        .map((index) => rangeOf(index).map((step) => view.positionOf(index, step)));
      const from = stats.range(ranges.map(([x]) => x));
      const to = stats.range(ranges.map(([, x]) => x));
      const isCommon = to.low - from.high >= 0.75 * (to.high - from.low);
      return isCommon ? [from.low, to.high] : null;
    });
    return parts[0] && parts[1] && parts[0][1] < parts[1][0] ? parts : [];
  }

  function showAt(x, aloud) {
    const groups = curves.at(view.alpha).groups;
    legend.show(
      x === null ? `smoothed, at the end` : `smoothed, ${view.positionText(x)}`,
      groups.map((group, index) => {
        const block =
          x === null
            ? group.n.findLastIndex((n) => n > 0)
            : curves.blockOf(index, view.stepAt(index, x));
        const n = group.n[block];
        const all = report.groups[index].runs.length;
        if (!n) return "–";
        return format.loss(group.mean[block]) + (all > 1 && n < all ? ` (${n} of ${all})` : "");
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
      `Smoothed training loss: ${pane.name}. The arrow keys move the cursor; the ` +
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
      return tableOfCurves(report, view, curves, steps, (index, block) => {
        const group = groups[index];
        const n = group.n[block];
        const mean = format.loss(group.mean[block]);
        return n > 1
          ? `${mean} ± ${format.loss(group.sd[block])} (${n})`
          : n === 1
            ? `${mean} (1)`
            : "–";
      });
    },
  );

  const shadedNote = dom.el("span", {}, " The shaded ends are drawn larger below.");
  const draw = () => {
    curves.at(view.alpha);
    const shaded = view.drawn().length > 0 ? shade() : [];
    shadedNote.hidden = shaded.length === 0;
    for (const pane of panes) {
      pane.chart.draw({
        ...lossLines(report, view, curves, pane.rangeOf),
        ...view.xAxis(),
        yLabel: lossLabel,
        log: view.log,
        shade: pane.whole ? shaded : [],
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
    dom.figure(panes[0].name, paneNote(report, several, shadedNote), panes[0].chart.host),
    dom.el(
      "div",
      { class: "pair" },
      panes.slice(1).map((pane) => dom.figure(pane.name, null, pane.chart.host)),
    ),
    numbers.node,
  );
}

function paneNote(report, several, shadedNote) {
  const words = [
    several
      ? "Each run is smoothed on its own, over every step; lines are means over seeds."
      : "Smoothed over every step; the faint line is the loss itself.",
    several &&
      report.groups.some((group) => onlySomeDiverged(report, group)) &&
      "Runs that diverged are thin lines of their own, and not in the means.",
    report.groups.some((group) => group.steps) &&
      "Both ends of a run and its extremes are single steps; other points are means of several.",
  ]
    .filter(Boolean)
    .join(" ");
  return [
    words,
    shadedNote,
    dom.el("span", { class: "on-screen" }, " Drag to zoom, double-click to go back."),
  ];
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
    Object.keys(view.axes).length > 1 &&
      dom.choice(
        "Against",
        "x",
        Object.keys(view.axes).map((name) => [name, name]),
        view.x,
        (x) => view.set({ x }),
      ),
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
