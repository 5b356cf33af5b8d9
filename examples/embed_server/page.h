// SPDX-License-Identifier: Apache-2.0
// The page at /: a prompt and its completion, token by token. Self-contained.
#ifndef EMBED_SERVER_PAGE_H_
#define EMBED_SERVER_PAGE_H_

constexpr char kPage[] = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>plumb</title>
<link rel="icon" href="data:,">
<style>
  :root {
    color-scheme: light dark;
    --text: #1c1e21; --quiet: #5f6670; --ground: #fafafa; --field: #fff; --line: #c9ced6; --mark: #1f5fbf;
  }
  @media (prefers-color-scheme: dark) {
    :root {
      --text: #e4e6ea; --quiet: #a3aab5; --ground: #16181c; --field: #1f2228; --line: #444b57; --mark: #8db8ff;
    }
  }
  body {
    max-width: 44rem; margin: 2rem auto; padding: 0 1rem; background: var(--ground); color: var(--text);
    font: 16px/1.5 system-ui, sans-serif;
  }
  h1 { font-size: 1.2rem; margin: 0 0 1rem; }
  h1 span { color: var(--quiet); font-weight: normal; }
  textarea, input, output, button {
    font: inherit; color: inherit; background: var(--field); border: 1px solid var(--line); border-radius: 6px;
    padding: .5rem .7rem; box-sizing: border-box;
  }
  label textarea, .row input { color: var(--text); font-size: 1rem; }
  textarea { width: 100%; min-height: 6rem; resize: vertical; }
  textarea, output { font-family: ui-monospace, monospace; }
  .row { display: flex; flex-wrap: wrap; gap: .8rem; align-items: end; margin: .8rem 0; }
  label { display: grid; gap: .2rem; color: var(--quiet); font-size: .9rem; }
  .row input { width: 7rem; }
  button { cursor: pointer; }
  button[type=submit] { border-color: var(--mark); color: var(--mark); }
  button:disabled { cursor: default; opacity: .5; }
  :focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
  output { display: block; min-height: 8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
  output b { color: var(--mark); font-weight: inherit; }
  #state { color: var(--quiet); min-height: 1.5em; }
  kbd { font: inherit; border: 1px solid var(--line); border-radius: 4px; padding: 0 .3rem; }
</style>
<h1>plumb <span id="model"></span></h1>
<form id="form">
  <label>Prompt <textarea id="prompt" autofocus spellcheck="false"></textarea></label>
  <div class="row">
    <label>Most tokens <input id="max_tokens" type="number" min="0" step="1" placeholder="16"></label>
    <label>Temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.8"></label>
    <label>Seed <input id="seed" type="number" min="0" step="1" placeholder="any"></label>
    <button type="submit" id="complete">Complete</button>
    <button type="button" id="stop" disabled>Stop</button>
  </div>
</form>
<output id="text" for="prompt" aria-live="polite"></output>
<p id="state" role="status"></p>
<p><kbd>Ctrl</kbd>+<kbd>Enter</kbd> completes, <kbd>Esc</kbd> stops.</p>
<script>
"use strict";
const at = (id) => document.getElementById(id);
let abort = null;

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the server has gone away");
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice("data: ".length, end);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function complete() {
  if (abort) return;
  abort = new AbortController();
  at("complete").disabled = true;
  at("stop").disabled = false;
  at("state").textContent = "";
  const request = { prompt: at("prompt").value, stream: true, stream_options: { include_usage: true } };
  for (const field of ["max_tokens", "temperature", "seed"]) {
    if (at(field).value !== "") request[field] = Number(at(field).value);
  }
  const begun = performance.now();
  const text = document.createElement("b");
  at("text").replaceChildren(request.prompt, text);
  try {
    const response = await fetch("v1/completions", {
      method: "POST", signal: abort.signal,
      headers: { "Content-Type": "application/json" }, body: JSON.stringify(request),
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      for (const choice of event.choices) text.append(choice.text);
      if (!event.usage) continue;
      const seconds = (performance.now() - begun) / 1000;
      at("state").textContent = `${event.usage.completion_tokens} tokens in ${seconds.toFixed(2)} s`;
    }
  } catch (error) {
    at("state").textContent = error.name === "AbortError" ? "stopped" : `error: ${error.message}`;
  } finally {
    abort = null;
    at("complete").disabled = false;
    at("stop").disabled = true;
  }
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); complete(); });
at("stop").addEventListener("click", () => abort?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) complete();
  if (event.key === "Escape") abort?.abort();
});
fetch("v1/models").then((response) => response.json()).then((models) => {
  at("model").textContent = models.data[0].id;
});
</script>
</html>
)html";

#endif  // EMBED_SERVER_PAGE_H_
