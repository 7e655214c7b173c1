// What a batch asks of an endpoint, summed up while it is filled: posting then compares once, not once per request.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/ep_posting.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/work_request.hpp>

#include <cstdint>

namespace dat::inline v0::detail {

class batch_limits {
public:
  template <std::size_t N>
  void note(const send_request<N>& r) noexcept {
    largest_ = larger(largest_, r.data.bytes());
    if ((r.flags & IBV_SEND_INLINE) != 0) largest_inline_ = larger(largest_inline_, r.data.bytes());
    if (N > 1) most_segments_ = larger(most_segments_, r.data.count()); // one is never too many
    quiet_ = quiet_ || r.quiet;
    reads_ = reads_ || r.opcode == IBV_WR_RDMA_READ;
    if (r.is_atomic()) {
      atomics_ = true;
      bad_atomic_ = bad_atomic_ || r.data.bytes() != 8 || r.remote.address % 8 != 0;
    }
    too_long_ = too_long_ || (r.one_sided() && r.data.bytes() > r.remote.length);
    if (r.data.count() != 0 && !(r.data.zone() == zone_)) {
      zone_ = any_ ? zone_ + r.data.zone() : r.data.zone();
      any_ = true;
    }
  }

  [[nodiscard]] bool within(const ep_posting& ep) const noexcept {
    return &ep != &no_ep && (!any_ || zone_.is(ep.pz())) && !too_long_ && largest_ <= ep.max_message() &&
           largest_inline_ <= ep.max_inline() && most_segments_ <= ep.attributes().max_request_iov &&
           (!reads_ || ep.read_depth() != 0) && (!atomics_ || (ep.atomic_depth() != 0 && !bad_atomic_)) &&
           (!quiet_ || ep.takes_quiet_requests());
  }

  /// Why not. The batch as a whole is refused; nothing was posted.
  [[nodiscard, gnu::cold]] error refusal(const ep_posting& ep) const noexcept {
    if (&ep == &no_ep) return empty_handle("ep.post(batch)", return_subtype::handle_ep);
    const auto as = [&](return_type type, const char* hint) {
      return error(type).at("ep.post(batch)", object_kind::ep, ep.number()).hint(hint);
    };
    if (any_ && !zone_.is(ep.pz()))
      return as(return_type::protection_violation,
                "every segment must be of an lmr of the endpoint's own pz, and of at most 4 GiB");
    if (too_long_) return as(return_type::length_error, "a request has more local bytes than its remote segment");
    if (most_segments_ > ep.attributes().max_request_iov)
      return as(return_type::invalid_parameter, "a request has more segments than the endpoint's max_request_iov");
    if (quiet_ && !ep.takes_quiet_requests()) return as(return_type::invalid_parameter, quiet_hint);
    if (bad_atomic_)
      return as(return_type::invalid_parameter,
                "an atomic takes one local word of 8 bytes and a remote word at a multiple of 8");
    if (atomics_ && ep.atomic_depth() == 0 && ep.read_depth() != 0)
      return as(return_type::model_not_supported, "this adapter has no atomics");
    if ((reads_ || atomics_) && ep.read_depth() == 0)
      return as(return_type::invalid_parameter, "this connection allows no RDMA reads: give max_rdma_read_out here and "
                                                "max_rdma_read_in at the peer");
    return as(return_type::length_error, "a request has more bytes than the endpoint's max_message_size or, inlined, "
                                         "than its max_inline");
  }

private:
  std::uint64_t largest_ = 0;
  std::uint64_t largest_inline_ = 0;
  common_zone zone_;
  std::uint32_t most_segments_ = 0;
  bool any_ = false; ///< a request with segments
  bool reads_ = false;
  bool atomics_ = false;
  bool bad_atomic_ = false;
  bool quiet_ = false;
  bool too_long_ = false;
};

} // namespace dat::inline v0::detail
