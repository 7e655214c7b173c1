# Stand-ins for the functions of vcpkg that the port of dat calls, so that `cmake -P` runs its portfile.
# SPDX-License-Identifier: BSL-1.0
#
# cmake -DPORT_DIR=DIR -DTARBALL=FILE -DWORK=DIR -DFEATURES=LIST -P vcpkg.cmake: installs into WORK/packages.
cmake_minimum_required(VERSION 3.20)
set(PORT dat-cpp)
set(CURRENT_PORT_DIR "${PORT_DIR}")
set(CURRENT_PACKAGES_DIR "${WORK}/packages")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(code)
    message(FATAL_ERROR "${ARGV}\n${said}")
  endif()
endfunction()

function(vcpkg_download_distfile out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILENAME;SHA512" "URLS")
  file(SHA512 "${TARBALL}" digest)
  if(NOT digest STREQUAL arg_SHA512)
    message(FATAL_ERROR "the port names the SHA512 ${arg_SHA512}, and the tarball has ${digest}")
  endif()
  get_filename_component(name "${TARBALL}" NAME)
  if(NOT arg_URLS MATCHES "/${name}$" OR NOT name STREQUAL arg_FILENAME)
    message(FATAL_ERROR "the port names ${arg_URLS} and ${arg_FILENAME}, and the tarball is ${name}")
  endif()
  set(${out} "${TARBALL}" PARENT_SCOPE)
endfunction()

function(vcpkg_extract_source_archive out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
  file(ARCHIVE_EXTRACT INPUT "${arg_ARCHIVE}" DESTINATION "${WORK}/src")
  file(GLOB inner "${WORK}/src/*")
  set(${out} "${inner}" PARENT_SCOPE)
endfunction()

function(vcpkg_configure_meson)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  run(meson setup "${WORK}/build" "${arg_SOURCE_PATH}" --buildtype=release --libdir=lib --wrap-mode=nodownload "--prefix=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS})
endfunction()

function(vcpkg_install_meson)
  run(meson install -C "${WORK}/build")
endfunction()

function(vcpkg_fixup_pkgconfig)
  file(GLOB found "${CURRENT_PACKAGES_DIR}/share/pkgconfig/*.pc" "${CURRENT_PACKAGES_DIR}/lib/pkgconfig/*.pc")
  if(NOT found)
    message(FATAL_ERROR "no file for pkg-config was installed")
  endif()
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PACKAGE_NAME;CONFIG_PATH" "")
  file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}.moved")
  file(GLOB moved "${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}.moved/*")
  file(COPY ${moved} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}.moved" "${CURRENT_PACKAGES_DIR}/share/cmake")
endfunction()

function(vcpkg_replace_string file old new)
  file(READ "${file}" text)
  string(REPLACE "${old}" "${new}" changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "${file} does not have `${old}`")
  endif()
  file(WRITE "${file}" "${changed}")
endfunction()

function(vcpkg_copy_tools)
  cmake_parse_arguments(PARSE_ARGV 0 arg "AUTO_CLEAN" "" "TOOL_NAMES")
  foreach(tool ${arg_TOOL_NAMES})
    file(COPY "${CURRENT_PACKAGES_DIR}/bin/${tool}" DESTINATION "${CURRENT_PACKAGES_DIR}/tools/${PORT}")
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(INSTALL ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}" RENAME copyright)
endfunction()

include("${PORT_DIR}/portfile.cmake")

# What vcpkg itself refuses in a package.
foreach(unwanted bin share/cmake debug)
  if(EXISTS "${CURRENT_PACKAGES_DIR}/${unwanted}")
    message(FATAL_ERROR "the package must not have ${unwanted}")
  endif()
endforeach()
