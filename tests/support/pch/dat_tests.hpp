// Precompiled for the tests of dat: what every test program shares, and dat itself. (No #pragma once: this is compiled
// as a main file, where the pragma draws a warning.) That each header stands alone is what tests/headers looks after.
// SPDX-License-Identifier: BSL-1.0
#include "tests.hpp"

#include <dat/dat.hpp>
