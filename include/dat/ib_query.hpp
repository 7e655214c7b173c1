// The InfiniBand extensions that an adapter has.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/status.hpp>

#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 { namespace ib {

/// The agents for which an atomic operation is one step.
enum class atomic_scope : std::uint8_t {
  none,    ///< the adapter has no atomics
  adapter, ///< atomic for all operations of the adapter that owns the memory; not for the processors of its host
  global   ///< atomic for processors and other adapters as well
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(atomic_scope value) noexcept {
  return detail::enum_name(value, {"none", "adapter", "global"}, "unknown atomic_scope");
}

/// The extensions that an adapter supports, as values. `provider_attributes::specific` lists the supported ones under
/// the names of the document (IB extensions §2.3).
struct extensions {
  std::uint32_t version = 0;     ///< the version of the document; 0: no extensions, as on iWARP
  bool immediate_data = false;   ///< sends and RDMA writes with `.immediate()`
  bool fetch_and_add = false;    ///< ib::fetch_and_add
  bool compare_and_swap = false; ///< ib::compare_and_swap
  /// ib::atomic_write. The kernel has it; where the library of the device is older, posts return `model_not_supported`.
  bool atomic_write = false;
  bool flush_global = false;     ///< memory with the right flush_global, and ib::flush; of the library as atomic_write
  bool flush_persistent = false; ///< as flush_global, for flush_persistent
  bool datagrams = false;        ///< ep<ud>, and multicast groups where the network has them
  atomic_scope atomics = atomic_scope::none;
  /// Atomics with masks, or of another size than 8 bytes: on no adapter, because libibverbs has no operation for them.
  /// `provider_attributes::specific` does not name them either.
  static constexpr bool masked_atomics = false;

  /// Whether an operation can be posted.
  [[nodiscard]] constexpr bool supports(dto_operation operation) const noexcept {
    switch (operation) {
    case dto_operation::send_immediate:
    case dto_operation::rdma_write_immediate:
      return immediate_data;
    case dto_operation::fetch_and_add:
      return fetch_and_add;
    case dto_operation::compare_and_swap:
      return compare_and_swap;
    case dto_operation::atomic_write:
      return atomic_write;
    case dto_operation::flush:
      return flush_global || flush_persistent;
    case dto_operation::send_ud:
      return datagrams;
    default:
      return operation == dto_operation::send || operation == dto_operation::rdma_write ||
             operation == dto_operation::rdma_read || operation == dto_operation::recv;
    }
  }
  friend constexpr bool operator==(const extensions&, const extensions&) = default;
};

/// The extensions that the adapter of an open ia supports.
/// Errors: `invalid_handle`.
/// Allocates: no.
/// Blocks: no.
/// Thread safety: safe.
[[nodiscard]] inline expected<extensions> query_extensions(const ia& of) noexcept {
  if (!of || detail::core_access::of(of)->closed())
    return detail::empty_handle("ib.query_extensions", return_subtype::handle_ia);
  const detail::ia_core& core = *detail::core_access::of(of);
  extensions e;
  if (core.iwarp()) return e;
  e.version = 2;
  e.immediate_data = true;
  e.datagrams = true;
  const ibv_atomic_cap cap = core.device().atomic_cap;
  e.atomic_write = core.extended_ops().includes(detail::extended_op::atomic_write);
  e.flush_global = (core.flush_access() & detail::access_flush_global) != 0;
  e.flush_persistent = (core.flush_access() & detail::access_flush_persistent) != 0;
  e.fetch_and_add = e.compare_and_swap = cap != IBV_ATOMIC_NONE;
  e.atomics = cap == IBV_ATOMIC_NONE  ? atomic_scope::none
              : cap == IBV_ATOMIC_HCA ? atomic_scope::adapter
                                      : atomic_scope::global;
  return e;
}

}}} // namespace dat::v0::ib
