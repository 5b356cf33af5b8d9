# SPDX-License-Identifier: Apache-2.0
# Run by cpack after the packages are made. Repacks them with dpkg-deb: without the maintainer
# scripts that cpack adds for ldconfig (a trigger replaces them, policy 8.1.1), with the field
# Multi-Arch, which cpack 3.25 cannot set, with the synopses of PlumbPackages.cmake, and with file
# times that do not depend on the build.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

foreach(package IN LISTS CPACK_PACKAGE_FILES)
  if(NOT package MATCHES "\\.d?deb$")
    continue()
  endif()
  get_filename_component(file "${package}" NAME)
  set(root "${CPACK_TOPLEVEL_DIRECTORY}/again/${file}")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}")
  run(dpkg-deb --raw-extract "${package}" "${root}")
  file(REMOVE "${root}/DEBIAN/postinst" "${root}/DEBIAN/postrm")
  file(READ "${root}/DEBIAN/control" control)
  string(REGEX REPLACE "(^|\n)Description: [^\n]*\n +" "\\1Description: " control "${control}")
  if(file MATCHES "^(lib|plumb-norms)")
    string(REGEX REPLACE "(^|\n)(Architecture: [^\n]*\n)" "\\1\\2Multi-Arch: same\n" control "${control}")
  endif()
  file(WRITE "${root}/DEBIAN/control" "${control}")
  run(chmod -R "u=rwX,go=rX" "${root}")
  if(file MATCHES "ddeb$")  # cpack 3.25 writes its own directories
    run(sh -c "cd \"$0\" && find usr -type f -exec chmod 644 {} + && find usr -type f | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums" "${root}")
  endif()
  if(file MATCHES "^(.*)-dbgsym_")  # shares copyright and changelog with the package
    file(MAKE_DIRECTORY "${root}/usr/share/doc")
    file(CREATE_LINK "${CMAKE_MATCH_1}" "${root}/usr/share/doc/${CMAKE_MATCH_1}-dbgsym" SYMBOLIC)
  endif()
  if(DEFINED ENV{SOURCE_DATE_EPOCH})
    run(find "${root}/DEBIAN" "${root}/usr/share" -exec touch -h "-d@$ENV{SOURCE_DATE_EPOCH}" "{}" +)
  endif()
  run(dpkg-deb --root-owner-group ${CPACK_PLUMB_COMPRESSION} --build "${root}" "${package}")
  file(REMOVE_RECURSE "${root}")
endforeach()
