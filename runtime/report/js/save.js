// SPDX-License-Identifier: Apache-2.0
// Saves a figure as a standalone SVG: its drawings and texts where they are on the screen, with
// colors and fonts as attributes, so that it looks the same in every program. Saves its numbers as
// CSV.

// Properties of shapes that the page's styles may set.
const shapeStyles = ["fill", "fill-opacity", "stroke", "stroke-width", "opacity"];

function inlinedShape(svg) {
  const copy = svg.cloneNode(true);
  const copies = [...copy.querySelectorAll("*")];
  svg.querySelectorAll("*").forEach((shape, i) => {
    const style = getComputedStyle(shape);
    for (const name of shapeStyles) copies[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

function figureSvg(figure) {
  const boxes = [];
  const parts = [];
  const place = (box, part) => {
    if (box.width === 0) return;
    for (const name of ["x", "y", "width", "height"]) part.setAttribute(name, box[name]);
    part.setAttribute("overflow", "visible");
    boxes.push(box);
    parts.push(part);
  };
  // Writes each line of a text node on its own, because SVG does not wrap.
  function write(node) {
    const { color, fontSize, fontWeight } = getComputedStyle(node.parentElement);
    const look = { fill: color, "font-size": fontSize, "font-weight": fontWeight };
    const range = document.createRange();
    let line = {};
    for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const box = range.getBoundingClientRect();
      if (line.top !== box.top) {
        line = { top: box.top, text: dom.svg("text", look, word) };
        place(box, line.text);
        line.text.setAttribute("y", box.top + 0.8 * box.height);
      } else {
        boxes.push(box);
        line.text.append(` ${word}`);
      }
    }
  }
  function walk(node) {
    if (node instanceof Text) write(node);
    else if (node.toSvg) place(node.getBoundingClientRect(), node.toSvg());
    else if (node instanceof SVGSVGElement) place(node.getBoundingClientRect(), inlinedShape(node));
    else if (!node.matches("h3, .note, .readout, .save, details")) node.childNodes.forEach(walk);
  }
  // The legend is outside of the figures of training, so each file gets a key of its own.
  const chips = document.querySelectorAll(".chip[aria-pressed=true]:not([hidden])");
  const key = dom.el("p", { class: "key" });
  for (const { children } of figure.querySelector(".key, .dot-rows, .heat") ? [] : chips)
    key.append(dom.el("span", {}, children[0].cloneNode(true), children[1].cloneNode(true)));
  figure.append(key);
  figure.childNodes.forEach(walk);
  key.remove();
  const [x, y] = ["x", "y"].map((name) => Math.min(...boxes.map((box) => box[name])) - 8);
  const width = Math.max(...boxes.map((box) => box.right)) + 8 - x;
  const height = Math.max(...boxes.map((box) => box.bottom)) + 8 - y;
  const view = { viewBox: `${x} ${y} ${width} ${height}`, "font-family": cssColor("--sans") };
  const page = dom.svg("rect", { x, y, width, height, fill: cssColor("--page") });
  return new XMLSerializer().serializeToString(
    dom.svg("svg", { width, height, ...view }, page, parts),
  );
}

// Returns CSV of numbers, texts and {text, value, sd}, with deviations in separate columns.
function csvText(columns, rows) {
  const hasSd = columns.map((_, i) => rows.some((row) => format.isNumber(row[i]?.sd)));
  // Spreadsheets would interpret text that begins like a formula.
  const quote = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const plain = (cell) => {
    const value = cell?.value ?? cell?.text ?? cell ?? "";
    return quote(String(format.isNumber(value) ? Number(value.toPrecision(12)) : value));
  };
  const line = (cells, sdOf) =>
    columns
      .flatMap((_, i) => [plain(cells[i]), ...(hasSd[i] ? [plain(sdOf(i))] : [])])
      .join(",") + "\n";
  const head = line(columns, (i) => `${columns[i]} sd`);
  return head + rows.map((row) => line(row, (i) => row[i].sd)).join("");
}

// Returns the CSV of the node in a figure that has its numbers.
function figureCsv(figure) {
  const source = [...figure.querySelectorAll("*")].find((node) => node.toRows);
  return csvText(...source.toRows());
}

// Returns the buttons that save the figure in which they are.
function saveButtons(title) {
  const button = (kind, type, textOf) => {
    const onclick = (event) => {
      const text = encodeURIComponent(textOf(event.target.closest("figure")));
      const download = `${title.replace(/[^\w.-]+/g, "_")}.${kind.toLowerCase()}`;
      dom.el("a", { download, href: `data:${type};charset=utf-8,${text}` }).click();
    };
    const label = `Save ${kind} of ${title}`;
    return dom.el(
      "button",
      { type: "button", class: "quiet save", "aria-label": label, onclick },
      `Save ${kind}`,
    );
  };
  return [button("CSV", "text/csv", figureCsv), button("SVG", "image/svg+xml", figureSvg)];
}
