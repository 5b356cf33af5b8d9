// SPDX-License-Identifier: Apache-2.0
// Rules of axe-core on the pages that plumb writes.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { fileOf, open } from "./browser.mjs";
import { makeReport } from "./fixture.mjs";

const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// Returns what axe objects to, as "rule: selector".
async function violations(page) {
  await page.evaluate(source);
  const found = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  return found.violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target} ${failureSummary}`),
  );
}

test("axe sees an image without a text", async (t) => {
  const page = await open(t, "data:text/html,<img src='data:,'>", { ready: "body" });
  assert.match((await violations(page)).join("\n"), /image-alt: img/);
});

for (const [count, colorScheme] of [
  [1, "light"],
  [3, "light"],
  [3, "dark"],
  [20, "light"],
  [82, "light"],
]) {
  test(`the report of ${count} models has no violations, ${colorScheme}`, async (t) => {
    const models = Array.from({ length: count }, (_, i) => `model ${i}`);
    const make = () => makeReport({ models, seeds: 2, steps: 50 });
    const page = await open(t, fileOf(`axe ${count}`, make), { colorScheme });
    for (const summary of await page.locator("summary:visible").all()) await summary.click();
    assert.deepEqual(await violations(page), []);
  });
}

test("the gallery has no violations", async (t) => {
  const file = new URL("../../examples/gallery.html", import.meta.url);
  assert.deepEqual(await violations(await open(t, file.href, { ready: ".card" })), []);
});

test("the page of the ladder has no violations", async (t) => {
  const benchmark = fileURLToPath(new URL("../../examples/benchmark", import.meta.url));
  const directory = mkdtempSync(path.join(tmpdir(), "plumb-ladder-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, "page.html");
  execFileSync(path.join(benchmark, "make_page.py"), [`${benchmark}/results`, "--out", file]);
  const page = await open(t, pathToFileURL(file).href, { ready: "#answer p" });
  assert.deepEqual(await violations(page), []);
});
