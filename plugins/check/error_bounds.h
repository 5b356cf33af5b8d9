// How far a norm's results in an element type may be from the same results in f64: bounds from the
// rounding of arithmetic, for a norm whose equation is not known. Stateless.
//
// u is the unit roundoff of the type that is computed in: 2^-24 for f32 and bf16, 2^-53 for f64.
// Every operation rounds its result by at most u of it.
//
// Sums. A sum of n terms, in whatever fixed order, is off by at most (n - 1) u sum|t|. Roundings of
// either sign cancel: with probability 1 - 2 n exp(-c^2 / 2) it is off by at most
// c sqrt(n) u sum|t| (Higham & Mary 2019, theorem 2.4). c = 7 makes that 5e-11 a term. G(n), the
// growth of a sum, is the smaller of n and 7 sqrt(n).
//
// y. A norm makes y of an element x, of statistics (sums over a row or a column), and of
// parameters. With L the largest slope dy/dx of one element:
//   - a mean that is off by G u mean|x| moves y by at most L G u max|x|
//   - a scale 1/sigma that is off by the part G u moves y by at most G u L max|x|, since what is
//     scaled is no larger than max|x|
//   - each operation on an element or a statistic (square, eps, root, quotient, products) adds
//     u L max|x| or u |y|; there are k = 8 of them or fewer
//   - y is rounded to its type: half an ulp
// So |error of y| <= half ulp(y) + u (k + 2 G) L max|x| + k u max|y|: two sums, a mean and a scale.
//
// dx. Terms g = dy w of an element, mean g and h mean(g h) cancel in dx = r (g - mean g -
// h mean(g h)); no difference is more exact than its terms. What size they have is measured: T is
// the largest of
//   - L max|dy|, which is r max|g|
//   - max|dx| with dy replaced by |dy| sign(y), which makes all terms of mean(g h) positive, and so
//     is r |h| mean|g h|
// Four sums: those of y, and two more. Statistics are off by the part u (k + 2 G) K of what is
// normalized, where K = max(1, L max|x| / max|y|) says how much of x went away when the mean was
// subtracted. So |error of dx| <= half ulp(dx) + u (k + 4 G) K T.
//
// Where an equation has a bend, as |x - m| at m, dx jumps if rounding puts an element on the other
// side. An error beyond the bound is held to a second one, larger by as much as dx moves if each x
// moves to either side by u (k + G) max|x|, as far as statistics may be off. And where a norm takes
// each element by itself, 1 - y^2 of a saturated one is made of terms that are as large as the
// slope near 0: T is larger by that times |dy|, for the element.
//
// dparams. A sum over rows of terms dy h. dy is drawn with random signs, so that partial sums of N
// terms stay within 4 S, S = sqrt(sum t^2), and the sum's rounding within 4 S G(N) u. S is
// measured: the same with signs of dy flipped at random is a sum with this standard deviation; of a
// parameter with fewer elements than a row, whose h may be a difference of statistics, it is at
// least that of dy y. Each h is off as in y, by random parts again. So |error of dparams| <= 4 u S
// (G(N) + (k + 4 G) K).
//
// L is measured on four points: each x moved by a few u (in f64) to random and to alternating
// sides, dy/dx of the element; adjacent elements of a row, and of a column of norms over rows, with
// parameters that are all alike, and not zero, |y - y'| / |x - x'|: in a short row or group that is
// normalized to +-1 a small move changes nothing, while 1/sigma is large. And |y| / |x| of each
// element of rows of eight or fewer, and of equal elements: of n equal ones the slope is 1 - 1/n of
// that, and of groups of one almost nothing. Where a whole row is saturated, as by tanh, y moves by
// less than half of what x does (of eight or fewer: by less than x), and 1 - y^2 is off by u
// where it is almost 0: L is then at least the product of two parameters.
//
// Short rows, of eight or fewer elements. There are so many of them in a point that the worst is
// met, and roundings of a few operations do not cancel: G is 2 more. A bias may take y away in all
// of its elements: C is at least the largest parameter.
//
// A second input moves gain and shift, and either may come to nothing that is made of terms which
// do not: y counts as C more, the largest of |y| where x2 is 0, of |y| where x is 0, and of |x2|
// times a parameter. L is at least |y(x, x2) - y(0, x2)| / |x|, the gain, with x2 as it is and with
// 0. dx2 is made of terms as large as dy times what y moves with x2, or times a parameter: T of it,
// of all rows together.
//
// Denormals may count as themselves or zero: any product or sum of f32 may miss the smallest normal
// number, and what a row makes of that is (1 + L)^3 (1 + max|x|) of it at most.
#ifndef PLUMB_PLUGINS_CHECK_ERROR_BOUNDS_H_
#define PLUMB_PLUGINS_CHECK_ERROR_BOUNDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plugins/check/rows.h"

namespace plumb::check {

// u of the type that sums are made in.
inline double UnitRoundoff(uint32_t dtype) { return Epsilon(AccumulateType(dtype)) / 2; }

// G(n).
inline double SumGrowth(double n) { return n <= 1 ? 0 : std::min(n, 7 * std::sqrt(n)); }

// Half the distance of the numbers of the type at `value`.
inline double HalfUlp(uint32_t dtype, double value) {
  const double size = std::abs(value);
  if (!(size > 0) || !std::isfinite(size)) return 0;
  return std::ldexp(Epsilon(dtype) / 2, std::ilogb(size));
}

// Below it numbers of the accumulate type are denormals, which may count as zero.
inline double SmallestNormal(uint32_t dtype) {
  return std::ldexp(1.0, dtype == PLUMB_F64 ? -1022 : -126);
}

// What is measured of a row.
struct RowSizes {
  double x = 0, y = 0, dy = 0;  // the largest magnitudes
  double slope = 0;             // L
  double moved = 0;             // of it, what moving x and pairs of elements show
  double alike = 0;             // the largest |y| with parameters that are all alike, and not zero
  double terms = 0;             // T
  double second = 0;            // C
  double growth = 0;            // G

  double cancelled() const {  // K
    const double of = y > 0 ? y : alike;
    return of > 0 ? std::max(1.0, slope * x / of) : 1;
  }
};

inline constexpr double kRoundings = 8;  // k
inline constexpr double kSumsOfY = 2, kSumsOfDx = 4;

// Of y, without its own rounding to the element type.
inline double BoundOfY(double u, const RowSizes& row) {
  return u * ((kRoundings + kSumsOfY * row.growth) * row.slope * row.x +
              kRoundings * (row.y + row.second));
}

// Of dx, without its own rounding.
inline double BoundOfDx(double u, const RowSizes& row) {
  return u * (kRoundings + kSumsOfDx * row.growth) * row.cancelled() * row.terms;
}

// Of an element of dparams that is a sum of `n` terms with the root of squares `root`, of rows with
// the growth and the largest K.
inline double BoundOfSum(double u, double root, double n, double growth, double cancelled) {
  return 4 * u * root * (SumGrowth(n) + (kRoundings + kSumsOfDx * growth) * cancelled);
}

// What denormals that count as zero change in a row of `dim` elements.
inline double BoundOfDenormals(uint32_t dtype, const RowSizes& row, int64_t dim) {
  const double scale = (1 + row.slope) * (1 + row.slope) * (1 + row.slope);
  return SmallestNormal(dtype) * static_cast<double>(dim) * scale * (1 + row.x);
}

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ERROR_BOUNDS_H_
