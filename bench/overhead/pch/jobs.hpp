// Precompiled for the gauge: its files are compiled one by one, so that none changes what the compiler inlines in
// another. (No #pragma once: this is compiled as a main file, where the pragma draws a warning.)
// SPDX-License-Identifier: BSL-1.0
#include "../jobs.hpp"
