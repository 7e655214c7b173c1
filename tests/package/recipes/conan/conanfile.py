# Conan's recipe of dat: the headers.
# SPDX-License-Identifier: BSL-1.0
import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, get, rmdir
from conan.tools.gnu import PkgConfigDeps
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain
from conan.errors import ConanInvalidConfiguration

required_conan_version = ">=2.0"


class DatConan(ConanFile):
    name = "dat-cpp"
    description = "uDAPL 2.0 for RDMA networks as a header-only C++20 library on libibverbs and librdmacm"
    license = "BSL-1.0"
    url = "https://example.org/dat"
    homepage = "https://example.org/dat"
    topics = ("rdma", "infiniband", "roce", "verbs", "udapl", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def layout(self):
        basic_layout(self, src_folder="src")

    def requirements(self):
        self.requires("rdma-core/52.0", options={"build_librdmacm": True})
        self.requires("boost/1.86.0", options={"header_only": True})

    def build_requirements(self):
        self.tool_requires("meson/[>=1.0 <2]")
        self.tool_requires("pkgconf/[>=2.0 <3]")

    def package_id(self):
        self.info.clear()

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("dat needs Linux: libibverbs and librdmacm are there only")
        check_min_cppstd(self, 20)

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = MesonToolchain(self)
        for part in ("tests", "examples", "tools", "bench"):
            toolchain.project_options[part] = "disabled"
        toolchain.generate()
        PkgConfigDeps(self).generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        # dat-lab, and the files that Conan generates for each consumer.
        rmdir(self, os.path.join(self.package_folder, "bin"))
        rmdir(self, os.path.join(self.package_folder, "share"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "dat")
        self.cpp_info.set_property("cmake_target_name", "dat::dat")
        self.cpp_info.set_property("pkg_config_name", "dat")
        self.cpp_info.requires = ["rdma-core::libibverbs", "rdma-core::librdmacm", "boost::headers"]
        self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
