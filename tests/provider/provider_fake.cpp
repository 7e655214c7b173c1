// The fake devices for the test of the provider, which is in C: code that runs inside of a verb.
// SPDX-License-Identifier: BSL-1.0
#include <fake_verbs.hpp>

#include <string_view>

extern "C" void intercept(const char* verb, void (*hook)(void));

extern "C" void intercept(const char* verb, void (*hook)(void)) {
  for (const fake::call c : fake::calls())
    if (std::string_view(fake::name(c)) == verb) fake::intercept(c, hook);
}
