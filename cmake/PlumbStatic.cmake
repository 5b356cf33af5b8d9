# SPDX-License-Identifier: Apache-2.0
# libplumb.a: the objects of all modules of libplumb.so as one archive, for hosts that link plumb
# statically. PLUMB_STATIC_LIBRARIES has the other libraries that such a host must link, as plain -l
# flags, so a host needs only these libraries, without their CMake packages and pkg-config files.

# Appends the modules and libraries of `item` to PLUMB_STATIC_MODULES and PLUMB_STATIC_LIBRARIES,
# dependencies before their dependents.
function(plumb_static_closure item)
  string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
  if(item MATCHES "^-Wl,|^\\$<|^$" OR item IN_LIST PLUMB_STATIC_SEEN)
    return()
  endif()
  list(APPEND PLUMB_STATIC_SEEN "${item}")
  if(NOT TARGET "${item}")  # a library given by path or name
    get_filename_component(name "${item}" NAME)
    string(REGEX REPLACE "^(lib|-l)|\\.(so|a)[.0-9]*$" "" name "${name}")
    if(NOT name MATCHES "^-")
      list(PREPEND PLUMB_STATIC_LIBRARIES "-l${name}")
    endif()
  else()
    get_target_property(aliased "${item}" ALIASED_TARGET)
    if(aliased)
      set(item "${aliased}")
    endif()
    get_target_property(type "${item}" TYPE)
    get_target_property(imported "${item}" IMPORTED)
    set(property INTERFACE_LINK_LIBRARIES)
    if(NOT imported AND NOT type STREQUAL "INTERFACE_LIBRARY")
      set(property LINK_LIBRARIES)
    endif()
    get_target_property(dependencies "${item}" ${property})
    foreach(dependency IN LISTS dependencies)
      if(dependency)
        plumb_static_closure("${dependency}")
      endif()
    endforeach()
    if(NOT imported AND type STREQUAL "STATIC_LIBRARY")
      list(APPEND PLUMB_STATIC_MODULES "${item}")
    elseif(imported AND NOT type STREQUAL "INTERFACE_LIBRARY")
      plumb_library_file("${item}" file)
      get_filename_component(name "${file}" NAME)
      string(REGEX REPLACE "^lib|\\.(so|a)[.0-9]*$" "" name "${name}")
      list(PREPEND PLUMB_STATIC_LIBRARIES "-l${name}")
    endif()
  endif()
  foreach(result SEEN MODULES LIBRARIES)
    set(PLUMB_STATIC_${result} "${PLUMB_STATIC_${result}}" PARENT_SCOPE)
  endforeach()
endfunction()

set(PLUMB_STATIC_SEEN)
set(PLUMB_STATIC_MODULES)
set(PLUMB_STATIC_LIBRARIES)
plumb_static_closure(plumb_runs)
# oneDNN's package adds it for programs that use its OpenCL functions.
list(REMOVE_ITEM PLUMB_STATIC_LIBRARIES -lOpenCL)
list(APPEND PLUMB_STATIC_LIBRARIES -lstdc++ -lm)
list(REMOVE_DUPLICATES PLUMB_STATIC_LIBRARIES)
# Most of Abseil's libraries belong to headers that plumb does not include.
list(PREPEND PLUMB_STATIC_LIBRARIES -Wl,--push-state,--as-needed)
list(APPEND PLUMB_STATIC_LIBRARIES -Wl,--pop-state)

set(objects)
foreach(module IN LISTS PLUMB_STATIC_MODULES)
  list(APPEND objects "$<TARGET_OBJECTS:${module}>")
endforeach()
add_library(plumb_static STATIC ${objects})
add_library(plumb::plumb_static ALIAS plumb_static)
set_target_properties(plumb_static PROPERTIES
  OUTPUT_NAME plumb EXPORT_NAME plumb_static LINKER_LANGUAGE CXX
  ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/runtime/capi")
target_include_directories(plumb_static INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include>"
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/plugins/abi>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(plumb_static INTERFACE ${PLUMB_STATIC_LIBRARIES})
if(NOT PROJECT_IS_TOP_LEVEL)
  set_target_properties(plumb_static PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
