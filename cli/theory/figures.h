// Line charts as SVG, for a page without scripts. Pure.
#ifndef PLUMB_CLI_THEORY_FIGURES_H_
#define PLUMB_CLI_THEORY_FIGURES_H_

#include <string>
#include <vector>

namespace plumb::cli {

// `text` so that HTML shows it as it is, in an element or a quoted attribute.
std::string EscapeHtml(const std::string& text);

struct Curve {
  std::string name;
  std::vector<double> x, y;  // points that the axes cannot show are left out
  bool predicted = false;    // dashed
  int color = 0;             // curves of one colour belong together
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Curve> curves;
};

// <figure> with an SVG, its curves' names and, for readers who do not see it, its title. A chart
// without a point to show says so.
std::string DrawChart(const Chart& chart);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_FIGURES_H_
