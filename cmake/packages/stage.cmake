# SPDX-License-Identifier: Apache-2.0
# Run by cpack after files are installed into CPACK_TEMPORARY_DIRECTORY/COMPONENT and before
# packages are made of them. Adds /usr/share/doc, compresses manual pages, and sets the time of all
# files to SOURCE_DATE_EPOCH or, if it is not set, to now.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  set(epoch "$ENV{SOURCE_DATE_EPOCH}")
else()
  string(TIMESTAMP epoch "%s" UTC)
endif()

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE out OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(out "${out}" PARENT_SCOPE)
endfunction()

run(env LC_ALL=C date -u -R "-d@${epoch}")
set(date "${out}")
foreach(each IN LISTS CPACK_PLUMB_COMPONENTS)
  string(REPLACE "=" ";" each "${each}")
  list(GET each 0 component)
  list(GET each 1 package)
  set(root "${CPACK_TEMPORARY_DIRECTORY}/${component}")
  if(NOT IS_DIRECTORY "${root}/usr")
    message(FATAL_ERROR "nothing was installed for ${package}: cpack works in a build with CMAKE_INSTALL_PREFIX=/usr (the preset package)")
  endif()
  set(doc "${root}/usr/share/doc/${package}")
  file(MAKE_DIRECTORY "${doc}")
  configure_file("${CPACK_PLUMB_PACKAGING_DIR}/copyright" "${doc}/copyright" COPYONLY)
  file(WRITE "${doc}/changelog.Debian" "plumb (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Packages of plumb ${CPACK_PACKAGE_VERSION}, as its own build makes them.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
  run(gzip -9nf "${doc}/changelog.Debian")
  if(EXISTS "${CPACK_PLUMB_PACKAGING_DIR}/${package}.overrides")
    file(MAKE_DIRECTORY "${root}/usr/share/lintian/overrides")
    configure_file("${CPACK_PLUMB_PACKAGING_DIR}/${package}.overrides"
      "${root}/usr/share/lintian/overrides/${package}" COPYONLY)
  endif()
  file(GLOB pages "${root}/usr/share/man/man1/*.1")
  if(pages)
    run(gzip -9nf ${pages})
  endif()
  file(GLOB_RECURSE archives "${root}/*.a")
  if(archives)
    run(strip --strip-debug --enable-deterministic-archives ${archives})
  endif()
  # Sets the permissions that installed files must have, whatever the umask was.
  run(chmod -R "u=rwX,go=rX" "${root}")
  run(find "${root}" -exec touch -h "-d@${epoch}" "{}" +)
endforeach()
