// The memory region behind dat::lmr.
//
// This header needs no definition of an ia, so a program that only passes regions on compiles little.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/adapter/ia_child.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/request/sge_list.hpp>
#include <dat/detail/text/result.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace dat { inline namespace v0 { namespace detail {

class pz_core;

class lmr_core final : public ia_child {
public:
  /// Registers memory of this process at its own addresses.
  [[nodiscard]] static result<ref<lmr_core>> create(const char* call, const ref<pz_core>& pz, void* address,
                                                    std::size_t length, int access) noexcept;
  /// Registers by `make(access)`, which returns a verbs region, or null and sets errno. `prepare(region)` then
  /// completes the object, before other threads can find it.
  template <class Make, class Prepare>
  [[nodiscard]] static result<ref<lmr_core>> create_by(const char* call, const ref<pz_core>& pz, std::size_t length,
                                                       int access, const char* verb, Make make,
                                                       Prepare prepare) noexcept {
    auto made = allocate(call, pz, length);
    if (!made) return made;
    if (!has_rights(pz, access)) return no_such_rights(call);
    lmr_core& lmr = *made.assume_value();
    // Whether windows may be bound to the region, where the device has any. Binding requires memory that the process
    // may write: other regions are registered without it.
    const bool windows = lmr.bindable_;
    lmr.mr_ = make(windows ? access | IBV_ACCESS_MW_BIND : access);
    if (!lmr.mr_) {
      lmr.bindable_ = false;
      if (windows && errno == EFAULT && (access & IBV_ACCESS_LOCAL_WRITE) == 0) lmr.mr_ = make(access);
    }
    if (!lmr.mr_) return not_registered(call, verb, errno);
    prepare(lmr);
    lmr.complete();
    return made;
  }

  explicit lmr_core(ref<pz_core> pz) noexcept;

  [[nodiscard]] ibv_mr* mr() const noexcept { return mr_; }
  /// The tag of the zone for a segment of `bytes` bytes.
  [[nodiscard]] zone_tag zone_of(std::size_t bytes) const noexcept { return bytes == 0 ? zone_tag::no_bytes() : zone_; }
  /// The address of the first byte, as segments name it.
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  [[nodiscard]] std::uint32_t local_key() const noexcept { return local_key_; }
  [[nodiscard]] const pz_core* pz() const noexcept { return pz_; }
  [[nodiscard]] bool bindable() const noexcept { return bindable_; }
  void forbid_windows() noexcept { bindable_ = false; }

  std::atomic<std::uint32_t> users{0}; ///< number of windows that are bound to the region, or about to be
  static constexpr bool ends_with_handle = true;

  // Records how the region was made, for queries (memory.hpp). Written before the region is published.
  std::uint8_t kind = 0;              ///< mem_type
  bool zero_based = false;            ///< va_type
  std::optional<std::uint64_t> iova;  ///< the address of the first byte, where it is no pointer of this process
  bool of_process = true;             ///< false for the memory of a dmabuf, which has no address in this process
  ref<lmr_core> origin;               ///< the region of which this one is another view
  std::array<std::byte, 40> cookie{}; ///< the cookie of shared memory

  // Used by the table that ia_child::type_for makes.
  ~lmr_core();
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::memory;

private:
  /// A region without memory, and the errors of all registrations.
  [[nodiscard]] static result<ref<lmr_core>> allocate(const char* call, const ref<pz_core>& pz,
                                                      std::size_t length) noexcept;
  /// Whether the adapter has the access flags of flushes that `access` contains.
  [[nodiscard]] static bool has_rights(const ref<pz_core>& pz, int access) noexcept;
  [[nodiscard]] static error no_such_rights(const char* call) noexcept;
  [[nodiscard]] static error not_registered(const char* call, const char* verb, int err) noexcept;
  void complete() noexcept;

  static const child_type table;

  pz_core* const pz_;    // keeps a reference until the region object is freed, so that zones of segments stay distinct
  zone_tag zone_;        // the zone word of pz_
  ibv_mr* mr_ = nullptr; // the following members are written before the region is published, and stay after its end
  std::uint64_t address_ = 0;
  std::size_t length_ = 0;
  std::uint32_t local_key_ = 0;
  bool bindable_ = false;
};

}}} // namespace dat::v0::detail
