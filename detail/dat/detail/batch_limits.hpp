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

/// One request of a batch.
template <std::size_t Iov>
struct staged_request {
  ibv_send_wr wr;
  posted_work posted;
  ibv_sge segments[Iov];
};

class batch_limits {
public:
  /// Takes a request with segments of the usual kind into account, or says that it is not of that kind: for
  /// note_tidied.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool note(const send_request<N>& r) noexcept {
    if (N != 0 && !(r.data.zone() == zone_)) [[unlikely]]
      return false;
    note_rest(r);
    return true;
  }
  /// The same for any request. `others`: whether one of those before has segments.
  template <std::size_t N>
  void note_tidied(const send_request<N>& r, bool others) noexcept {
    if (r.data.count() != 0) zone_ = others ? zone_ | r.data.zone() : r.data.zone();
    longest_ = larger(longest_, r.data.bytes());
    simple_ = false;
    note_rest(r);
  }
  /// A request would copy what has no address in this process.
  void note_bad_inline() noexcept { bad_inline_ = true; }
  /// For a batch that is filled anew: most probably with segments of the same zone.
  void forget() noexcept {
    const common_zone usual = zone_;
    *this = {};
    zone_ = usual;
  }
  /// Whether there is anything to look at besides the zone.
  [[nodiscard]] bool simple() const noexcept { return simple_; }

  [[nodiscard]] bool simply_within(const ep_posting& ep) const noexcept {
    return zone_ == ep.simple_zone() && (simple_ || within_others(ep));
  }
  /// For a batch that is not simply within: what else has to be known of it.
  void add(bool segments, std::uint64_t longest) noexcept {
    any_ = segments;
    longest_ = larger(longest_, longest);
  }
  [[nodiscard]] bool within(const ep_posting& ep) const noexcept {
    return &ep != &no_ep && (!any_ || zone_ == ep.zone()) && within_others(ep);
  }

  /// Why not. The batch as a whole is refused; nothing was posted.
  [[nodiscard, gnu::cold]] error refusal(const ep_posting& ep) const noexcept {
    if (&ep == &no_ep) return empty_handle("ep.post(batch)", return_subtype::handle_ep);
    const auto as = [&](return_type type, const char* hint) {
      return error(type).at("ep.post(batch)", object_kind::ep, ep.number()).hint(hint);
    };
    if (any_ && zone_ != ep.zone())
      return as(return_type::protection_violation,
                "every segment must be of an lmr of the endpoint's own pz, and of at most 4 GiB");
    if (bad_atomic_)
      return as(return_type::invalid_parameter,
                "an atomic takes a local word of 8 bytes, and a remote word at a multiple of 8");
    if (too_long_) return as(return_type::length_error, "a request has more local bytes than its remote segment");
    if (most_segments_ > ep.attributes().max_request_iov)
      return as(return_type::invalid_parameter, "a request has more segments than the endpoint's max_request_iov");
    if (quiet_ && !ep.takes_quiet_requests()) return as(return_type::invalid_parameter, quiet_hint);
    if (bad_inline_) return as(return_type::invalid_parameter, offset_hint);
    if (invalidates_ && !ep.invalidates())
      return as(return_type::model_not_supported, "this adapter has no sends that invalidate");
    if (atomics_ && ep.atomic_depth() == 0 && ep.read_depth() != 0)
      return as(return_type::model_not_supported, "this adapter has no atomics");
    if ((reads_ || atomics_) && ep.read_depth() == 0)
      return as(return_type::invalid_parameter, "this connection allows no RDMA reads: give max_rdma_read_out here and "
                                                "max_rdma_read_in at the peer");
    return as(return_type::length_error, "a request has more bytes than the endpoint's max_message_size or, inlined, "
                                         "than its max_inline");
  }

private:
  // Nearly all of it is known when compiling, and then costs nothing.
  template <std::size_t N>
  [[gnu::always_inline]] void note_rest(const send_request<N>& r) noexcept {
    if constexpr (N == 0) simple_ = false;
    if constexpr (N > 1) { // one is never too many, and of a simple zone never too long
      most_segments_ = larger(most_segments_, r.data.count());
      longest_ = larger(longest_, r.data.bytes());
      simple_ = false;
    }
    if ((r.flags & IBV_SEND_INLINE) != 0) {
      longest_inline_ = larger(longest_inline_, r.data.bytes());
      simple_ = false;
    }
    if (r.quiet) quiet_ = true, simple_ = false;
    if (r.opcode == IBV_WR_RDMA_READ) reads_ = true, simple_ = false;
    if (r.opcode == IBV_WR_SEND_WITH_INV) invalidates_ = true, simple_ = false;
    if (r.is_atomic()) {
      atomics_ = true;
      simple_ = false;
      if (r.data.bytes() != word_size || r.remote.address % word_size != 0) bad_atomic_ = true;
    }
    if (r.one_sided() && r.data.bytes() > r.remote.length) too_long_ = true, simple_ = false;
  }
  [[nodiscard]] bool within_others(const ep_posting& ep) const noexcept {
    return !too_long_ && longest_ <= ep.max_message() && longest_inline_ <= ep.max_inline() &&
           most_segments_ <= ep.attributes().max_request_iov && (!reads_ || ep.read_depth() != 0) &&
           (!atomics_ || (ep.atomic_depth() != 0 && !bad_atomic_)) && (!quiet_ || ep.takes_quiet_requests()) &&
           (!invalidates_ || ep.invalidates()) && !bad_inline_;
  }

  std::uint64_t longest_ = 0; ///< of the requests that may be too long
  std::uint64_t longest_inline_ = 0;
  common_zone zone_ = common_zone::none(); ///< of all that have segments
  std::uint32_t most_segments_ = 0;
  bool simple_ = true; ///< none of what follows, nor one that may be too long
  bool any_ = false;   ///< a request with segments
  bool reads_ = false;
  bool atomics_ = false;
  bool bad_atomic_ = false;
  bool quiet_ = false;
  bool invalidates_ = false;
  bool bad_inline_ = false;
  bool too_long_ = false;
};

} // namespace dat::inline v0::detail
