// Interface adapters: where everything starts.
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
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapters.hpp>
#include <dat/detail/attributes_query.hpp>
#include <dat/detail/core.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat::inline v0 {

/// Who drives what happens without the consumer asking: connecting, time-outs, rejects, disconnects.
enum class progress : std::uint8_t {
  automatic, ///< one service thread per ia, all signals blocked in it, asleep while nothing happens
  /// No thread: the work is done inside dequeue and drain of merged evds, in ia::run, and in wait: before it sleeps,
  /// and at least in every eighth wait that need not sleep.
  manual
};
/// The enumerator's name; total: a value outside the enumeration gives "unknown ...". Never allocates.
[[nodiscard]] constexpr std::string_view to_string(progress value) noexcept {
  return detail::enum_name(value, {"automatic", "manual"}, "unknown progress");
}

/// In the place of an evd of asynchronous events: somebody else on this host looks after the adapter
/// (DAT_EVD_ASYNC_EXISTS, uDAPL 2.0 §6.2.1.1). `ia::async_evd` is empty then (DAT_EVD_OUT_OF_SCOPE), and nobody is told
/// what only such events tell. What they do to endpoints and evds happens as ever.
struct async_exists_t {};
inline constexpr async_exists_t async_exists;

/// Names an evd with streams::async for the time of a call.
class async_target {
public:
  constexpr async_target() noexcept = default;                             ///< no evd
  constexpr async_target(async_exists_t) noexcept : out_of_scope_(true) {} // NOLINT(google-explicit-constructor)
  template <streams S>
  async_target(const evd<S>& e) noexcept : core_(e.core_.get()) { // NOLINT(google-explicit-constructor)
    static_assert(includes(S, async), "dat: this evd cannot take asynchronous events; create it with dat::async");
  }

private:
  friend class ia;
  detail::evd_core* core_ = nullptr;
  bool out_of_scope_ = false;
};

struct ia_options {
  dat::progress progress = progress::automatic;
  std::uint32_t async_qlen = 16; ///< room of the evd that `ia::async_evd` gives
  /// Another ia's evd, on the same adapter, to take the asynchronous events of this one, or dat::async_exists for
  /// nobody; there is no own one then.
  async_target async_evd = {};
};

/// An open adapter: one port of one RDMA device, with its own device context (uDAPL 2.0 §6.2). Everything else is made
/// from it. Opening the same adapter several times is fine.
///
/// Move-only. Destroying the handle leaves what was made from the ia working; the adapter is closed when the last of it
/// goes. Thread safety: all members may be called from several threads at once, except `close`, moving and destruction.
class ia : public dat::object<ia, object_kind::ia> {
public:
  ia() noexcept = default; ///< names no adapter
  ia(ia&&) noexcept = default;
  ia& operator=(ia&&) noexcept = default;
  ~ia() = default;

  /// Opens the adapter of this host: the first port, in the order of the network interfaces, that is active and has an
  /// IP address; when none is active, the first that has one. Errors: `provider_not_found` when there is none (the
  /// message says how to get one); `insufficient_resources`; `privileges_violation` when the device files may not be
  /// opened. Allocates: yes. Blocks: briefly, in the kernel.
  template <class Ia = ia> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] static expected<Ia> open(const ia_options& options = {}) noexcept {
    return make<Ia>(detail::first_adapter(), options);
  }

  /// Opens an adapter by its device name, "rx1" or, for another port than 1, "mlx5_0/2"; or by the name that
  /// /etc/dat.conf, or the file that DAT_OVERRIDE names, gives it (see <dat/registry.hpp>).
  /// Errors: `invalid_parameter` for a name that is empty, of more than 255 characters, or with a port that is none;
  /// `provider_not_found` when nothing has that name, or the device's port has no IP address;
  /// `insufficient_resources` (resource_device) for a name of dat.conf whose device is not there; else as above.
  template <class Ia = ia>
  [[nodiscard]] static expected<Ia> open(std::string_view name, const ia_options& options = {}) noexcept {
    return make<Ia>(detail::adapter_named(name), options);
  }

  /// Opens the adapter that has this local address.
  /// Errors: `invalid_address` when the address is not of this host, or not on an RDMA device; else as above.
  template <class Ia = ia>
  [[nodiscard]] static expected<Ia> open(const ia_address& local, const ia_options& options = {}) noexcept {
    return make<Ia>(detail::adapter_at(local), options);
  }

  /// Opens the adapter that the host's routing uses to reach `remote`, a name or numeric address.
  /// Errors: `invalid_address` when the name cannot be resolved or no RDMA device leads there; else as above.
  /// Blocks: up to `limit` for neighbour resolution, and as long as the host's resolver takes for names.
  template <class Ia = ia>
  [[nodiscard]] static expected<Ia> open_reaching(const std::string& remote, const ia_options& options = {},
                                                  timeout limit = std::chrono::seconds(2)) noexcept {
    return make<Ia>(detail::adapter_reaching<address_list>(remote, limit), options);
  }

  /// The adapters of this host, port by port, open or not; <dat/registry.hpp> has more of each, and the names of
  /// dat.conf. Opens each device for a moment. No adapter is not an error.
  /// Errors: by errno of ibv_get_device_list. Allocates: no. Blocks: briefly, in the kernel.
  template <class List = adapter_list> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] static expected<List> list() noexcept {
    return detail::list_adapters<List>();
  }

  /// Makes a protection zone (uDAPL 2.0 §6.7.1.1). Errors: `insufficient_resources`, `invalid_handle`.
  template <class Pz = pz> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Pz> create_pz() noexcept {
    if (!core_) return detail::empty_handle("ia.create_pz", return_subtype::handle_ia);
    auto core = detail::pz_core::create(core_.shared());
    if (!core) return core.assume_error();
    return pz(std::move(core).assume_value());
  }

  /// Where the asynchronous events of this ia come: overflows, failures and changes of the adapter (uDAPL 2.0 §6.2.1.1
  /// async_evd_handle). Made by `open`, goes with the ia; cannot be closed. Any other evd with streams::async gets each
  /// of them as well. An empty one when `open` was given another ia's, or dat::async_exists.
  [[nodiscard]] evd<async>& async_evd() noexcept { return async_evd_; }

  /// Makes an evd with the streams `S` and room for `qlen` events (uDAPL 2.0 §6.3.4.1):
  /// `ia.create_evd<dat::dto>(128)`, `ia.create_evd<dat::dto | dat::connection>(64)`. For completions, `qlen` should
  /// be the sum of what its endpoints can have outstanding.
  /// Errors: `invalid_parameter` for a length of 0 or beyond the device's; `insufficient_resources`; `invalid_handle`.
  template <streams S>
  [[nodiscard]] expected<evd<S>> create_evd(std::uint32_t qlen) noexcept {
    static_assert(S != streams{}, "dat: an evd needs at least one stream");
    static_assert(includes(streams::software | streams::connection_requests | streams::dto | streams::connection |
                               streams::rmr_bind | streams::async | streams::datagrams,
                           S),
                  "dat: a stream that does not exist; join the constants of <dat/streams.hpp> by |");
    if (!core_) return detail::empty_handle("ia.create_evd", return_subtype::handle_ia);
    auto core = detail::evd_core::create(core_.shared(), S, qlen);
    if (!core) return core.assume_error();
    return evd<S>(std::move(core).assume_value());
  }

  /// Makes a consumer notification object, with an agent that its first trigger calls or without one (uDAPL 2.0
  /// §6.3.2.1). Errors: `insufficient_resources`, `invalid_handle`.
  template <class Cno = cno> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Cno> create_cno(const wait_proxy_agent& agent = {}) noexcept {
    if (!core_) return detail::empty_handle("ia.create_cno", return_subtype::handle_ia);
    auto core = detail::cno_core::create(core_.shared(), agent);
    if (!core) return core.assume_error();
    return cno(std::move(core).assume_value());
  }

  /// Listens on a connection qualifier, a port (uDAPL 2.0 §6.4.4.1.1). A constant is checked when compiling; a value of
  /// run time goes through `conn_qual::make`. Requests appear on `requests`; as many as it has room for may wait there.
  /// Errors: `conn_qual_in_use`; `privileges_violation` for a port below 1024 without the right to it;
  /// `invalid_handle` for an evd that is closed or of another ia; `invalid_parameter` for flags that do not exist;
  /// `insufficient_resources`.
  template <class Psp = psp> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Psp> create_psp(conn_qual qualifier, const evd_ref<connection_requests>& requests,
                                         psp_flags flags = psp_flags::consumer) noexcept {
    return listen<Psp>("ia.create_psp", qualifier.port(), requests, flags);
  }
  /// Listens on a qualifier that is free, which `psp::port` tells (uDAPL 2.0 §6.4.4.1.2).
  /// Errors: `conn_qual_unavailable` when none is; else as above.
  template <class Psp = psp>
  [[nodiscard]] expected<Psp> create_psp_any(const evd_ref<connection_requests>& requests,
                                             psp_flags flags = psp_flags::consumer) noexcept {
    return listen<Psp>("ia.create_psp_any", 0, requests, flags);
  }
  /// Listens for one request, for the endpoint `with`, which must be unconnected (uDAPL 2.0 §6.4.4.3.1). Include
  /// <dat/rsp.hpp>. Errors: `invalid_state` with the endpoint's state; else as create_psp.
  [[nodiscard]] expected<rsp> create_rsp(conn_qual qualifier, const ep<rc>& with,
                                         const evd_ref<connection_requests>& requests) noexcept;
  /// The same without an endpoint: the request brings one, as with psp_flags::provider.
  [[nodiscard]] expected<rsp> create_rsp(conn_qual qualifier, const evd_ref<connection_requests>& requests) noexcept;
  /// Listens as a bound socket does: at `address`, which may be 0.0.0.0 or [::] and its port 0 for one that is free; or
  /// at the ia's own address and a free port (uDAPL 2.0 §6.4.4.2.1). Include <dat/csp.hpp>.
  /// Errors: `port_in_use`; `comm_not_supported`; `invalid_parameter` for an address that is not the ia's or not of the
  /// communicator's domain; `invalid_handle`; `insufficient_resources`.
  [[nodiscard]] expected<csp> create_csp(const communicator& comm, const ia_address& address,
                                         const evd_ref<connection_requests>& requests) noexcept;
  [[nodiscard]] expected<csp> create_csp(const communicator& comm,
                                         const evd_ref<connection_requests>& requests) noexcept;

  /// Makes an endpoint that has no protection zone yet, and perhaps no evds (uDAPL 2.0 §6.6.4): it is unconfigured
  /// until `ep::modify` has supplied them, and takes no receives until then. Errors: as pz::create_ep.
  template <class Service>
  [[nodiscard]] expected<ep<Service>> create_ep(const ep_evds& evds = {},
                                                const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>,
                  "dat: only an ep<dat::rc> can be made without a zone; datagram endpoints "
                  "are made by pz::create_ep<dat::ud>");
    static constexpr const char* call = "ia.create_ep";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_ia);
    auto queues = evds.shared();
    if (!queues) return queues.assume_error().at(call, object_kind::ep);
    auto core = detail::ep_core::create(call, core_.shared(), {}, queues.assume_value(), attributes);
    if (!core) return core.assume_error();
    return ep<Service>(std::move(core).assume_value());
  }
  /// The same with an srq, whose zone will be the endpoint's. Include <dat/srq.hpp>.
  template <class Service, std::same_as<srq> Srq>
  [[nodiscard]] expected<ep<with_srq<Service>>> create_ep(const ep_evds& evds, const Srq& shared,
                                                          const ep_attributes& attributes = {}) noexcept {
    static_assert(std::is_same_v<Service, rc>, "dat: create_ep<dat::rc> is the service that takes an srq");
    static constexpr const char* call = "ia.create_ep";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_ia);
    if (!shared) return detail::empty_handle(call, return_subtype::handle_srq);
    auto queues = evds.shared();
    if (!queues) return queues.assume_error().at(call, object_kind::ep);
    auto core =
        detail::ep_core::create(call, core_.shared(), {}, queues.assume_value(), attributes, shared.core_.shared());
    if (!core) return core.assume_error();
    return ep<with_srq<Service>>(std::move(core).assume_value());
  }

  /// What the adapter can do, `query()`, or what this library offers on it, `query<dat::provider_attributes>()`
  /// (uDAPL 2.0 §6.2.1.5 dat_ia_query). Limits are as they were when it was opened, the state of the port as it is now.
  /// Errors: `invalid_handle`; by errno when the device has gone. Allocates: no. Blocks: no.
  template <class Attributes = ia_attributes>
  [[nodiscard]] expected<Attributes> query() const noexcept {
    static_assert(std::is_same_v<Attributes, ia_attributes> || std::is_same_v<Attributes, provider_attributes>,
                  "dat: query gives dat::ia_attributes or dat::provider_attributes");
    if (!core_) return detail::empty_handle("ia.query", return_subtype::handle_ia);
    Attributes a;
    if (auto ok = detail::query(*core_.shared(), a); !ok) return ok.assume_error();
    return a;
  }

  /// The device's name.
  [[nodiscard]] std::string_view name() const noexcept { return core_ ? core_->name() : std::string_view(); }
  /// The address that peers reach this adapter at; IPv4 if it has one, else IPv6.
  [[nodiscard]] ia_address address() const noexcept {
    for (const auto family : {address_family::ipv4, address_family::ipv6})
      if (const ia_address* a = core_ ? core_->address(family) : nullptr) return *a;
    return {};
  }
  /// The adapter's address of one family. Errors: `invalid_address` when it has none.
  template <class Address = ia_address>
  [[nodiscard]] expected<Address> address(address_family family) const noexcept {
    const ia_address* a = core_ ? core_->address(family) : nullptr;
    if (!a)
      return error(return_type::invalid_address, return_subtype::address_unsupported)
          .at("ia.address", object_kind::ia)
          .hint("the adapter's interface has no address of this family");
    return *a;
  }

  /// A descriptor that is readable when `run` has something to do, for the consumer's own poll or epoll set; only with
  /// progress::manual, else -1. Owned by the ia: do not read or close it.
  [[nodiscard]] int fd() const noexcept { return core_ && !core_->automatic() ? core_->reactor.fd() : -1; }

  /// With progress::manual: does what is there to be done, waiting up to `limit` for the first of it. No effect with
  /// progress::automatic.
  void run(std::chrono::milliseconds limit = {}) noexcept {
    constexpr auto most = std::numeric_limits<int>::max();
    if (core_) core_->progress(limit.count() > most ? most : limit.count() < 0 ? 0 : static_cast<int>(limit.count()));
  }

  /// Closes the adapter (uDAPL 2.0 §6.2.1.2). Graceful: only when nothing made from it is left. Abrupt: everything made
  /// from it ends, connections included; waiters return `abort`; handles that remain answer `invalid_handle`. Must not
  /// overlap operations on those objects. The handle is empty afterwards.
  /// Errors: `invalid_state` (ia_in_use) for a graceful close with objects left: the ia goes on; `invalid_handle`.
  expected<void> close(close_flags how = close_flags::abrupt) noexcept {
    if (!core_) return detail::empty_handle("ia.close", return_subtype::handle_ia);
    auto closed = core_.close(how == close_flags::graceful);
    if (closed) async_evd_ = {};
    return closed;
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The device context.
  [[nodiscard]] ibv_context* native_handle() const noexcept { return core_ ? core_.shared()->context() : nullptr; }

private:
  friend dat::object<ia, object_kind::ia>;
  friend struct detail::core_access;
  friend struct detail::memory_access;
  explicit ia(detail::ref<detail::ia_core> core) noexcept : core_(std::move(core)) {}
  template <class Ia>
  [[nodiscard]] static expected<Ia> make(detail::result<detail::ia_core::place> where,
                                         const ia_options& options) noexcept {
    if (!where) return where.assume_error();
    auto core = detail::ia_core::open(where.assume_value(), options.progress == progress::automatic);
    if (!core) return core.assume_error();
    if (options.async_evd.out_of_scope_) return ia(std::move(core).assume_value());
    auto own = detail::async_evd_for(*core.assume_value(), options.async_evd.core_, options.async_qlen);
    if (!own) return own.assume_error();
    ia made(std::move(core).assume_value());
    made.async_evd_ = evd<async>(std::move(own).assume_value());
    return made;
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.shared().get(); }
  template <class Psp>
  [[nodiscard]] expected<Psp> listen(const char* call, std::uint16_t port, const evd_ref<connection_requests>& requests,
                                     psp_flags flags) noexcept {
    if (!core_) return detail::empty_handle(call, return_subtype::handle_ia);
    if (flags != psp_flags::consumer && flags != psp_flags::provider)
      return error(return_type::invalid_parameter, return_subtype::arg4)
          .at(call, object_kind::psp, port)
          .hint("psp_flags are consumer and provider");
    auto core = detail::service_point::create(core_.shared(), requests.shared(),
                                              {.call = call, .port = port, .makes_eps = flags == psp_flags::provider});
    if (!core) return core.assume_error();
    return psp(std::move(core).assume_value());
  }
  detail::ia_handle core_;
  evd<async> async_evd_;
};

inline bool async_event::is_of(const ia& a) const noexcept {
  return what_.context && what_.context == a.native_handle();
}

} // namespace dat::inline v0

template <>
struct std::hash<dat::ia> : dat::detail::handle_hash<dat::ia> {};
