# SPDX-License-Identifier: Apache-2.0
# Compiler settings for every target. Nothing is compiled for the processor of the building machine,
# because kernels choose their instruction set at run time.
option(PLUMB_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(PLUMB_BUILD_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(PLUMB_BUILD_CLI "Build the command line tool and the checker of norms" ${PROJECT_IS_TOP_LEVEL})
option(PLUMB_INSTALL "Install plumb with this project" ${PROJECT_IS_TOP_LEVEL})
if(PROJECT_IS_TOP_LEVEL)
  set(PLUMB_MPI AUTO CACHE STRING "Build libplumb-mpi.so, for several machines: AUTO (if there is an MPI), ON or OFF")
else()
  set(PLUMB_MPI OFF CACHE STRING "Build libplumb-mpi.so, for several machines: AUTO (if there is an MPI), ON or OFF")
endif()
set_property(CACHE PLUMB_MPI PROPERTY STRINGS AUTO ON OFF)
option(PLUMB_QUICK "Optimize only what a step spends its time in: two thirds of the time of a build" OFF)
option(PLUMB_UNITY "Compile the sources of a module together: a third of the time, from scratch" OFF)
set(PLUMB_UNITY_BATCH 0 CACHE STRING "Sources that PLUMB_UNITY compiles together at most; 0: all of a module")
option(PLUMB_BUILD_TREE_PATHS "Debug information names the paths of the build" ON)
if(PLUMB_BUILD_TESTS AND NOT PLUMB_BUILD_CLI)
  message(FATAL_ERROR "PLUMB_BUILD_TESTS needs PLUMB_BUILD_CLI: the tool is tested, too")
endif()
set(PLUMB_SANITIZE OFF CACHE STRING
    "Sanitizers to build with: OFF, address (and undefined behaviour) or thread")
set_property(CACHE PLUMB_SANITIZE PROPERTY STRINGS OFF address thread)
option(PLUMB_FUZZ "Build the fuzzers with libFuzzer (clang only), under the address sanitizer" OFF)
if(PLUMB_FUZZ)
  set(PLUMB_SANITIZE address)
endif()

# In the build of a host (add_subdirectory, FetchContent) all settings apply to plumb's directories
# only, and settings for a developer's whole build are skipped: tests/sdk/subproject.sh.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()
set(CMAKE_UNITY_BUILD OFF)  # plumb_unity() knows which files can be compiled together

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

# Optimization is the compiler's Release and the user's flags. PLUMB_QUICK lowers it, except for
# modules that call plumb_optimize().
if(PLUMB_QUICK)
  set(CMAKE_CXX_FLAGS_RELEASE "-Og -DNDEBUG")
  set(CMAKE_C_FLAGS_RELEASE "-Og -DNDEBUG")
endif()
# No fast-math: the order of floating-point additions is part of plumb's contract.
# -ffp-contract=off: a compiler that fuses a*b+c in one build and not in another changes results;
# kernels that want a fused multiply-add call one.
# Warnings are errors if CMAKE_COMPILE_WARNING_AS_ERROR is set, in the presets of developers and in
# .ci/run. A new compiler warns of new things, which must not stop a user's build.
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
else()
  # The host's flags come first. Neither its warnings nor its fast-math and its dialect apply to plumb.
  add_compile_options(-w -fno-fast-math -fsigned-char
                      "$<$<COMPILE_LANGUAGE:CXX>:-fexceptions;-frtti;-fthreadsafe-statics>")
endif()
add_compile_options(-ffp-contract=off)

# Installed files contain no path of the build, and the bytes of packages, which have debug
# information, must not depend on one: tests/equal_builds.sh.
if(PLUMB_BUILD_TREE_PATHS)
  add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
else()
  add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
endif()

# Files and plugins are untrusted, so hardening makes a bug of plumb end the process instead of
# being exploitable.
if(PROJECT_IS_TOP_LEVEL)  # its result is cached, and would change how a host's programs are linked
  include(CheckPIESupported)
  check_pie_supported()
endif()
if(NOT PLUMB_SANITIZE)
  add_compile_options($<$<CONFIG:Release>:-D_FORTIFY_SOURCE=3> -fstack-protector-strong)
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack,--as-needed)

# gcc misinterprets code that sanitizers insert as reads of uninitialized memory (in Abseil's
# inlined vectors, for example).
if(PLUMB_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=address,undefined)
elseif(PLUMB_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=thread)
elseif(PLUMB_SANITIZE)
  message(FATAL_ERROR "PLUMB_SANITIZE is \"${PLUMB_SANITIZE}\"; it can be OFF, address or thread")
endif()
if(PLUMB_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PLUMB_FUZZ needs clang: cmake --preset fuzz")
  endif()
  # Instruments everything for coverage; only the fuzzers link libFuzzer's main().
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
