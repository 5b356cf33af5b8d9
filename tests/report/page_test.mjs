// SPDX-License-Identifier: Apache-2.0
// Tests of the page as a document: themes, widths, paper, hostile text, and missing data.
import assert from "node:assert/strict";
import test from "node:test";
import { colors, fileOf, open, picture, study, themeIs, wholeRun } from "./browser.mjs";
import { allDiverged, hostile, inBlocks, makeReport, nothing } from "./fixture.mjs";

test("the theme follows the system until the reader chooses", async (t) => {
  const page = await open(t, study(), { colorScheme: "dark" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  const darkChart = await picture(page, wholeRun);
  await page.emulateMedia({ colorScheme: "light" });
  await themeIs(page, "light");
  assert.notEqual(await background(), dark);
  assert.notEqual(await picture(page, wholeRun), darkChart);
  await page.getByRole("button", { name: "Switch to the dark theme" }).click();
  assert.equal(await background(), dark);
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
  }
  assert.equal(await background(), dark);
});

test("text from models and data does nothing but stand there", async (t) => {
  const report = makeReport({ seeds: 2 });
  const evil = hostile.script + hostile.end;
  report.title = evil;
  report.command = evil;
  report.models[0].name = report.groups[0].name = report.table.rows[0][0].text = evil;
  report.models[0].equations = [evil];
  report.models[0].route = evil;
  report.models[0].picture = evil;
  report.models[1].picture = report.models[1].picture.replace(
    "</svg>",
    `<script>parent.harmed = 1</script><image href="x" onerror="parent.harmed = 1"/></svg>`,
  );
  report.differences[0].values[0] = evil;
  report.groups[0].settings = { [evil]: evil };
  report.runs[1].message = evil;
  report.runs[1].status = "diverged";
  report.provenance.data.description = evil;
  report.provenance.plugins[0].id = evil;
  report.groups[0].probes.layers[0] = evil;
  report.groups[0].probes.series[0].name = evil;
  const page = await open(
    t,
    fileOf("hostile", () => report),
  );
  for (const summary of await page.locator("summary:visible").all()) await summary.click();
  await page.getByLabel("Seed", { exact: true }).selectOption("2");
  await page.getByLabel("Seed", { exact: true }).selectOption("1");
  assert.equal(await page.evaluate(() => window.harmed), undefined);
  assert.equal(await page.locator("main script, main b").count(), 0);
  assert.equal(await page.locator("main img:not(.picture)").count(), 0);
  assert.equal(await page.locator("main img.picture").count(), 3);
  const samples = await page.locator(".sample").allTextContents();
  for (const text of Object.values(hostile)) assert.ok(samples.includes(text), text.slice(0, 40));
  assert.equal(await page.locator("h1").textContent(), evil);
});

// Returns a study of `n` models with long names.
const crowd = (n) =>
  fileOf(`crowd-${n}`, () =>
    makeReport({
      models: Array.from({ length: n }, (_, i) => `placement_with_a_long_name_${i}`),
      seeds: 2,
      steps: 200,
    }),
  );

for (const [width, models] of [
  [360, 3],
  [390, 3],
  [768, 3],
  [390, 8],
  [390, 20],
  [1920, 20],
]) {
  test(`nothing scrolls sideways at ${width} pixels with ${models} models`, async (t) => {
    const page = await open(t, models === 3 ? study() : crowd(models), {
      viewport: { width, height: 800 },
      isMobile: width < 500,
      hasTouch: width < 500,
    });
    for (const summary of await page.locator("summary:visible").all()) await summary.click();
    const [content, canvas] = await page.evaluate(() => [
      document.documentElement.scrollWidth,
      Math.max(
        ...[...document.querySelectorAll("canvas")].map(
          (node) => node.getBoundingClientRect().right,
        ),
      ),
    ]);
    assert.ok(content <= width, `the page is ${content} wide`);
    assert.ok(canvas <= width, `a chart ends at ${canvas}`);
  });
}

test("no column of the table is cut off on a screen of 1280 pixels or on paper", async (t) => {
  const make = () => {
    const report = makeReport({
      models: Array.from({ length: 20 }, (_, i) => `placement_with_a_long_name_${i}`),
      seeds: 2,
      steps: 200,
    });
    report.table.columns.splice(2, 0, "FLOPs/token", "memory");
    for (const row of report.table.rows) row.splice(2, 0, { text: "175 k" }, { text: "846.0 KiB" });
    return report;
  };
  const page = await open(t, fileOf("wide table", make));
  const fits = () =>
    page.locator(".results .scroll").evaluate((node) => [node.clientWidth, node.scrollWidth]);
  for (const width of [1280, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    const [room, needed] = await fits();
    assert.ok(needed <= room, `${needed} of ${room} at ${width} pixels`);
  }
  await page.emulateMedia({ media: "print" });
  await page.setViewportSize({ width: 688, height: 1000 });
  const [room, needed] = await fits();
  assert.ok(needed <= room, `${needed} of ${room} on paper`);
});

test("long names leave room for figures on a phone, and are not cut", async (t) => {
  const page = await open(
    t,
    fileOf("long-names", () =>
      makeReport({
        models: ["post, n_layer=12, warmup_steps=200", "post_with_one_word_of_more_than_a_line"],
        seeds: 2,
        withProbes: false,
      }),
    ),
    { viewport: { width: 390, height: 800 }, isMobile: true, hasTouch: true },
  );
  const name = await page.locator(".wide tbody th").first().boundingBox();
  assert.ok(name.width <= 390 / 2, `the column of names is ${name.width} wide`);
  const cut = await page.evaluate(
    () =>
      [...document.querySelectorAll(".dot-name span")].filter(
        (node) => node.scrollWidth > node.clientWidth + 1,
      ).length,
  );
  assert.equal(cut, 0);
});

test("on paper the page is light, without controls, and charts fit", async (t) => {
  const page = await open(t, study(), { colorScheme: "dark" });
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await themeIs(page, "light");
  assert.equal(
    await page.locator(".controls:visible, .theme:visible, nav:visible, .actions:visible").count(),
    0,
  );
  const widest = await page.evaluate(() =>
    Math.max(
      ...[...document.querySelectorAll("canvas")].map((node) => node.getBoundingClientRect().width),
    ),
  );
  assert.ok(widest <= 700, `a chart is ${widest} wide`);
  await page.setViewportSize({ width: 688, height: 1000 }); // A4 within its margins
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 688);
  await page.emulateMedia({ media: "screen", colorScheme: "dark" });
  await themeIs(page, "dark");
  assert.ok((await page.pdf()).length > 10000);
});

test("on paper no cell breaks into three lines, and no labels overlap", async (t) => {
  for (const models of [3, 8, 20]) {
    const page = await open(t, models === 3 ? study() : crowd(models), { colorScheme: "dark" });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    await themeIs(page, "light");
    await page.setViewportSize({ width: 688, height: 1000 });
    const [lines, overlaps, tracks] = await page.evaluate(() => {
      const linesOf = (cell) => {
        const tops = [];
        const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        for (let range = document.createRange(); words.nextNode();) {
          range.selectNodeContents(words.currentNode);
          for (const { top } of range.getClientRects())
            if (!tops.some((known) => Math.abs(known - top) < 5)) tops.push(top);
        }
        return tops.length;
      };
      const overlapping = [...document.querySelectorAll(".dot-ticks")].filter((ticks) => {
        const boxes = [...ticks.children]
          .map((label) => label.getBoundingClientRect())
          .filter((box) => box.width > 0);
        return boxes.some((box, i) => i > 0 && box.left < boxes[i - 1].right + 2);
      });
      return [
        Math.max(...[...document.querySelectorAll("#results td, #results th")].map(linesOf)),
        overlapping.length,
        Math.min(
          ...[...document.querySelectorAll(".dot-track")].map(
            (node) => node.getBoundingClientRect().width,
          ),
        ),
      ];
    });
    assert.ok(lines <= 2, `${models} models: a cell has ${lines} lines`);
    assert.equal(overlaps, 0, `${models} models: labels of an axis overlap`);
    assert.ok(tracks >= 80, `${models} models: a drawing is ${tracks} wide`);
  }
});

test("runs that all diverged read well", async (t) => {
  const page = await open(t, fileOf("diverged", allDiverged));
  assert.equal(
    await page.locator(".outcome").textContent(),
    "Every run diverged: there is no end to compare.",
  );
  assert.match(await page.locator(".callout").textContent(), /6 runs of 6 did not finish/);
  assert.match(await page.locator("main").textContent(), /No pair of models without diverged runs/);
});

test("drops what was not measured", async (t) => {
  const page = await open(
    t,
    fileOf("bare", () =>
      makeReport({ models: ["pre"], seeds: 1, withProbes: false, withSamples: false }),
    ),
  );
  assert.equal(
    await page.locator("#flow, #samples, .choice:has-text('Over seeds'), #results figure").count(),
    0,
  );
  assert.equal(await page.locator(".outcome").textContent(), "pre is better than the others.");
  assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|null|Infinity/);
});

test("an object with next to nothing in it is still a page", async (t) => {
  const page = await open(t, fileOf("nothing", nothing));
  assert.equal(
    await page.locator(".outcome").textContent(),
    "There are no runs in this comparison.",
  );
  await open(
    t,
    fileOf("no-loss", () => {
      const report = makeReport({ seeds: 1 });
      for (const run of report.runs) run.loss = [];
      delete report.table;
      delete report.paired;
      delete report.provenance;
      delete report.windows;
      return report;
    }),
  );
});

test("60 runs of 10,000 steps are drawn quickly", async (t) => {
  const page = await open(
    t,
    fileOf("large", () =>
      inBlocks(
        makeReport({
          models: Array.from({ length: 12 }, (_, i) => `model-${i}`),
          seeds: 5,
          steps: 10000,
          withProbes: false,
        }),
        64,
      ),
    ),
  );
  const drawn = Number(await page.locator("html").getAttribute("data-drawn"));
  t.diagnostic(`drawn in ${drawn} ms`);
  // Drawing takes a fraction of a second. The bound detects drawing point by point or in quadratic
  // time.
  assert.ok(drawn < 20000, `${drawn} ms`);
  await page.getByRole("radio", { name: "every run" }).check();
  assert.ok((await colors(page, wholeRun))[0] > 10);
});
