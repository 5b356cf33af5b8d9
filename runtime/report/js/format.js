// SPDX-License-Identifier: Apache-2.0
// Formatting of numbers and words on the page.
const format = (() => {
  const minus = "\u2212";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const signed = (text) => text.replace("-", minus);

  // Formats 12345 as "12,345".
  function count(value) {
    return isNumber(value)
      ? signed(Math.round(value).toString()).replace(/\B(?=(\d{3})+$)/g, ",")
      : "–";
  }

  // Formats a loss with three decimals, unless it is so large that they are meaningless.
  function loss(value) {
    if (!isNumber(value)) return "–";
    return Math.abs(value) < 1000
      ? signed(value.toFixed(3)).replace(/^\u2212(?=0\.000$)/, "")
      : size(value);
  }

  // Formats a number of any magnitude with three digits: "0.0123", "1.2e−7".
  function size(value) {
    if (!isNumber(value)) return "–";
    const magnitude = Math.abs(value);
    if (magnitude !== 0 && (magnitude < 1e-3 || magnitude >= 1e5)) {
      return signed(value.toExponential(1));
    }
    return signed(String(Number(value.toPrecision(3))));
  }

  // Formats an amount, 12345678 as "12.3M", up to 1e21; others like size().
  function amount(value) {
    if (!isNumber(value) || Math.abs(value) < 1e4 || Math.abs(value) >= 1e21) return size(value);
    const power = Math.floor(Math.log10(Math.abs(value)) / 3);
    return size(value / 1000 ** power) + ["", "k", "M", "G", "T", "P", "E"][power];
  }

  // Returns a cell of a table: a number as text, and the number itself for CSV.
  const cell = (value, textOf) => ({ text: textOf(value), value: isNumber(value) ? value : "" });

  const difference = (value) => (isNumber(value) && value >= 0.0005 ? "+" : "") + loss(value);

  const plural = (n, word, words = `${word}s`) => `${count(n)} ${n === 1 ? word : words}`;

  // Joins ["a", "b", "c"] as "a, b and c"; more than `most` words as "a, b and 4 more".
  function list(words, most = 4) {
    if (words.length > most) {
      return `${words.slice(0, most - 1).join(", ")} and ${words.length - most + 1} more`;
    }
    return words.length < 2
      ? words.join("")
      : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
  }

  // Formats increasing whole numbers: [0, 2, 3, 4] as "0, 2..4".
  function ranges(numbers) {
    const parts = [];
    for (let i = 0; i < numbers.length;) {
      let last = i;
      while (numbers[last + 1] === numbers[last] + 1) ++last;
      parts.push(last > i ? `${numbers[i]}..${numbers[last]}` : String(numbers[i]));
      i = last + 1;
    }
    return parts.join(", ");
  }

  return { isNumber, count, loss, size, amount, difference, cell, plural, list, ranges };
})();
