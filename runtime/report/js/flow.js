// SPDX-License-Identifier: Apache-2.0
// Gradient flow: figures of each layer that were probed during training, such as magnitudes of
// gradients and of the residual stream, as means over the seeds of a group.

// Returns all steps of some groups' probes, and the layers of the deepest one.
const axesOf = (probed) => ({
  steps: stats.distinct(probed.flatMap((probes) => probes.steps)),
  layers: probed.map((probes) => probes.layers).reduce((a, b) => (b.length > a.length ? b : a)),
});

const seriesOf = (probes, name) => probes.series.find((series) => series.name === name);

function flowSection(report, view) {
  const probed = report.groups.map((group) => group.probes);
  const shown = view.order.filter((index) => probed[index]);
  if (shown.length === 0) return null;
  const kinds = [
    ...new Set(shown.flatMap((index) => probed[index].series.map(({ name }) => name))),
  ];
  const several = shown.some((index) => probed[index].runs > 1);
  return dom.section(
    "flow",
    "Gradient flow",
    dom.el(
      "p",
      { class: "lead" },
      `${format.list(kinds, Infinity).replace(/^./, (first) => first.toUpperCase())} by layer, ` +
        `measured during training${several ? "; means over the probed seeds" : ""}.`,
    ),
    heatFigure(report, view, probed, shown),
    layerFigures(report, view, probed, shown, kinds),
  );
}

function heatFigure(report, view, probed, shown) {
  const gradientOf = (index) => seriesOf(probed[index], "gradient norm")?.values ?? [];
  const positive = shown.flatMap((index) => gradientOf(index).flat()).filter((value) => value > 0);
  if (positive.length === 0) return null;
  const { low, high } = stats.range(positive);
  const scale = new LogScale(low, high);
  const readout = dom.el("p", { class: "readout", role: "status" });
  const hint = "Point at a cell, or move with the arrow keys, to read it in every model.";
  readout.textContent = hint;
  const maps = shown.map((index) => {
    const { steps, layers, runs } = probed[index];
    const map = new HeatMap({
      label:
        `Gradient norms of ${report.groups[index].name}, ${layers.length} layers by ` +
        `${steps.length} probes. The arrow keys move between cells; the numbers are in the ` +
        `table below.`,
      steps,
      layers,
      values: gradientOf(index),
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
            `${format.size(gradientOf(index)[cell[0]]?.[cell[1]])}`,
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
  const { steps } = axesOf(shown.map((index) => probed[index]));
  // Returns the numbers of the drawn groups at about `most` steps.
  const table = (most) => {
    const kept = steps.filter((_, i) => i % Math.ceil(steps.length / most) === 0);
    return [
      ["layer", "model", ...dom.numeric(kept.map((step) => `step ${format.count(step)}`))],
      shown
        .filter(view.isShown)
        .flatMap((index) =>
          probed[index].layers.map((layer, i) => [
            layer,
            report.groups[index].name,
            ...kept.map((step) =>
              format.cell(
                gradientOf(index)[probed[index].steps.indexOf(step)]?.[i],
                format.size,
              ),
            ),
          ]),
        ),
    ];
  };
  const numbers = dom.numbers("Gradient norm by model, layer and step", () => table(20));
  const grid = dom.el(
    "div",
    { class: "heat-grid" },
    maps.map(({ node }) => node),
  );
  grid.toRows = () => table(steps.length);
  return dom.figure(
    "Gradient norm, layer by step",
    "One column a probe, the layer next to the head on top. All maps share one logarithmic " +
      "scale, so that the same colour is the same size.",
    scale.legend("gradient norm"),
    grid,
    readout,
    numbers.node,
  );
}

// Draws each kind of figure over depth, at a step that the reader chooses, where dotted lines show
// the first step; and over the steps.
function layerFigures(report, view, probed, shown, kinds) {
  const { steps, layers } = axesOf(shown.map((index) => probed[index]));
  let at = steps.length - 1;
  const drawn = (log, value) => ((log ? value > 0 : format.isNumber(value)) ? value : null);

  // Returns a chart with a line of readout and a table. textOf(group, x) is the text of the readout
  // for one group, after placeOf(x); `table()` returns columns and rows; `lines(index)` those of a
  // drawn group.
  function pane({ title, note, axis, log, placeOf, textOf, table, linesOf }) {
    const readout = dom.el("p", { class: "readout" }, " ");
    const visible = () => shown.filter(view.isShown);
    const chart = new LineChart(
      `${title}. The arrow keys move the cursor; the numbers are in the table below.`,
      280,
      (x, aloud) => {
        readout.setAttribute("aria-live", aloud ? "polite" : "off");
        const values = visible().map((index) => `${report.groups[index].name} ${textOf(index, x)}`);
        readout.textContent = x === null ? " " : `${placeOf(x)}: ${values.join(" · ")}`;
      },
    );
    const numbers = dom.numbers(title, () => table(visible()));
    const draw = () => {
      const lines = visible().flatMap(linesOf);
      const { x, ys } = stats.join(lines);
      chart.draw({
        x,
        ...axis(chart),
        bands: [],
        log,
        lines: lines.map((line, i) => ({ ...line, values: ys[i] })),
      });
      numbers.draw();
    };
    view.listen((kind) => kind !== "alpha" && draw());
    return { draw, node: dom.figure(title, note, chart.host, readout, numbers.node) };
  }

  // Returns the two charts of a kind.
  function charts(kind) {
    const { log, largest } = shown
      .map((index) => seriesOf(probed[index], kind))
      .find((series) => series);
    const rowAt = (index, step) =>
      seriesOf(probed[index], kind)?.values[probed[index].steps.indexOf(step)] ?? [];
    const name = kind.replace(/^./, (first) => first.toUpperCase());
    const yLabel = kind + (kind === "attention entropy" ? " (nats)" : "");
    const line = (index, look) => ({
      name: report.groups[index].name,
      color: view.color(index),
      width: 2.25,
      dash: view.dash(index),
      ...look,
    });
    const places = layers.map((_, i) => i);
    const byLayer = pane({
      title: `${name} by layer`,
      note: `From the embedding (left) to the head${log ? ", logarithmic" : ""}.`,
      log,
      axis: (chart) => {
        const every = Math.ceil(layers.length / Math.max(2, Math.floor(chart.width() / 80)));
        const ticks = places.filter((i) => i % every === 0);
        const labels = ticks.map((i) => layers[i].replace(/^layers\./, ""));
        return { xLabel: "layer", yLabel, xTicks: { at: ticks, labels }, xName: (i) => layers[i] };
      },
      placeOf: (x) => layers[Math.round(x)],
      textOf: (index, x) => format.size(rowAt(index, steps[at])[Math.round(x)]),
      table: (visible) => [
        [
          "layer",
          ...dom.numeric(
            visible.map((index) => `${report.groups[index].name}, step ${format.count(steps[at])}`),
          ),
        ],
        layers.map((layer, i) => [
          layer,
          ...visible.map((index) => format.size(rowAt(index, steps[at])[i])),
        ]),
      ],
      linesOf: (index) =>
        (at > 0 ? [0, at] : [at]).map((place) => ({
          at: places,
          values: places.map((i) => drawn(log, rowAt(index, steps[place])[i])),
          ...line(
            index,
            place === at ? { points: layers.length < 60 } : { width: 1, dash: [1, 3] },
          ),
          name: `${report.groups[index].name}, step ${steps[place]}`,
        })),
    });
    const overLayers = (index, step) => {
      const row = rowAt(index, step).filter(format.isNumber);
      return row.length === 0 ? NaN : largest ? Math.max(...row) : stats.summary(row).mean;
    };
    const nearest = (index, x) => {
      const step = view.stepAt(index, x);
      return probed[index].steps.reduce((best, own) =>
        Math.abs(own - step) < Math.abs(best - step) ? own : best,
      );
    };
    const byStep =
      steps.length > 1 &&
      pane({
        title: `${name} during training`,
        note:
          (largest ? "The largest of the layers" : "Mean over the layers") +
          (log ? ", logarithmic." : "."),
        log,
        axis: () => ({ ...view.xAxis(), yLabel }),
        placeOf: view.positionText,
        textOf: (index, x) => format.size(x === null ? NaN : overLayers(index, nearest(index, x))),
        table: (visible) => [
          ["step", ...dom.numeric(visible.map((index) => report.groups[index].name))],
          steps
            .filter((_, i) => i % Math.ceil(steps.length / 20) === 0)
            .map((step) => [
              format.count(step),
              ...visible.map((index) => format.size(overLayers(index, step))),
            ]),
        ],
        linesOf: (index) => {
          const own = probed[index].steps;
          return line(index, {
            at: own.map((step) => view.positionOf(index, step)),
            values: own.map((step) => drawn(log, overLayers(index, step))),
            points: own.length < 60,
          });
        },
      });
    return { byLayer, byStep };
  }

  const hasValue = (kind) =>
    shown.some((index) =>
      seriesOf(probed[index], kind)
        ?.values.flat()
        .some((value) => drawn(seriesOf(probed[index], kind).log, value) !== null),
    );
  const pairs = kinds.filter(hasValue).map(charts);
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
      for (const { byLayer } of pairs) byLayer.draw();
    },
  );
  return [
    steps.length > 1 && dom.el("div", { class: "controls" }, slider),
    ...pairs.map(({ byLayer, byStep }) =>
      dom.el("div", { class: "pair" }, byLayer.node, byStep?.node),
    ),
  ];
}
