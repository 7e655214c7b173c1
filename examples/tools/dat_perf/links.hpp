// The endpoints of one side of a test and their memory, and the operations on them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "completions.hpp"
#include "control.hpp"
#include "protocol.hpp"

#include <dat/ib.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace perf {

class links {
public:
  static constexpr std::uint32_t credit_slots = 8;         ///< receives, and requests, of each endpoint for credits
  static constexpr std::uint32_t message_slots = 64;       ///< requests of an endpoint that sends there and back
  static constexpr std::uint64_t most_memory = 1ull << 32; ///< bytes of one side
  static constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
  using part = dat::local_segment<std::byte, dat::mem_priv(rights)>;
  using remote_part = dat::remote_segment<std::byte, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;
  using remote_words = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>;

  /// Makes the endpoints, and posts their receives. Throws if the adapter cannot have such endpoints.
  links(dat::ia& ia, dat::pz& pz, const parameters& run, bool client);

  [[nodiscard]] grants offer() const;
  /// Takes what the peer offers. Call it before the first operation.
  void take(const grants& theirs);
  void connect(const dat::ia_address& server, std::uint16_t port, std::uint64_t token, dat::timeout limit);
  /// Accepts the request for an endpoint; in another thread than that of the test.
  void accept(dat::cr& request, std::uint32_t index);
  void wait_established(dat::timeout limit);

  /// Whether this side begins operations, and whether the peer's operations arrive in receives of this side.
  [[nodiscard]] bool active() const { return client_ || run_.bidirectional; }
  [[nodiscard]] bool receives() const { return run_.with_receives() && (!client_ || run_.bidirectional); }
  /// Whether the receiver returns credits. Datagrams have no credits: a datagram without a receive is lost.
  [[nodiscard]] bool with_credits() const {
    return run_.with_receives() && run_.operation != operation::datagram && !run_.there_and_back();
  }
  [[nodiscard]] std::uint32_t data_receives() const; ///< of each endpoint that receives, for messages
  [[nodiscard]] std::uint32_t receive_slots() const; ///< of each endpoint
  [[nodiscard]] std::uint32_t max_inline() const { return max_inline_; }

  [[nodiscard]] completion_source& completions() { return *source_; }
  [[nodiscard]] dat::evd<lean>& evd() { return evd_; } ///< without a shared queue
  [[nodiscard]] dat::ep_ref endpoint(std::uint32_t e) const { return refs_[e]; }

  /// The bytes of the next operations.
  void set_size(std::uint32_t bytes);

  /// Calls `f` with the next operation of endpoint `e` in place `slot`.
  template <class F>
  void with_request(std::uint32_t e, std::uint32_t slot, std::uint32_t immediate, F&& f);
  void post_request(std::uint32_t e, std::uint32_t slot);
  /// A message there or back, whose completion is suppressed for all but a few.
  void post_message(std::uint32_t e, std::uint32_t immediate);
  void post_credit(std::uint32_t e);
  void post_receive(std::uint32_t e, std::uint32_t slot);
  [[nodiscard]] part receive_part(std::uint32_t e, std::uint32_t slot) const {
    return in_parts_[e * buffers_ + slot % buffers_];
  }

  /// Checks the old value that an atomic has returned: each endpoint has a word, on which it alone counts.
  void check_word(std::uint32_t e, std::uint32_t slot) const;
  /// The words of this side, on which the peer has counted.
  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return words_; }

private:
  template <class Make>
  void make_endpoints(Make make);
  [[nodiscard]] std::uint32_t request_slots() const;
  template <class D>
  [[nodiscard]] D marked(D operation, std::uint32_t e, std::uint32_t slot) const;
  template <class D>
  void post(std::uint32_t e, const D& operation) {
    constexpr bool to_address = std::is_same_v<D, dat::ib::send_to<1>>;
    if constexpr (to_address || std::is_same_v<D, dat::recv<1>>)
      if (!ud_.empty()) return ud_[e].post(operation).value();
    if constexpr (!to_address) refs_[e].post(operation).value();
  }

  const parameters& run_;
  bool client_;
  std::uint32_t buffers_ = 1, size_ = 1, max_inline_ = 0;
  std::size_t out_stride_ = 0, in_stride_ = 0, header_ = 0; // bytes
  std::vector<std::byte> memory_;                           // the buffers for sends, then those for receives
  std::vector<std::uint64_t> words_, old_;
  dat::evd<lean> evd_;
  dat::evd<merged> merged_evd_;
  std::unique_ptr<completion_source> source_;
  dat::evd<dat::stream::connection | dat::stream::datagrams> connections_;
  dat::lmr<std::byte, dat::mem_priv(rights)> region_;
  dat::lmr<std::uint64_t, dat::mem_priv::local_write | dat::mem_priv::remote_atomic> words_region_;
  dat::lmr<std::uint64_t, dat::mem_priv::local_write> old_region_;
  dat::srq shared_;
  std::vector<dat::ep<dat::rc>> rc_;
  std::vector<dat::ep<dat::with_srq<dat::rc>>> with_srq_;
  std::vector<dat::ep<dat::ud>> ud_;
  std::vector<dat::ib::address_handle> peers_;
  std::vector<dat::ep_ref> refs_;
  remote_part theirs_;
  remote_words their_words_;
  std::vector<part> out_parts_, in_parts_;
  std::vector<remote_part> remote_parts_;
  struct counters {
    std::uint64_t atomics = 0;  // posted, in the whole test
    std::uint32_t messages = 0; // there and back
  };
  std::vector<counters> counts_;
  std::vector<std::uint64_t> expected_; // the value that each atomic under way must return
};

template <class D>
D links::marked(D operation, std::uint32_t e, std::uint32_t slot) const {
  operation.cookie(ticket{ticket::kind::request, e, slot}.cookie());
  if constexpr (requires { operation.inlined(); })
    if (size_ <= max_inline_) operation.inlined();
  return operation;
}

template <class F>
void links::with_request(std::uint32_t e, std::uint32_t slot, std::uint32_t immediate, F&& f) {
  const std::size_t i = e * buffers_ + slot % buffers_;
  switch (run_.operation) {
  case operation::send:
    return f(marked(dat::send{out_parts_[i]}, e, slot));
  case operation::write:
    return f(marked(dat::rdma_write{out_parts_[i], remote_parts_[i]}, e, slot));
  case operation::write_immediate:
    return f(marked(dat::rdma_write{out_parts_[i], remote_parts_[i]}.immediate(immediate), e, slot));
  case operation::read:
    return f(marked(dat::rdma_read{out_parts_[i], remote_parts_[i]}, e, slot));
  case operation::fetch_add:
  case operation::compare_swap: {
    const auto old = old_region_.slice(e * run_.depth + slot, 1).value();
    const auto word = their_words_.word(e).value();
    const std::uint64_t count = counts_[e].atomics++;
    expected_[e * run_.depth + slot] = count;
    if (run_.operation == operation::fetch_add) return f(marked(dat::ib::fetch_and_add{old, word, 1}, e, slot));
    return f(marked(dat::ib::compare_and_swap{old, word, count, count + 1}, e, slot));
  }
  case operation::datagram:
    return f(marked(dat::ib::send_to{out_parts_[i], peers_[e]}.immediate(immediate), e, slot));
  }
}

} // namespace perf
