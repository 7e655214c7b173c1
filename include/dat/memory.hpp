// Further kinds of registered memory besides pz::register_memory, and the calls that make memory coherent.
//
// The kinds are a region over the memory of another region, shared memory, memory that the device pages in on demand, a
// region that is addressed from 0, and memory of another device (dmabuf). Registering a kind that the adapter or system
// does not support returns `model_not_supported`.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/attributes.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/iov.hpp>
#include <dat/lmr.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>

#include <dat/detail/impl/memory_kinds.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

/// Registers the memory of `original` once more, with another zone and other rights (uDAPL 2.0 §6.7.2.1,
/// DAT_MEM_TYPE_LMR). The two regions are independent: either may be closed first. The call registers the memory that
/// is mapped at those addresses now.
/// Errors: as pz::register_memory; `invalid_handle` when `original` is empty or closed; `model_not_supported` for a
/// region of a dmabuf.
/// Allocates: yes.
/// Blocks: as pz::register_memory.
/// Thread safety: safe.
template <class T, mem_priv Q, mem_priv P>
[[nodiscard]] expected<lmr<T, P>> register_over(pz& zone, const lmr<T, Q>& original, privileges<P>) noexcept {
  static_assert(!std::is_const_v<T> || !detail::writes(P),
                "dat: const memory can be registered for local_read and remote_read only");
  return detail::memory_access::again<T, P>(zone, original);
}

/// The name by which all processes know a piece of shared memory (DAT_LMR_COOKIE): 40 bytes, all of which count.
using shared_cookie = std::array<std::byte, 40>;

/// Registers memory that several processes share, each at an address of its own (uDAPL 2.0 §6.7.2.1,
/// DAT_MEM_TYPE_SHARED_VIRTUAL). Every process registers it. Verbs cannot share a registration between processes, so
/// the cookie is only kept for queries, and compared with the other cookies of this ia.
/// Errors: as pz::register_memory; `invalid_state` when a part of the memory is not mapped as shared;
/// `invalid_parameter` when a region of this ia has the same cookie and another size.
/// Allocates, Blocks and Thread safety: as pz::register_memory.
template <class Range, mem_priv P>
[[nodiscard]] auto register_shared(pz& zone, Range&& range, const shared_cookie& name, privileges<P>) noexcept {
  return detail::memory_access::with<Range, P>(
      [&](auto* first, std::size_t bytes) {
        return detail::register_shared(detail::memory_access::of(zone), first, bytes, detail::verbs_access(P), name);
      },
      range);
}

/// Registers memory without pinning it: the adapter pages it in on demand.
/// Errors: as pz::register_memory; `model_not_supported` on an adapter without on-demand paging.
/// Allocates, Blocks and Thread safety: as pz::register_memory.
template <class Range, mem_priv P>
[[nodiscard]] auto register_on_demand(pz& zone, Range&& range, privileges<P>) noexcept {
  return detail::memory_access::with<Range, P>(
      [&](auto* first, std::size_t bytes) {
        return detail::register_on_demand(detail::memory_access::of(zone), first, bytes, detail::verbs_access(P));
      },
      range);
}

/// Registers memory whose writes the adapter may reorder on their way through the PCI bus: faster on many servers with
/// several processors. The order that a program may rely on is weaker:
/// - A completion still means that all data of its operation, and of all operations before it, is in memory.
/// - Data of one RDMA write, and of several, may arrive in any order before that. A program that polls the memory, for
///   example the last byte of a message, may see that byte before the bytes that precede it.
///
/// So signal the arrival by a send or by an RDMA write with immediate data, and not by the contents of memory. An
/// adapter without this feature registers the memory as pz::register_memory does.
///
/// Errors, Allocates, Blocks and Thread safety: as pz::register_memory.
template <class Range, mem_priv P>
[[nodiscard]] auto register_relaxed_ordering(pz& zone, Range&& range, privileges<P>) noexcept {
  return detail::memory_access::with<Range, P>(
      [&](auto* first, std::size_t bytes) {
        return detail::register_relaxed_ordering(detail::memory_access::of(zone), first, bytes,
                                                 detail::verbs_access(P));
      },
      range);
}

/// A piece of a region that the adapter addresses by an iova. DTOs take it like a local_segment. It has no pointer,
/// because a program cannot read memory by such an address. Copyable, 24 bytes.
/// Thread safety: a value.
template <class T, mem_priv P>
class iova_segment {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;
  constexpr iova_segment() noexcept = default;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return raw_.length / sizeof(T); }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return raw_.length; }
  [[nodiscard]] constexpr bool empty() const noexcept { return raw_.length == 0; }
  /// The address of its first byte: that of the region, and the bytes between.
  [[nodiscard]] constexpr std::uint64_t iova() const noexcept { return raw_.address; }

private:
  friend struct detail::segment_access;
  detail::raw_segment raw_{};
};

/// A region whose addresses, for this side and for peers, begin at an iova in place of a pointer of this process. The
/// iova is 0 (uDAPL 2.0 §6.7.2.1, DAT_VA_TYPE_ZB) for a region of `register_zero_based`, and an argument of
/// `register_dmabuf`. Otherwise it is like an lmr; its data cannot be sent `.inlined()`.
template <class T, mem_priv P>
class iova_lmr : public detail::object<iova_lmr<T, P>, object_kind::lmr> {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;
  iova_lmr() noexcept = default; ///< names no region

  /// Elements [first, first + count) for DTOs.
  /// Errors: `invalid_parameter` when the range exceeds the region; `length_error` when it has 4 GiB or more;
  /// `invalid_handle` for a closed region.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<iova_segment<T, P>> slice(std::size_t first, std::size_t count) const noexcept {
    auto s = under_.slice(first, count);
    if (!s) return s.assume_error();
    auto raw = detail::segment_access::raw(s.assume_value());
    if (raw.length != 0) raw.zone = raw.zone.with_offset_bit();
    return detail::segment_access::make<iova_segment<T, P>>(raw);
  }
  /// The whole region for a peer.
  [[nodiscard]] remote_segment<T, P> remote() const noexcept { return under_.remote(); }
  /// Elements [first, first + count) for a peer.
  /// Errors, Allocates, Blocks and Thread safety: as lmr::remote.
  [[nodiscard]] expected<remote_segment<T, P>> remote(std::size_t first, std::size_t count) const noexcept {
    return under_.remote(first, count);
  }
  /// Frees the region.
  /// Errors, Allocates, Blocks and Thread safety: as lmr::close.
  expected<void> close() noexcept { return under_.close(); }
  /// The address of the first byte; 0 for an empty handle.
  [[nodiscard]] std::uint64_t iova() const noexcept {
    const auto* const region = detail::memory_access::core(under_);
    return region ? region->address() : 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return under_.size(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return under_.size_bytes(); }
  explicit operator bool() const noexcept { return static_cast<bool>(under_); }
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return under_.native_handle(); }
  /// The region for calls that take an lmr, such as `dat::bind`. Its `data` and the pointers of its segments have no
  /// meaning.
  [[nodiscard]] const lmr<T, P>& as_lmr() const noexcept { return under_; }

  explicit iova_lmr(lmr<T, P>&& under) noexcept : under_(std::move(under)) {}

private:
  friend detail::object<iova_lmr, object_kind::lmr>;
  [[nodiscard]] auto* entity() const noexcept { return detail::memory_access::core(under_); }
  lmr<T, P> under_;
};

/// Registers memory so that it is addressed from 0. The memory must begin at a page, because an adapter would expose
/// the rest of the first page as well.
/// Errors: as pz::register_memory; `model_not_supported` for memory that does not begin at a page, and on adapters
/// without this type of region.
/// Allocates, Blocks and Thread safety: as pz::register_memory.
template <class Range, mem_priv P>
[[nodiscard]] auto register_zero_based(pz& zone, Range&& range, privileges<P>) noexcept {
  return detail::memory_access::by_iova(detail::memory_access::with<Range, P>(
      [&](auto* first, std::size_t bytes) {
        return detail::register_zero_based(detail::memory_access::of(zone), first, bytes, detail::verbs_access(P));
      },
      range));
}

/// Registers `count` elements of the memory of another device, such as a GPU, from the byte `offset` of a dmabuf. This
/// side and peers address the first of them as `iova`, by default 0. A program that exchanges addresses of that device
/// passes the address there. The descriptor may be closed afterwards.
/// Errors: as pz::register_memory; `model_not_supported` if the adapter or the system has no dmabuf support;
/// `invalid_parameter` also for a descriptor that is no dmabuf, for an `iova` that differs from `offset` in its place
/// within a page, and for one at which the elements do not fit below 2^64.
/// Allocates, Blocks and Thread safety: as pz::register_memory.
template <class T, mem_priv P>
[[nodiscard]] expected<iova_lmr<T, P>> register_dmabuf(pz& zone, int descriptor, std::uint64_t offset,
                                                       std::size_t count, privileges<P>,
                                                       std::uint64_t iova = 0) noexcept {
  static_assert(transferable<T>, "dat: only trivially copyable elements can be transferred as bytes");
  return detail::memory_access::dmabuf<T, P>(zone, descriptor, offset, count, iova);
}

/// The parameters of a region (DAT_LMR_PARAM).
struct lmr_params {
  const void* ia = nullptr; ///< the identity of its ia
  const void* pz = nullptr; ///< the identity of its zone
  mem_type type = mem_type::virtual_memory;
  const void* origin = nullptr;            ///< the identity of the original of register_over, while the original lives
  std::optional<shared_cookie> cookie;     ///< the cookie of shared memory
  mem_priv rights{};                       ///< the rights as requested
  bool zero_based = false;                 ///< va_type: the addresses begin at 0
  std::uint32_t lmr_key = 0;               ///< lmr_context
  std::optional<std::uint32_t> remote_key; ///< rmr_context; only with a remote right
  std::uint64_t registered_address = 0;    ///< the requested range is enforced to the byte
  std::uint64_t registered_size = 0;       ///< bytes; also `length`
};

namespace detail {
[[nodiscard]] expected<lmr_params> query_region(lmr_core* region, mem_priv rights, bool remotely_accessible) noexcept;
}

/// The parameters of a region (uDAPL 2.0 §6.7.2.3 dat_lmr_query).
/// Errors: `invalid_handle`.
/// Allocates: no.
/// Blocks: no.
/// Thread safety: safe.
template <class T, mem_priv P>
[[nodiscard]] expected<lmr_params> query(const lmr<T, P>& region) noexcept {
  return detail::query_region(detail::memory_access::core(region), P, lmr<T, P>::remotely_accessible);
}
/// The parameters of a region with an iova.
/// Errors, Allocates, Blocks and Thread safety: as above.
template <class T, mem_priv P>
[[nodiscard]] expected<lmr_params> query(const iova_lmr<T, P>& region) noexcept {
  return query(region.as_lmr());
}

/// Makes what this process has written to the segments visible to RDMA reads that start afterwards (uDAPL 2.0 §6.7.4.1
/// dat_lmr_sync_rdma_read). It is needed where `provider_attributes::lmr_sync_req` is set. On hosts with memory that is
/// coherent for adapters, which are those that dat supports, it orders memory accesses and checks the segments. Empty
/// segments are skipped.
/// Errors: `invalid_parameter` for a segment whose lmr is closed or of another ia; `invalid_handle`.
/// Allocates: no.
/// Blocks: no.
/// Thread safety: safe.
template <detail::names_memory... S>
expected<void> sync_rdma_read(const ia& adapter, const S&... segments) noexcept {
  return detail::sync("sync_rdma_read", detail::memory_access::of(adapter), segments...);
}
/// Makes a list of segments that is known at run time visible to RDMA reads.
/// Errors, Allocates, Blocks and Thread safety: as above.
template <std::size_t N, mem_priv P>
expected<void> sync_rdma_read(const ia& adapter, const iov<N, P>& segments) noexcept {
  return detail::sync_list("sync_rdma_read", detail::memory_access::of(adapter), detail::sge_list_access::of(segments));
}
/// Makes what completed RDMA writes have written to the segments visible to this process (uDAPL 2.0 §6.7.4.2
/// dat_lmr_sync_rdma_write).
/// Errors, Allocates, Blocks and Thread safety: as sync_rdma_read.
template <detail::names_memory... S>
expected<void> sync_rdma_write(const ia& adapter, const S&... segments) noexcept {
  return detail::sync("sync_rdma_write", detail::memory_access::of(adapter), segments...);
}
/// Makes completed RDMA writes to a list of segments that is known at run time visible to this process.
/// Errors, Allocates, Blocks and Thread safety: as sync_rdma_read.
template <std::size_t N, mem_priv P>
expected<void> sync_rdma_write(const ia& adapter, const iov<N, P>& segments) noexcept {
  return detail::sync_list("sync_rdma_write", detail::memory_access::of(adapter),
                           detail::sge_list_access::of(segments));
}

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {
template <class T, mem_priv P>
inline constexpr bool is_segment<iova_segment<T, P>> = true;
}}} // namespace dat::v0::detail

template <class T, dat::mem_priv P>
struct std::hash<dat::iova_lmr<T, P>> : dat::detail::handle_hash<dat::iova_lmr<T, P>> {};

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/memory.ipp>
#endif
