// The listener behind dat::psp, dat::rsp and dat::csp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>

#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/connection/connection_observer.hpp>
#include <dat/detail/connection/connection_state.hpp>
#include <dat/detail/events/evd_core.hpp>

#include <atomic>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>

namespace dat { inline namespace v0 { namespace detail {

/// True for the communicators that dat supports. Reliable connections are the stream sockets of IP.
[[nodiscard]] constexpr bool is_supported(const communicator& c) noexcept {
  return (c.domain == AF_INET || c.domain == AF_INET6) && c.type == SOCK_STREAM &&
         (c.protocol == 0 || c.protocol == IPPROTO_TCP);
}
/// True when the address belongs to the communicator's domain.
[[nodiscard]] inline bool fits(const communicator& c, const ia_address& a) noexcept {
  return c.domain == (a.family() == address_family::ipv4 ? AF_INET : AF_INET6);
}

class service_point final : public connection_base {
public:
  /// The parameters of the listener.
  struct plan {
    const char* call; ///< "ia.create_psp"
    service_kind kind = service_kind::psp;
    std::uint16_t port = 0;                       ///< 0: a free one
    bool makes_eps = false;                       ///< creates an endpoint for each request
    ref<ia_child> ep = {};                        ///< rsp: the endpoint of its request
    const request_endpoints* endpoints = nullptr; ///< needed with makes_eps and with ep
    const ia_address* only = nullptr;             ///< csp: this address alone; null: all addresses of the ia
    communicator comm = {};                       ///< csp
    [[nodiscard]] object_kind object() const noexcept {
      return kind == service_kind::psp   ? object_kind::psp
             : kind == service_kind::rsp ? object_kind::rsp
                                         : object_kind::csp;
    }
  };

  [[nodiscard]] static result<ref<service_point>> create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                         const plan& p) noexcept;

  service_point(ref<ia_core> ia, ref<evd_core> evd, const plan& p, service_point* head) noexcept;

  [[nodiscard]] service_id service() const noexcept { return id_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return id_.port(); }
  [[nodiscard]] std::uint32_t evd_number() const noexcept { return evd_->number(); }
  [[nodiscard]] bool makes_eps() const noexcept { return makes_eps_; }
  [[nodiscard]] const communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] const ia_address& bound() const noexcept { return local_; }
  /// The endpoint of an rsp: reserved for the request, or with the request.
  [[nodiscard]] ref<ia_child> endpoint() noexcept;

  /// The service point to which requests for a qualifier can be handed.
  [[nodiscard]] static ref<service_point> find(ia_core& ia, std::uint16_t port, const ia_address& local) noexcept;
  /// True when the service point takes requests to this address.
  [[nodiscard]] bool answers(const ia_address& local) const noexcept {
    if (id_.kind() != service_kind::csp) return true;
    return local_.family() == local.family() && (local_.is_any() || local_.with_port(0) == local.with_port(0));
  }
  enum class delivery : std::uint8_t {
    taken,
    no_room,   ///< the evd is full
    no_memory, ///< no memory for the endpoint of the request
    over       ///< the service point is closed, or has had its only request
  };
  /// Gives a request to the consumer. Nothing has changed when it is not taken.
  [[nodiscard]] delivery deliver(const ref<connection_state>& request) noexcept;

  // Used by the table that ia_child::type_for makes.
  ~service_point() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::service_point;

private:
  static const child_type table;
  [[nodiscard]] static consteval child_type make_table() noexcept {
    child_type t = type_for<service_point>();
    t.on_event = [](connection_base&, const cm_event&) noexcept { return false; }; // DEVICE_REMOVAL has no effect here
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<service_point&>(c).take_request(child, e);
    };
    return t;
  }

  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;
  [[nodiscard]] expected<void> listen(const ia_address& where) noexcept;

  ref<evd_core> evd_;
  // The head's lock guards ep_, used_, closed_; it is taken before the locks of an endpoint and an evd.
  control_mutex mutex_;
  ref<ia_child> ep_;
  const request_endpoints* endpoints_;
  bool used_ = false; // rsp: its only request has arrived
  bool closed_ = false;
  std::atomic<bool> ready_{false};  // a head that listens at all addresses: requests can be handed to it
  service_point* head_;             // the listener to which the consumer has the handle
  ref<service_point> other_family_; // an id listens at one address: this object listens at the adapter's other address
  service_id id_;
  communicator comm_;
  bool makes_eps_;
};

inline constexpr child_type service_point::table = make_table();

/// Checks the address of a common service point and creates the service point. `address`: null for the ia's own address
/// and a free port.
[[nodiscard]] result<ref<service_point>> create_csp(const ref<ia_core>& ia, communicator comm,
                                                    const ia_address* address, const ref<evd_core>& evd) noexcept;

/// For traces and the log: a request was taken or refused. The cause of a refusal is no room (ENOBUFS), no memory, or a
/// service point that takes no more requests (ECONNREFUSED).
void note_request(std::uint32_t port, int err) noexcept;

}}} // namespace dat::v0::detail
