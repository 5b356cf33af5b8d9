# SPDX-License-Identifier: Apache-2.0
# plumb_add_norm_plugin(<target> SOURCES <files> [LIBRARIES <targets>] [OUTPUT_NAME <name>])
#
#   Adds a norm as a shared library, <name>.so (default: the target's name), linked as the norm ABI
#   requires: only the entry is exported, so that no function of the plugin can replace one of its
#   host; every symbol is resolved when the library is built and again when it is loaded.
#
#   Warnings are your choice. -ffast-math is refused, because a library that is linked with it changes
#   the floating-point modes of the process that loads it.
get_filename_component(PLUMB_NORM_PLUGIN_MAP "${CMAKE_CURRENT_LIST_DIR}/norm_plugin.map" ABSOLUTE)

function(plumb_add_norm_plugin target)
  cmake_parse_arguments(arg "" "OUTPUT_NAME" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "plumb_add_norm_plugin(${target}): SOURCES is missing")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "plumb_add_norm_plugin(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if("${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS}" MATCHES "-ffast-math|-Ofast")
    message(FATAL_ERROR "plumb_add_norm_plugin(${target}): a norm must not be linked with -ffast-math")
  endif()
  if(NOT arg_OUTPUT_NAME)
    set(arg_OUTPUT_NAME "${target}")
  endif()

  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE plumb::norm_abi ${arg_LIBRARIES})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${arg_OUTPUT_NAME}" PREFIX "" SUFFIX ".so"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Results must be equal on every processor: plumb/norm_rows.h.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  target_link_options(${target} PRIVATE
    -Wl,-z,now "-Wl,--version-script=${PLUMB_NORM_PLUGIN_MAP}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${PLUMB_NORM_PLUGIN_MAP}")
  # A sanitizer's runtime belongs to the program that loads the library.
  get_target_property(options ${target} LINK_OPTIONS)
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS} ${options}" MATCHES "-fsanitize=")
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
