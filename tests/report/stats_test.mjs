// SPDX-License-Identifier: Apache-2.0
// Tests of the arithmetic behind the curves (runtime/report/js/stats.js) and of the page's data,
// without a browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "node:test";
import { makeReport } from "./fixture.mjs";

const source = (name) =>
  readFileSync(new URL(`../../runtime/report/js/${name}.js`, import.meta.url), "utf8");
const { stats, format } = new Function(
  `${source("format")}${source("stats")}return { stats, format };`,
)();

const close = (actual, expected) =>
  assert.ok(Math.abs(actual - expected) < 1e-12, `${actual} is not ${expected}`);

test("smoothing with alpha 0 gives the values themselves", () => {
  assert.deepEqual([...stats.smooth([3, 1, 2], 0)], [3, 1, 2]);
});

test("smoothing is debiased: a constant stays what it is from the first step", () => {
  for (const value of stats.smooth(Array(50).fill(2.5), 0.98)) close(value, 2.5);
});

test("smoothing weighs the values geometrically", () => {
  const [, second, third] = stats.smooth([1, 2, 4], 0.5);
  close(second, (0.5 * 1 + 2) / 1.5);
  close(third, (0.25 * 1 + 0.5 * 2 + 4) / 1.75);
});

test("a missing value leaves a gap and does not move what follows", () => {
  const [, gap, after] = stats.smooth([1, null, 3], 0.5);
  assert.ok(Number.isNaN(gap));
  close(after, (0.5 * 1 + 3) / 1.5);
});

test("the cumulative average is the mean up to each step", () => {
  assert.deepEqual([...stats.cumulative([2, 4, null, 9])], [2, 3, NaN, 5]);
});

test("mean, deviation and range over seeds count the runs that are there", () => {
  const { n, mean, sd, low, high } = stats.across([[1, 1], [3, NaN], [5]], 3);
  assert.deepEqual([...n], [3, 1, 0]);
  close(mean[0], 3);
  close(sd[0], 2);
  assert.deepEqual([low[0], high[0], mean[1]], [1, 5, 1]);
  assert.ok(Number.isNaN(sd[1]) && Number.isNaN(mean[2]) && Number.isNaN(low[2]));
});

test("a mean of several steps weighs as they would", () => {
  const [all, blocks] = [
    stats.smooth([5, 2, 2, 2, 3], 0.9),
    stats.smooth([5, 2, 3], 0.9, [1, 3, 1]),
  ];
  assert.deepEqual(
    [blocks[1], blocks[2]].map((x) => x.toFixed(12)),
    [all[3], all[4]].map((x) => x.toFixed(12)),
  );
  const averages = stats.cumulative([5, 2, 3], [1, 3, 1]);
  assert.deepEqual([...averages], [5, 11 / 4, 14 / 5]);
});

test("lines with the same positions share them, with null for what is missing", () => {
  const at = [1, 2, 3];
  assert.deepEqual(
    stats.join([
      { at, values: [1, NaN, 3] },
      { at, values: [4] },
    ]),
    {
      x: [1, 2, 3],
      ys: [
        [1, null, 3],
        [4, null, null],
      ],
    },
  );
});

test("a line has nothing at the positions of others, which is no gap", () => {
  const { x, ys } = stats.join([
    { at: [10, 20, 30], values: [1, 2, 3] },
    { at: [15, 20], values: [NaN, 5] },
  ]);
  assert.deepEqual(x, [10, 15, 20, 30]);
  assert.deepEqual(ys, [
    [1, undefined, 2, 3],
    [undefined, null, 5, undefined],
  ]);
});

test("numbers read well", () => {
  assert.equal(format.count(1234567), "1,234,567");
  assert.equal(format.loss(-0.04), "\u22120.040");
  assert.equal(format.loss(null), "–");
  assert.equal(format.loss(-0.0004), "0.000");
  assert.equal(format.difference(0.0004), "0.000");
  assert.equal(format.difference(0.04), "+0.040");
  assert.equal(format.ranges([0, 2, 3, 4, 7]), "0, 2..4, 7");
  assert.deepEqual([950, 12345, 2.5e15].map(format.amount), ["950", "12.3k", "2.5P"]);
  assert.equal(format.size(1.23e-7), "1.2e\u22127");
  assert.equal(format.list(["a", "b", "c"]), "a, b and c");
  assert.equal(format.list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
});

test("the page restores the report that it packs", () => {
  const report = makeReport();
  report.groups[0].steps = report.runs[0].loss.map((_, i) => i + 1);
  report.groups[0].extremes = [null, 2.5, 1.25, null, 3.1416];
  report.runs[1].loss[3] = null;
  report.runs[2].loss[3] = 1e-12; // too far from the others for five digits
  report.best = { paired: report.paired.map((pair) => ({ ...pair })) };
  const input = JSON.stringify(report);
  const page = execFileSync(process.env.RENDER_REPORT, { input, maxBuffer: 2 ** 28 }).toString();
  const packed = JSON.parse(/id="report">(.*?)<\/script>/s.exec(page)[1]);
  assert.equal(typeof packed.runs[1].loss.codes, "string");
  assert.ok(Array.isArray(packed.runs[2].loss));
  assert.ok(JSON.stringify(packed).length < 0.6 * input.length);
  const unpackReport = new Function(`${source("unpack")}return unpackReport;`)();
  const { picture_lines: lines, ...restored } = JSON.parse(JSON.stringify(unpackReport(packed)));
  assert.ok(lines.length > 0);
  for (const pair of [...report.paired, ...report.best.paired])
    for (const [name, value] of Object.entries(pair))
      if (typeof value === "number") pair[name] = Number(value.toPrecision(6));
  assert.deepEqual(restored, JSON.parse(JSON.stringify(report)));
});
