// SPDX-License-Identifier: Apache-2.0
// Runtime::DescribeJson: facts about the machine and the runtime, and problems with their remedies.
// Fields: runtime/include/schemas/runtime.schema.json.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plumb.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/file.h"
#include "runtime/base/memory.h"
#include "runtime/base/process.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPluginPath[] = "PLUMB_PLUGIN_PATH", kPlacementPath[] = "PLUMB_PLACEMENT_PATH";

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Problems that would make plumb fail or slow. The fatal ones come first.
class Problems {
 public:
  void Add(const std::string& what, const std::string& remedy, bool fatal = false) {
    found_.insert(fatal ? found_.begin() : found_.end(),
                  Json({{"fatal", fatal}, {"what", what}, {"do", remedy}}));
  }
  const Json& json() const { return found_; }

 private:
  Json found_ = Json::array();
};

// Returns the reason why a directory cannot be searched, without its name; "" if it can.
std::string Reason(const absl::Status& status, const std::string& path) {
  absl::string_view message = status.message();
  absl::ConsumePrefix(&message, absl::StrCat(path, ": "));
  return std::string(message);
}

Json ReportProcessor(const GemmPolicy& gemm, Problems* problems) {
  Json sets = Json::array();
  for (const InstructionSet& set : InstructionSets()) {
    sets.push_back({{"name", set.name}, {"has", set.has}, {"used", set.used}});
    if (absl::string_view(set.name) == "AVX2" && !set.has) {
      problems->Add(
          "the processor has no AVX2, or the system does not permit it",
          "plumb works, many times slower; an emulator or a virtual machine may hide it: give "
          "it the host's processor");
    }
  }
  const OneDnnLibrary* const library = OneDnnIfLoaded();
  const char* f32 = "oneDNN where they are large, else plumb's own engine";
  if (gemm.choice == GemmChoice::kSmall || (library != nullptr && !library->usable())) {
    f32 = "plumb's own engine";
  } else if (gemm.choice == GemmChoice::kOneDnn) {
    f32 = "oneDNN";
  }
  std::string bf16;
  if (library != nullptr || gemm.UsesTiles()) {
    bf16 = absl::StrCat(gemm.Bf16Products(), ": ", gemm.Bf16Reason());
  } else {
    const bool depends_on_library = gemm.processor.has_bf16 && gemm.choice != GemmChoice::kSmall &&
                                    gemm.choice != GemmChoice::kWiden;
    bf16 = depends_on_library ? "known when oneDNN is loaded" : "widened to f32";
  }
  const ProcessorModel model = HostProcessorModel();
  return {{"name", OrNull(ProcessorName())},
          {"vendor", OrNull(model.vendor)},
          {"family", model.family},
          {"model", model.model},
          {"instruction_sets", sets},
          {"kernels", gemm.processor.kernel_target},
          {"gemm", {{"engine", GemmChoiceName(gemm.choice)}, {"f32", f32}, {"bf16", bf16}}}};
}

Json ReportOneDnn(Problems* problems) {
  const std::string wanted = OneDnnFileName();
  const OneDnnLibrary* const library = OneDnnIfLoaded();
  const OneDnnLibrary none;
  const OneDnnLibrary& facts = library == nullptr ? none : *library;
  const bool is_refused = library != nullptr && !library->usable();
  if (is_refused) {
    problems->Add(absl::StrCat("oneDNN cannot be used: ", facts.problem),
                  absl::StrCat("install the package that has ", wanted, " (Debian: libdnnl",
                               absl::StripPrefix(wanted, "libdnnl.so."),
                               "), or take what hides it from LD_LIBRARY_PATH; without it large "
                               "matrix products are slower, and rounded otherwise"));
  }
  return {{"wanted", wanted},
          {"state", library == nullptr ? "not needed yet" : (is_refused ? "refused" : "loaded")},
          {"file", OrNull(facts.file)},
          {"version", OrNull(facts.version)},
          {"isa", OrNull(facts.isa)},
          {"problem", OrNull(facts.problem)}};
}

Json ReportThreads(const Runtime::Impl& impl, Problems* problems) {
  const int available = AvailableProcessors(), machine = CountProcessors().machine;
  if (impl.threads > available) {
    problems->Add(absl::StrCat("plumb uses ", impl.threads, " threads on ", available,
                               available == 1 ? " processor" : " processors"),
                  "they wait for each other: lower --threads or OMP_NUM_THREADS");
  } else if (impl.threads < available && impl.threads_because == "OMP_NUM_THREADS") {
    problems->Add(absl::StrCat("plumb uses ", impl.threads, " of ", available,
                               " processors, set by OMP_NUM_THREADS"),
                  "unset OMP_NUM_THREADS, or give --threads, if it was not meant for plumb");
  }
  return {{"machine", machine > 0 ? Json(machine) : Json()},
          {"available", available},
          {"used", impl.threads},
          {"because", OrNull(impl.threads_because)}};
}

// Reports the directories of plugins with their files, and files that are in none of them.
Json ReportPlugins(const Runtime::Impl& impl, Problems* problems) {
  Json directories = Json::array(), others = Json::array();
  for (const std::string& path : impl.plugins.directories()) {
    const auto from = impl.directory_from.find(path);
    const std::string source = from == impl.directory_from.end() ? "" : from->second;
    const std::string problem = Reason(ListDirectory(path).status(), path);
    directories.push_back({{"path", path},
                           {"from", OrNull(source)},
                           {"problem", OrNull(problem)},
                           {"norms", Json::array()}});
    if (!problem.empty() && source == kPluginPath) {
      problems->Add(absl::StrCat(kPluginPath, ": ", path, ": ", problem),
                    absl::StrCat("make the directory, or take it from ", kPluginPath));
    }
  }
  bool has_norm = false;
  for (const PluginFile& file : impl.plugins.Scan()) {
    Json* norms = &others;
    for (Json& directory : directories) {
      const std::string name = file.path.substr(file.path.rfind('/') + 1);
      if (JoinPath(directory["path"].get<std::string>(), name) != file.path) continue;
      norms = &directory["norms"];
      break;
    }
    norms->push_back({{"id", OrNull(file.id)},
                      {"version", OrNull(file.version)},
                      {"file", OrNull(file.path)},
                      {"problem", OrNull(file.problem)},
                      {"shadowed", file.shadowed}});
    has_norm |= file.problem.empty();
    if (file.problem.empty() || file.shadowed) continue;
    // A search ends at the first file that has the norm, even if the file is refused.
    const std::string norm =
        file.id.empty() ? "" : absl::StrCat(", and with it the norm \"", file.id, "\"");
    problems->Add(absl::StrCat("a plugin is refused", norm, ": ", file.problem),
                  "plumb docs plugin-abi lists the directories of norms and the reasons to refuse "
                  "one");
  }
  std::vector<std::string> dropped;
  if (impl.use_environment) {
    PathFromEnvironment(kPluginPath, &dropped);
    PathFromEnvironment(kPlacementPath, &dropped);
  }
  for (const std::string& each : dropped) {
    problems->Add(each, "write the directory's whole path, from the first /");
  }
  if (!has_norm) {
    problems->Add("there is no norm: a model with a norm cannot be built",
                  "install plumb's plugins, or name their directory in PLUMB_PLUGIN_PATH", true);
  }
  return {{"directories", directories}, {"others", others}, {"dropped", dropped}};
}

Json ReportPlacements(const Runtime::Impl& impl, Problems* problems) {
  Json directories = Json::array();
  bool has_placement = false;
  for (const std::string& path : impl.resolve.placement_directories) {
    const absl::StatusOr<std::vector<std::string>> files = ListDirectory(path);
    Json names = Json::array();
    for (absl::string_view name : files.value_or(std::vector<std::string>())) {
      if (absl::ConsumeSuffix(&name, ".pbtxt")) names.push_back(std::string(name));
    }
    has_placement |= !names.empty();
    directories.push_back(
        {{"path", path}, {"problem", OrNull(Reason(files.status(), path))}, {"names", names}});
  }
  if (!has_placement) {
    problems->Add("there is no placement: a model must write its formulas itself",
                  "install plumb's placements, share/plumb/placements below its prefix", true);
  }
  return {{"directories", directories}};
}

Json ReportMemory(Problems* problems) {
  constexpr int64_t kLittle = int64_t{512} << 20;
  const MemoryLimit memory = ProcessMemoryLimit();
  if (memory.available < kLittle) {
    problems->Add(
        absl::StrCat("little memory is left: ", memory.available >> 20, " MiB of ",
                     memory.bytes >> 20, " MiB (", memory.by, ")"),
        "plumb describe MODEL --train RECIPE prints what a model needs; raise the limit, or "
        "train with --dtype bf16 --recompute block");
  }
  return {{"limit", memory.bytes}, {"available", memory.available}, {"limited_by", memory.by}};
}

}  // namespace

std::string Runtime::DescribeJson() const {
#if defined(__clang__)
  constexpr char kCompiler[] = "clang " __clang_version__;
#else
  constexpr char kCompiler[] = "gcc " __VERSION__;
#endif
  Problems problems;
  Json report = {{"plumb",
                  {{"version", PlumbVersion()},
                   {"compiler", kCompiler},
                   {"c_abi", PLUMB_ABI_VERSION},
                   {"norm_abi", absl::StrCat(PLUMB_NORM_ABI_MAJOR, ".", PLUMB_NORM_ABI_MINOR)}}},
                 {"processor", ReportProcessor(impl_->gemm, &problems)},
                 {"onednn", ReportOneDnn(&problems)},
                 {"threads", ReportThreads(*impl_, &problems)},
                 {"plugins", ReportPlugins(*impl_, &problems)},
                 {"placements", ReportPlacements(*impl_, &problems)},
                 {"memory", ReportMemory(&problems)}};
  report["problems"] = problems.json();
  // Invalid UTF-8 in names of files is replaced.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plumb
