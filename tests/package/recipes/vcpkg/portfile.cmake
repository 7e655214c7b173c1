# vcpkg's port of dat: headers, and with the feature `tools` the programs.
# SPDX-License-Identifier: BSL-1.0
vcpkg_download_distfile(
    ARCHIVE
    URLS "@url@"
    FILENAME "dat-@version@.tar.xz"
    SHA512 @sha512@
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

set(TOOLS disabled)
if("tools" IN_LIST FEATURES)
    set(TOOLS enabled)
endif()

# Nothing but the tools depends on the build type.
set(VCPKG_BUILD_TYPE release)
vcpkg_configure_meson(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -Dtests=disabled
        -Dexamples=disabled
        -Dbench=disabled
        -Dman=disabled
        -Dtools=${TOOLS}
)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_cmake_config_fixup(PACKAGE_NAME dat CONFIG_PATH share/cmake/dat)
# One folder fewer from the file up to the prefix.
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/dat/datConfig.cmake" "/../../.." "/../..")

if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES dat-info dat-ping dat-perf datcp AUTO_CLEAN)
endif()
# The scripts need the folders of an installation (dat-lab, dat-conform).
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/share/dat/conform" "${CURRENT_PACKAGES_DIR}/share/dat/lab")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
