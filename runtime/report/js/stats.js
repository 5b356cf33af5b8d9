// SPDX-License-Identifier: Apache-2.0
// Statistics of the curves. A curve is a Float64Array with one value per step; NaN for a missing
// one.
const stats = (() => {
  const present = (values) => values.filter((value) => format.isNumber(value));
  // Returns each number once, in increasing order.
  const distinct = (values) => [...new Set(values)].sort((a, b) => a - b);

  // Returns the min and max of any number of values, even more than a call can have arguments.
  const range = (values) => ({
    low: values.reduce((a, b) => Math.min(a, b)),
    high: values.reduce((a, b) => Math.max(a, b)),
  });

  // Returns the exponential moving average, divided by the sum of its weights (bias correction, as
  // in Adam), so that it does not start at 0. alpha 0 returns the values. A missing value leaves a
  // gap and is skipped. `sizes` are the numbers of steps of which the values are means; without
  // them each is one step.
  function smooth(values, alpha, sizes) {
    const out = new Float64Array(values.length);
    let sum = 0;
    let weight = 0;
    for (let i = 0; i < values.length; ++i) {
      const value = values[i];
      if (!format.isNumber(value)) {
        out[i] = NaN;
        continue;
      }
      const past = sizes ? alpha ** sizes[i] : alpha;
      sum = past * sum + (1 - past) * value;
      weight = past * weight + (1 - past);
      out[i] = sum / weight;
    }
    return out;
  }

  // Returns the average of all values up to each step; `sizes` as above.
  function cumulative(values, sizes) {
    const out = new Float64Array(values.length);
    let sum = 0;
    let n = 0;
    for (let i = 0; i < values.length; ++i) {
      if (format.isNumber(values[i])) {
        const size = sizes ? sizes[i] : 1;
        sum += size * values[i];
        n += size;
        out[i] = sum / n;
      } else {
        out[i] = NaN;
      }
    }
    return out;
  }

  // Returns statistics over several curves at every step: the number of values (n), their mean,
  // sample standard deviation (NaN for fewer than two), min and max.
  function across(curves, length) {
    const n = new Float64Array(length);
    const mean = new Float64Array(length);
    const sd = new Float64Array(length);
    const low = new Float64Array(length).fill(Infinity);
    const high = new Float64Array(length).fill(-Infinity);
    for (const curve of curves) {
      for (let i = 0; i < curve.length; ++i) {
        const value = curve[i];
        if (value !== value) continue;
        const delta = value - mean[i];
        mean[i] += delta / ++n[i];
        sd[i] += delta * (value - mean[i]);
        if (value < low[i]) low[i] = value;
        if (value > high[i]) high[i] = value;
      }
    }
    for (let i = 0; i < length; ++i) {
      if (n[i] === 0) mean[i] = low[i] = high[i] = NaN;
      sd[i] = n[i] > 1 ? Math.sqrt(sd[i] / (n[i] - 1)) : NaN;
    }
    return { n, mean, sd, low, high };
  }

  // Returns lines, [{at, values}] with a value for each position, on one axis: {x, ys}. A line has
  // null for a missing value, and undefined at a position of other lines.
  function join(lines) {
    const asNull = (value) => (value === value && value !== undefined ? value : null);
    const axes = [...new Set(lines.map(({ at }) => at))];
    if (axes.length < 2) {
      const x = [...(axes[0] ?? [])];
      return { x, ys: lines.map(({ values }) => x.map((_, i) => asNull(values[i]))) };
    }
    const x = distinct(axes.flatMap((at) => [...at]));
    const places = new Map(x.map((value, i) => [value, i]));
    const ys = lines.map(({ at, values }) => {
      const y = new Array(x.length).fill(undefined);
      at.forEach((value, i) => (y[places.get(value)] = asNull(values[i])));
      return y;
    });
    return { x, ys };
  }

  function summary(values) {
    const kept = present(values);
    const mean = kept.reduce((sum, value) => sum + value, 0) / kept.length;
    const squares = kept.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    return {
      n: kept.length,
      mean,
      sd: kept.length > 1 ? Math.sqrt(squares / (kept.length - 1)) : NaN,
    };
  }

  return { distinct, range, smooth, cumulative, across, join, summary };
})();
