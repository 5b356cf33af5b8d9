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
  // gap and is skipped.
  function smooth(values, alpha) {
    const out = new Float64Array(values.length);
    let sum = 0;
    let weight = 0;
    for (let i = 0; i < values.length; ++i) {
      const value = values[i];
      if (!format.isNumber(value)) {
        out[i] = NaN;
        continue;
      }
      sum = alpha * sum + (1 - alpha) * value;
      weight = alpha * weight + (1 - alpha);
      out[i] = sum / weight;
    }
    return out;
  }

  // Returns the average of all values up to each step.
  function cumulative(values) {
    const out = new Float64Array(values.length);
    let sum = 0;
    let n = 0;
    for (let i = 0; i < values.length; ++i) {
      if (format.isNumber(values[i])) {
        sum += values[i];
        ++n;
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

  // Returns points to draw: steps first..last (1-based) of each curve, with null for NaN. If these
  // are more than `most` points in total, each range of steps is replaced by its min and max, in
  // their order, so that no spike is lost. Curves must be smoothed before, never after.
  function forDrawing(curves, first, last, most) {
    const length = last - first + 1;
    const asNull = (value) => (value === value && value !== undefined ? value : null);
    if (length * curves.length <= most) {
      const x = Array.from({ length }, (_, i) => first + i);
      return { x, ys: curves.map((curve) => x.map((step) => asNull(curve[step - 1]))) };
    }
    const stretches = Math.max(300, Math.floor(most / curves.length / 2));
    const width = Math.max(2, Math.ceil(length / stretches));
    const x = [];
    for (let begin = first; begin <= last; begin += width) {
      x.push(begin);
      if (Math.min(begin + width - 1, last) > begin) x.push(Math.min(begin + width - 1, last));
    }
    const ys = curves.map((curve) => {
      const y = [];
      for (let begin = first; begin <= last; begin += width) {
        const end = Math.min(begin + width - 1, last);
        let low = begin;
        let high = begin;
        for (let step = begin; step <= end; ++step) {
          if (!(curve[step - 1] >= curve[low - 1]))
            low = curve[step - 1] === curve[step - 1] ? step : low;
          if (!(curve[step - 1] <= curve[high - 1]))
            high = curve[step - 1] === curve[step - 1] ? step : high;
        }
        y.push(asNull(curve[Math.min(low, high) - 1]));
        if (end > begin) y.push(asNull(curve[Math.max(low, high) - 1]));
      }
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

  // Returns the mean loss over the last `window` steps of a finished run; NaN for other runs.
  function endOf(run, window) {
    if (run.status !== "finished") return NaN;
    return summary((run.loss || []).slice(-window)).mean;
  }

  // Returns the exponential of the mean logarithm, because gradients differ between seeds by
  // factors. Returns 0 only if all values are 0.
  function geometricMean(values) {
    const positive = present(values).filter((value) => value > 0);
    if (positive.length === 0) return present(values).length > 0 ? 0 : NaN;
    return Math.exp(positive.reduce((sum, value) => sum + Math.log(value), 0) / positive.length);
  }

  return { distinct, range, smooth, cumulative, across, forDrawing, summary, endOf, geometricMean };
})();
