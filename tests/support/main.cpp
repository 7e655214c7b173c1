// The main function of every Catch2 program, and with Catch2 version 2 the framework itself.
// SPDX-License-Identifier: BSL-1.0
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdio>

int main(int argc, char** argv) {
  // A test program may be killed from outside: its output must not be lost in a buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return Catch::Session().run(argc, argv);
}
