# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)

# plumb_unity(<target>...)
#   Compiles the sources of each target together (PLUMB_UNITY), except for files that Highway compiles
#   once for each instruction set, because such a file includes itself.
function(plumb_unity)
  if(NOT PLUMB_UNITY)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      get_filename_component(path "${source}" ABSOLUTE)
      if(EXISTS "${path}")
        file(STRINGS "${path}" dispatched REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
        if(dispatched)
          set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
          if(PLUMB_FUZZ)  # ten times faster: the fuzzers' hostile inputs are texts, not numbers
            set_source_files_properties("${source}" PROPERTIES
              COMPILE_OPTIONS -fno-sanitize=all COMPILE_DEFINITIONS HWY_COMPILE_ONLY_STATIC)
          endif()
        endif()
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE "${PLUMB_UNITY_BATCH}")
  endforeach()
endfunction()

# plumb_optimize(<target>...)
#   Optimizes, also in quick builds, targets that dominate the time of a step or a tokenizer.
function(plumb_optimize)
  if(PLUMB_QUICK)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    endforeach()
  endif()
endfunction()

# plumb_module(<name> SOURCES <files> [PUBLIC <targets>] [PRIVATE <targets>])
#   Adds a module of the runtime, the static library plumb_<name>. It may include exactly its
#   dependencies.
function(plumb_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(plumb_${name} STATIC ${arg_SOURCES})
  target_include_directories(plumb_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(plumb_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  plumb_unity(plumb_${name})
endfunction()

# plumb_norm_plugin(<id> SOURCES <files> [LIBRARIES <targets>])
#   Adds a norm that ships with plumb: calls plumb_add_norm_plugin() and places <id>.so in the build's
#   plugin directory. The norm sees only the C headers of the project. -O3, because norms are short
#   loops over rows, which gcc vectorizes at that level.
include("${PROJECT_SOURCE_DIR}/cmake/sdk/PlumbNormPlugin.cmake")
set(PLUMB_PLUGIN_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}/plumb/norm-v1")
function(plumb_norm_plugin id)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  plumb_add_norm_plugin(plumb_norm_${id} OUTPUT_NAME "${id}"
    SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES})
  set_target_properties(plumb_norm_${id} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PLUMB_PLUGIN_OUTPUT_DIRECTORY}")
  if(PLUMB_QUICK)
    target_compile_options(plumb_norm_${id} PRIVATE $<$<CONFIG:Release>:-O3>)
  endif()
  # The loader refuses a library that others may write to, and the umask may allow that.
  add_custom_command(TARGET plumb_norm_${id} POST_BUILD
    COMMAND chmod go-w "${PLUMB_PLUGIN_OUTPUT_DIRECTORY}" "$<TARGET_FILE:plumb_norm_${id}>")
  set_property(GLOBAL APPEND PROPERTY PLUMB_NORM_TARGETS plumb_norm_${id})
endfunction()

# plumb_fast_tests(<test>...)
#   Gives tests the label fast: ctest -L fast runs them, in less than two minutes in total.
function(plumb_fast_tests)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS fast)
endfunction()

# plumb_release_tests(<test>...)
#   Gives tests the label release: tests/run.sh runs them only with --release, because they repeat what
#   other tests check in another setting, or take minutes.
function(plumb_release_tests)
  set_property(TEST ${ARGN} PROPERTY LABELS release)
endfunction()

# plumb_test(<name> SOURCES <files> LIBRARIES <targets> [DEPENDS <targets>] [THREADS] [LONG])
#   Adds a GoogleTest binary as one ctest test (its suites are fast). THREADS: it tests several threads,
#   so the thread sanitizer runs it (label threads, target thread_tests, tests/sanitize.sh tsan). LONG:
#   it takes more than ten seconds of processor time, so it has the label long instead of fast.
function(plumb_test name)
  cmake_parse_arguments(arg "THREADS;LONG" "" "SOURCES;LIBRARIES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} $<TARGET_OBJECTS:plumb_build_tree>)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE
    PLUMB_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    PLUMB_BUILD_DIR="${PROJECT_BINARY_DIR}"
    PLUMB_TEST_PLUGIN_DIR="${PLUMB_PLUGIN_OUTPUT_DIRECTORY}")
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock GTest::gtest GTest::gtest_main)
  plumb_unity(${name})
  if(PLUMB_UNITY)
    # Tests would spend most of their time with the same headers of libraries.
    target_precompile_headers(${name} REUSE_FROM plumb_test_headers)
  endif()
  if(arg_DEPENDS)
    add_dependencies(${name} ${arg_DEPENDS})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(arg_LONG)
    set_property(TEST ${name} APPEND PROPERTY LABELS long)
  else()
    plumb_fast_tests(${name})
  endif()
  if(arg_THREADS)
    set_property(TEST ${name} APPEND PROPERTY LABELS threads)
    if(NOT TARGET thread_tests)
      add_custom_target(thread_tests)
    endif()
    add_dependencies(thread_tests ${name})
  endif()
endfunction()
