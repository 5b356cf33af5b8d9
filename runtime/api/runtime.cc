#include "runtime/api/runtime.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/api/build_tree.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/memory.h"
#include "runtime/base/processors.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor_type.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/onednn/library.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

std::string ToText(const NormAttrValue& value) {
  if (const double* number = std::get_if<double>(&value)) return absl::StrCat(*number);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::get<std::string>(value);
}

PluginAttribute ToPublic(const NormAttrSpec& spec) {
  PluginAttribute attribute;
  attribute.name = spec.name;
  attribute.type = spec.TypeName();
  attribute.doc = spec.doc;
  attribute.required = spec.required;
  if (!spec.required) attribute.default_value = ToText(spec.default_value);
  const bool numeric = spec.type == NormAttrType::kDouble || spec.type == NormAttrType::kInt;
  if (numeric && !(std::isnan(spec.min) && std::isnan(spec.max))) {
    attribute.range = absl::StrCat(std::isnan(spec.min) ? "-inf" : absl::StrCat(spec.min), "..",
                                   std::isnan(spec.max) ? "inf" : absl::StrCat(spec.max));
  }
  return attribute;
}

// Shapes as functions of dim, seen by asking for one that no plugin uses as a constant.
constexpr int64_t kProbeDim = 960;

PluginParameter ToPublic(const NormParam& param) {
  std::vector<std::string> dims;
  for (int64_t dim : param.dims) {
    dims.push_back(dim == kProbeDim ? "dim" : absl::StrCat(dim));
  }
  PluginParameter out;
  out.name = param.name;
  out.shape = absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
  out.init = param.InitToString();
  out.doc = param.doc;
  out.offset = param.offset;
  return out;
}

std::vector<std::string> TraitsOf(const NormPlugin& plugin) {
  const struct {
    bool holds;
    const char* name;
  } traits[] = {{plugin.identity(), "identity"},
                {plugin.cross_row(), "cross-row"},
                {plugin.cross_row_eval(), "cross-row in evaluation"},
                {plugin.scale_invariant(), "scale-invariant"},
                {plugin.shift_invariant(), "shift-invariant"},
                {plugin.approximate_gradient(), "approximate gradient"},
                {plugin.in_place(), "in place"},
                {plugin.has_residual(), "residual extension"}};
  std::vector<std::string> names;
  for (const auto& trait : traits) {
    if (trait.holds) names.push_back(trait.name);
  }
  return names;
}

std::vector<std::string> DTypesOf(const NormPlugin& plugin) {
  std::vector<std::string> names;
  if (plugin.dtypes() & PLUMB_F32) names.push_back("f32");
  if (plugin.dtypes() & PLUMB_BF16) names.push_back("bf16");
  if (plugin.dtypes() & PLUMB_F64) names.push_back("f64");
  return names;
}

// OMP_NUM_THREADS, since that is what batch systems and containers set to say how many a program
// shall use; its first number, if it is a list by nesting level.
int DefaultThreads(bool use_environment, std::string* because) {
  constexpr char kVariable[] = "OMP_NUM_THREADS";
  const char* text = use_environment ? std::getenv(kVariable) : nullptr;
  int threads = 0;
  if (text != nullptr) {
    const absl::string_view list(text);
    if (absl::SimpleAtoi(list.substr(0, list.find(',')), &threads) && threads > 0) {
      *because = kVariable;
      return threads;
    }
  }
  return AvailableProcessors();
}

}  // namespace

const char* PlumbVersion() { return PLUMB_VERSION; }

absl::StatusOr<std::unique_ptr<ModelContext>> Runtime::Impl::MakeContext(const ModelSpec& spec) {
  auto context = std::make_unique<ModelContext>();
  PLUMB_ASSIGN_OR_RETURN(context->model, Resolve(spec, &plugins, resolve));
  PLUMB_ASSIGN_OR_RETURN(ModelTensors tensors, ListTensors(context->model));
  context->parameters = std::move(tensors.parameters);
  context->states = std::move(tensors.states);
  context->ops = &ops;
  return context;
}

void Runtime::Impl::Warn(const std::string& warning) {
  if (warned.insert(warning).second) warnings.push_back(warning);
}

void Runtime::Impl::AddPluginDirectory(const std::string& path, const char* from) {
  if (path.empty()) return;
  plugins.AddDirectory(path);
  directory_from.emplace(path, from);
}

Runtime::Runtime() : impl_(std::make_unique<Impl>()) {}
Runtime::~Runtime() = default;

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime);
  Impl& impl = *runtime->impl_;
  PLUMB_ASSIGN_OR_RETURN(const GemmChoice choice, ParseGemmChoice(options.gemm));
  impl.gemm = HostGemmPolicy(choice);
  if (choice == GemmChoice::kOneDnn && !impl.gemm.library().usable()) {
    const std::string why =
        absl::StrCat("the GEMM engine onednn cannot be used: ", impl.gemm.library().problem,
                     "; with auto plumb does without");
    return OneDnn().no_room ? absl::ResourceExhaustedError(why) : absl::NotFoundError(why);
  }
  RegisterOps(&impl.ops, impl.gemm);
  impl.use_environment = options.use_environment;
  if (options.threads > 0) {
    impl.threads = options.threads;
    impl.threads_because = "as asked for";
  } else {
    impl.threads = DefaultThreads(options.use_environment, &impl.threads_because);
  }
  if (options.guard_plugins) impl.plugins.GuardCalls();
  for (const std::string& directory : options.plugin_directories) {
    impl.AddPluginDirectory(directory, "given by the program");
  }
  if (options.use_environment) {
    for (const std::string& directory : PathFromEnvironment("PLUMB_PLUGIN_PATH", &impl.warnings)) {
      impl.AddPluginDirectory(directory, "PLUMB_PLUGIN_PATH");
    }
  }
  impl.resolve.placement_directories = options.placement_directories;
  if (options.use_environment) {
    for (std::string& directory : PathFromEnvironment("PLUMB_PLACEMENT_PATH", &impl.warnings)) {
      impl.resolve.placement_directories.push_back(std::move(directory));
    }
  }
  const std::string& prefix = options.install_prefix;
  if (!prefix.empty()) {
    impl.AddPluginDirectory(absl::StrCat(prefix, "/", PLUMB_PLUGIN_DIR), "installed");
    impl.resolve.placement_directories.push_back(absl::StrCat(prefix, "/", PLUMB_PLACEMENT_DIR));
  } else {
    impl.AddPluginDirectory(PLUMB_INSTALLED_PLUGIN_DIR, "installed");
    impl.resolve.placement_directories.push_back(PLUMB_INSTALLED_PLACEMENT_DIR);
    if (&kBuildTree != nullptr) {
      impl.AddPluginDirectory(kBuildTree.plugin_directory, "the build");
      impl.resolve.placement_directories.push_back(kBuildTree.placement_directory);
    }
  }
  for (const std::string& file : options.plugin_files) {
    PLUMB_RETURN_IF_ERROR(impl.plugins.LoadFile(file));
  }
  return runtime;
}

std::vector<PluginFileInfo> Runtime::ListPlugins() const {
  std::vector<PluginFileInfo> files;
  for (PluginFile& file : impl_->plugins.Scan()) {
    files.push_back({std::move(file.path), std::move(file.id), std::move(file.problem)});
  }
  return files;
}

absl::StatusOr<PluginInfo> Runtime::DescribePlugin(const std::string& id) {
  PLUMB_ASSIGN_OR_RETURN(const NormPlugin* plugin, impl_->plugins.Find(id));
  PluginInfo info;
  info.id = plugin->id();
  info.version = plugin->version();
  info.vendor = plugin->vendor();
  info.license = plugin->license();
  info.doc = plugin->doc();
  info.path = plugin->path();
  for (const NormAttrSpec& spec : plugin->attrs()) info.attributes.push_back(ToPublic(spec));
  if (const auto instance = plugin->Instantiate(kProbeDim, {}); instance.ok()) {
    for (const NormParam& param : (*instance)->params()) info.parameters.push_back(ToPublic(param));
    for (const NormParam& buffer : (*instance)->buffers()) info.buffers.push_back(ToPublic(buffer));
  }
  info.traits = TraitsOf(*plugin);
  info.dtypes = DTypesOf(*plugin);
  return info;
}

absl::Status Runtime::RegisterPlugin(const void* plumb_norm_plugin_v1) {
  return impl_->plugins.Register(static_cast<const plumb_norm_plugin*>(plumb_norm_plugin_v1));
}

std::vector<std::string> Runtime::TakeWarnings() {
  if (ThreadsWereRefused()) {
    impl_->Warn(absl::StrCat("the system refused a thread: fewer than ", impl_->threads,
                             " work, with the same results (limits: ulimit -u, processes; "
                             "ulimit -v, memory, of which each needs a stack)"));
  }
  if (const std::string problem = impl_->gemm.Problem(); !problem.empty()) impl_->Warn(problem);
  std::vector<std::string> warnings = std::exchange(impl_->warnings, {});
  const std::vector<std::string>& from_plugins = impl_->plugins.warnings();
  warnings.insert(warnings.end(),
                  from_plugins.begin() + static_cast<std::ptrdiff_t>(impl_->plugin_warnings_taken),
                  from_plugins.end());
  impl_->plugin_warnings_taken = from_plugins.size();
  return warnings;
}

int Runtime::threads() const { return impl_->threads; }
std::string Runtime::matmul() const { return impl_->gemm.ToString(); }

MemoryRoom Memory() {
  const MemoryLimit limit = ProcessMemoryLimit();
  return {limit.bytes, limit.available, limit.by};
}

std::string VersionText() {
  const OneDnnLibrary& onednn = OneDnn();
  return absl::StrCat("plumb ", PlumbVersion(),
                      onednn.usable() ? ", oneDNN " + onednn.version : ", no oneDNN", ", kernels ",
                      KernelTarget());
}

std::string MatmulText() {
  const GemmPolicy policy = HostGemmPolicy();
  const std::string& problem = policy.library().problem;
  return absl::StrCat(policy.ToString(), "; ",
                      problem.empty() ? policy.Bf16Reason() : "no oneDNN: " + problem);
}

}  // namespace plumb
