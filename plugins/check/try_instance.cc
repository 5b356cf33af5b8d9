#include "plugins/check/try_instance.h"

#include "plugins/check/guarded.h"

namespace plumb::check {

std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm) {
  std::vector<uint32_t> types;
  for (const uint32_t type : {uint32_t{PLUMB_F32}, uint32_t{PLUMB_BF16}, uint32_t{PLUMB_F64}}) {
    if (norm.dtypes & type) types.push_back(type);
  }
  return types;
}

std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      std::string* refusal) {
  return TryInstance(norm, dim, DefaultValues(norm), refusal);
}

std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const std::vector<plumb_attr_value>& values,
                                      std::string* refusal, uint32_t heads) {
  plumb_host host = TestHost();
  host.heads = heads;
  char err[256] = {};
  plumb_norm_instance* trial = nullptr;
  const plumb_status status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&host, dim, values.data(), &trial, err, sizeof(err));
  });
  err[sizeof(err) - 1] = '\0';
  if (status == PLUMB_OK) {
    Guarded(Function::kDestroy, dim, [&] { norm.destroy(trial); });
    return std::make_unique<Instance>(norm, dim, values, heads);
  }
  if (status != PLUMB_INVALID_ARGUMENT) {
    throw CheckEnded{"create(dim=" + std::to_string(dim) + ") answers " + StatusText(status) +
                     (err[0] == '\0' ? "" : ": ") + err};
  }
  *refusal = err;
  return nullptr;
}

std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims) {
  std::string refusal;
  for (const uint32_t dim : dims) {
    std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance != nullptr) return instance;
  }
  throw CheckEnded{"create refused every dim that was tried: " + refusal};
}

}  // namespace plumb::check
