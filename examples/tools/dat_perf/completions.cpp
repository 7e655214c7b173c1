// Completions as the tests count them, from evds of every kind.
// SPDX-License-Identifier: BSL-1.0
#include "completions.hpp"

#include <dat/ib.hpp>
#include <dat/ud.hpp>

#include <concepts>
#include <stdexcept>
#include <string>

namespace perf {

namespace {

template <dat::streams S>
class evd_source final : public completion_source {
public:
  explicit evd_source(dat::evd<S>& evd) : evd_(evd) {}

  std::span<const finished> poll() override {
    count_ = 0;
    evd_.drain(*this, taken_.size());
    return taken();
  }
  std::span<const finished> wait(dat::timeout limit) override {
    count_ = 0;
    const auto n = evd_.wait_and_drain(*this, limit, taken_.size());
    if (!n && n.error().type() != dat::return_type::timeout_expired &&
        n.error().type() != dat::return_type::interrupted_call)
      throw std::runtime_error(n.error().message());
    return taken();
  }
  void wake() override { evd_.wake().value(); }

  // The visitor.
  void operator()(const dat::dto_failure& f) {
    if (failure_.empty()) failure_ = f.message();
  }
  void operator()(const dat::recv_done& r) { add_receive(r, r.bytes(), 0); }
  void operator()(const dat::ib::recv_immediate_done& r) { add_receive(r, r.bytes(), r.immediate()); }
  void operator()(const dat::ib::recv_write_immediate_done& r) { add_receive(r, r.bytes(), r.immediate()); }
  void operator()(const dat::ib::datagram_recv_done& r) { add_receive(r, r.payload_bytes(), 0); }
  void operator()(const dat::ib::datagram_recv_immediate_done& r) { add_receive(r, r.payload_bytes(), r.immediate()); }
  template <std::derived_from<dat::transfer> E>
  void operator()(const E& request) {
    add(ticket::of(request.cookie().value()), request.bytes(), 0);
  }
  void operator()(const auto&) {} // events of streams that the tests do not use

private:
  void add_receive(const dat::transfer& r, std::size_t bytes, std::uint32_t immediate) {
    ticket of = ticket::of(r.cookie().value());
    if constexpr (S == merged) of.endpoint = static_cast<std::uint32_t>(r.ep().context().value().value());
    add(of, bytes, immediate);
  }
  void add(ticket of, std::size_t bytes, std::uint32_t immediate) {
    taken_[count_++] = {of, static_cast<std::uint32_t>(bytes), immediate};
  }
  std::span<const finished> taken() {
    if (!failure_.empty()) throw std::runtime_error(failure_);
    return std::span(taken_).first(count_);
  }

  dat::evd<S>& evd_;
  std::array<finished, 64> taken_{};
  std::size_t count_ = 0;
  std::string failure_; // the first failure: the others are its consequences
};

} // namespace

std::unique_ptr<completion_source> source_of(dat::evd<lean>& evd) { return std::make_unique<evd_source<lean>>(evd); }
std::unique_ptr<completion_source> source_of(dat::evd<merged>& evd) {
  return std::make_unique<evd_source<merged>>(evd);
}

} // namespace perf
