#!/usr/bin/env python3
# Tests of the header rules: each rule lets good headers pass and finds bad ones.
# SPDX-License-Identifier: BSL-1.0
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402

GOOD = """// A handle.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <infiniband/verbs.h>

namespace dat { inline namespace v0 {
namespace detail {
ibv_qp* hidden(rdma_cm_id*);
}

/// Speaks of ibv_post_send in a comment, and in text: "ibv_qp".
template <class T = int>
  requires(sizeof(T) > 1)
class [[nodiscard]] handle {
public:
  struct nested {
    rdma_write w;
  };
  int f(int x = {}) const noexcept { return ibv_fork_init() + x; }
  ibv_context* native_handle() const noexcept { return impl_; }
  handle() : impl_{nullptr}, n_{1'000} {}

private:
  ibv_context* impl_;
  class more {
  public:
    ibv_qp* q;
  };

protected:
  rdma_cm_id* id_;
};

enum class right { read = IBV_ACCESS_REMOTE_READ };
}} // namespace dat::v0
"""


class foreign_names(unittest.TestCase):
    def lines(self, text):
        return [f.line for f in check.foreign_names("x.hpp", text)]

    def test_what_users_do_not_see_may_use_verbs(self):
        self.assertEqual(self.lines(GOOD), [])

    def test_a_public_member_is_found(self):
        self.assertEqual(self.lines("class a {\npublic:\n  void f(ibv_qp* q) { g(); }\n};"), [3])

    def test_a_result_type_is_found(self):
        self.assertEqual(self.lines("namespace dat {\nauto f() -> rdma_cm_id*;\n}"), [2])

    def test_members_of_a_struct_are_public(self):
        self.assertEqual(self.lines("struct a {\n  ibv_mr* m;\n};"), [2])

    def test_a_member_after_a_private_section_is_found(self):
        self.assertEqual(self.lines("class a {\n  ibv_mr* m;\npublic:\n  ibv_mr* n;\n};"), [4])

    def test_a_base_class_is_found(self):
        self.assertEqual(self.lines("class a : public ibv_mr {};"), [1])

    def test_an_alias_is_found(self):
        self.assertEqual(self.lines("template <class T, class U>\nstruct b {\n  using raw = ibv_wc;\n};"), [3])

    def test_a_default_argument_does_not_hide_the_next_parameter(self):
        self.assertEqual(self.lines("int f(int a = {},\n      ibv_qp* q = {});"), [2])

    def test_code_after_a_body_is_seen(self):
        self.assertEqual(self.lines("inline int f() { if (x) { y(); } return 1; }\nibv_pd* g();"), [2])

    def test_the_words_of_dat_are_not_foreign(self):
        self.assertEqual(self.lines("struct rdma_write { int rdma_read; rdma_write_with_immediate x; };"), [])


class other_rules(unittest.TestCase):
    def test_the_opening(self):
        self.assertEqual(check.opening("x.hpp", GOOD), [])
        self.assertEqual(len(check.opening("x.hpp", "#include <x>\n")), 3)

    def test_the_umbrella_of_outcome(self):
        self.assertEqual(check.umbrella_includes("x.hpp", "#include <boost/outcome/basic_result.hpp>\n"), [])
        self.assertEqual(check.umbrella_includes("x.hpp", "\n# include <boost/outcome.hpp>\n")[0].line, 2)
        self.assertEqual(len(check.umbrella_includes("x.hpp", '#include "boost/outcome/outcome.hpp"\n')), 1)

    def test_macros(self):
        self.assertEqual(check.macros("dat/try.hpp", "#define DAT_TRY(x) x\n"), [])
        self.assertEqual(check.macros("dat/a.hpp", "#define LOCAL 1\n#undef LOCAL\n// #define X\n"), [])
        self.assertEqual(len(check.macros("dat/try.hpp", "#define OTHER(x) x\n")), 1)
        self.assertEqual(len(check.macros("dat/a.hpp", "#define DAT_TRY(x) x\n")), 1)


    def test_printing(self):
        good = "// std::cout << x; printf(x)\nint n = std::snprintf(to, size, format, a), m = std::fwrite(a, 1, 1, file.printf);\n"
        self.assertEqual(check.printing("x.hpp", good), [])
        for bad in ("std::clog << a;", "printf(a);", "std::fputs(a, f);", "::perror(a);", "vfprintf (f, a, b);", "g(stderr);", "write(STDERR_FILENO, a, 1);"):
            self.assertEqual([f.line for f in check.printing("x.ipp", f"\n{bad}\n")], [2], bad)

    def test_bodies(self):
        good = "namespace dat { inline namespace v0 {\nDAT_DECL int f() { return 1; }\ninline constexpr int a = g(1);\n}}\n"
        self.assertEqual(check.bodies("x.ipp", good), [])
        bad = "[[nodiscard]] inline expected<int> a::f() { return 1; }\n"
        self.assertEqual([f.line for f in check.bodies("x.ipp", "\n" + bad)], [2])
        self.assertEqual(check.bodies("x.hpp", bad), [])


class the_tree(unittest.TestCase):
    def tree(self, root, public, umbrella):
        for folder, variable, names in (
            ("include", "dat_public_headers", public),
            ("detail", "dat_detail_headers", []),
        ):
            (root / folder / "dat").mkdir(parents=True)
            listed = "".join(f"  '{n}',\n" for n in names)
            (root / folder / "meson.build").write_text(f"{variable} = [\n{listed}]\n")
        (root / "include/dat/dat.hpp").write_text(umbrella)
        (root / "include/dat/a.hpp").write_text("#pragma once\n")

    def findings(self, public, umbrella):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            self.tree(root, public, umbrella)
            return [f.text for f in check.unlisted(root, "include", "dat_public_headers") + check.not_in_umbrella(root)]

    def test_a_complete_list_passes(self):
        self.assertEqual(self.findings(["dat/a.hpp", "dat/dat.hpp"], "#include <dat/a.hpp>\n"), [])

    def test_a_header_that_the_build_does_not_know_is_found(self):
        self.assertEqual(
            self.findings(["dat/dat.hpp"], "#include <dat/a.hpp>\n"),
            ["dat/a.hpp is on disk but not in dat_public_headers"],
        )

    def test_a_listed_header_that_is_gone_is_found(self):
        self.assertEqual(
            self.findings(["dat/a.hpp", "dat/b.hpp", "dat/dat.hpp"], "#include <dat/a.hpp>\n"),
            ["dat/b.hpp is in dat_public_headers but not on disk"],
        )

    def test_a_header_that_the_umbrella_lacks_is_found(self):
        self.assertEqual(
            self.findings(["dat/a.hpp", "dat/dat.hpp"], "// #include <dat/a.hpp>\n"), ["does not include <dat/a.hpp>"]
        )

    def bodies(self, listed):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            self.tree(root, [], "")
            for body in ("a", "b"):
                (root / f"detail/dat/{body}.ipp").write_text("#pragma once\n")
            (root / "include/dat/src.hpp").write_text("".join(f"#include <dat/{n}.ipp>\n" for n in listed))
            return [f.text for f in check.not_in_src(root)]

    def test_bodies_that_are_compiled_separately_are_listed_in_order(self):
        self.assertEqual(self.bodies(["a", "b"]), [])
        self.assertEqual(self.bodies(["a"]), ["does not include <dat/b.ipp>"])
        self.assertEqual(self.bodies(["b", "a"]), ["the bodies are not in alphabetical order"])


if __name__ == "__main__":
    unittest.main()
