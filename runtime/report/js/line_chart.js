// SPDX-License-Identifier: Apache-2.0
// Returns the first of 1, 2, 5, 10, 20 ... (likewise below 1) that is not less than `rough`.
function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
}

// Chart of lines over steps or layers, drawn by uPlot, with a cursor that the keyboard also moves.
//
// draw({x, lines: [{name, values, color, dash, width, points, background}],
//       bands: [{upper, lower, fill}], log, shade: [[from, to]], xLabel, yLabel, xTicks, xFormat,
//       xName})
// `values` has null for missing points, and undefined for positions of other lines. x has whole
// numbers unless xFormat formats them; xName(x) is a position in the numbers that are saved. A line
// whose `background` is set does not extend the y axis, or, with "bulk", only for most of its
// values; the parts outside of the axis are clipped.
class LineChart {
  // Calls onCursor(x or null) when the reader points somewhere. `height` is in pixels.
  constructor(label, height, onCursor) {
    this.host = dom.el("div", {
      class: "chart",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": label,
    });
    this.host.style.minHeight = `${height}px`;
    this.host.toSvg = () => this.toSvg();
    this.host.toRows = () => this.toRows();
    this.height = height;
    this.onCursor = onCursor;
    this.plot = null;
    this.shape = "";
    this.host.addEventListener("keydown", (event) => this.moveByKey(event));
    this.host.addEventListener("blur", () => this.leave());
    this.host.addEventListener("mouseleave", () => this.leave());
    new ResizeObserver(() => this.resize()).observe(this.host);
  }

  draw(spec) {
    this.spec = spec;
    const data = [spec.x, ...spec.lines.map((line) => line.values)];
    const shape = JSON.stringify([
      spec.lines.map(({ color, dash, width }) => [color, dash, width]),
      spec.bands,
      spec.log,
      cssColor("--muted"),
      spec.shade,
      spec.xLabel,
      spec.yLabel,
    ]);
    if (this.plot && shape === this.shape) {
      this.resize();
      const { min, max } = this.plot.scales.x;
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.setScale("x", { min, max });
      return;
    }
    this.shape = shape;
    this.zoomed = false;
    if (this.plot) this.plot.destroy();
    this.plot = new uPlot(this.options(spec), data, this.host);
  }

  width() {
    return Math.max(200, this.host.clientWidth);
  }

  resize() {
    if (this.plot && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: this.height });
    }
  }

  // Moves the cursor to x without a callback; null, or x outside the chart, removes it.
  showCursor(x) {
    if (!this.plot) return;
    const { min, max } = this.plot.scales.x;
    const inside = x !== null && x >= min && x <= max;
    this.silent = true;
    this.plot.setCursor({ left: inside ? this.plot.valToPos(x, "x") : -10, top: inside ? 1 : -10 });
    this.silent = false;
  }

  leave() {
    if (this.at === undefined || this.at === null) return;
    this.at = null;
    this.showCursor(null);
    this.onCursor?.(null, false);
  }

  moveByKey(event) {
    const { x } = this.spec ?? { x: [] };
    if (x.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const { min, max } = this.plot.scales.x;
    const many = Math.max(1, Math.round(x.length / 20));
    const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -many, PageUp: many }[event.key];
    let index = x.findIndex((value) => value >= (this.at ?? max));
    if (index < 0) index = x.length - 1;
    if (by !== undefined) index = this.at == null ? index : index + by;
    else if (event.key === "Home") index = x.findIndex((value) => value >= min);
    else if (event.key === "End") index = x.findLastIndex((value) => value <= max);
    else if (event.key === "Escape") return this.leave();
    else return;
    event.preventDefault();
    this.at = x[Math.min(x.length - 1, Math.max(0, index))];
    this.showCursor(this.at);
    this.onCursor?.(this.at, true);
  }

  options(spec) {
    const axis = {
      stroke: cssColor("--muted"),
      font: `12px ${cssColor("--sans")}`,
      grid: { stroke: cssColor("--grid"), width: 1 },
      ticks: { stroke: cssColor("--grid"), width: 1, size: 5 },
      labelSize: 18,
      labelGap: 0,
      labelFont: `12px ${cssColor("--sans")}`,
    };
    return {
      width: this.width(),
      height: this.height,
      padding: [10, 22, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false },
        points: { show: false },
      },
      scales: {
        x: { time: false, range: (u, min, max) => (min === max ? [min - 1, max + 1] : [min, max]) },
        y: { distr: spec.log ? 3 : 1, range: (u, min, max) => this.yRange(u, min, max) },
      },
      series: [
        {},
        ...spec.lines.map((line) => ({
          scale: "y",
          auto: !line.background,
          stroke: line.color,
          width: line.width,
          dash: line.dash,
          points: { show: !!line.points, size: 7, fill: line.color },
        })),
      ],
      bands: spec.bands.map(({ upper, lower, fill }) => ({ series: [upper + 1, lower + 1], fill })),
      axes: [
        {
          ...axis,
          size: 30,
          label: spec.xLabel ?? "step",
          space: 60,
          ...(spec.xTicks
            ? { splits: () => spec.xTicks.at, values: () => spec.xTicks.labels }
            : {
                incrs: LineChart.increments(spec.xFormat ? -4 : 0),
                values: (u, ticks) => ticks.map(spec.xFormat ?? format.count),
              }),
        },
        {
          ...axis,
          size: 58,
          label: spec.yLabel,
          space: 34,
          ...(spec.log
            ? {
                splits: (u, i, min, max) => LineChart.logTicks(min, max),
                filter: (u, ticks) => ticks,
              }
            : {}),
          values: (u, ticks) => ticks.map(format.size),
        },
      ],
      hooks: {
        drawClear: [(u) => this.drawShade(u)],
        setCursor: [
          (u) => {
            if (this.silent || !this.onCursor) return;
            const { left } = u.cursor;
            if (left === null || left < 0) return;
            this.at = u.posToVal(left, "x");
            this.onCursor(this.at, false);
          },
        ],
        setScale: [
          (u, key) => {
            if (key === "x")
              this.zoomed = u.scales.x.min > u.data[0][0] || u.scales.x.max < u.data[0].at(-1);
          },
        ],
      },
    };
  }

  // Returns the chart as SVG.
  toSvg() {
    const { plot: u, spec } = this;
    const { offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height } = u.over;
    const muted = cssColor("--muted");
    const text = (x, y, anchor, words) =>
      dom.svg("text", { x, y, "text-anchor": anchor, "font-size": 12, fill: muted }, words);
    const tick = (d) => dom.svg("path", { d, stroke: cssColor("--grid") });
    const ticks = u.axes.flatMap((axis, k) =>
      axis._splits.flatMap((value, i) => {
        const [x, y] = [left + u.valToPos(value, "x"), top + u.valToPos(value, "y")];
        return k === 0
          ? [
              tick(`M${x} ${top}v${height + 5}`),
              text(x, top + height + 18, "middle", axis._values[i]),
            ]
          : [tick(`M${left - 5} ${y}h${width + 5}`), text(left - 8, y + 4, "end", axis._values[i])];
      }),
    );
    const points = ({ values }) =>
      values.flatMap((y, i) => {
        if (y === undefined || y === null) return y === null ? [null] : [];
        return [[u.valToPos(spec.x[i], "x").toFixed(1), u.valToPos(y, "y").toFixed(1)]];
      });
    const path = (all) =>
      all.map((at, i) => at && (all[i - 1] ? "L" : "M") + at.join(" ")).join("");
    const outline = (...edges) => path(edges.flat().filter(Boolean));
    const drawn = [
      spec.bands.map(({ upper, lower, fill }) => {
        const edges = [upper, lower].map((line) => points(spec.lines[line]));
        return dom.svg("path", { fill, d: outline(edges[0], edges[1].reverse()) });
      }),
      spec.lines.map((line) => {
        const look = { stroke: line.color, "stroke-dasharray": line.dash?.join(" ") };
        return dom.svg("path", { ...look, "stroke-width": line.width, d: path(points(line)) });
      }),
      spec.lines.flatMap((line) =>
        (line.points ? points(line).filter(Boolean) : []).map(([cx, cy]) =>
          dom.svg("circle", { cx, cy, r: 3.5, fill: line.color }),
        ),
      ),
    ];
    const area = { x: left, y: top, width, height, fill: "none" };
    const label = text(left + width / 2, this.height - 4, "middle", spec.xLabel ?? "step");
    const yLabel = text(0, 0, "middle", spec.yLabel);
    yLabel.setAttribute("transform", `translate(12 ${top + height / 2}) rotate(-90)`);
    return dom.svg("svg", {}, ticks, label, yLabel, dom.svg("svg", area, drawn.flat()));
  }

  // Returns the numbers of the chart as [columns, rows].
  toRows() {
    const { x, lines, xLabel, xName = (value) => value } = this.spec;
    return [
      [xLabel ?? "step", ...lines.map((line) => line.name)],
      x.map((value, i) => [xName(value), ...lines.map((line) => line.values[i])]),
    ];
  }

  drawShade(u) {
    const shade = this.spec.shade ?? [];
    u.ctx.save();
    u.ctx.fillStyle = cssColor("--shade");
    for (const [from, to] of shade) {
      const left = Math.max(u.bbox.left, u.valToPos(from, "x", true));
      const right = Math.min(u.bbox.left + u.bbox.width, u.valToPos(to, "x", true));
      if (right > left) u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
    }
    u.ctx.restore();
  }

  // Returns the y range: all lines in the foreground, and the bulk (15 % to 85 %) of the
  // background.
  yRange(u, min, max) {
    const { log, lines } = this.spec;
    const [from, to] = u.series[0].idxs;
    const every = Math.ceil((to - from + 1) / 1000) || 1;
    for (const line of lines.filter((candidate) => candidate.background === "bulk")) {
      const seen = line.values
        .slice(from ?? 0, (to ?? -1) + 1)
        .filter((value) => value !== null && value !== undefined)
        .filter((_, i) => i % every === 0);
      seen.sort((a, b) => a - b);
      if (seen.length === 0) continue;
      min = Math.min(min ?? Infinity, seen[Math.floor(seen.length * 0.15)]);
      max = Math.max(max ?? -Infinity, seen[Math.ceil(seen.length * 0.85) - 1]);
    }
    return LineChart.withMargin(min, max, log);
  }

  // Returns 1, 2 and 5 times the powers of ten from 10 ** `lowest` on.
  static increments(lowest) {
    const powers = Array.from({ length: 22 - lowest }, (_, i) => lowest + i);
    return powers.flatMap((power) => [1, 2, 5].map((factor) => Number(`${factor}e${power}`)));
  }

  static withMargin(min, max, log) {
    if (!format.isNumber(min) || !format.isNumber(max)) return log ? [1, 10] : [0, 1];
    if (log) {
      const low = min > 0 ? min : 1e-12;
      const margin = max > low ? (max / low) ** 0.05 : 1.1;
      return [low / margin, max * margin];
    }
    const margin = max > min ? (max - min) * 0.05 : Math.max(0.1, Math.abs(max) * 0.05);
    return [min - margin, max + margin];
  }

  // Returns powers of ten if there are enough of them, else 1-2-5, else even steps.
  static logTicks(min, max) {
    const decades = Math.log10(max / min);
    const ticks = [];
    if (decades < 0.7) {
      const step = roundStep((max - min) / 5);
      for (let i = Math.ceil(min / step); i * step <= max; ++i) ticks.push(i * step);
      return ticks;
    }
    const every = Math.max(1, Math.ceil(decades / 7));
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += every) {
      for (const factor of decades > 2.5 ? [1] : [1, 2, 5]) {
        const tick = factor * 10 ** power;
        if (tick >= min && tick <= max) ticks.push(tick);
      }
    }
    return ticks;
  }
}
