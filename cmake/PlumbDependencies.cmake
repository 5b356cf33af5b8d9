# Third-party libraries, all packages of Debian 12 and 13. One library, one folder that includes it: the
# folder is named beside each.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)                                # runtime/base
find_package(absl REQUIRED)                                   # everywhere
find_package(Protobuf REQUIRED)                               # proto (while building), tests
find_package(dnnl REQUIRED)                                   # runtime/onednn (headers: it is loaded when needed), bench
find_package(hwy REQUIRED)                                    # runtime/kernels, runtime/ops, plugins/norms
find_package(nlohmann_json REQUIRED)                          # runtime/io, data, session, api, cli, plugins/check
if(PLUMB_BUILD_CLI)
  find_package(CLI11 REQUIRED)                                # cli, plugins/check
endif()
if(PLUMB_BUILD_TESTS OR PLUMB_FUZZ)
  find_package(GTest REQUIRED)                                # tests
endif()
if(PLUMB_BUILD_BENCH)
  find_package(benchmark REQUIRED)                            # bench
  find_package(OpenMP REQUIRED COMPONENTS CXX)                # bench (oneDNN is built on it)
endif()
