// Pictures, which gnuplot draws.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "results.hpp"

#include <string>

namespace perf {

/// Throws std::runtime_error when there is no gnuplot: call it before a test, so that no test runs in vain.
void need_gnuplot();
/// Draws the picture of the commands to `file`, whose suffix decides the format.
void gnuplot(const std::string& file, const std::string& commands);
/// The results of a test: over the sizes; of one size over the time, or the distribution of the times.
void plot(const options& o, const report& all);

} // namespace perf
