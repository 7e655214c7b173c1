// The listener behind dat::psp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection_base.hpp>
#include <dat/detail/ep_connection.hpp>
#include <dat/detail/evd_core.hpp>

namespace dat::inline v0::detail {

class psp_core final : public connection_base {
public:
  [[nodiscard]] static result<ref<psp_core>> create(const ref<ia_core>& ia, conn_qual qualifier,
                                                    const ref<evd_core>& evd) noexcept {
    static constexpr const char* call = "ia.create_psp";
    const auto at = [&](error e) { return e.at(call, object_kind::psp, qualifier.port()); };
    if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
    if (!evd || evd->dead() || &evd->ia() != ia.get())
      return at(error(return_type::invalid_handle, return_subtype::handle_evd_cr));
    ref<psp_core> first;
    for (const auto family : {address_family::ipv4, address_family::ipv6}) {
      const ia_address* own = ia->address(family);
      if (!own) continue;
      ref<psp_core> psp(new (std::nothrow) psp_core(ia, qualifier.port(), evd), adopt);
      if (!psp) {
        if (first) first->end(); // its id keeps it alive otherwise, and the port taken
        return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
      }
      psp->other_family_ = std::move(first);
      first = psp;
      if (auto r = psp->listen(*own); !r) {
        psp->end(); // the port must be free again
        return at(r.assume_error());
      }
    }
    if (!first) return at(error(return_type::invalid_address, return_subtype::address_unreachable));
    return first;
  }

  psp_core(ref<ia_core> ia, std::uint16_t port, ref<evd_core> evd) noexcept
      : connection_base(std::move(ia), table), evd_(std::move(evd)), port_(port) {
    evd_->users.fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

private:
  friend class ia_child;

  ~psp_core() = default;
  static constexpr child_kind kind_of_child = child_kind::service_point;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<psp_core>();
    t.on_event = [](connection_base&, const cm_event&) noexcept {}; // DEVICE_REMOVAL: nothing to tell the consumer
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<psp_core&>(c).take_request(child, e);
    };
    return t;
  }

  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
    const cm_event request(e);
    ref<ep_connection> c(new (std::nothrow) ep_connection(ref(&ia()), ep_connection::phase::waiting), adopt);
    if (!c) {
      rdma_destroy_id(child);
      return;
    }
    c->adopt_request(child, request, port_);
    record r{request_ref(ref<connection_base>(c.get()))};
    // A queue without room refuses at once: to drop the request would leave the peer waiting for a minute.
    if (!dead() && ia().is_ours(*child)) (void)merged(evd_.get())->push_request(std::move(r));
  }

  [[nodiscard]] expected<void> listen(const ia_address& own) noexcept {
    const auto failed = [](const char* verb, int err) { return map_errno(err).from(verb, err); };
    if (const int err = create_id()) return failed("rdma_create_id", err);
    const ia_address where = own.with_port(port_);
    if (rdma_bind_addr(id(), const_cast<sockaddr*>(where.native_handle())) != 0) return failed("rdma_bind_addr", errno);
    // 0: as many requests as the system allows may wait to be read; the reactor reads at once and the evd is the limit.
    if (rdma_listen(id(), 0) != 0) return failed("rdma_listen", errno);
    return success();
  }

  void teardown() noexcept {
    if (other_family_) other_family_->end();
    destroy_id();
    evd_->users.fetch_sub(1, std::memory_order_release);
  }

  ref<evd_core> evd_;
  ref<psp_core> other_family_; // an id listens on one address: this one's twin on the IPv4 address
  std::uint16_t port_;
};

inline constexpr child_type psp_core::table = make_table();

} // namespace dat::inline v0::detail
