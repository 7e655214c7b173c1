// Protection zones: which endpoints may use which memory.
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

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/registration.hpp>

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace dat::inline v0 {

/// The evds of an endpoint, one for each of its streams (uDAPL 2.0 §6.6.4). Any two may be the same. One that is left
/// out makes the endpoint unconfigured: `ep::modify` can supply it, connecting has to wait for that. For events that
/// nobody wants, name `dat::drop_events`.
struct ep_evds {
  evd_ref<dto> recv{};           ///< completions of receives
  evd_ref<dto> request{};        ///< completions of sends and RDMA
  evd_ref<connection> connect{}; ///< established, disconnected, ...

private:
  friend class ia;
  friend class pz;
  friend class ep<rc>;
  [[nodiscard]] detail::result<detail::ep_core::queues> shared() const noexcept {
    const auto lost = [](return_subtype which) {
      return error(return_type::invalid_handle, which).hint("the evd is closed or belongs to another ia");
    };
    if (recv.lost()) return lost(return_subtype::handle_evd_recv);
    if (request.lost()) return lost(return_subtype::handle_evd_request);
    if (connect.lost()) return lost(return_subtype::handle_evd_conn);
    return detail::ep_core::queues{recv.shared(),  request.shared(),  connect.shared(),
                                   recv.dropped(), request.dropped(), connect.dropped()};
  }
};

/// Ties endpoints to the memory they may use (uDAPL 2.0 §6.7.1). Made by `ia::create_pz`. Everything created from it
/// keeps it alive.
///
/// Move-only. Thread safety: `create_ep` and `register_memory` may be called from several threads at once; `close` and
/// destruction must not overlap them.
class pz : public dat::object<pz, object_kind::pz> {
public:
  pz() noexcept = default; ///< names no zone
  pz(pz&&) noexcept = default;
  pz& operator=(pz&&) noexcept = default;
  ~pz() = default;

  /// Registers a contiguous range of trivially copyable elements (uDAPL 2.0 §6.7.2.1), for example a std::span, a
  /// std::vector or a std::array, with rights such as `dat::local_write | dat::remote_read`. Const elements allow
  /// reading rights only. The range is not owned: it must outlive the region, so a temporary container is refused.
  ///
  /// Errors: `invalid_parameter` for an empty range, or memory that the process itself may not use that way;
  /// `insufficient_resources` when the memory cannot be pinned (often RLIMIT_MEMLOCK) or the device has no region left;
  /// `invalid_handle`. Allocates: yes. Blocks: while the system pins the pages, some microseconds per page.
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
      if (!core_) return result(detail::empty_handle("pz.register_memory", return_subtype::handle_pz));
      const std::span all(range);
      auto* first = const_cast<std::remove_const_t<element>*>(all.data());
      auto core = detail::lmr_core::create(core_.shared(), static_cast<void*>(first), all.size_bytes(),
                                           detail::verbs_access(P));
      if (!core) return result(core.assume_error());
      return result(lmr<element, P>(std::move(core).assume_value()));
    }
  }

  /// Makes an endpoint of this zone (uDAPL 2.0 §6.6.4 dat_ep_create) whose events all go to one evd, or to the three of
  /// `ep_evds`. It takes receives at once and is ready to connect.
  ///
  ///     pz.create_ep<dat::rc>(evd)
  ///     pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = events}, {.max_recv_dtos =
  ///     512})
  ///
  /// Errors: `invalid_parameter` for an attribute that the device cannot provide; `invalid_handle` for an evd that is
  /// closed or of another ia; `insufficient_resources`. Allocates: yes. Blocks: briefly, in the driver.
  template <class Service>
  requires(!std::is_same_v<Service, ud>)
      [[nodiscard]] expected<ep<Service>> create_ep(const ep_evds& evds,
                                                    const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> and, with <dat/ud.hpp>, create_ep<dat::ud> are "
                                               "the services there are");
    static constexpr const char* call = "pz.create_ep";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_pz);
    auto queues = evds.shared();
    if (!queues) return queues.assume_error().at(call, object_kind::ep);
    auto core = detail::ep_core::create(call, detail::ref<detail::ia_core>(&core_->ia()), core_.shared(),
                                        queues.assume_value(), attributes);
    if (!core) return core.assume_error();
    return ep<Service>(std::move(core).assume_value());
  }
  template <class Service, streams S>
  requires(!std::is_same_v<Service, ud>)
      [[nodiscard]] expected<ep<Service>> create_ep(const evd<S>& all, const ep_attributes& attributes = {}) noexcept {
    static_assert(includes(S, dto | connection), "dat: an endpoint's only evd needs the streams dat::dto | "
                                                 "dat::connection; name three evds by dat::ep_evds instead");
    return create_ep<Service>(ep_evds{all, all, all}, attributes);
  }

  /// Makes a datagram endpoint (IB extensions §4); see <dat/ud.hpp>. `evds` is one evd with the streams dto, connection
  /// and datagrams, or ib::datagram_evds. Errors: as above.
  template <class Service, class Evds>
  requires std::is_same_v<Service, ud>
  [[nodiscard]] expected<ep<Service>> create_ep(const Evds& evds, const ep_attributes& attributes = {}) noexcept {
    return ep<Service>::create(core_.shared(), evds, attributes);
  }

  /// Makes an endpoint that takes its receives from `shared` for all its life (uDAPL 2.0 §6.6.5
  /// dat_ep_create_with_srq). The queue is of this zone. Include <dat/srq.hpp>.
  ///
  ///     pz.create_ep<dat::rc>(evd, srq, {.soft_high_watermark = 100})
  ///
  /// Errors: as above; `invalid_handle` also for an srq that is closed or of another ia; `invalid_parameter` for one of
  /// another zone; `model_not_supported` for high watermarks with a recv evd of streams::dto alone.
  template <class Service, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const ep_evds& evds, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> is the service that takes an srq");
    static constexpr const char* call = "pz.create_ep";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_pz);
    if (!shared) return detail::empty_handle(call, return_subtype::handle_srq);
    auto queues = evds.shared();
    if (!queues) return queues.assume_error().at(call, object_kind::ep);
    auto core = detail::ep_core::create(call, detail::ref<detail::ia_core>(&core_->ia()), core_.shared(),
                                        queues.assume_value(), attributes, shared.core_.shared());
    if (!core) return core.assume_error();
    return ep<with_srq<Service>>(std::move(core).assume_value());
  }
  template <class Service, streams S, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const evd<S>& all, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    static_assert(includes(S, dto | connection), "dat: an endpoint's only evd needs the streams dat::dto | "
                                                 "dat::connection; name three evds by dat::ep_evds instead");
    return create_ep<Service>(ep_evds{all, all, all}, shared, attributes);
  }

  /// Makes a shared receive queue of this zone (uDAPL 2.0 §6.5.1), with at least the room that is asked for. Include
  /// <dat/srq.hpp>.
  /// Errors: `model_not_supported` on an adapter without such queues; `invalid_parameter` for a size of 0 or beyond the
  /// adapter's; `insufficient_resources`; `invalid_handle`. Allocates: yes. Blocks: briefly, in the driver.
  template <class Srq = srq>
  [[nodiscard]] expected<Srq> create_srq(const srq_attributes& attributes = {}) noexcept;

  /// Makes a remote memory region (uDAPL 2.0 §6.7.3.1 dat_rmr_create), not bound to anything, whose key any connection
  /// of this zone may use. Include <dat/rmr.hpp>, which says more.
  /// Errors: `insufficient_resources`; `model_not_supported` on an adapter without such windows; `invalid_handle`.
  /// Allocates: yes. Blocks: briefly, in the driver.
  template <class Rmr = rmr>
  [[nodiscard]] expected<Rmr> create_rmr() noexcept {
    return Rmr::create(core_.shared(), false);
  }
  /// The same for one connection at a time: the one that it is bound through (uDAPL 2.0 §6.7.3.2
  /// dat_rmr_create_for_ep). The peer can invalidate it.
  template <class Rmr = rmr>
  [[nodiscard]] expected<Rmr> create_rmr_for_ep() noexcept {
    return Rmr::create(core_.shared(), true);
  }

  /// Frees the zone (uDAPL 2.0 §6.7.1.2).
  /// Errors: `invalid_state` (pz_in_use) while an endpoint, lmr, rmr or srq of it lives: the zone stays usable;
  /// `invalid_handle`.
  expected<void> close() noexcept {
    return core_.close("pz.close", return_subtype::handle_pz, return_subtype::pz_in_use);
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The verbs protection domain.
  [[nodiscard]] ibv_pd* native_handle() const noexcept { return core_ ? core_->pd() : nullptr; }

private:
  friend dat::object<pz, object_kind::pz>;
  friend class ia;
  friend class ep<rc>;
  friend class ep<ud>;
  friend class srq;
  friend struct detail::memory_access;
  explicit pz(detail::ref<detail::pz_core> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::pz_core> core_;
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::pz> : dat::detail::handle_hash<dat::pz> {};
