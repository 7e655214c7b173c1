// Recent replies of a datagram service, kept so that a peer whose reply was lost gets the same one again.
//
// The kernel sends a request up to 16 times, 4.1 s apart, and recognises a repeated one only until the first is
// answered. A request that is repeated after that is an event like any other. Only the consumer's decisions are kept.
// Each peer address has a limited share, so that no peer can displace the replies to all others.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/ref.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

class ud_connection;

/// An answered request in the cache.
struct answered : list_node {
  ud_connection* request = nullptr;
  clock::time_point until{};
};

class reply_cache final : public counted {
public:
  static constexpr std::chrono::seconds kept{70};      // a peer does not repeat its request after that
  static constexpr std::uint32_t most = 256;           // the replies to all peers
  static constexpr std::uint32_t most_of_address = 64; // the replies to one peer address

  reply_cache() noexcept : counted([](counted& c) noexcept { delete static_cast<reply_cache*>(&c); }) {}

  /// Sends the answer of `request`, and keeps it. Returns 0 or an errno; a failed answer is not kept.
  [[nodiscard]] int give(ud_connection& request) noexcept;
  /// Sends the kept reply again when `request` repeats an answered request. Returns whether it repeats one.
  [[nodiscard]] bool repeat(ud_connection& request) noexcept;

private:
  /// Answers that have left the cache. They are released without its lock.
  struct dropped {
    dropped() noexcept = default;
    dropped(const dropped&) = delete;
    dropped& operator=(const dropped&) = delete;
    ~dropped();
    intrusive_list<answered> list;
  };

  ~reply_cache() {
    dropped all;
    forget(clock::time_point::max(), 0, all);
  }
  // Called with the lock held, or by the destructor.
  /// Drops old answers, and the oldest ones while there are more than `room`.
  void forget(clock::time_point now, std::uint32_t room, dropped& to) noexcept;
  /// Drops the oldest answer to the address of `request` when that address has its full share.
  void keep_share(const ud_connection& request, dropped& to) noexcept;

  control_mutex mutex_; // a leaf; serialises the kernel's reply with the change of the list
  intrusive_list<answered> list_;
  std::uint32_t size_ = 0;
};

}}} // namespace dat::v0::detail
