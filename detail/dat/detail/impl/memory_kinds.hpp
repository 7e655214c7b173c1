// Registration of memory of the other kinds; see memory.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ia.hpp>
#include <dat/lmr.hpp>
#include <dat/pz.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/memory/registration.hpp>
#include <dat/detail/text/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {
template <class T, mem_priv P>
class iova_lmr;
}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {

[[nodiscard]] result<ref<lmr_core>> register_over(const ref<pz_core>& pz, lmr_core* original, int access) noexcept;
[[nodiscard]] result<ref<lmr_core>> register_shared(const ref<pz_core>& pz, void* first, std::size_t bytes, int access,
                                                    const std::array<std::byte, 40>& cookie) noexcept;
[[nodiscard]] result<ref<lmr_core>> register_on_demand(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                       int access) noexcept;
[[nodiscard]] result<ref<lmr_core>> register_relaxed_ordering(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                              int access) noexcept;
[[nodiscard]] result<ref<lmr_core>> register_zero_based(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                        int access) noexcept;
[[nodiscard]] result<ref<lmr_core>> register_dmabuf(const ref<pz_core>& pz, int descriptor, std::uint64_t offset,
                                                    std::size_t bytes, int access, std::uint64_t iova) noexcept;

/// Finds the region of a segment. Segments hold no pointer to it, because each of them would have to keep it alive.
[[nodiscard]] bool is_registered(ia_core& ia, std::uint64_t address, std::uint64_t length, std::uint32_t key) noexcept;
[[nodiscard]] expected<void> sync_checked(const char* call, const ref<ia_core>& ia, bool all) noexcept;
template <class... S>
[[nodiscard]] expected<void> sync(const char* call, const ref<ia_core>& ia, const S&... segments) noexcept {
  [[maybe_unused]] const auto known = [&](const raw_segment& s) {
    return is_registered(*ia, s.address, s.length, s.key);
  };
  return sync_checked(call, ia, !ia || ia->closed() || (known(raw_of(segments)) && ...));
}
template <class G>
[[nodiscard]] expected<void> sync_list(const char* call, const ref<ia_core>& ia, const G& list) noexcept {
  bool all = true;
  for (std::uint32_t i = 0; ia && !ia->closed() && i < list.count(); ++i)
    all = all && is_registered(*ia, list[i].addr, list[i].length, list[i].lkey);
  return sync_checked(call, ia, all);
}

/// Regions of further kinds, from handles and to handles.
struct memory_access {
  [[nodiscard]] static const ref<pz_core>& of(const pz& zone) noexcept { return core_access::of(zone); }
  [[nodiscard]] static const ref<ia_core>& of(const ia& adapter) noexcept { return core_access::of(adapter); }
  template <class T, mem_priv P>
  [[nodiscard]] static lmr_core* core(const lmr<T, P>& region) noexcept {
    return core_access::of(region).get();
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<lmr<T, P>> wrap(result<ref<lmr_core>>&& made) noexcept {
    if (!made) return made.assume_error();
    return core_access::make<lmr<T, P>>(std::move(made).assume_value());
  }

  /// The checks of pz::register_memory, then `make(pointer, bytes)`.
  template <class Range, mem_priv P, class Make>
  [[nodiscard]] static auto with(Make make, Range& range) noexcept {
    static_assert(contiguous<Range>, "dat: memory is a contiguous range: a std::span, std::vector, std::array or a C "
                                     "array");
    using element = element_of<Range>;
    static_assert(elements_live_on<Range>, "dat: the adapter uses this memory after the call: pass a container "
                                           "that lives on (an lvalue), not a temporary");
    static_assert(std::is_trivially_copyable_v<element>,
                  "dat: only trivially copyable elements can be transferred as bytes");
    static_assert(!std::is_const_v<element> || !writes(P),
                  "dat: const memory can be registered for local_read and remote_read only");
    const auto all = span_over(range);
    auto* first = const_cast<std::remove_const_t<element>*>(all.data());
    return wrap<element, P>(make(static_cast<void*>(first), all.size_bytes()));
  }
  template <class T, mem_priv P, mem_priv Q>
  [[nodiscard]] static expected<lmr<T, P>> again(pz& zone, const lmr<T, Q>& original) noexcept {
    return wrap<T, P>(register_over(of(zone), core(original), verbs_access(P)));
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<iova_lmr<T, P>> by_iova(expected<lmr<T, P>>&& made) noexcept {
    if (!made) return made.assume_error();
    return core_access::make<iova_lmr<T, P>>(std::move(made).assume_value());
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<iova_lmr<T, P>> dmabuf(pz& zone, int descriptor, std::uint64_t offset,
                                                       std::size_t count, std::uint64_t iova) noexcept {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      return error(return_type::invalid_parameter, return_subtype::arg3)
          .at("register_dmabuf", object_kind::lmr)
          .hint("The elements have more bytes than the address space: `count` is too large.");
    return by_iova(wrap<T, P>(register_dmabuf(of(zone), descriptor, offset, count * sizeof(T), verbs_access(P), iova)));
  }
};

}}} // namespace dat::v0::detail
