// The shared receive queue behind dat::srq.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/srq_attributes.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/posting/shared_queue.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

/// Entries come in blocks, one block each time the queue grows, and never move.
class srq_core final : public ia_child, public shared_queue {
public:
  [[nodiscard]] static result<ref<srq_core>> create(const ref<pz_core>& pz, const srq_attributes& wanted) noexcept;
  explicit srq_core(ref<pz_core> pz) noexcept;

  [[nodiscard]] const ref<pz_core>& pz() const noexcept { return pz_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_.load(std::memory_order_relaxed); }
  /// The completions for which a recv evd needs room: those of the present capacity, or of one that a resize prepares.
  [[nodiscard]] std::uint32_t most_completions() const noexcept { return fed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t max_iov() const noexcept { return max_iov_; }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Buffers that are posted and whose completions have not been taken.
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    const auto n = static_cast<std::int32_t>(capacity() - count_free());
    return n > 0 ? min(static_cast<std::uint32_t>(n), capacity()) : 0;
  }

  [[nodiscard]] expected<void> set_low_watermark(std::uint32_t low) noexcept;
  [[nodiscard]] expected<void> resize(std::uint32_t n) noexcept;
  void query(srq_params& p) noexcept;

  /// Called for the device's event that the armed limit was reached.
  void limit_reached() noexcept;
  /// Called for the device's event that it can no longer read the queue.
  void broke() noexcept {
    if (!failed_.exchange(true, std::memory_order_acq_rel)) ia().raise(async_kind::srq_error, {}, ref<counted>(this));
  }

  std::atomic<std::uint32_t> users{0}; ///< endpoints

  // Used by the table that ia_child::type_for makes.
  ~srq_core() {
    endpoints.free();
    while (blocks_) delete std::exchange(blocks_, blocks_->older);
  }
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::shared_queue;

private:
  static const child_type table;

  struct block {
    block* older;
    work_entry* first;
    std::uint32_t count;
  };
  /// Adds `n` entries. Returns false when memory is exhausted.
  [[nodiscard]] bool add_entries(std::uint32_t n) noexcept;
  /// Takes `n` free entries out of use, or none of them.
  [[nodiscard]] bool withdraw(std::uint32_t n) noexcept;
  void put_back(std::uint32_t n) noexcept;
  [[nodiscard]] expected<void> shrink(std::uint32_t n) noexcept;
  [[nodiscard]] expected<void> grow(std::uint32_t n) noexcept;
  /// Makes room for `n` completions in the recv evds, also in one that an endpoint attaches at the same time.
  [[nodiscard]] expected<void> feed(std::uint32_t n) noexcept;
  /// Queries the number of buffers for which the device has room. Returns 0 or errno.
  [[nodiscard]] int ask_size(std::uint32_t& size) const noexcept;
  /// The number of buffers that endpoints can take. Moves completions to where they are counted.
  [[nodiscard]] std::uint32_t count_available() noexcept;
  void raise_low() noexcept {
    armed_ = false;
    ia().raise(async_kind::srq_low_watermark, {}, ref<counted>(this));
  }
  [[nodiscard]] error in_error(const char* call) const noexcept;

  ref<pz_core> pz_;
  control_mutex mutex_; // guards size and watermark; taken before the locks of the evds
  block* blocks_ = nullptr;
  work_entry* spare_ = nullptr; // unused since the queue shrank
  std::atomic<std::uint32_t> capacity_{0};
  std::atomic<std::uint32_t> fed_{0}; // at least capacity_: see most_completions
  std::uint32_t spares_ = 0;
  std::uint32_t low_ = 0;
  bool armed_ = false;   // the event of low_ has not come yet
  bool rearmed_ = false; // an event of an earlier arming may still arrive, and does not name its arming
};

/// The functions of shared queues that an ia calls.
inline constexpr child_type srq_core::table = [] {
  child_type t = type_for<srq_core>();
  t.on_device = [](ia_child& c, const device_report& r) noexcept {
    auto& q = static_cast<srq_core&>(c);
    return r.what == device_report::kind::queue_failed ? q.broke() : q.limit_reached();
  };
  return t;
}();

}}} // namespace dat::v0::detail
