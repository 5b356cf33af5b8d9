// SPDX-License-Identifier: Apache-2.0
// Restores the report from the form in which the page stores it (pack_report.h). Values that are
// not packed stay.
const unpackReport = (() => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const lastCode = 64 ** 3 - 2;

  function curve(packed) {
    if (!packed?.codes) return packed;
    const { low, high, codes } = packed;
    return Array.from({ length: codes.length / 3 }, (_, i) => {
      const text = codes.slice(3 * i, 3 * i + 3);
      const code = [...text].reduce((sum, digit) => 64 * sum + digits.indexOf(digit), 0);
      if (code > lastCode) return null;
      return Number((low * Math.exp((code / lastCode) * Math.log(high / low))).toPrecision(5));
    });
  }

  function picture(packed, templates) {
    if (!packed?.rows) return packed;
    const lines = packed.rows.split("\n").map((row) => {
      const [index, ...numbers] = row.split(" ");
      return templates[index].replace(/~/g, () => numbers.shift());
    });
    return lines.join("\n");
  }

  function rows(packed) {
    if (!packed?.columns) return packed;
    const columns = Object.entries(packed.columns);
    return Array.from({ length: packed.rows }, (_, i) =>
      Object.fromEntries(
        columns.map(([name, column]) => [name, Array.isArray(column) ? column[i] : column]),
      ),
    );
  }

  return (report) => {
    for (const run of report.runs ?? []) run.loss = curve(run.loss);
    for (const group of report.groups ?? []) group.extremes = curve(group.extremes);
    for (const model of report.models ?? [])
      model.picture = picture(model.picture, report.picture_lines);
    report.paired = rows(report.paired);
    if (report.best) report.best.paired = rows(report.best.paired);
    return report;
  };
})();
