// The shared receive queue behind dat::srq.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/srq_attributes.hpp>

#include <dat/detail/ia_core.hpp>
#include <dat/detail/pz_core.hpp>
#include <dat/detail/shared_queue.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace dat::inline v0::detail {

/// Entries come in blocks, one for each time that the queue grew, and stay where they are.
class srq_core final : public ia_child, public shared_queue {
public:
  [[nodiscard]] static result<ref<srq_core>> create(const ref<pz_core>& pz, const srq_attributes& wanted) noexcept;
  explicit srq_core(ref<pz_core> pz) noexcept;

  [[nodiscard]] const ref<pz_core>& pz() const noexcept { return pz_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t max_iov() const noexcept { return max_iov_; }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  [[nodiscard]] expected<void> set_low_watermark(std::uint32_t low) noexcept;
  [[nodiscard]] expected<void> resize(std::uint32_t n) noexcept;
  void query(srq_params& p) noexcept;

  /// The device tells that the armed limit was reached.
  void limit_reached() noexcept;
  /// The device tells that it cannot read the queue any more.
  void broke() noexcept {
    if (!failed_.exchange(true, std::memory_order_acq_rel)) ia().raise(async_kind::srq_error, {}, ref<counted>(this));
  }

  std::atomic<std::uint32_t> users{0}; ///< endpoints

private:
  friend class ia_child;
  ~srq_core() {
    endpoints.free();
    while (blocks_) delete std::exchange(blocks_, blocks_->older);
  }
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::shared_queue;
  static const child_type table;

  struct block {
    block* older;
    work_entry* first;
    std::uint32_t count;
  };
  /// `n` more entries. False when there is no memory.
  [[nodiscard]] bool add_entries(std::uint32_t n) noexcept;
  /// Takes `n` free entries out of use, or none of them.
  [[nodiscard]] bool withdraw(std::uint32_t n) noexcept;
  void put_back(std::uint32_t n) noexcept;
  [[nodiscard]] expected<void> shrink(std::uint32_t n) noexcept;
  [[nodiscard]] expected<void> grow(std::uint32_t n) noexcept;
  /// How many the device really has room for. Returns 0 or errno.
  [[nodiscard]] int ask_size(std::uint32_t& size) const noexcept;
  /// Buffers posted whose completions were not taken.
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    const auto n = static_cast<std::int32_t>(capacity() - count_free());
    return n > 0 ? smaller(static_cast<std::uint32_t>(n), capacity()) : 0;
  }
  /// Buffers that an endpoint could take; false when nobody can know. Moves completions to where they are counted.
  [[nodiscard]] bool count_available(std::uint32_t& n) noexcept;
  void raise_low() noexcept {
    armed_ = false;
    ia().raise(async_kind::srq_low_watermark, {}, ref<counted>(this));
  }
  [[nodiscard]] error in_error(const char* call) const noexcept;

  ref<pz_core> pz_;
  std::mutex mutex_; // size and watermark; taken before the locks of the evds
  block* blocks_ = nullptr;
  work_entry* spare_ = nullptr; // out of use since the queue shrank
  std::atomic<std::uint32_t> capacity_{0};
  std::uint32_t spares_ = 0;
  std::uint32_t low_ = 0;
  bool armed_ = false;   // the event of low_ is still to come
  bool rearmed_ = false; // an event of an earlier arming may still come, and nothing in it would tell
};

inline constexpr child_type srq_core::table = type_for<srq_core>();

inline void srq_core::limit_reached() noexcept {
  const std::lock_guard lock(mutex_);
  if (!armed_ || !native()) return;
  ibv_srq_attr now{};
  // A device that has told of its limit has none any more.
  if (rearmed_ && ibv_query_srq(srq_, &now) == 0 && now.srq_limit != 0) return;
  raise_low();
}

} // namespace dat::inline v0::detail
