// Interface adapters: an ia opens an adapter and creates all other objects.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/attributes.hpp>
#include <dat/cno.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/psp.hpp>
#include <dat/pz.hpp>
#include <dat/qos.hpp>
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapter/attributes_query.hpp>
#include <dat/detail/adapter/ia_handle.hpp>
#include <dat/detail/base/misuse.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/unique_object.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

/// Selects the thread that does the work outside of calls: connecting, time limits, rejects, disconnects.
enum class progress : std::uint8_t {
  automatic, ///< one service thread per ia, all signals blocked in it, asleep while nothing happens
  /// No thread. The work is done inside dequeue and drain of merged evds, inside ia::run, and inside wait: before it
  /// sleeps, and in at least every eighth wait that need not sleep.
  manual
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(progress value) noexcept {
  return detail::enum_name(value, {"automatic", "manual"}, "unknown progress");
}

/// Takes the place of an evd of asynchronous events: another process on this host handles the asynchronous events of
/// the adapter (DAT_EVD_ASYNC_EXISTS, uDAPL 2.0 §6.2.1.1). `ia::async_evd` is then empty (DAT_EVD_OUT_OF_SCOPE), and
/// the ia reports no asynchronous event. The causes of these events still change the state of endpoints and evds.
struct async_exists_t {};
inline constexpr async_exists_t async_exists; ///< passed in the place of an evd

/// Names an evd with dat::stream::async for the time of a call.
class async_target {
public:
  constexpr async_target() noexcept = default;                             ///< no evd
  constexpr async_target(async_exists_t) noexcept : out_of_scope_(true) {} // NOLINT(google-explicit-constructor)
  template <streams S>
  async_target(const evd<S>& e) noexcept
      : core_(detail::core_access::of(e).get()) { // NOLINT(google-explicit-constructor)
    static_assert(includes(S, streams::async),
                  "dat: this evd cannot take asynchronous events; create it with dat::stream::async");
  }

private:
  friend class ia;
  detail::evd_core* core_ = nullptr;
  bool out_of_scope_ = false;
};

/// The options of `ia::open`. A default-constructed object has the usual settings.
struct ia_options {
  dat::progress progress = progress::automatic;
  std::uint32_t async_qlen = 16; ///< room of the evd of `ia::async_evd`
  /// An evd of another ia on the same adapter, which then takes the asynchronous events of this one, or
  /// dat::async_exists. With either, the ia has no evd of its own for them.
  async_target async_evd = {};
  /// The quality of service of endpoints, where ep_attributes::qos sets none. On iWARP a traffic class at most.
  dat::qos qos = {};
};

/// An open adapter: one port of one RDMA device, with its own device context (uDAPL 2.0 §6.2). It creates all other
/// objects. A program may open the same adapter several times.
///
/// Move-only. When the handle is destroyed, the objects that the ia created stay usable; the adapter is closed with the
/// last of them.
/// Thread safety: all members may be called from several threads at once, except `close`, moving and destruction.
class ia : public detail::unique_object<ia, detail::ia_core, object_kind::ia, detail::ia_handle> {
public:
  ia() noexcept = default; ///< names no adapter

  /// Opens the default adapter of this host: the first port, in the order of the network interfaces, that is active and
  /// has an IP address. An adapter of InfiniBand or RoCE precedes one of iWARP, which has no InfiniBand extensions. If
  /// no port is active, the first that has an address.
  ///
  /// Errors:
  /// - `provider_not_found`: the host has no adapter. The message names the remedy.
  /// - `insufficient_resources`: no memory, or a limit of the device or the process
  /// - `privileges_violation`: the process may not open the device files
  /// - `invalid_handle`: the async_evd of `options` is closed or of another adapter
  /// - `invalid_parameter`: a qos of `options` that no device has
  /// - `model_not_supported`: a service level or flow label in the qos of `options`, and an adapter of iWARP
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia> open(const ia_options& options = {}) noexcept;

  /// Opens an adapter by its device name, "rx1" or, for another port than 1, "mlx5_0/2"; by a name from /etc/dat.conf
  /// or from the file that DAT_OVERRIDE names; or by one that the program has added (see <dat/registry.hpp>).
  ///
  /// Errors: as open(), and also
  /// - `invalid_parameter`: the name is empty, has more than 255 characters, or names a port that the device does not
  ///   have
  /// - `provider_not_found`: no adapter has that name, or the port has no IP address
  /// - `insufficient_resources` (resource_device): dat.conf or the program has the name, and its device is absent
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia> open(std::string_view name, const ia_options& options = {}) noexcept;

  /// Opens the adapter that has this local address.
  /// Errors: as open(); `invalid_address` when the address is not of this host, or not on an RDMA device.
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia> open(const ia_address& local, const ia_options& options = {}) noexcept;

  /// Opens the adapter that the host's routing uses to reach `remote`, a name or numeric address.
  /// Errors: as open(); `invalid_address` when the name cannot be resolved or no route leads through an RDMA device.
  /// Allocates: yes.
  /// Blocks: up to `limit` for neighbour resolution, and as long as the host's resolver takes for names.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia> open_by_route(const std::string& remote, const ia_options& options = {},
                                                  timeout limit = std::chrono::seconds(2)) noexcept;

  /// The adapters of this host, one entry for each port. The call opens each device for a moment, and leaves none open.
  /// Without an adapter the list is empty. <dat/registry.hpp> has more about each adapter, and the names of dat.conf.
  /// Errors: the errno of ibv_get_device_list.
  /// Allocates: only inside libibverbs.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] static expected<adapter_list> list_adapters() noexcept;

  /// The adapters of this host, the nearest to a processor first. A thread on that processor reaches the nearest
  /// adapters without a path through another processor. Adapters whose node the kernel does not know come last, in the
  /// order of list_adapters. On a host with one node, this is the order of all adapters.
  ///
  ///     const auto near = dat::ia::list_adapters_near(static_cast<unsigned>(::sched_getcpu()));
  ///
  /// Errors: as list_adapters; `invalid_parameter` for a processor that the host does not have.
  /// Allocates, Blocks and Thread safety: as list_adapters.
  [[nodiscard]] static expected<adapter_list> list_adapters_near(std::uint32_t cpu) noexcept;

  /// Creates a protection zone (uDAPL 2.0 §6.7.1.1).
  /// Errors: `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  [[nodiscard]] expected<pz> create_pz() noexcept;

  /// The evd that `open` created for the asynchronous events of this ia: overflows, failures and changes of the adapter
  /// (uDAPL 2.0 §6.2.1.1 async_evd_handle). It lives as long as the ia and cannot be closed. Every other evd with
  /// dat::stream::async gets each of these events as well. It is empty if `open` was given the evd of another ia, or
  /// dat::async_exists.
  [[nodiscard]] evd<streams::async>& async_evd() noexcept { return async_evd_; }

  /// Creates an evd with the streams `S` and room for `qlen` events (uDAPL 2.0 §6.3.4.1). Without streams, it has those
  /// of dat::stream::standard.
  ///
  ///     ia.create_evd<dat::stream::dto>(128)
  ///     ia.create_evd<dat::stream::dto | dat::stream::connection>(64)
  ///
  /// For completions, `qlen` should be the sum of what its endpoints can have outstanding. A smaller evd grows when
  /// they are attached.
  /// Errors: `invalid_parameter` for a length of 0 or above the device's max_cqe, or a completion_vector that the
  /// device does not have; `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  template <streams S = stream::standard>
  [[nodiscard]] expected<evd<S>> create_evd(std::uint32_t qlen, const evd_options& options = {}) noexcept {
    static_assert(S != streams{}, "dat: an evd needs at least one stream");
    static_assert(includes(streams::software | streams::connection_requests | streams::dto | streams::connection |
                               streams::rmr_bind | streams::async | streams::datagrams,
                           S),
                  "dat: the value has a bit that is no stream; join the constants of <dat/streams.hpp> by |");
    if (!core_) return empty_handle("ia.create_evd");
    auto core = detail::evd_core::create(core_.shared(), S, qlen, options.completion_vector);
    if (!core) return core.assume_error();
    return evd<S>(std::move(core).assume_value());
  }
  template <std::same_as<streams> Streams>
  void create_evd(std::uint32_t, Streams) noexcept {
    static_assert(detail::never<Streams>,
                  "dat: the streams are a template argument: ia.create_evd<dat::stream::dto>(64)");
  }

  /// Creates a consumer notification object, with or without an agent that its first trigger calls (uDAPL 2.0
  /// §6.3.2.1).
  /// Errors: `invalid_parameter` for an agent with data and no function; `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<cno> create_cno(const wait_proxy_agent& agent = {}) noexcept;

  /// Listens on a connection qualifier, a port (uDAPL 2.0 §6.4.4.1.1). The compiler checks a constant; for a value that
  /// is known at run time, use `conn_qual::make`. Connection requests are queued in `requests`, as many as it has room
  /// for.
  ///
  /// Errors:
  /// - `conn_qual_in_use`: another service point of the host listens there
  /// - `privileges_violation`: a port below 1024, for which the process has no right
  /// - `invalid_handle`: the ia or the evd is closed, or the evd is of another ia
  /// - `invalid_parameter`: flags that do not exist
  /// - `insufficient_resources`: no memory, or no id of the connection manager
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<psp> create_psp(conn_qual qualifier, const evd_ref<streams::connection_requests>& requests,
                                         psp_flags flags = psp_flags::consumer) noexcept;
  /// Listens on a free qualifier, which `psp::port` returns (uDAPL 2.0 §6.4.4.1.2).
  /// Errors: as create_psp; `conn_qual_unavailable` when no qualifier is free.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<psp> create_psp_any(const evd_ref<streams::connection_requests>& requests,
                                             psp_flags flags = psp_flags::consumer) noexcept;
  /// Listens for one connection request, for the endpoint `with`, which must be unconnected (uDAPL 2.0 §6.4.4.3.1).
  /// Include <dat/rsp.hpp>.
  /// Errors: as create_psp; `invalid_state` with the endpoint's state.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<rsp> create_rsp(conn_qual qualifier, const ep<rc>& with,
                                         const evd_ref<streams::connection_requests>& requests) noexcept;
  /// Listens for one connection request, which contains its own endpoint, as with psp_flags::provider. Include
  /// <dat/rsp.hpp>.
  /// Errors, Allocates, Blocks and Thread safety: as create_psp.
  [[nodiscard]] expected<rsp> create_rsp(conn_qual qualifier,
                                         const evd_ref<streams::connection_requests>& requests) noexcept;
  /// Listens as a bound socket does (uDAPL 2.0 §6.4.4.2.1). `address` may be 0.0.0.0 or [::], and its port 0 for a free
  /// one. Include <dat/csp.hpp>.
  ///
  /// Errors:
  /// - `port_in_use`: another program or service point listens there
  /// - `comm_not_supported`: the communicator is not one that the adapter supports
  /// - `invalid_parameter`: the address is not of the ia's interface, or not of the communicator's domain
  /// - `invalid_handle`: the ia or the evd is closed, or the evd is of another ia
  /// - `insufficient_resources`: no memory, or no id of the connection manager
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<csp> create_csp(const communicator& comm, const ia_address& address,
                                         const evd_ref<streams::connection_requests>& requests) noexcept;
  /// Listens at the address of the ia and a free port.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  [[nodiscard]] expected<csp> create_csp(const communicator& comm,
                                         const evd_ref<streams::connection_requests>& requests) noexcept;

  /// Creates an endpoint without a protection zone, and possibly without evds (uDAPL 2.0 §6.6.4). It is unconfigured
  /// until `ep::modify` has supplied them. Receives can be posted before, of any zone: see `ep::modify`.
  /// Errors, Allocates, Blocks and Thread safety: as pz::create_ep.
  template <class Service>
  [[nodiscard]] expected<ep<Service>> create_ep(const ep_evds& evds = {},
                                                const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>,
                  "dat: only an ep<dat::rc> can be made without a zone; datagram endpoints "
                  "are made by pz::create_ep<dat::ud>");
    static constexpr const char* call = "ia.create_ep";
    if (!core_) return empty_handle(call);
    auto core = detail::create_ep(call, *core_, {}, evds, attributes);
    if (!core) return core.assume_error();
    return ep<Service>(std::move(core).assume_value());
  }
  /// Creates an unconfigured endpoint that takes its receives from an srq, whose zone must become the endpoint's.
  /// Include <dat/srq.hpp>.
  /// Errors, Allocates, Blocks and Thread safety: as pz::create_ep.
  template <class Service, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const ep_evds& evds, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> is the service that takes an srq");
    static constexpr const char* call = "ia.create_ep";
    if (!core_) return empty_handle(call);
    if (!shared) return detail::empty_handle(call, return_subtype::handle_srq);
    auto core = detail::create_ep(call, *core_, {}, evds, attributes, detail::core_access::of(shared));
    if (!core) return core.assume_error();
    return ep<with_srq<Service>>(std::move(core).assume_value());
  }

  /// The properties of the adapter, `query()`, or of this library on it, `query<dat::provider_attributes>()` (uDAPL 2.0
  /// §6.2.1.5 dat_ia_query). Limits are those of the time of opening; the state of the port is the current one.
  /// Errors: `invalid_handle`; the errno of the device, for example after its removal.
  /// Allocates: no.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  template <class Attributes = ia_attributes>
  [[nodiscard]] expected<Attributes> query() const noexcept {
    static_assert(std::is_same_v<Attributes, ia_attributes> || std::is_same_v<Attributes, provider_attributes>,
                  "dat: query gives dat::ia_attributes or dat::provider_attributes");
    if (!core_) return empty_handle("ia.query");
    Attributes a;
    if (auto ok = detail::query(*core_.shared(), a); !ok) return ok.assume_error();
    return a;
  }

  /// The device's name.
  [[nodiscard]] std::string_view name() const noexcept { return core_ ? core_->name() : std::string_view(); }
  /// The address at which peers reach this adapter; IPv4 if it has one, else IPv6.
  [[nodiscard]] ia_address address() const noexcept;
  /// The adapter's address of one family.
  /// Errors: `invalid_address` when it has none; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<ia_address> address(address_family family) const noexcept;

  /// A descriptor that is readable when `run` has work to do, for the consumer's own poll or epoll set. Only with
  /// progress::manual, else -1. The ia owns it: do not read or close it.
  [[nodiscard]] int fd() const noexcept { return core_ && !core_->automatic() ? core_->reactor.fd() : -1; }

  /// With progress::manual: runs all pending work, and waits up to `limit` if there is none. No effect with
  /// progress::automatic.
  void run(std::chrono::milliseconds limit = {}) noexcept;

  /// The context of an evd or of a service point of this ia (uDAPL 2.0 §6.2.2.2), by the id that an event, a cno or a
  /// request gives: `ia.context_of<session>(request.service())`. It is the same when the handle has moved meanwhile.
  /// Errors: `invalid_handle` when the object has ended, or is of another ia.
  /// Allocates: never.
  /// Blocks: no.
  /// Thread safety: safe. The search takes time in proportion to the number of such objects.
  [[nodiscard]] expected<cookie> context_of(evd_id evd) const noexcept;
  /// Errors, Allocates, Blocks and Thread safety: as above.
  [[nodiscard]] expected<cookie> context_of(const service_id& service) const noexcept;
  /// The context as a pointer to a `T`, as it was set; null when there is none, and where the other form has an error.
  template <class T, class Id>
  [[nodiscard]] T* context_of(const Id& id) const noexcept {
    const auto found = context_of(id);
    return found ? found.assume_value().template pointer<T>() : nullptr;
  }

  /// Closes the adapter (uDAPL 2.0 §6.2.1.2). The handle is empty afterwards.
  /// - `close_mode::graceful`: only if no object that the ia created is left.
  /// - `close_mode::abrupt`: all its objects end, connections included. Waiting threads return `abort`, and handles
  ///   that remain return `invalid_handle`. The device's context, and the descriptors of the ia and of its evds, are
  ///   closed with the last of these handles.
  ///
  /// Errors:
  /// - `invalid_state` (ia_in_use): a graceful close with objects left, which changes nothing
  /// - `insufficient_resources`: a signal handler calls, and has interrupted its thread in another call of dat; or
  ///   another thread holds a lock of the data path for more than a second. The ia stays open: close it again when that
  ///   call has returned
  /// - `invalid_parameter`: another mode
  /// - `invalid_handle`
  /// Allocates: no.
  /// Blocks: until waiting threads have left the objects and the service thread has ended. Up to a second for a lock
  /// of the data path.
  /// Thread safety: must not overlap operations on the ia or its objects, except waits. In signal handlers it waits for
  /// no lock of dat that the interrupted thread holds; see docs/thread-safety.md for those of other libraries.
  expected<void> close(close_mode how = close_mode::abrupt) noexcept;

  /// The device context.
  [[nodiscard]] ibv_context* native_handle() const noexcept { return core_ ? core_->context() : nullptr; }

private:
  friend class registry;
  explicit ia(detail::ref<detail::ia_core> core) noexcept : unique_object(std::move(core)) {}
  [[nodiscard]] static expected<ia> make(detail::result<detail::adapter_location> where,
                                         const ia_options& options) noexcept;
  [[nodiscard]] expected<psp> listen(const char* call, std::uint16_t port,
                                     const evd_ref<streams::connection_requests>& requests, psp_flags flags) noexcept;
  template <class Core, class Wanted>
  [[nodiscard]] expected<cookie> find_context(Wanted wanted) const noexcept;
  evd<streams::async> async_evd_;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/ia.ipp>
#endif
