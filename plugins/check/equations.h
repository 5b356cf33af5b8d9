// The equations of the norms that ship with plumb, written down a second time: naive, in double,
// from the papers and not from the plugins. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_EQUATIONS_H_
#define PLUMB_PLUGINS_CHECK_EQUATIONS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace plumb::check {

// What a forward call sees, by name.
struct ReferenceCall {
  int64_t rows = 0, dim = 0;
  std::vector<double> x;                                  // [rows, dim]
  std::map<std::string, double> attributes;               // booleans: 0 or 1
  std::map<std::string, std::vector<double>> parameters;  // absent: the norm has none of the name
  std::map<std::string, std::vector<double>> buffers;     // as they are before the call
  bool train = false;
};

struct ReferenceResult {
  std::vector<double> y;                               // [rows, dim]
  std::map<std::string, std::vector<double>> buffers;  // those that the call changes
};

using Reference = ReferenceResult (*)(const ReferenceCall& call);

// The equations of a norm, null for an id that is not one of plumb's own.
Reference ReferenceOf(const std::string& id);

// The attributes and parameters that the equations of `id` know of: a plugin of that id that has
// others is not described by them.
struct ReferenceNames {
  std::set<std::string> attributes, parameters;
};
ReferenceNames NamesOf(const std::string& id);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_EQUATIONS_H_
