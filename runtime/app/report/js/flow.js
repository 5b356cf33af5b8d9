// SPDX-License-Identifier: Apache-2.0
// Gradient flow: magnitudes of gradients and of the residual stream, layer by layer, of probed
// runs.

// Returns all steps of some probes, and the layers of the deepest one.
const axesOf = (probed) => ({
  steps: stats.distinct(probed.flatMap((probes) => probes.steps)),
  layers: probed.map((probes) => probes.layers).reduce((a, b) => (b.length > a.length ? b : a)),
});

// Returns the geometric means over the seeds of a group's probes, [step][layer].
function probesOf(report, group) {
  const probed = group.runs.map((run) => report.runs[run]?.probes).filter(Boolean);
  if (probed.length === 0) return null;
  const { steps, layers } = axesOf(probed);
  const mean = (field) =>
    steps.map((step) => {
      const rows = probed
        .map((probes) => probes[field]?.[probes.steps.indexOf(step)])
        .filter(Boolean);
      return layers.map((_, layer) => stats.geometricMean(rows.map((row) => row[layer])));
    });
  return {
    steps,
    layers,
    runs: probed.length,
    gradient: mean("gradient_norm"),
    residual: mean("residual_rms"),
  };
}

function flowSection(report, view) {
  const probed = report.groups.map((group) => probesOf(report, group));
  const shown = view.order.filter((index) => probed[index]);
  if (shown.length === 0) return null;
  const several = shown.some((index) => probed[index].runs > 1);
  return dom.section(
    "flow",
    "Gradient flow",
    dom.el(
      "p",
      { class: "lead" },
      "Norms of each layer’s gradients and the size of the residual stream, measured during " +
        "training" +
        (several ? "; geometric means over the probed seeds." : "."),
    ),
    heatFigure(report, view, probed, shown),
    layerFigures(report, view, probed, shown),
  );
}

function heatFigure(report, view, probed, shown) {
  const positive = shown
    .flatMap((index) => probed[index].gradient.flat())
    .filter((value) => value > 0);
  if (positive.length === 0) return null;
  const { low, high } = stats.range(positive);
  const scale = new LogScale(low, high);
  const readout = dom.el("p", { class: "readout", role: "status" });
  const hint = "Point at a cell, or move with the arrow keys, to read it in every model.";
  readout.textContent = hint;
  const maps = shown.map((index) => {
    const { steps, layers, gradient, runs } = probed[index];
    const map = new HeatMap({
      label:
        `Gradient norms of ${report.groups[index].name}, ${layers.length} layers by ` +
        `${steps.length} probes. The arrow keys move between cells; the numbers are in the ` +
        `table below.`,
      steps,
      layers,
      values: gradient,
      scale,
      onCell: (column, layer) => pick(column === null ? null : [column, layer]),
    });
    const node = dom.el(
      "figure",
      { class: "heat-cell" },
      dom.el(
        "figcaption",
        {},
        swatch(view, index),
        dom.el("strong", {}, report.groups[index].name),
        dom.el("span", { class: "note" }, format.plural(runs, "run")),
      ),
      map.canvas,
    );
    return { index, map, node };
  });
  function pick(cell) {
    for (const { map } of maps) map.show(cell);
    if (!cell) return (readout.textContent = hint);
    const own = maps.filter(({ index }) => view.isShown(index));
    const { steps, layers } = probed[(own[0] ?? maps[0]).index];
    readout.textContent =
      `${layers[cell[1]] ?? "–"}, step ${format.count(steps[cell[0]])}: ` +
      own
        .map(
          ({ index }) =>
            `${report.groups[index].name} ` +
            `${format.size(probed[index].gradient[cell[0]]?.[cell[1]])}`,
        )
        .join(" · ");
  }
  view.listen((kind) => {
    if (kind === "alpha") return;
    for (const { index, map, node } of maps) {
      node.hidden = !view.isShown(index);
      if (!node.hidden) map.draw();
    }
    numbers.draw();
  });
  const numbers = dom.numbers("Gradient norm by model, layer and step", () => {
    const { steps } = axesOf(shown.map((index) => probed[index]));
    const kept = steps.filter((_, i) => i % Math.ceil(steps.length / 20) === 0);
    return [
      ["layer", "model", ...dom.numeric(kept.map((step) => `step ${format.count(step)}`))],
      shown
        .filter(view.isShown)
        .flatMap((index) =>
          probed[index].layers.map((layer, i) => [
            layer,
            report.groups[index].name,
            ...kept.map((step) =>
              format.size(probed[index].gradient[probed[index].steps.indexOf(step)]?.[i]),
            ),
          ]),
        ),
    ];
  });
  return dom.figure(
    "Gradient norm, layer by step",
    "One column a probe, the layer next to the head on top. All maps share one logarithmic " +
      "scale, so that the same colour is the same size.",
    scale.legend("gradient norm"),
    dom.el(
      "div",
      { class: "heat-grid" },
      maps.map(({ node }) => node),
    ),
    readout,
    numbers.node,
  );
}

// Draws gradient norm and residual stream over depth, at a step that the reader chooses; dotted
// lines show the first step.
function layerFigures(report, view, probed, shown) {
  const { steps, layers } = axesOf(shown.map((index) => probed[index]));
  let at = steps.length - 1;
  const rowAt = (index, field, step) =>
    probed[index][field][probed[index].steps.indexOf(step)] ?? [];
  const drawn = (value) => (value > 0 ? value : null);

  function pane(field, title, note) {
    const readout = dom.el("p", { class: "readout" });
    const values = (layer) =>
      shown
        .filter(view.isShown)
        .map(
          (index) =>
            `${report.groups[index].name} ${format.size(rowAt(index, field, steps[at])[layer])}`,
        )
        .join(" · ");
    const chart = new LineChart(
      `${title} against depth. The arrow keys move the cursor; the numbers are in the table below.`,
      280,
      (x, aloud) => {
        const layer = Math.round(x ?? 0);
        readout.setAttribute("aria-live", aloud ? "polite" : "off");
        readout.textContent = x === null ? " " : `${layers[layer]}: ${values(layer)}`;
      },
    );
    readout.textContent = " ";
    const numbers = dom.numbers(`${title} by layer`, () => [
      [
        "layer",
        ...dom.numeric(
          shown
            .filter(view.isShown)
            .map((index) => `${report.groups[index].name}, step ${format.count(steps[at])}`),
        ),
      ],
      layers.map((layer, i) => [
        layer,
        ...shown
          .filter(view.isShown)
          .map((index) => format.size(rowAt(index, field, steps[at])[i])),
      ]),
    ]);
    const draw = () => {
      const every = Math.ceil(layers.length / Math.max(2, Math.floor(chart.width() / 80)));
      const ticks = layers.map((_, i) => i).filter((i) => i % every === 0);
      const visible = shown.filter(view.isShown);
      const line = (index, step, look) => ({
        values: layers.map((_, i) => drawn(rowAt(index, field, step)[i])),
        color: view.color(index),
        ...look,
      });
      chart.draw({
        x: layers.map((_, i) => i),
        bands: [],
        log: true,
        xLabel: "layer",
        xTicks: { at: ticks, labels: ticks.map((i) => layers[i].replace(/^layers\./, "")) },
        lines: [
          ...(at > 0
            ? visible.map((index) => line(index, steps[0], { width: 1, dash: [1, 3] }))
            : []),
          ...visible.map((index) =>
            line(index, steps[at], {
              width: 2.25,
              dash: view.dash(index),
              points: layers.length < 60,
            }),
          ),
        ],
      });
      numbers.draw();
    };
    view.listen((kind) => kind !== "alpha" && draw());
    return { draw, node: dom.figure(title, note, chart.host, readout, numbers.node) };
  }

  const has = (field) =>
    shown.some((index) => probed[index][field].flat().some((value) => value > 0));
  const panes = [
    has("gradient") &&
      pane(
        "gradient",
        "Gradient norm by layer",
        "From the embedding (left) to the head, logarithmic.",
      ),
    has("residual") &&
      pane(
        "residual",
        "Residual stream by layer",
        "Root mean square of what each layer hands on, logarithmic.",
      ),
  ].filter(Boolean);
  const slider = dom.slider(
    "probe-step",
    "At step",
    { max: steps.length - 1, step: 1, value: at },
    (place) => {
      const step = format.count(steps[place]);
      const dotted = place > 0 ? ` (dotted: ${format.count(steps[0])})` : "";
      return { shown: step + dotted, spoken: `step ${step}` };
    },
    (place) => {
      at = place;
      for (const { draw } of panes) draw();
    },
  );
  return [
    steps.length > 1 && dom.el("div", { class: "controls" }, slider),
    dom.el(
      "div",
      { class: "pair" },
      panes.map(({ node }) => node),
    ),
  ];
}
