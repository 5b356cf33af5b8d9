// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/palette.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace plumb {

namespace {

constexpr DrawingColor kSeriesColors[] = {
    {0x1244a9, 0x7596ff}, {0xa92e00, 0xe47738}, {0x00974d, 0x3bea95}, {0x9b5f7e, 0xdb7db2},
    {0xc27f00, 0xffc539}, {0x333229, 0xd1f1e8}, {0x4775bc, 0x96d7ff}};

// Viridis (Smith, van der Walt 2015) in ten stops.
constexpr uint32_t kViridis[] = {0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e,
                                 0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725};

double Channel(uint32_t rgb, int shift) { return static_cast<double>((rgb >> shift) & 0xff); }

// Returns the relative luminance of WCAG 2, from 0 (black) to 1 (white).
double Luminance(uint32_t rgb) {
  const auto linear = [&](int shift) {
    const double part = Channel(rgb, shift) / 255;
    return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
}

}  // namespace

SeriesStyle StyleOfSeries(size_t index) {
  static const std::vector<double> dashes[] = {{}, {5, 2}, {1.2, 1.8}, {6, 1.6, 1.2, 1.6}};
  static_assert(std::size(kSeriesColors) * std::size(dashes) == kSeriesStyles, "all combinations");
  const size_t colors = std::size(kSeriesColors);
  return {kSeriesColors[index % colors], dashes[index / colors % std::size(dashes)]};
}

DrawingColor HeatColor(double share) {
  const double place = std::min(1.0, std::max(0.0, share)) * (std::size(kViridis) - 1);
  const size_t stop = std::min(std::size(kViridis) - 2, static_cast<size_t>(place));
  const double part = place - static_cast<double>(stop);
  uint32_t rgb = 0;
  for (const int shift : {16, 8, 0}) {
    const double from = Channel(kViridis[stop], shift), to = Channel(kViridis[stop + 1], shift);
    rgb |= static_cast<uint32_t>(std::lround(from + (to - from) * part)) << shift;
  }
  return {rgb, rgb};
}

DrawingColor TextColorOn(const DrawingColor& background) {
  // Black and white have the same contrast to the luminance sqrt(1.05 * 0.05) - 0.05.
  const auto text_on = [](uint32_t rgb) { return Luminance(rgb) > 0.179 ? 0x000000u : 0xffffffu; };
  return {text_on(background.light), text_on(background.dark)};
}

}  // namespace plumb
