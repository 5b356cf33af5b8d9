// SPDX-License-Identifier: Apache-2.0
// Tests of the arithmetic behind the curves (runtime/app/report/js/stats.js), without a browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = (name) =>
  readFileSync(new URL(`../../runtime/app/report/js/${name}.js`, import.meta.url), "utf8");
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

test("few points are drawn as they are, with null for what is missing", () => {
  assert.deepEqual(stats.forDrawing([[1, NaN, 3]], 1, 4, 100), {
    x: [1, 2, 3, 4],
    ys: [[1, null, 3, null]],
  });
});

test("many points are thinned out, and no spike is lost", () => {
  const curve = Float64Array.from({ length: 100000 }, () => 2);
  curve[54321] = 9;
  curve[777] = -1;
  const {
    x,
    ys: [y],
  } = stats.forDrawing([curve], 1, curve.length, 5000);
  assert.ok(x.length <= 5100 && x.length === y.length, `${x.length} points`);
  assert.equal(Math.max(...y), 9);
  assert.equal(Math.min(...y), -1);
  assert.ok(x.every((value, i) => i === 0 || value > x[i - 1]));
  assert.deepEqual([x[0], x.at(-1)], [1, 100000]);
  assert.ok(Math.abs(x[y.indexOf(9)] - 54322) <= 50);
});

test("thinning passes over missing values at either end of a stretch", () => {
  const curve = Float64Array.from({ length: 10000 }, (_, i) => (i < 5 || i > 8000 ? NaN : i));
  const {
    ys: [y],
  } = stats.forDrawing([curve], 1, 10000, 1000);
  assert.ok(y.slice(0, 2).some((value) => value !== null));
  assert.equal(Math.max(...y.filter((value) => value !== null)), 8000);
  assert.equal(y.at(-1), null);
});

test("a run that did not finish has no end", () => {
  assert.ok(Number.isNaN(stats.endOf({ status: "diverged", loss: [1, 2] }, 1)));
  assert.equal(stats.endOf({ status: "finished", loss: [9, 1, 3] }, 2), 2);
});

test("geometric means pass over what is missing, and 0 is 0 only among zeros", () => {
  close(stats.geometricMean([1, 4, null]), 2);
  assert.equal(stats.geometricMean([0, 0]), 0);
  assert.ok(Number.isNaN(stats.geometricMean([null])));
});

test("numbers read well", () => {
  assert.equal(format.count(1234567), "1,234,567");
  assert.equal(format.loss(-0.04), "\u22120.040");
  assert.equal(format.loss(null), "–");
  assert.equal(format.loss(-0.0004), "0.000");
  assert.equal(format.difference(0.0004), "0.000");
  assert.equal(format.difference(0.04), "+0.040");
  assert.equal(format.ranges([0, 2, 3, 4, 7]), "0, 2..4, 7");
  assert.equal(format.size(1.23e-7), "1.2e\u22127");
  assert.equal(format.list(["a", "b", "c"]), "a, b and c");
  assert.equal(format.list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
});
