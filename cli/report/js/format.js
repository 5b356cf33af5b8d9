// SPDX-License-Identifier: Apache-2.0
// Numbers and words as the page writes them.
const format = (() => {
  const minus = "\u2212";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const signed = (text) => text.replace("-", minus);

  // 12345 -> "12,345".
  function count(value) {
    return isNumber(value)
      ? signed(Math.round(value).toString()).replace(/\B(?=(\d{3})+$)/g, ",")
      : "–";
  }

  // A loss: three decimals, unless it is so large that they say nothing.
  function loss(value) {
    if (!isNumber(value)) return "–";
    return Math.abs(value) < 1000 ? signed(value.toFixed(3)) : size(value);
  }

  // Any size, three digits: "0.0123", "1.2e−7".
  function size(value) {
    if (!isNumber(value)) return "–";
    const magnitude = Math.abs(value);
    if (magnitude !== 0 && (magnitude < 1e-3 || magnitude >= 1e5)) {
      return signed(value.toExponential(1));
    }
    return signed(String(Number(value.toPrecision(3))));
  }

  const difference = (value) => (isNumber(value) && value > 0 ? "+" : "") + loss(value);

  const plural = (n, word, words = `${word}s`) => `${count(n)} ${n === 1 ? word : words}`;

  // ["a", "b", "c"] -> "a, b and c"; beyond `most`, "a, b and 4 more".
  function list(words, most = 4) {
    if (words.length > most) {
      return `${words.slice(0, most - 1).join(", ")} and ${words.length - most + 1} more`;
    }
    return words.length < 2
      ? words.join("")
      : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
  }

  return { isNumber, count, loss, size, difference, plural, list };
})();
