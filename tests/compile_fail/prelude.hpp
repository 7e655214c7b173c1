// Parsed once per compiler before all snippets. (No #pragma once: this is compiled as a main file.)
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
