// A histogram of times with a bounded relative error, by Boost.Histogram.
// SPDX-License-Identifier: BSL-1.0
#include "histogram.hpp"

#include <boost/histogram/axis/regular.hpp>
#include <boost/histogram/histogram.hpp>
#include <boost/histogram/make_histogram.hpp>

#include <algorithm>
#include <cmath>

namespace perf {

namespace {

namespace bh = boost::histogram;
using axis = bh::axis::regular<double, bh::axis::transform::log>;

constexpr double least_us = 1e-3,
                 greatest_us = 1e9; // microseconds: 1 ns to 1000 s; other times fall into the outer bins

auto make() {
  const double bins = std::log(greatest_us / least_us) / std::log1p(histogram::relative_error);
  return bh::make_histogram_with(std::vector<std::uint64_t>(),
                                 axis(static_cast<unsigned>(std::ceil(bins)), least_us, greatest_us));
}

} // namespace

struct histogram::state {
  decltype(make()) counts = make();
  std::uint64_t count = 0;
  double least = 0, greatest = 0, sum = 0;
};

histogram::histogram() : state_(std::make_unique<state>()) {}
histogram::histogram(const histogram& other) : state_(std::make_unique<state>(*other.state_)) {}
histogram::histogram(histogram&&) noexcept = default;
histogram& histogram::operator=(const histogram& other) { return *this = histogram(other); }
histogram& histogram::operator=(histogram&&) noexcept = default;
histogram::~histogram() = default;

void histogram::record(double microseconds) {
  state& s = *state_;
  s.counts(microseconds);
  s.least = s.count == 0 ? microseconds : std::min(s.least, microseconds);
  s.greatest = std::max(s.greatest, microseconds);
  s.sum += microseconds;
  ++s.count;
}

void histogram::merge(const histogram& other) {
  state& s = *state_;
  const state& o = *other.state_;
  if (o.count == 0) return;
  s.counts += o.counts;
  s.least = s.count == 0 ? o.least : std::min(s.least, o.least);
  s.greatest = std::max(s.greatest, o.greatest);
  s.sum += o.sum;
  s.count += o.count;
}

std::uint64_t histogram::count() const { return state_->count; }
double histogram::least() const { return state_->least; }
double histogram::greatest() const { return state_->greatest; }
double histogram::mean() const { return state_->count == 0 ? 0 : state_->sum / static_cast<double>(state_->count); }

double histogram::percentile(double part) const {
  const double wanted = std::ceil(part * static_cast<double>(state_->count));
  double sum = 0;
  for (const auto& [end, count] : bins())
    if ((sum += static_cast<double>(count)) >= wanted) return std::clamp(end, least(), greatest());
  return greatest();
}

std::vector<std::pair<double, std::uint64_t>> histogram::bins() const {
  std::vector<std::pair<double, std::uint64_t>> out;
  const auto& line = state_->counts.axis();
  for (int i = -1; i <= line.size(); ++i)
    if (const std::uint64_t n = state_->counts.at(i); n != 0) out.emplace_back(line.value(i + 1), n);
  return out;
}

} // namespace perf
