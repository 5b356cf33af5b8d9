// SPDX-License-Identifier: Apache-2.0
// Figures with one row per group on a shared scale: name, drawing, text. The drawings are SVG with
// positions in per cent, so that they adapt to any width.
//
// dotRows({label, low, high, rows: [{name, swatch, text, marks: [...], badge, pick, more}], zero,
//          heads, title})
// `badge` is a word after the name, `pick` a control before it, `more` a second text. `heads` are
// headings of the two texts; with them the axis is above the rows and stays in view. `title` is the
// axis's.
// A mark: {kind: "dot"|"ring"|"cross"|"tick"|"bar", at, to, y (0..1), color, title}.
function dotRows({ label, low, high, rows, zero, heads, title }) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const margin = (high - low) * 0.04;
  low -= margin;
  high += margin;
  const percent = (value) => `${((value - low) / (high - low)) * 100}%`;
  const ticks = evenTicks(low, high, 6);
  const height = rows.length > 12 ? 26 : 34;

  function drawMark(mark) {
    const x = percent(mark.at);
    const y = 5 + (mark.y ?? 0.5) * (height - 10);
    const title = mark.title && dom.svg("title", {}, mark.title);
    if (mark.kind === "bar") {
      return dom.svg(
        "line",
        {
          x1: x,
          x2: percent(mark.to),
          y1: y,
          y2: y,
          stroke: mark.color,
          "stroke-width": mark.thick ?? 4,
          "stroke-linecap": "butt",
          opacity: mark.opacity,
        },
        title,
      );
    }
    if (mark.kind === "tick") {
      return dom.svg(
        "line",
        { x1: x, x2: x, y1: 3, y2: height - 3, stroke: mark.color, "stroke-width": 2.5 },
        title,
      );
    }
    return dom.svg(
      "circle",
      {
        class: "mark",
        cx: x,
        cy: y,
        r: mark.kind === "ring" ? 3.6 : (mark.size ?? 3.6),
        fill: mark.kind === "ring" ? "none" : mark.color,
        stroke: mark.color,
        "stroke-width": 1.5,
        "fill-opacity": mark.opacity ?? 1,
      },
      title,
    );
  }

  const gridLines = () =>
    ticks.map((tick) =>
      dom.svg("line", { class: "grid", x1: percent(tick), x2: percent(tick), y1: 0, y2: "100%" }),
    );
  const zeroLine = () =>
    zero && dom.svg("line", { class: "zero", x1: percent(0), x2: percent(0), y1: 0, y2: "100%" });

  const rowNode = (row) =>
    dom.el(
      "div",
      { class: "dot-row", "data-name": row.name },
      dom.el(
        row.pick ? "label" : "span",
        { class: "dot-name" },
        row.pick,
        row.swatch,
        dom.el(
          "span",
          { title: row.name },
          dom.name(row.name),
          row.badge && dom.el("span", { class: "badge" }, row.badge),
        ),
      ),
      dom.svg(
        "svg",
        { class: "dot-track", height, width: "100%" },
        gridLines(),
        zeroLine(),
        row.marks.map(drawMark),
      ),
      dom.el("span", { class: "dot-text" }, row.text),
      heads && dom.el("span", { class: "dot-more" }, row.more),
    );
  const axis = dom.el(
    "div",
    { class: "dot-row dot-axis" },
    dom.el("span", { class: "dot-name" }, title),
    dom.el(
      "span",
      { class: "dot-ticks" },
      ticks.map((tick, i) => {
        // Every second label, or three of four, give way where the axis is short.
        const rank = i % 4 === 0 ? null : i % 2 === 0 ? "quarter" : "quarter half";
        const node = dom.el("span", { class: rank }, zero && tick === 0 ? "0" : format.size(tick));
        node.style.left = percent(tick);
        return node;
      }),
    ),
    dom.el("span", { class: "dot-text" }, heads?.[0]),
    heads && dom.el("span", { class: "dot-more" }, heads[1]),
  );
  const controls = rows.some((row) => row.pick);
  const node = dom.el(
    "div",
    {
      class: heads ? "dot-rows with-heads" : "dot-rows",
      role: controls ? "group" : "img",
      "aria-label": label,
    },
    heads && axis,
    rows.map(rowNode),
    !heads && axis,
  );
  // Each row is a separate grid, so all get a first column as wide as the longest name.
  const longest = rows.reduce(
    (most, row) => Math.max(most, row.name.length + (row.badge?.length ?? 0)),
    0,
  );
  const before = controls ? "5.2rem" : "3.2rem";
  node.classList.toggle("long-names", longest > 14);
  node.style.setProperty("--names", `calc(${Math.min(36, longest)}ch + ${before})`);
  return node;
}

// Returns about `most` round numbers between low and high.
function evenTicks(low, high, most) {
  const step = roundStep((high - low) / most);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; ++i)
    ticks.push(Number((i * step).toFixed(digits)));
  return ticks;
}
