// Protection zones: a zone groups the endpoints and the memory that they may use.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/lmr.hpp>
#include <dat/object.hpp>
#include <dat/privileges.hpp>
#include <dat/srq_attributes.hpp>

#include <dat/detail/base/misuse.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/memory/registration.hpp>

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

/// The evds of an endpoint, one for each of its streams (uDAPL 2.0 §6.6.4). Two or all three may be the same. Without
/// one of them the endpoint is unconfigured until `ep::modify` supplies it, and cannot connect. For events that the
/// consumer does not want, pass `dat::drop_events`.
struct ep_evds {
  evd_ref<streams::dto> recv{};           ///< completions of receives
  evd_ref<streams::dto> request{};        ///< completions of sends and RDMA
  evd_ref<streams::connection> connect{}; ///< established, disconnected, ...

  /// For internal use: the cores of the evds.
  [[nodiscard]] detail::result<detail::ep_core::queues> shared() const noexcept;
};

namespace detail {
/// Makes the endpoint of a create_ep that `call` names.
[[nodiscard]] result<ref<ep_core>> create_ep(const char* call, ia_core& ia, const ref<pz_core>& pz, const ep_evds& evds,
                                             const ep_attributes& attributes, const ref<srq_core>& srq = {}) noexcept;
} // namespace detail

/// Ties endpoints to the memory that they may use (uDAPL 2.0 §6.7.1). `ia::create_pz` creates it. Every object that the
/// zone creates keeps it alive.
///
/// Move-only.
/// Thread safety: `create_ep` and `register_memory` may be called from several threads at once; `close` and destruction
/// must not overlap them.
class pz : public detail::unique_object<pz, detail::pz_core, object_kind::pz> {
public:
  pz() noexcept = default; ///< names no zone

  /// Registers a contiguous range of trivially copyable elements (uDAPL 2.0 §6.7.2.1), for example a std::span, a
  /// std::vector or a std::array, with rights such as `dat::local_write | dat::remote_read`. Const elements allow
  /// reading rights only. The range is not owned: it must outlive the region, so a temporary container is refused.
  ///
  /// Errors:
  /// - `invalid_parameter`: the range is empty, or the process itself may not use the memory that way
  /// - `insufficient_resources`: the memory cannot be pinned (often RLIMIT_MEMLOCK), or the device has no region left
  /// - `model_not_supported`: a right of flushes, on an adapter without flushes
  /// - `invalid_handle`: the zone is empty or closed
  /// Allocates: yes.
  /// Blocks: while the system pins the pages, some microseconds per page.
  /// Thread safety: safe.
  template <class Range, mem_priv P>
  [[nodiscard]] auto register_memory(Range&& range, privileges<P>) noexcept {
    static_assert(detail::contiguous<Range>, "dat: register_memory takes a contiguous range: a std::span, std::vector, "
                                             "std::array or a C array");
    if constexpr (detail::contiguous<Range>) {
      using element = detail::element_of<Range>;
      static_assert(detail::elements_live_on<Range>,
                    "dat: the adapter uses this memory after the call: pass a container "
                    "that lives on (an lvalue), not a temporary");
      static_assert(transferable<element>, "dat: only trivially copyable elements can be transferred as bytes");
      static_assert(!std::is_const_v<element> || !detail::writes(P),
                    "dat: const memory can be registered for local_read and remote_read only");
      using result = expected<lmr<element, P>>;
      if (!core_) return result(empty_handle("pz.register_memory"));
      const auto all = detail::span_over(range);
      auto* first = const_cast<std::remove_const_t<element>*>(all.data());
      auto core = detail::lmr_core::create("pz.register_memory", core_.shared(), static_cast<void*>(first),
                                           all.size_bytes(), detail::verbs_access(P));
      if (!core) return result(core.assume_error());
      return result(lmr<element, P>(std::move(core).assume_value()));
    }
  }

  /// Creates an endpoint of this zone (uDAPL 2.0 §6.6.4 dat_ep_create). Its events go to the evds of `evds`. It takes
  /// receives at once and is ready to connect.
  ///
  ///     pz.create_ep<dat::rc>(evd)
  ///     pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = events}, {.max_recv_dtos =
  ///     512})
  ///
  /// Errors:
  /// - `invalid_parameter`: the device cannot provide an attribute, or queues that feed one evd have different
  ///   completion modes
  /// - `invalid_handle`: the zone or an evd is empty, closed, or of another ia. Connection events may go to the evd of
  ///   another ia of the same adapter, which runs its work itself.
  /// - `insufficient_resources`: the device or its memory is exhausted. If an evd has too little room and the device
  ///   cannot resize it, `error().index()` is the number of events that it needs.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  template <class Service>
  requires(!std::is_same_v<Service, ud>) [[nodiscard]] expected<detail::if_complete<ep<Service>>> create_ep(
      const ep_evds& evds, const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> and, with <dat/ud.hpp>, create_ep<dat::ud> are "
                                               "the services there are");
    static constexpr const char* call = "pz.create_ep";
    if (!core_) return empty_handle(call);
    auto core = detail::create_ep(call, core_->ia(), core_.shared(), evds, attributes);
    if (!core) return core.assume_error();
    if constexpr (std::is_same_v<Service, rc>) return ep<Service>(std::move(core).assume_value());
  }
  /// Creates an endpoint whose events all go to the evd `all`.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <class Service, streams S>
  requires(!std::is_same_v<Service, ud>) [[nodiscard]] expected<detail::if_complete<ep<Service>>> create_ep(
      const evd<S>& all, const ep_attributes& attributes = {}) noexcept {
    if constexpr (serves_alone<S>()) return create_ep<Service>(ep_evds{all, all, all}, attributes);
  }
  template <class Service, streams S>
  void create_ep(const expected<evd<S>>& all, const ep_attributes& = {}) noexcept {
    (void)evd_ref<streams::dto>(all); // does not compile, and its message names the reason
  }

  /// Creates a datagram endpoint (IB extensions §4); see <dat/ud.hpp>. `evds` is an ib::datagram_evds, or one evd with
  /// the streams dto, connection and datagrams.
  /// Errors, Allocates, Blocks and Thread safety: as the overload for dat::rc.
  template <class Service, class Evds>
  requires std::is_same_v<Service, ud>
  [[nodiscard]] expected<detail::if_complete<ep<Service>>> create_ep(const Evds& evds,
                                                                     const ep_attributes& attributes = {}) noexcept {
    static_assert(detail::complete<ep<Service>>, "dat: include <dat/ud.hpp> to create datagram endpoints");
    if constexpr (detail::complete<ep<Service>>) return ep<Service>::create(core_.shared(), evds, attributes);
  }

  /// Creates an endpoint that takes its receives from `shared` during its whole life (uDAPL 2.0 §6.6.5
  /// dat_ep_create_with_srq). The queue must be of this zone, and the recv evd merged. Include <dat/srq.hpp>.
  ///
  ///     pz.create_ep<dat::rc>(evd, srq, {.soft_high_watermark = 100})
  ///
  /// Errors: as the overload without an srq, and also
  /// - `invalid_handle`: the srq is empty, closed, or of another ia
  /// - `invalid_parameter`: the srq is of another zone
  /// - `model_not_supported`: the recv evd is completions-only
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  template <class Service, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const ep_evds& evds, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> is the service that takes an srq");
    static constexpr const char* call = "pz.create_ep";
    if (!core_) return empty_handle(call);
    if (!shared) return detail::empty_handle(call, return_subtype::handle_srq);
    auto core = detail::create_ep(call, core_->ia(), core_.shared(), evds, attributes, detail::core_access::of(shared));
    if (!core) return core.assume_error();
    return ep<with_srq<Service>>(std::move(core).assume_value());
  }
  /// Creates an endpoint with a shared receive queue, whose events all go to the evd `all`.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <class Service, streams S, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const evd<S>& all, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    if constexpr (serves_alone<S>()) return create_ep<Service>(ep_evds{all, all, all}, shared, attributes);
  }

  /// Creates a shared receive queue of this zone (uDAPL 2.0 §6.5.1) with at least the requested room. Include
  /// <dat/srq.hpp>.
  /// Errors: `model_not_supported` on an adapter without such queues; `invalid_parameter` for a size of 0 or above the
  /// adapter's; `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  template <class Srq = srq>
  [[nodiscard]] expected<detail::if_complete<Srq>> create_srq(const srq_attributes& attributes = {}) noexcept {
    static_assert(detail::complete<Srq>, "dat: include <dat/srq.hpp> to create shared receive queues");
    if constexpr (detail::complete<Srq>) return detail::dependent<Srq>(*this).make_srq(attributes);
  }

  /// Creates an unbound remote memory region (uDAPL 2.0 §6.7.3.1 dat_rmr_create). Any connection of this zone may use
  /// its key. Include <dat/rmr.hpp>, which has the details.
  /// Errors: `insufficient_resources`; `model_not_supported` on an adapter without memory windows; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  template <class Rmr = rmr>
  [[nodiscard]] expected<detail::if_complete<Rmr>> create_rmr() noexcept {
    static_assert(detail::complete<Rmr>, "dat: include <dat/rmr.hpp> to create remote memory regions");
    if constexpr (detail::complete<Rmr>) return detail::dependent<Rmr>(*this).make_rmr(false);
  }
  /// Creates an unbound remote memory region for one connection at a time: the one through which it is bound (uDAPL 2.0
  /// §6.7.3.2 dat_rmr_create_for_ep). The peer can invalidate it.
  /// Errors, Allocates, Blocks and Thread safety: as create_rmr.
  template <class Rmr = rmr>
  [[nodiscard]] expected<detail::if_complete<Rmr>> create_rmr_for_ep() noexcept {
    static_assert(detail::complete<Rmr>, "dat: include <dat/rmr.hpp> to create remote memory regions");
    if constexpr (detail::complete<Rmr>) return detail::dependent<Rmr>(*this).make_rmr(true);
  }

  /// Frees the zone (uDAPL 2.0 §6.7.1.2).
  /// Errors: `invalid_state` (pz_in_use) while an endpoint, lmr, rmr or srq of it lives, which leaves the zone usable;
  /// `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept { return close_as("pz.close", return_subtype::pz_in_use); }

  /// The verbs protection domain.
  [[nodiscard]] ibv_pd* native_handle() const noexcept { return core_ ? core_->pd() : nullptr; }

  using unique_object::unique_object;

private:
  /// Does not compile for an evd that cannot be an endpoint's only one.
  template <streams S>
  [[nodiscard]] static consteval bool serves_alone() noexcept {
    static_assert(includes(S, streams::dto),
                  "dat: an endpoint's only evd needs dat::stream::dto, which this one lacks: "
                  "create it with create_evd<dat::stream::dto | dat::stream::connection>, or "
                  "name three evds by dat::ep_evds");
    static_assert(includes(S, streams::connection),
                  "dat: an endpoint's only evd needs dat::stream::connection, which this one lacks: create it with "
                  "create_evd<dat::stream::dto | dat::stream::connection>, or name three evds by dat::ep_evds");
    return includes(S, streams::dto | streams::connection);
  }
  // Defined in <dat/srq.hpp> and <dat/rmr.hpp>.
  [[nodiscard]] expected<srq> make_srq(const srq_attributes& attributes) noexcept;
  [[nodiscard]] expected<rmr> make_rmr(bool for_ep) noexcept;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/pz.ipp>
#endif
