// Precompiled for the tests of dat: the headers that every test program shares, and dat itself. (No #pragma once: this
// is compiled as a main file, where the pragma draws a warning.) tests/headers checks that each header compiles alone.
// SPDX-License-Identifier: BSL-1.0
#include "tests.hpp"

#include <dat/dat.hpp>
