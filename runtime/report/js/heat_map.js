// SPDX-License-Identifier: Apache-2.0
// Heat maps of layers over steps, one cell per probe, on a scale that several maps share.

// Viridis (Smith, van der Walt 2015) in ten stops: perceptually uniform, for every kind of color
// vision and in gray.
const viridis = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 73, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [110, 206, 88],
  [181, 222, 43],
  [253, 231, 37],
];

function heatColor(part) {
  const place = Math.min(1, Math.max(0, part)) * (viridis.length - 1);
  const i = Math.min(viridis.length - 2, Math.floor(place));
  const mix = (k) => Math.round(viridis[i][k] + (viridis[i + 1][k] - viridis[i][k]) * (place - i));
  return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
}

// Logarithmic scale from low to high, both positive. 0 has the color of low.
class LogScale {
  constructor(low, high) {
    this.low = low;
    this.high = high > low ? high : low * 10;
  }
  part(value) {
    return value > 0 ? Math.log(value / this.low) / Math.log(this.high / this.low) : 0;
  }
  color(value) {
    return heatColor(this.part(value));
  }
  legend(label) {
    const stops = Array.from({ length: 100 }, (_, i) =>
      dom.svg("rect", { x: `${i}%`, width: "1.5%", height: "100%", fill: heatColor(i / 99) }),
    );
    const bar = dom.svg("svg", { class: "ramp" }, stops);
    const ticks = LineChart.logTicks(this.low, this.high).map((tick) => {
      const node = dom.el("span", {}, format.size(tick));
      node.style.left = `${this.part(tick) * 100}%`;
      return node;
    });
    return dom.el(
      "div",
      { class: "heat-legend" },
      dom.el("span", {}, label),
      dom.el("span", { class: "ramp-holder" }, bar, dom.el("span", { class: "ramp-ticks" }, ticks)),
    );
  }
}

// Heat map of values[step][layer]; the first layer is the lowest row. Calls onCell(step index,
// layer index, byKey), or onCell(null) when the reader leaves.
class HeatMap {
  constructor({ label, steps, layers, values, scale, onCell }) {
    Object.assign(this, { steps, layers, values, scale, onCell });
    this.cell = null;
    this.canvas = dom.el("canvas", {
      class: "heat",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": label,
    });
    this.rowHeight = Math.min(26, Math.max(3, 260 / layers.length));
    this.left = 0;
    this.canvas.toSvg = () => this.toSvg();
    this.canvas.style.height = `${Math.round(this.rowHeight * layers.length) + 42}px`;
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.onCell(null));
    this.canvas.addEventListener("blur", () => this.onCell(null));
    this.canvas.addEventListener("keydown", (event) => this.moveByKey(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(
      ((event.clientX - box.left - this.left) / (box.width - this.left)) * this.steps.length,
    );
    const row = Math.floor((event.clientY - box.top) / this.rowHeight);
    if (column < 0 || column >= this.steps.length || row < 0 || row >= this.layers.length) return;
    this.onCell(column, this.layers.length - 1 - row, false);
  }

  moveByKey(event) {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[
      event.key
    ];
    if (event.key === "Escape") return this.onCell(null);
    if (!move) return;
    event.preventDefault();
    const [column, layer] = this.cell ?? [this.steps.length - 1 - move[0], -move[1]];
    const within = (value, length) => Math.min(length - 1, Math.max(0, value));
    this.onCell(
      within(column + move[0], this.steps.length),
      within(layer + move[1], this.layers.length),
      true,
    );
  }

  // Marks a cell; null removes the mark.
  show(cell) {
    this.cell = cell;
    this.draw();
  }

  // Returns the map as an image with four pixels per unit.
  toSvg() {
    this.draw(4);
    const image = dom.svg("image", { href: this.canvas.toDataURL() });
    this.draw();
    return image;
  }

  draw(ratio = window.devicePixelRatio || 1) {
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (width === 0) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = `11px ${cssColor("--sans")}`;
    this.left = Math.min(
      126,
      Math.max(...this.labelled().map((i) => c.measureText(this.layers[i]).width)) + 24,
    );
    const cellWidth = (width - this.left) / this.steps.length;
    const bottom = this.rowHeight * this.layers.length;
    const top = (layer) => bottom - (layer + 1) * this.rowHeight;
    this.steps.forEach((_, column) =>
      this.layers.forEach((_, layer) => {
        const value = this.values[column]?.[layer];
        if (!format.isNumber(value)) return;
        c.fillStyle = this.scale.color(value);
        const x = Math.round((this.left + column * cellWidth) * ratio) / ratio;
        const next = Math.round((this.left + (column + 1) * cellWidth) * ratio) / ratio;
        const y = Math.round(top(layer) * ratio) / ratio;
        c.fillRect(x, y, next - x, Math.round((top(layer) + this.rowHeight) * ratio) / ratio - y);
      }),
    );
    c.fillStyle = cssColor("--muted");
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const i of this.labelled()) {
      c.fillText(this.layers[i], this.left - 6, top(i) + this.rowHeight / 2, this.left - 22);
    }
    c.textAlign = "center";
    c.fillText("step", (this.left + width) / 2, bottom + 32);
    c.save();
    c.rotate(-Math.PI / 2);
    c.fillText("layer", -bottom / 2, 7);
    c.restore();
    this.drawSteps(c, cellWidth, bottom, width);
    if (this.cell && this.cell[0] < this.steps.length && this.cell[1] < this.layers.length) {
      c.strokeStyle = cssColor("--mark");
      c.lineWidth = 2;
      c.strokeRect(
        this.left + this.cell[0] * cellWidth,
        top(this.cell[1]),
        Math.max(2, cellWidth),
        this.rowHeight,
      );
    }
  }

  // Returns the layers whose names fit.
  labelled() {
    const every = Math.ceil(14 / this.rowHeight);
    return this.layers.map((_, i) => i).filter((i) => i % every === 0);
  }

  drawSteps(c, cellWidth, bottom, width) {
    c.textBaseline = "top";
    c.textAlign = "center";
    let free = this.left - 20;
    this.steps.forEach((step, i) => {
      const text = format.count(step);
      const half = c.measureText(text).width / 2;
      const x = Math.min(width - half, this.left + (i + 0.5) * cellWidth);
      if (x - half < free) return;
      c.fillText(text, x, bottom + 8);
      free = x + half + 14;
    });
  }
}
