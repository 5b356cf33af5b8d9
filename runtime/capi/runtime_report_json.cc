// SPDX-License-Identifier: Apache-2.0
// The report as JSON. Fields: runtime/include/schemas/runtime.schema.json.
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "plumb/norm_plugin.h"
#include "runtime/capi/runtime_report.h"

namespace plumb {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson OrNull(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}
OrderedJson OrNull(int64_t n) { return n < 0 ? OrderedJson() : OrderedJson(n); }
OrderedJson PositiveOrNull(int n) { return n <= 0 ? OrderedJson() : OrderedJson(n); }

OrderedJson ToJson(const RuntimeReport::Processor& processor) {
  OrderedJson sets = OrderedJson::array();
  for (const InstructionSet& set : processor.instruction_sets) {
    sets.push_back({{"name", set.name}, {"has", set.has}, {"used", set.used}});
  }
  return {{"name", OrNull(processor.name)},
          {"vendor", OrNull(processor.model.vendor)},
          {"family", processor.model.family},
          {"model", processor.model.model},
          {"instruction_sets", sets},
          {"kernels", processor.kernels},
          {"gemm", {{"engine", processor.gemm}, {"f32", processor.f32}, {"bf16", processor.bf16}}}};
}

OrderedJson ToJson(const RuntimeReport::OneDnn& onednn) {
  return {{"wanted", onednn.wanted},     {"state", onednn.state},
          {"file", OrNull(onednn.file)}, {"version", OrNull(onednn.version)},
          {"isa", OrNull(onednn.isa)},   {"problem", OrNull(onednn.problem)}};
}

OrderedJson ToJson(const RuntimeReport::Threads& threads) {
  return {{"machine", PositiveOrNull(threads.processors.machine)},
          {"affinity", PositiveOrNull(threads.processors.affinity)},
          {"quota", PositiveOrNull(threads.processors.quota)},
          {"available", threads.available},
          {"used", threads.used},
          {"because", OrNull(threads.used_because)}};
}

OrderedJson ToJson(const std::vector<PluginFile>& files) {
  OrderedJson json = OrderedJson::array();
  for (const PluginFile& file : files) {
    json.push_back({{"id", OrNull(file.id)},
                    {"version", OrNull(file.version)},
                    {"file", OrNull(file.path)},
                    {"problem", OrNull(file.problem)},
                    {"shadowed", file.shadowed}});
  }
  return json;
}

OrderedJson Plugins(const RuntimeReport& report) {
  OrderedJson directories = OrderedJson::array();
  for (const RuntimeReport::PluginDirectory& directory : report.plugin_directories) {
    directories.push_back({{"path", directory.path},
                           {"from", OrNull(directory.from)},
                           {"problem", OrNull(directory.problem)},
                           {"norms", ToJson(directory.files)}});
  }
  return {{"directories", directories},
          {"others", ToJson(report.other_plugins)},
          {"dropped", report.dropped}};
}

OrderedJson Placements(const RuntimeReport& report) {
  OrderedJson directories = OrderedJson::array();
  for (const RuntimeReport::PlacementDirectory& directory : report.placement_directories) {
    directories.push_back({{"path", directory.path},
                           {"problem", OrNull(directory.problem)},
                           {"names", directory.placements}});
  }
  return {{"directories", directories}};
}

OrderedJson Memory(const RuntimeReport& report) {
  const bool unlimited = report.stack == std::numeric_limits<int64_t>::max();
  return {{"limit", report.memory.bytes},
          {"available", report.memory.available},
          {"limited_by", report.memory.by},
          {"machine", OrNull(report.limits.machine)},
          {"control_group", OrNull(report.limits.cgroup)},
          {"ulimit_v", OrNull(report.limits.address_space)},
          {"ulimit_d", OrNull(report.limits.data)},
          {"stack", unlimited ? OrderedJson("unlimited") : OrNull(report.stack)},
          {"huge_pages", OrNull(report.huge_pages)}};
}

}  // namespace

std::string ToJson(const RuntimeReport& report) {
  OrderedJson libraries = OrderedJson::object();
  for (const RuntimeReport::Library& library : report.libraries) {
    libraries[library.name] = OrNull(library.version);
  }
  OrderedJson environment = OrderedJson::array();
  for (const RuntimeReport::Variable& variable : report.environment) {
    environment.push_back({{"name", variable.name},
                           {"value", variable.value},
                           {"problem", OrNull(variable.problem)}});
  }
  OrderedJson problems = OrderedJson::array();
  for (const RuntimeReport::Problem& problem : report.problems) {
    problems.push_back({{"fatal", problem.fatal}, {"what", problem.what}, {"do", problem.remedy}});
  }
  const OrderedJson json = {
      {"plumb",
       {{"version", PlumbVersion()},
        {"c_abi", PLUMB_ABI_VERSION},
        {"norm_abi", absl::StrCat(PLUMB_NORM_ABI_MAJOR, ".", PLUMB_NORM_ABI_MINOR)}}},
      {"processor", ToJson(report.processor)},
      {"onednn", ToJson(report.onednn)},
      {"libraries", libraries},
      {"openmp", report.openmp},
      {"threads", ToJson(report.threads)},
      {"plugins", Plugins(report)},
      {"placements", Placements(report)},
      {"environment", environment},
      {"memory", Memory(report)},
      {"disk", {{"directory", OrNull(report.directory)}, {"free", OrNull(report.free_disk)}}},
      {"floating_point",
       {{"rounding", report.floating_point.rounding},
        {"flush_to_zero", report.floating_point.flush_to_zero},
        {"denormals_are_zero", report.floating_point.denormals_are_zero}}},
      {"problems", problems}};
  // Invalid UTF-8 in the environment is replaced.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace plumb
