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
const axisRungs = ladder.rungs.filter((rung) => rung.axes.length);
const otherRungs = ladder.rungs.filter((rung) => rung.axes.length === 0);
const soFar = axisRungs.every((rung) => rung.compared) ? "" : " so far";

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
const note = (...text) => make("p", { class: "note" }, ...text);
const fixed = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
const signed = (value) => (value > 0 ? "+" : "") + fixed(value);
const whole = (value) => value.toLocaleString("en");
const pValue = (p) => (p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));
const counted = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
const verb = (n, one, many) => (n === 1 ? one : many);
const namesOf = (items) => items.map((item) => item.name);

// Returns names in code, separated by commas.
function listed(names, shown = code) {
  const between = (i) => (i === 0 ? "" : i === names.length - 1 ? " and " : ", ");
  return names.map((name, i) => [between(i), shown(name)]);
}

// Returns names like listed(), but folded if they are many.
function folded(names) {
  if (names.length <= 20) return listed(names);
  return make("details", {}, make("summary", {}, `${names.length} placements`), listed(names));
}

// Returns a table; a cell is a text or {text, class}.
function table(heads, rows) {
  const isText = (head) => ["placement", "outcome"].includes(head);
  const head = (text) => make("th", { scope: "col", class: isText(text) ? "text" : "" }, text);
  const cell = (value) => make("td", { class: value.class ?? "" }, value.text ?? String(value));
  return make("table", {}, make("thead", {}, make("tr", {}, heads.map(head))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

const scrolled = (...content) => make("div", { class: "scroll" }, ...content);

// Returns the numbers of a placement on a rung, or of the other placement if it is the same model there.
function cellOf(row, rung) {
  const cell = row.cells[rung.name];
  return cell?.same ? { ...rowOf.get(cell.same).cells[rung.name], ...cell } : cell;
}

// Returns true if a placement is the baseline's model on a rung, which has no difference.
const isBaseline = (row, cell) => row.name === baseline || cell.same === baseline;

function differenceText(cell) {
  if (cell.mean === null) return `lower with ${cell.lower}, higher with ${cell.higher} of ${counted(cell.runs, "seed")}`;
  return signed(cell.mean) + (cell.low === null ? "" : ` (${signed(cell.low)} to ${signed(cell.high)})`);
}

// Describes the result of a placement on a rung in words.
function described(row, rung) {
  const cell = cellOf(row, rung);
  if (!cell) return `${rung.name}: no result`;
  const same = cell.same ? ` (same model as ${cell.same})` : "";
  if (isBaseline(row, cell)) return `${rung.name}: loss ${fixed(cell.loss)}${same}`;
  const failed = cell.diverged ? `, diverged ${cell.diverged} of ${cell.runs}` : "";
  return `${rung.name}: ${differenceText(cell)}, ${cell.outcome}${failed}${same}`;
}

// The answer.

function say(...parts) {
  byId("answer").append(make("p", {}, ...parts));
}

function sayResults() {
  const n = ladder.answer.placements;
  const missing = namesOf(ladder.rungs.filter((rung) => !rung.compared));
  const same = namesOf(ladder.placements.filter((row) => row.same_model));
  say(`${counted(n, "placement")} ${verb(n, "is", "are")} compared with `, code(baseline),
    ` on ${done.length} of the ladder’s ${ladder.rungs.length} rungs. `);
  if (missing.length) say("These rungs have no results yet: ", listed(missing), ".");
  if (same.length) {
    say(listed(same), verb(same.length, " is", " are"), " the same model as another placement on all rungs, and not counted.");
  }
  if (!ladder.protocol.hash.startsWith("quick")) return;
  byId("warning").hidden = false;
  byId("warning").textContent = "These are results of a quick run of ten steps. Its numbers mean nothing.";
}

function sayBetter() {
  const { better_always: always, better_once: once, better_half: half, never_better: never } = ladder.answer;
  const top = ladder.placements.filter((row) => row.better && !row.same_model).slice(0, 5);
  const count = (row) => make("span", {}, code(row.name), ` (${row.better} of ${row.trained})`);
  if (always.length === 0) {
    say("No placement is better than ", code(baseline), " on every rung that trained it.");
  } else {
    say(`Better than ${baseline} on every rung that trained ${verb(always.length, "it", "them")}${soFar}: `, folded(always));
  }
  say(`${counted(once, "placement")} ${verb(once, "is", "are")} better on at least one of ${verb(once, "its", "their")} rungs, `,
    `${whole(half)} on more than half of them, and ${whole(never)} on none. `,
    top.length && done.length > 2 ? ["First in the order of the rows below: ", listed(top, count), "."] : "");
  byId("answer").append(note(`Better or worse: p < ${level} after Holm’s correction over the placements of a rung, and not `,
    `equal within ${margin} nats by two one-sided tests. A placement that is not found better may still be so.`));
}

function sayClasses() {
  const { classes } = ladder.answer;
  const rules = Object.entries(ladder.protocol.classes).filter(([name]) => name !== "rule");
  const missing = namesOf(axisRungs.filter((rung) => !rung.compared));
  say(`The protocol named these classes before the runs. ${ladder.protocol.classes.rule} `,
    missing.length ? ["They use only rungs with results, and may change with those of ", listed(missing), "."] : "");
  byId("answer").append(make("dl", { class: "classes" }, rules.map(([name, rule]) => make("div", {},
    make("dt", {}, `${name}${soFar} (${classes[name]?.length ?? 0})`),
    make("dd", {}, make("span", { class: "rule" }, `${rule}. `), folded(classes[name] ?? []))))));
}

function sayCorrelations() {
  const { answer } = ladder;
  if (answer.pairs === 0) {
    say("There are no rank correlations yet: they need two rungs that train all placements, with four in common.");
    return;
  }
  const weak = answer.pairs_below_half;
  const part = (rho, n, words) => (n ? `, ${fixed(rho, 2)} ${words} (${counted(n, "pair")})` : "");
  say(`The median rank correlation of two rungs that train all placements is ${fixed(answer.median_rho, 2)}`,
    part(answer.same_task_rho, answer.same_task_pairs, "with the same task"),
    part(answer.other_task_rho, answer.other_task_pairs, "with different tasks"), ". ",
    `${counted(weak, "pair")} of ${answer.pairs} ${verb(weak, "has", "have")} less than 0.5: `,
    "ranks on one rung explain less than a quarter of the variance of ranks on the other. ",
    `The interval over seeds contains 0 or is below it for ${answer.pairs_without_order}.`);
}

function sayReversed() {
  const { reversed } = ladder.answer;
  if (reversed.length === 0) {
    say("No placement is found better on one rung and worse on another.");
  } else {
    say("What does not transfer: ", verb(reversed.length, "this placement is", "these placements are"), " better than ",
      code(baseline), " on some rungs and worse on others: ", folded(reversed));
  }
}

// The correlations.

const intervalText = (pair) => `${fixed(pair.low, 2)} to ${fixed(pair.high, 2)}`;

function matrixCell(pair) {
  if (!pair) return make("td", { class: "note", title: "fewer than four placements in common" }, "–");
  const color = `var(--${pair.rho < 0 ? "worse" : "better"}) ${Math.round(60 * Math.abs(pair.rho))}%`;
  const style = `background: color-mix(in srgb, ${color}, var(--page))`;
  const cell = make("td", { class: pair.low <= 0 && pair.high >= 0 ? "weak" : "", style }, fixed(pair.rho, 2));
  const percent = `${Math.round(ladder.protocol.bootstrap.interval * 100)} %`;
  const show = () => {
    byId("matrix").querySelector(".chosen")?.classList.remove("chosen");
    cell.classList.add("chosen");
    byId("pair").textContent = `${pair.a} and ${pair.b}: ${fixed(pair.rho, 2)}, ${percent} interval ${intervalText(pair)}, `
      + `${pair.placements} placements`;
  };
  cell.addEventListener("pointerenter", show);
  cell.addEventListener("click", show);
  return cell;
}

function drawMatrix() {
  const pairs = new Map(ladder.correlations.map((pair) => [`${pair.a} ${pair.b}`, pair]));
  const columns = done.slice(0, -1);
  const rows = done.map((row, i) => make("tr", {}, make("th", { scope: "row" }, row.name),
    columns.map((column, k) => (k < i ? matrixCell(pairs.get(`${column.name} ${row.name}`)) : make("td")))));
  const heads = columns.map((rung) => make("th", { scope: "col" }, make("span", {}, rung.name)));
  byId("matrix").append(make("thead", {}, make("tr", {}, make("td"), heads)), make("tbody", {}, rows));
  byId("pair").textContent = pairs.size ? "Point at a number for its interval."
    : "No two rungs have four placements in common yet.";
  byId("intervals").append(scrolled(table(["rung", "rung", "correlation", "interval", "placements"],
    ladder.correlations.map((pair) => [pair.a, pair.b, fixed(pair.rho, 2), intervalText(pair), pair.placements]))));
}

function drawExternal() {
  if (ladder.external.length === 0) return;
  const rows = ladder.external.map((pair) => [pair.name, pair.rung, fixed(pair.rho, 2), intervalText(pair), pair.placements]);
  const sources = new Map(ladder.external.map((pair) => [pair.name, pair.source]));
  byId("external").append(make("h3", {}, "Published ladders"),
    note("Their losses are mostly of one seed, and the intervals resample ours alone. With seven placements, |rho| below 0.75 is within chance."),
    scrolled(table(["ladder", "rung", "correlation", "interval", "placements"], rows)),
    ...[...sources].map(([name, source]) => note(`${name}: ${source}`)));
}

// The charts of a placement, in units of SVG.

const WIDTH = 120, HEIGHT = 64, RATE_HEIGHT = 52;
// Largest difference that charts show: all improvements, and nine of ten of all differences.
const limit = (() => {
  const means = ladder.placements.flatMap((row) => axisRungs.map((rung) => row.cells[rung.name]?.mean));
  const sorted = means.filter((mean) => typeof mean === "number").sort((a, b) => a - b);
  const size = Math.max(margin, -(sorted[0] ?? 0), sorted[Math.floor(0.9 * (sorted.length - 1))] ?? 0);
  const unit = 10 ** Math.floor(Math.log10(size));
  return [1, 1.5, 2, 3, 5, 7, 10].find((step) => step * unit >= size) * unit;
})();
const yOf = (difference) => HEIGHT / 2 + (Math.max(-1, Math.min(1, difference / limit)) * (12 - HEIGHT)) / 2;
const xOf = (i, count, width) => (width * (i + 0.5)) / count;
const onAxis = (axis) => ladder.rungs.filter((rung) => rung.axes.includes(axis));
const titled = (title, ...marks) => make("g", {}, make("title", {}, title), ...marks);

function chart(width, height, label, ...marks) {
  return make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    make("rect", { class: "frame", width, height }), ...marks);
}

// Returns a triangle with its base at y, which points down if `height` is positive.
function triangle(outcome, x, y, height) {
  return make("path", { class: outcome, d: `M${x - 4} ${y}h8l-4 ${height}z` });
}

function cross(outcome, x, y) {
  return make("path", { class: outcome, "stroke-width": 1.8, d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
}

// Returns the mark of an outcome without a number.
function glyph(outcome, x, y) {
  if (outcome === "better") return triangle(outcome, x, y - 4, 8);
  if (outcome === "worse") return triangle(outcome, x, y + 4, -8);
  if (outcome === "equal") return make("rect", { class: outcome, x: x - 4, y: y - 1, width: 8, height: 2 });
  return make("circle", { class: outcome, cx: x, cy: y, r: 3 });
}

// Returns the mark of a difference with its interval.
function point(row, rung, x) {
  const cell = cellOf(row, rung);
  if (!cell || isBaseline(row, cell)) return null;
  const { outcome, mean } = cell;
  const title = described(row, rung);
  if (mean === null) return titled(title, cross(outcome, x, 8));
  if (mean > limit) return titled(title, triangle(outcome, x, 8, -7));
  if (mean < -limit) return titled(title, triangle(outcome, x, HEIGHT - 8, 7));
  const bar = { class: outcome, "stroke-width": 1.6, x1: x, x2: x, y1: yOf(cell.low ?? mean), y2: yOf(cell.high ?? mean) };
  return titled(title, make("line", bar), make("circle", { class: outcome, cx: x, cy: yOf(mean), r: 2.3 }));
}

function axisChart(row, axis) {
  const rungs = onAxis(axis);
  const zero = make("line", { class: "zero", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 });
  const label = `${axis}: ${rungs.map((rung) => described(row, rung)).join("; ")}`;
  return chart(WIDTH, HEIGHT, label, zero, rungs.map((rung, i) => point(row, rung, xOf(i, rungs.length, WIDTH))));
}

function othersChart(row) {
  const width = 18 * otherRungs.length;
  const marks = otherRungs.map((rung, i) => {
    const cell = cellOf(row, rung);
    if (!cell || row.name === baseline) return null;
    const x = xOf(i, otherRungs.length, width);
    return titled(described(row, rung), glyph(cell.outcome, x, 20), cell.diverged ? cross(cell.outcome, x, 8) : null);
  });
  return chart(width, 32, otherRungs.map((rung) => described(row, rung)).join("; "), marks);
}

const rates = ladder.placements.flatMap((row) => Object.values(row.cells).map((cell) => cell.rate)).filter(Boolean);
const rateEnds = [Math.log2(Math.min(...rates)) - 1, Math.log2(Math.max(...rates)) + 1];

function rateHeight(rate) {
  return RATE_HEIGHT - 4 - ((Math.log2(rate) - rateEnds[0]) / (rateEnds[1] - rateEnds[0])) * (RATE_HEIGHT - 8);
}

function rateText(rung, cell) {
  const side = (slope) => (slope === null ? "not trained" : slope === "diverged" ? slope : signed(slope));
  return `${rung.name}: rate ${cell.rate}; loss at half of it ${side(cell.half)}, at twice ${side(cell.double)}`;
}

// Draws the best rate of each rung, with a line to rates at which the loss is nearly the same.
function ratesChart(row) {
  const width = 11 * ladder.rungs.length;
  const reach = (cell, slope, factor) => (typeof slope === "number" && slope < margin ? cell.rate * factor : cell.rate);
  const texts = [];
  const marks = ladder.rungs.map((rung, i) => {
    const cell = cellOf(row, rung);
    if (!cell) return null;
    const x = xOf(i, ladder.rungs.length, width);
    const [y1, y2] = [reach(cell, cell.half, 0.5), reach(cell, cell.double, 2)].map(rateHeight);
    texts.push(rateText(rung, cell));
    return titled(rateText(rung, cell), make("line", { class: "rate", "stroke-width": 1.6, x1: x, x2: x, y1, y2 }),
      make("circle", { class: "rate", cx: x, cy: rateHeight(cell.rate), r: 2.2 }));
  });
  return chart(width, RATE_HEIGHT, texts.join("; "), marks);
}

// The rows of placements.

function classText(row) {
  if (row.name === baseline) return "the baseline";
  return row.same_model ? `same model as ${row.same_model}` : row.classes.map((name) => name + soFar).join(", ");
}

function factsOf(row) {
  const collapsed = row.collapsed ? `, collapsed ${row.collapsed}` : "";
  const failed = `diverged ${row.diverged} of ${counted(row.runs, "run")}${collapsed}`;
  if (row.name === baseline) return failed;
  return `better on ${row.better}, worse on ${row.worse}, equal on ${row.equal} of ${counted(row.trained, "rung")}; ${failed}`;
}

const HEADS = ["place", "placement", "outcome", "loss", "difference, 95 % interval", "test", "p, Holm", "p, equal", "diverged",
  "collapsed", "rate", "half", "twice"];

// Returns the cells of a table's row, without the placement's name.
function figures(row, rung) {
  const cell = cellOf(row, rung);
  const slope = (value) => (typeof value === "number" ? signed(value) : value ?? "–");
  const outcome = cell.same ? `same as ${cell.same}` : cell.outcome ?? "baseline";
  const tests = isBaseline(row, cell) ? ["–", "–", "–", "–"]
    : [differenceText(cell), cell.test, pValue(cell.p_holm), pValue(cell.p_equal_holm)];
  const place = cell.place.map(Math.round).join("–");
  return [place, { text: outcome, class: `text ${cell.outcome ?? ""}` }, fixed(cell.loss), ...tests,
    `${cell.diverged} of ${cell.runs}`, `${cell.collapsed} of ${cell.runs}`, cell.rate, slope(cell.half), slope(cell.double)];
}

function fileOf(row) {
  if (!row.file) return note("Its file was not given by --placement.");
  return [make("p", {}, row.file.doc), make("pre", { tabindex: 0 }, code(row.file.text)),
    row.file.sources.map((source) => note(source.join(" · ")))];
}

function detail(row) {
  const heads = HEADS.filter((head) => head !== "placement");
  const rows = done.filter((rung) => row.cells[rung.name]).map((rung) => [rung.name, ...figures(row, rung)]);
  return make("div", { class: "detail" }, fileOf(row), scrolled(table(["rung", ...heads], rows)));
}

function placementRow(row) {
  const button = make("button", { class: "name", type: "button", "aria-expanded": "false" }, row.name);
  const facts = make("div", { class: "facts" }, make("strong", {}, classText(row)), make("br"), factsOf(row));
  const line = make("div", { class: "row" }, make("div", {}, button, facts),
    Object.keys(AXES).map((axis) => axisChart(row, axis)), othersChart(row), ratesChart(row));
  const item = make("li", { id: `placement-${row.name}` }, line);
  line.addEventListener("click", () => {
    const opened = item.querySelector(".detail");
    button.setAttribute("aria-expanded", String(!opened));
    if (opened) opened.remove();
    else item.append(detail(row));
  });
  item.searched = [row.name, classText(row), row.file?.doc, row.file?.sources.flat().join(" ")].join(" ").toLowerCase();
  return item;
}

function legendAxis(axis) {
  const [title, value] = AXES[axis];
  const rungs = onAxis(axis);
  const label = (rung, i) => make("text", { x: xOf(i, rungs.length, WIDTH), y: 11, "text-anchor": "middle" }, whole(value(rung)));
  return make("div", {}, title, make("svg", { viewBox: `0 0 ${WIDTH} 14` }, rungs.map(label)));
}

// Returns names of rungs in vertical text, above the columns of a chart with this step.
function legendNames(title, rungs, step) {
  const label = (rung, i) => make("text", { transform: `translate(${step * (i + 0.5) + 3} 82) rotate(-90)` }, rung.name);
  return make("div", {}, title, make("svg", { class: "names", viewBox: `0 0 ${step * rungs.length} 84` }, rungs.map(label)));
}

function drawRows() {
  byId("legend").append(make("div", {}, "placement, class"), ...Object.keys(AXES).map(legendAxis),
    legendNames("other tasks and optimizers", otherRungs, 18), legendNames("best rate by rung", ladder.rungs, 11));
  const items = new Map(ladder.placements.map((row) => [row.name, placementRow(row)]));
  const order = namesOf(ladder.placements);
  const better = (row) => order.indexOf(row.name);
  const keys = { better, name: (row) => row.name, class: classText, best: (row) => row.best ?? Infinity };
  const update = () => {
    const key = keys[byId("sort").value];
    const words = byId("search").value.toLowerCase().split(/\s+/);
    const rows = [...ladder.placements].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    for (const item of items.values()) item.hidden = !words.every((word) => item.searched.includes(word));
    byId("rows").append(...rows.map((row) => items.get(row.name)));
    byId("count").textContent = `${[...items.values()].filter((item) => !item.hidden).length} of ${items.size}`;
  };
  byId("search").addEventListener("input", update);
  byId("sort").addEventListener("change", update);
  update();
}

// The tables.

function rungTable(rung) {
  const rows = ladder.placements.filter((row) => row.cells[rung.name]);
  rows.sort((a, b) => cellOf(a, rung).rank - cellOf(b, rung).rank);
  return scrolled(table(HEADS, rows.map((row) => {
    const [place, ...rest] = figures(row, rung);
    return [place, { text: row.name, class: "text" }, ...rest];
  })));
}

// Returns a folded table, which is made when it is opened.
function rungDetails(rung) {
  const size = `${rung.task}, ${rung.depth} layers, width ${rung.width}, ${whole(rung.steps)} steps of ${rung.batch}`;
  const state = rung.compared ? counted(rung.judged, "judged seed") : "no results yet";
  const summary = make("summary", {}, make("strong", {}, rung.name), ` ${[size, ...rung.add].join(", ")}; ${state}`);
  const details = make("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (rung.compared && details.open && details.childElementCount === 1) details.append(rungTable(rung));
  });
  return details;
}

function drawTables() {
  const { protocol } = ladder;
  byId("tables").append(...ladder.rungs.map(rungDetails));
  byId("cost").append(table(["rung", "models", "runs", "minutes of a processor", "protocol", "plumb"],
    done.map((rung) => [rung.name, rung.compared, whole(rung.runs), fixed(rung.minutes, 1), rung.protocol,
      { text: rung.plumb.join("; "), class: "text" }])));
  byId("version").append(`Protocol: version ${protocol.version}, SHA-256 begins with ${protocol.hash}. `,
    ...protocol.earlier.map((earlier) => `Version ${earlier.version} differed in some rungs: ${earlier.changed} `),
    `${protocol.rates.rule} ${protocol.families.rule}`);
}

function fillNumbers() {
  const numbers = { limit: +limit.toPrecision(2), margin, lowest: Math.min(...rates), highest: Math.max(...rates) };
  for (const span of document.querySelectorAll("[data-number]")) span.textContent = numbers[span.dataset.number];
}

sayResults();
sayBetter();
sayClasses();
sayCorrelations();
sayReversed();
drawMatrix();
drawExternal();
fillNumbers();
drawRows();
drawTables();
addEventListener("beforeprint", () => { byId("intervals").open = true; });
