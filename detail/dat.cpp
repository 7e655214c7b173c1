// All definitions of dat: the only source file of the static library.
// SPDX-License-Identifier: BSL-1.0
#include <dat/src.hpp>
