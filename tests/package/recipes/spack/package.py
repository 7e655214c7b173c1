# Spack's recipe of dat: headers and tools.
# SPDX-License-Identifier: BSL-1.0
from spack.package import *


class DatCpp(MesonPackage):
    """uDAPL 2.0 for RDMA networks as a header-only C++20 library on libibverbs and librdmacm, with tools for RDMA hosts."""

    homepage = "https://example.org/dat"
    url = "@url@"

    license("BSL-1.0")

    version("@version@", sha256="@sha256@")

    variant("tools", default=True, description="Build dat-info, dat-ping, dat-perf, datcp and dat-conform")

    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("rdma-core")
    depends_on("boost@1.74:")
    with when("+tools"):
        depends_on("cli11")
        depends_on("fmt")
        depends_on("nlohmann-json")
        depends_on("xxhash")
        depends_on("python@3.11:", type=("build", "run"))

    requires("platform=linux")
    conflicts("%gcc@:11", msg="dat needs C++20 as gcc 12 has it")
    conflicts("%clang@:13", msg="dat needs C++20 as clang 14 has it")

    def meson_args(self):
        """The tests need devices of a virtual machine, and no installation."""
        tools = "enabled" if self.spec.satisfies("+tools") else "disabled"
        return ["-Dtests=disabled", "-Dexamples=disabled", "-Dbench=disabled", f"-Dtools={tools}"]
