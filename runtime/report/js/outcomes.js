// SPDX-License-Identifier: Apache-2.0
// Shows the outcomes: the cumulative average, the end of every seed, and the validation loss.
function outcomesSection(report, view, legend, curves) {
  const figures = [
    cumulativeFigure(report, view, legend, curves),
    dom.el(
      "div",
      { class: "pair" },
      endsFigure(report, view),
      validationFigure(report, view, legend),
    ),
  ];
  return curves.length === 0 ? null : dom.section("outcomes", "How it ended", figures);
}

function cumulativeFigure(report, view, legend, curves) {
  if (curves.length === 0) return null;
  const groups = curves.byGroup(curves.ofRuns(stats.cumulative));
  const showAt = (x, aloud) => {
    legend.show(
      x === null ? "average to the end" : `average to ${view.positionText(x)}`,
      groups.map((group, index) => {
        const block =
          x === null
            ? group.n.findLastIndex((n) => n > 0)
            : curves.blockOf(index, view.stepAt(index, x));
        return format.loss(group.mean[block]);
      }),
      aloud,
    );
  };
  const chart = new LineChart(
    "Average of all losses up to each step. The arrow keys move the cursor; the numbers are in " +
      "the table below.",
    260,
    showAt,
  );
  const numbers = dom.numbers("Cumulative average of the training loss, mean over seeds", () => {
    const steps = stats.distinct(
      Array.from({ length: 11 }, (_, i) => Math.max(1, Math.round((curves.length * i) / 10))),
    );
    return tableOfCurves(report, view, curves, steps, (index, block) =>
      format.loss(groups[index].mean[block]),
    );
  });
  view.listen((kind) => {
    if (kind === "alpha") return;
    const shown = view.drawn();
    const { x, ys } = stats.join(
      shown.map((index) => curves.part(index, view, groups[index].mean)),
    );
    chart.draw({
      x,
      ...view.xAxis(),
      yLabel: lossLabel,
      bands: [],
      log: view.log,
      lines: shown.map((group, i) => ({
        name: report.groups[group].name,
        values: ys[i],
        color: view.color(group),
        dash: view.dash(group),
        width: 2.25,
      })),
    });
    numbers.draw();
  });
  return dom.figure(
    "Cumulative average",
    "The mean of every loss up to that step: who has learned the most for what it read.",
    chart.host,
    numbers.node,
  );
}

// Returns a row with a value for each seed: dots that do not overlap, the mean and one deviation.
function seedRow(view, report, index, entries, note) {
  const color = view.color(index);
  const { n, mean, sd } = stats.summary(entries.map((entry) => entry.value));
  const shown = entries.filter((entry) => format.isNumber(entry.value));
  return {
    name: report.groups[index].name,
    swatch: swatchOnce(view, index),
    text: [
      n > 1 ? `${format.loss(mean)} ± ${format.loss(sd)}` : n === 1 ? format.loss(mean) : "no end",
      note,
    ]
      .filter(Boolean)
      .join(", "),
    marks: [
      n > 1 && { kind: "bar", at: mean - sd, to: mean + sd, color, opacity: 0.22, thick: 20 },
      ...shown.map((entry, i) => ({
        kind: entry.collapsed ? "ring" : "dot",
        at: entry.value,
        color,
        opacity: 0.8,
        // A low-discrepancy sequence fills the row evenly and is the same in every drawing.
        y: shown.length === 1 ? 0.5 : 0.1 + 0.8 * ((i * 0.618034) % 1),
        title:
          `seed ${entry.seed}: ${format.loss(entry.value)}` +
          (entry.collapsed ? ", collapsed" : ""),
      })),
      n > 1 && { kind: "tick", at: mean, color },
    ].filter(Boolean),
  };
}

// Returns a strip plot of `entriesOf(group)`, which is redrawn with theme and legend.
function stripPlot(report, view, label, entriesOf, noteOf) {
  const holder = dom.el("div");
  holder.toRows = () => table();
  const rowsOf = report.groups.map((group) => entriesOf(group));
  const values = rowsOf
    .flat()
    .map((entry) => entry.value)
    .filter(format.isNumber);
  view.listen((kind) => {
    if (kind === "alpha" || values.length === 0) return;
    numbers.draw();
    const drawn = view.drawn();
    const seen = drawn.flatMap((index) => rowsOf[index].map((entry) => entry.value));
    const rows = drawn.map((index) =>
      seedRow(view, report, index, rowsOf[index], noteOf?.(report.groups[index])),
    );
    holder.replaceChildren(
      dotRows({
        label: `${label}: ${rows.map((row) => `${row.name} ${row.text}`).join("; ")}`,
        ...stats.range(
          seen.filter(format.isNumber).length > 0 ? seen.filter(format.isNumber) : values,
        ),
        rows,
        title: lossLabel,
      }),
    );
  });
  const table = () => [
    ["model", ...dom.numeric(["seed", "loss"]), "end"],
    view
      .drawn()
      .flatMap((index) =>
        rowsOf[index].map((entry) => [
          report.groups[index].name,
          String(entry.seed),
          format.cell(entry.value, format.loss),
          entry.status !== "finished" ? entry.status : entry.collapsed ? "collapsed" : "",
        ]),
      ),
  ];
  const numbers = dom.numbers(label, table);
  return values.length > 0
    ? [holder, numbers.node]
    : [dom.el("p", { class: "empty" }, "No run got that far."), numbers.node];
}

function endsFigure(report, view) {
  const window = endWindow(report);
  const entriesOf = (group) =>
    group.runs
      .map((run) => report.runs[run])
      .map((run) => ({
        seed: run.seed,
        status: run.status,
        collapsed: run.collapsed === true,
        value: run.end ?? NaN,
      }));
  const noteOf = (group) => {
    const lost = group.runs.filter((run) => report.runs[run].status === "diverged").length;
    return lost > 0 && `${lost} diverged`;
  };
  const collapsed = report.runs.some((run) => run.collapsed);
  return dom.figure(
    "Every seed at the end",
    `Mean loss of the last ${format.plural(window, "step")} of each run that finished; the ` +
      `line and the bar are mean ± standard deviation.` +
      (collapsed ? " Rings are collapsed runs." : ""),
    ...stripPlot(
      report,
      view,
      `Mean loss of the last ${format.plural(window, "step")}, by seed`,
      entriesOf,
      noteOf,
    ),
  );
}

function validationFigure(report, view, legend) {
  const runs = report.runs.map((run) =>
    (run.validation ?? []).filter(([, loss]) => format.isNumber(loss)),
  );
  const steps = stats.distinct(runs.flat().map(([step]) => step));
  if (steps.length === 0) return null;
  if (steps.length === 1) {
    const entriesOf = (group) =>
      group.runs.map((run) => ({
        seed: report.runs[run].seed,
        status: report.runs[run].status,
        value: runs[run][0]?.[1] ?? NaN,
      }));
    return dom.figure(
      "Validation",
      `Loss on held-out data after step ${format.count(steps[0])}.`,
      ...stripPlot(
        report,
        view,
        `Validation loss after step ${format.count(steps[0])}, by seed`,
        entriesOf,
      ),
    );
  }
  const byGroup = report.groups.map((group) =>
    steps.map((step) =>
      stats.summary(group.runs.map((run) => runs[run].find(([at]) => at === step)?.[1])),
    ),
  );
  const nearest = (step) =>
    steps.reduce(
      (best, at, i) => (Math.abs(at - step) < Math.abs(steps[best] - step) ? i : best),
      0,
    );
  const chart = new LineChart(
    "Validation loss by step. The arrow keys move the cursor; the numbers are in the table below.",
    260,
    (x, aloud) => {
      legend.show(
        x === null ? "validation, at the end" : `validation, ${view.positionText(x)}`,
        byGroup.map((group, index) =>
          format.loss(
            x === null
              ? group.findLast(({ n }) => n > 0)?.mean
              : group[nearest(view.stepAt(index, x))].mean,
          ),
        ),
        aloud,
      );
    },
  );
  view.listen((kind) => {
    if (kind === "alpha") return;
    const lines = [];
    const bands = [];
    for (const index of view.drawn()) {
      const color = view.color(index);
      const own = byGroup[index]
        .map((loss, i) => ({ ...loss, at: view.positionOf(index, steps[i]) }))
        .filter(({ n }) => n > 0);
      const at = own.map((loss) => loss.at);
      const { name } = report.groups[index];
      const add = (values, look, kind = "") =>
        lines.push({ at, name: name + kind, values, color, dash: [], ...look }) - 1;
      if (view.band !== "none") {
        const edge = (sign) =>
          add(
            own.map(({ mean, sd }) => mean + sign * (sd || 0)),
            { color: withAlpha(color, 0.35), width: 0.75 },
            sign > 0 ? ", upper" : ", lower",
          );
        bands.push({ upper: edge(1), lower: edge(-1), fill: withAlpha(color, 0.14) });
      }
      add(
        own.map(({ mean }) => mean),
        { dash: view.dash(index), width: 2.25, points: steps.length < 60 },
      );
    }
    numbers.draw();
    const { x, ys } = stats.join(lines);
    chart.draw({
      x,
      ...view.xAxis(),
      yLabel: lossLabel,
      lines: lines.map((line, i) => ({ ...line, values: ys[i] })),
      bands,
      log: view.log,
    });
  });
  const numbers = dom.numbers("Validation loss, mean ± standard deviation over seeds", () => [
    ["step", ...dom.numeric(view.drawn().map((index) => report.groups[index].name))],
    steps.map((step, i) => [
      format.count(step),
      ...view.drawn().map((index) => {
        const { n, mean, sd } = byGroup[index][i];
        return n > 1 ? `${format.loss(mean)} ± ${format.loss(sd)}` : format.loss(mean);
      }),
    ]),
  ]);
  return dom.figure(
    "Validation",
    "Loss on held-out data, mean ± standard deviation over seeds.",
    chart.host,
    numbers.node,
  );
}
