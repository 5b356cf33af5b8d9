# SPDX-License-Identifier: Apache-2.0
# Copies the files that LIST names from SOURCE to OUTPUT. In pages, a link to a file of the source
# tree that is not copied becomes its text, because installed pages link to installed files only:
# "[plumb.h](../runtime/include/plumb.h)" becomes "plumb.h".
#   cmake -DSOURCE=DIR -DOUTPUT=DIR -DLIST=FILE -P CopyDocs.cmake
file(READ "${LIST}" files)
file(REMOVE_RECURSE "${OUTPUT}")
foreach(file IN LISTS files)
  get_filename_component(folder "${file}" DIRECTORY)
  file(COPY "${SOURCE}/${file}" DESTINATION "${OUTPUT}/${folder}"
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()

foreach(file IN LISTS files)
  if(NOT file MATCHES "\\.md$")
    continue()
  endif()
  get_filename_component(folder "${file}" DIRECTORY)
  file(READ "${SOURCE}/${file}" rest)
  set(page "")
  while(rest MATCHES "\\[([^][]*)\\]\\(([^()# \n]+)(#[^() \n]*)?\\)")
    set(link "${CMAKE_MATCH_0}")
    set(text "${CMAKE_MATCH_1}")
    set(target "${folder}/${CMAKE_MATCH_2}")
    string(FIND "${rest}" "${link}" begin)
    string(LENGTH "${link}" length)
    math(EXPR end "${begin} + ${length}")
    string(SUBSTRING "${rest}" 0 ${begin} before)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    if(EXISTS "${SOURCE}/${target}" AND NOT EXISTS "${OUTPUT}/${target}")
      set(link "${text}")
    endif()
    string(APPEND page "${before}${link}")
  endwhile()
  file(WRITE "${OUTPUT}/${file}" "${page}${rest}")
endforeach()
