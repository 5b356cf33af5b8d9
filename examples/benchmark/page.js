// SPDX-License-Identifier: Apache-2.0
// Draws the page of the ladder from the block of JSON. All numbers are there.
"use strict";
const ladder = JSON.parse(document.getElementById("ladder").textContent);
const { margin, level, baseline } = ladder.protocol.families;
const done = ladder.rungs.filter((rung) => rung.compared);
const rowOf = new Map(ladder.placements.map((row) => [row.name, row]));
const AXES = {
  tokens: ["length: training examples", (rung) => rung.steps * rung.batch],
  depth: ["depth: layers", (rung) => rung.depth],
  width: ["width of the stream", (rung) => rung.width],
};
const others = ladder.rungs.filter((rung) => rung.axes.length === 0);

// Returns an element of HTML or SVG with attributes and children; children that are text need no escaping.
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "line", "circle", "path", "rect", "text", "title"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
const byId = (id) => document.getElementById(id);
const code = (name) => make("code", {}, name);
const minus = (text) => text.replace("-", "−");
const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : minus(value.toFixed(digits)));
const signed = (value, digits = 3) => (value > 0 ? "+" : "") + fixed(value, digits);
const whole = (value) => value.toLocaleString("en");
const pValue = (p) => (p === null || p === undefined ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));
const counted = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;

// Returns names in code, separated by commas.
function listed(names, shown = (name) => code(name)) {
  return names.flatMap((name, i) => (i ? [i === names.length - 1 ? " and " : ", ", shown(name)] : [shown(name)]));
}

// Returns names like listed(), but folded if they are many.
function folded(names) {
  return names.length < 21 ? listed(names) : make("details", {}, make("summary", {}, `${names.length} placements`), listed(names));
}

// Returns the numbers of a placement on a rung, or of the other placement if it is the same model there.
function cellOf(row, rung) {
  const cell = row.cells[rung.name];
  return cell?.same ? { ...rowOf.get(cell.same).cells[rung.name], ...cell } : cell;
}

// Describes a difference in words.
function described(row, rung) {
  const cell = cellOf(row, rung);
  if (!cell) return `${rung.name}: no result`;
  const same = cell.same ? ` (same model as ${cell.same})` : "";
  if (row.name === baseline || cell.same === baseline) return `${rung.name}: loss ${fixed(cell.loss)}${same}`;
  const failed = cell.diverged ? `, diverged ${cell.diverged} of ${cell.runs}` : "";
  return `${rung.name}: ${differenceText(cell)}, ${cell.outcome}${failed}${same}`;
}

function differenceText(cell) {
  if (cell.mean === null) return `lower with ${cell.lower}, higher with ${cell.higher} of ${counted(cell.runs, "seed")}`;
  return signed(cell.mean) + (cell.low === null ? "" : ` (${signed(cell.low)} to ${signed(cell.high)})`);
}

// The answer.

function sentence(...parts) {
  byId("answer").append(make("p", {}, ...parts));
}

function sayResults() {
  const missing = ladder.rungs.filter((rung) => !rung.compared);
  const same = ladder.placements.filter((row) => row.same_model);
  const is = (n) => (n === 1 ? "is" : "are");
  sentence(`${counted(ladder.answer.placements, "placement")} ${is(ladder.answer.placements)} compared with `, code(baseline),
    ` on ${done.length} of the ladder’s ${ladder.rungs.length} rungs. `,
    missing.length ? ["No results yet: ", ...listed(missing.map((rung) => rung.name)), ". "] : "",
    same.length ? [...listed(same.map((row) => row.name)), ` ${is(same.length)} the same model as another placement on all rungs, and not counted.`] : "");
  if (!ladder.protocol.hash.startsWith("quick")) return;
  byId("warning").hidden = false;
  byId("warning").textContent = "These are results of a quick run of ten steps. Its numbers mean nothing.";
}

function sayBetter() {
  const { answer } = ladder;
  const always = answer.better_always;
  const top = ladder.placements.filter((row) => row.better && !row.same_model).slice(0, 5);
  sentence(...(always.length ? [...listed(always), always.length === 1 ? " is" : " are"] : ["No placement is"]), " better than ", code(baseline),
    " on every rung with results that trained it. ",
    `${counted(answer.better_once, "placement")} ${answer.better_once === 1 ? "is" : "are"} better on at least one of the rungs that trained it, `,
    `${whole(answer.better_half)} on more than half of them, and ${whole(answer.never_better)} on none. `,
    top.length ? ["Most rungs: ", ...listed(top, (row) => make("span", {}, code(row.name), ` (${row.better} of ${row.trained})`)), "."] : "");
  byId("answer").append(make("p", { class: "note" },
    `Better or worse: p < ${level} after Holm’s correction over the placements of a rung, and not equal within ${margin} nats by two one-sided tests. `,
    "A placement that is not found better may still be so."));
}

function sayClasses() {
  const { classes } = ladder.answer;
  const rules = Object.entries(ladder.protocol.classes).filter(([name]) => name !== "rule");
  const missing = ladder.rungs.filter((rung) => rung.axes.length && !rung.compared);
  sentence(`The protocol named these classes before the runs. ${ladder.protocol.classes.rule} `, missing.length
    ? ["They use only rungs with results, and may change with those of ", ...listed(missing.map((rung) => rung.name)), "."] : "");
  byId("answer").append(make("dl", { class: "classes" }, rules.map(([name, rule]) => make("div", {},
    make("dt", {}, `${name} (${classes[name]?.length ?? 0})`),
    make("dd", {}, make("span", { class: "rule" }, `${rule}. `), folded(classes[name] ?? []))))));
}

function sayTransfer() {
  const { answer } = ladder;
  const rho = (value) => (value === null ? "unknown" : fixed(value, 2));
  if (answer.pairs === 0) {
    sentence("There are no rank correlations yet: they need two rungs that train all placements, with at least four in common.");
  } else {
    sentence(`The median rank correlation of two rungs that train all placements is ${rho(answer.median_rho)} (${counted(answer.pairs, "pair")}): `,
      `${rho(answer.same_task_rho)} with the same task (${answer.same_task_pairs}), ${rho(answer.other_task_rho)} with different tasks (${answer.other_task_pairs}). `,
      `${counted(answer.pairs_below_half, "pair")} ${answer.pairs_below_half === 1 ? "has" : "have"} less than 0.5: ranks on one rung explain less than a quarter of the variance `,
      `of ranks on the other. In ${counted(answer.pairs_without_order, "pair")} the interval over seeds contains 0 or is below it.`);
  }
  const { reversed } = answer;
  if (reversed.length === 0) return sentence("No placement is found better on one rung and worse on another.");
  sentence(`What does not transfer: ${counted(reversed.length, "placement")} ${reversed.length === 1 ? "is" : "are"} better than `, code(baseline), " on some rungs and worse on others.");
  byId("answer").append(make("div", { class: "answer" }, folded(reversed)));
}

// The correlations.

function pairText(pair) {
  const percent = `${Math.round(ladder.protocol.bootstrap.interval * 100)} %`;
  return `${pair.a} and ${pair.b}: ${fixed(pair.rho, 2)}, ${percent} interval ${fixed(pair.low, 2)} to ${fixed(pair.high, 2)}, ${pair.placements} placements`;
}

function drawMatrix() {
  const pairs = new Map(ladder.correlations.map((pair) => [`${pair.a} ${pair.b}`, pair]));
  const body = done.map((row, i) => make("tr", {}, make("th", { scope: "row" }, row.name), done.slice(0, -1).map((column, k) => {
    if (k >= i) return make("td");
    const pair = pairs.get(`${column.name} ${row.name}`);
    if (!pair) return make("td", { class: "note", title: "fewer than four placements in common" }, "–");
    const color = pair.rho < 0 ? "worse" : "better";
    const cell = make("td", { class: pair.low <= 0 && pair.high >= 0 ? "weak" : "", style: `background: color-mix(in srgb, var(--${color}) ${Math.round(60 * Math.abs(pair.rho))}%, var(--page))` }, fixed(pair.rho, 2));
    const show = () => {
      byId("matrix").querySelector(".chosen")?.classList.remove("chosen");
      cell.classList.add("chosen");
      byId("pair").textContent = pairText(pair);
    };
    cell.addEventListener("pointerenter", show);
    cell.addEventListener("click", show);
    return cell;
  })));
  const heads = done.slice(0, -1).map((rung) => make("th", { scope: "col" }, make("span", {}, rung.name)));
  byId("matrix").append(make("thead", {}, make("tr", {}, make("th"), heads)), make("tbody", {}, body));
  byId("pair").textContent = ladder.correlations.length ? "Point at a number for its interval." : "No two rungs have four placements in common yet.";
  byId("intervals").querySelector("div").append(table(["rung", "rung", "correlation", "interval", "placements"],
    ladder.correlations.map((pair) => [pair.a, pair.b, fixed(pair.rho, 2), `${fixed(pair.low, 2)} to ${fixed(pair.high, 2)}`, pair.placements])));
}

function drawExternal() {
  if (!ladder.external.length) return;
  byId("external").append(make("h3", {}, "Published ladders"), make("div", { class: "scroll" }, table(["ladder", "rung", "correlation", "interval", "placements"],
    ladder.external.map((pair) => [pair.name, pair.rung, fixed(pair.rho, 2), `${fixed(pair.low, 2)} to ${fixed(pair.high, 2)}`, pair.placements]))));
  for (const [name, source] of new Map(ladder.external.map((pair) => [pair.name, pair.source]))) byId("external").append(make("p", { class: "note" }, `${name}: ${source}`));
}

// Returns a table; a cell is a text or {text, class}.
function table(heads, rows) {
  const cell = (value) => (value?.text !== undefined ? make("td", { class: value.class }, value.text) : make("td", {}, String(value)));
  return make("table", {}, make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col", class: ["placement", "outcome"].includes(head) ? "text" : "" }, head)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

// The rows of placements.

const HIGH = 64;
const limit = (() => {
  const sizes = ladder.placements.flatMap((row) => done.filter((rung) => rung.axes.length).map((rung) => Math.abs(row.cells[rung.name]?.mean ?? 0))).sort((a, b) => a - b);
  const size = Math.max(margin, sizes[Math.floor(0.9 * (sizes.length - 1))] ?? 0);
  const unit = 10 ** Math.floor(Math.log10(size));
  return [1, 1.5, 2, 3, 5, 7, 10].find((step) => step * unit >= size) * unit;
})();
const heightOf = (difference) => HIGH / 2 + (Math.max(-1, Math.min(1, difference / limit)) * (12 - HIGH)) / 2;

function chart(width, height, label, ...children) {
  return make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, make("rect", { class: "frame", width, height }), children);
}

// Returns the mark of an outcome: a triangle down is lower than the baseline, up is higher, a bar is equal, a ring is undecided.
function glyph(outcome, x, y, size = 4) {
  const path = { better: `M${x - size} ${y - size}h${2 * size}l${-size} ${2 * size}z`, worse: `M${x - size} ${y + size}h${2 * size}l${-size} ${-2 * size}z`,
    equal: `M${x - size} ${y - 1}h${2 * size}v2h${-2 * size}z` }[outcome];
  return path ? make("path", { class: outcome, d: path }) : make("circle", { class: "undecided", cx: x, cy: y, r: size - 1 });
}

const cross = (outcome, x, y) => make("path", { class: outcome, "stroke-width": 1.8, d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });

function point(row, rung, x) {
  const cell = cellOf(row, rung);
  if (!cell || row.name === baseline || cell.same === baseline) return null;
  const title = make("title", {}, described(row, rung));
  if (cell.mean === null) return make("g", {}, title, cross(cell.outcome, x, 8));
  const bar = cell.low === null ? null
    : make("line", { class: cell.outcome, "stroke-width": 1.6, x1: x, x2: x, y1: heightOf(cell.low), y2: heightOf(cell.high) });
  const beyond = Math.abs(cell.mean) > limit;
  const mark = beyond ? make("path", { class: cell.outcome, d: cell.mean > 0 ? `M${x - 4} 8h8l-4 -7z` : `M${x - 4} ${HIGH - 8}h8l-4 7z` })
    : make("circle", { class: cell.outcome, cx: x, cy: heightOf(cell.mean), r: 2.3 });
  return make("g", {}, title, beyond ? null : bar, mark);
}

const onAxis = (axis) => ladder.rungs.filter((rung) => rung.axes.includes(axis));
const xOf = (i, count, wide) => (wide * (i + 0.5)) / count;

function axisChart(row, axis) {
  const rungs = onAxis(axis);
  const label = `${axis}: ${rungs.map((rung) => described(row, rung)).join("; ")}`;
  return chart(120, HIGH, label, make("line", { class: "zero", x1: 0, x2: 120, y1: HIGH / 2, y2: HIGH / 2 }), rungs.map((rung, i) => point(row, rung, xOf(i, rungs.length, 120))));
}

function othersChart(row) {
  const wide = 18 * others.length;
  return chart(wide, 32, others.map((rung) => described(row, rung)).join("; "), others.map((rung, i) => {
    const cell = cellOf(row, rung);
    if (!cell || row.name === baseline) return null;
    const x = xOf(i, others.length, wide);
    return make("g", {}, make("title", {}, described(row, rung)), glyph(cell.outcome, x, 20), cell.diverged ? cross(cell.outcome, x, 8) : null);
  }));
}

const rates = ladder.placements.flatMap((row) => Object.values(row.cells).map((cell) => cell.rate)).filter(Boolean);
const rateEnds = [Math.log2(Math.min(...rates)) - 1, Math.log2(Math.max(...rates)) + 1];
const RATE_HIGH = 52;
const rateHeight = (rate) => RATE_HIGH - 4 - ((Math.log2(rate) - rateEnds[0]) / (rateEnds[1] - rateEnds[0])) * (RATE_HIGH - 8);

function rateText(cell) {
  const side = (value) => (value === null ? "not trained" : value === "diverged" ? value : signed(value));
  return `rate ${cell.rate}; loss at half of it ${side(cell.half)}, at twice ${side(cell.double)}`;
}

function ratesChart(row) {
  const wide = 11 * ladder.rungs.length;
  const isFlat = (slope) => typeof slope === "number" && slope < margin;
  const marks = ladder.rungs.map((rung, i) => {
    const cell = cellOf(row, rung);
    if (!cell) return null;
    const x = xOf(i, ladder.rungs.length, wide);
    const ends = [isFlat(cell.half) ? cell.rate / 2 : cell.rate, isFlat(cell.double) ? cell.rate * 2 : cell.rate].map(rateHeight);
    return make("g", { class: "rate" }, make("title", {}, `${rung.name}: ${rateText(cell)}`), make("line", { "stroke-width": 1.6, x1: x, x2: x, y1: ends[0], y2: ends[1] }),
      make("circle", { cx: x, cy: rateHeight(cell.rate), r: 2.2 }));
  });
  return chart(wide, RATE_HIGH, done.filter((rung) => row.cells[rung.name]).map((rung) => `${rung.name}: ${rateText(cellOf(row, rung))}`).join("; "), marks);
}

function classText(row) {
  return row.name === baseline ? "the baseline" : row.same_model ? `same model as ${row.same_model}` : row.classes.join(", ");
}

function factsOf(row) {
  const failed = `diverged ${row.diverged} of ${counted(row.runs, "run")}` + (row.collapsed ? `, collapsed ${row.collapsed}` : "");
  if (row.name === baseline) return failed;
  return `better on ${row.better}, worse on ${row.worse}, equal on ${row.equal} of ${counted(row.trained, "rung")}; ${failed}`;
}

const HEADS = ["place", "placement", "outcome", "loss", "difference, 95 % interval", "test", "p, Holm", "p, equal", "diverged", "collapsed", "rate", "half", "twice"];

// Returns the cells of a table's row, but for the placement's name.
function figures(row, rung) {
  const cell = cellOf(row, rung);
  const slope = (value) => (typeof value === "number" ? signed(value) : value ?? "–");
  const outcome = { text: cell.same ? `same as ${cell.same}` : cell.outcome ?? "baseline", class: `text ${cell.outcome ?? ""}` };
  const tests = row.name === baseline || cell.same === baseline ? ["–", "–", "–", "–"]
    : [differenceText(cell), cell.test, pValue(cell.p_holm), pValue(cell.p_equal_holm)];
  return [`${Math.round(cell.place[0])}–${Math.round(cell.place[1])}`, outcome, fixed(cell.loss), ...tests, `${cell.diverged} of ${cell.runs}`,
    `${cell.collapsed} of ${cell.runs}`, cell.rate, slope(cell.half), slope(cell.double)];
}

function detail(row) {
  const file = row.file;
  const trained = done.filter((rung) => row.cells[rung.name]);
  return make("div", { class: "detail" }, file ? [make("p", {}, file.doc), make("pre", { tabindex: 0 }, make("code", {}, file.text)),
    file.sources.map((source) => make("p", { class: "note" }, source.join(" · ")))] : make("p", {}, "Its file was not given to make_page.py (--placement)."),
  make("div", { class: "scroll" }, table(["rung", ...HEADS.filter((head) => head !== "placement")], trained.map((rung) => [rung.name, ...figures(row, rung)]))));
}

function placementRow(row) {
  const button = make("button", { class: "name", type: "button", "aria-expanded": "false" }, row.name);
  const item = make("li", { id: `placement-${row.name}` }, make("div", { class: "row" },
    make("div", {}, button, make("div", { class: "facts" }, make("strong", {}, classText(row)), make("br"), factsOf(row))),
    Object.keys(AXES).map((axis) => axisChart(row, axis)), othersChart(row), ratesChart(row)));
  item.firstChild.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) item.querySelector(".detail").remove();
    else item.append(detail(row));
  });
  item.searched = [row.name, classText(row), row.file?.doc, row.file?.sources.flat().join(" ")].join(" ").toLowerCase();
  return item;
}

function legendAxis(axis) {
  const [title, value] = AXES[axis];
  const rungs = onAxis(axis);
  return make("div", {}, title, make("svg", { viewBox: "0 0 120 14" }, rungs.map((rung, i) => make("text", { x: xOf(i, rungs.length, 120), y: 11, "text-anchor": "middle" }, whole(value(rung))))));
}

// Returns names of rungs in vertical text, above the columns of a chart.
function legendNames(title, rungs, step) {
  const wide = step * rungs.length;
  return make("div", {}, title, make("svg", { class: "names", viewBox: `0 0 ${wide} 84` }, rungs.map((rung, i) => {
    const x = xOf(i, rungs.length, wide) + 3;
    return make("text", { transform: `translate(${x} 82) rotate(-90)` }, rung.name);
  })));
}

function drawRows() {
  byId("reading").append("Charts show the difference of the validation loss from ", code(baseline), ` with its 95 % interval; below the line is better. Blue is better than it, orange worse, grey equal within the margin, and a ring undecided. All have the scale ±${+limit.toPrecision(2)} nats; an arrow is beyond it, a cross had diverged runs. `,
    "Marks of other rungs: ▼ better, ▲ worse, – equal within the margin, ○ undecided. ",
    `In the last chart a dot is the best rate of a rung, from ${Math.min(...rates)} to ${Math.max(...rates)} on a scale of factors; a line reaches to half or twice the rate if the loss there is less than ${margin} higher. `,
    "A click on a row opens the equation and the numbers.");
  byId("legend").append(make("div", {}, "placement, class"), ...Object.keys(AXES).map(legendAxis), legendNames("other tasks and optimizers", others, 18), legendNames("best rate by rung", ladder.rungs, 11));
  const items = new Map(ladder.placements.map((row) => [row.name, placementRow(row)]));
  const order = ladder.placements.map((row) => row.name);
  const keys = { better: (row) => order.indexOf(row.name), name: (row) => row.name, class: (row) => classText(row), best: (row) => row.best ?? Infinity };
  const update = () => {
    const key = keys[byId("sort").value];
    const words = byId("search").value.toLowerCase().split(/\s+/);
    const rows = [...ladder.placements].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    byId("rows").append(...rows.map((row) => items.get(row.name)));
    let shown = 0;
    for (const item of items.values()) {
      item.hidden = !words.every((word) => item.searched.includes(word));
      shown += item.hidden ? 0 : 1;
    }
    byId("count").textContent = `${shown} of ${items.size}`;
  };
  byId("search").addEventListener("input", update);
  byId("sort").addEventListener("change", update);
  update();
}

// The tables.

function conditions(rung) {
  return [`${rung.task}, ${rung.depth} layers, width ${rung.width}, ${whole(rung.steps)} steps of ${rung.batch}`, ...rung.add].join(", ");
}

function rungTable(rung) {
  const rows = ladder.placements.filter((row) => row.cells[rung.name]).sort((a, b) => cellOf(a, rung).rank - cellOf(b, rung).rank);
  return make("div", { class: "scroll" }, table(HEADS, rows.map((row) => {
    const [place, ...rest] = figures(row, rung);
    return [place, { text: row.name, class: "text" }, ...rest];
  })));
}

function drawTables() {
  byId("columns").textContent = "Place is the interval of the rank by the bootstrap over seeds. Loss is the mean of the finished judged runs. Half and twice are the loss of the choosing runs at half "
    + "and at twice the rate less that at the rate itself. Intervals are not corrected for the number of placements; p-values are, by Holm.";
  for (const rung of ladder.rungs) {
    const summary = make("summary", {}, make("strong", {}, rung.name), ` ${conditions(rung)}${rung.compared ? `; ${counted(rung.judged, "judged seed")}` : "; no results yet"}`);
    const details = make("details", {}, summary);
    details.addEventListener("toggle", () => {
      if (rung.compared && details.open && details.childElementCount === 1) details.append(rungTable(rung));
    });
    byId("tables").append(details);
  }
  byId("cost").append(table(["rung", "models", "runs", "minutes of a processor"], done.map((rung) => [rung.name, rung.compared, whole(rung.runs), fixed(rung.minutes, 1)])));
  byId("version").textContent = `Protocol: version ${ladder.protocol.version}, SHA-256 begins with ${ladder.protocol.hash}. ${ladder.plumb.join("; ")}. ${ladder.protocol.rates.rule} ${ladder.protocol.families.rule}`;
}

sayResults();
sayBetter();
sayClasses();
sayTransfer();
drawMatrix();
drawExternal();
drawRows();
drawTables();
addEventListener("beforeprint", () => { byId("intervals").open = true; });
