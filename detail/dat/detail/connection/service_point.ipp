// Definitions of service_point.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/log.hpp>

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/text/event_text.hpp>
#include <dat/detail/work/trace_points.hpp>

#include <cerrno>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL service_point::service_point(ref<ia_core> ia, ref<evd_core> evd, const plan& p, service_point* head) noexcept
    : connection_base(std::move(ia), table),
      evd_(std::move(evd)),
      ep_(head ? ref<ia_child>() : p.ep),
      endpoints_(p.endpoints),
      head_(head ? head : this),
      id_(head ? head->id_ : service_id(p.kind, p.port, this->ia().next_service_number())),
      comm_(p.comm),
      makes_eps_(p.makes_eps) {
  evd_->users.fetch_add(1, std::memory_order_relaxed);
}

DAT_DECL ref<ia_child> service_point::endpoint() noexcept {
  const std::lock_guard lock(mutex_);
  return ep_ && !ep_->dead() && (!used_ || endpoints_->has_request_of(*ep_, id_)) ? ep_ : ref<ia_child>();
}

DAT_DECL result<ref<service_point>> service_point::create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                          const plan& p) noexcept {
  const inside_dat section;
  const auto at = [&](error e) { return e.at(p.call, p.object(), p.port); };
  if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
  if (!evd || evd->dead() || &evd->ia() != ia.get())
    return at(error(return_type::invalid_handle, return_subtype::handle_evd_cr));
  const ia_address* where[] = {p.only ? p.only : ia->address(address_family::ipv4),
                               p.only ? nullptr : ia->address(address_family::ipv6)};
  if (!where[0]) std::swap(where[0], where[1]);
  if (!where[0]) return at(error(return_type::invalid_address, return_subtype::address_unreachable));
  if (p.ep)
    if (auto ok = p.endpoints->reserve(*p.ep, p.call, *ia); !ok) return ok.assume_error();

  // A free port of one address need not be free at the other address. In that case the next port is tried.
  for (int tries = 0;; ++tries) {
    ref<service_point> head(new (std::nothrow) service_point(ia, evd, p, nullptr), adopt);
    expected<void> r = success();
    if (!head) {
      if (p.ep) p.endpoints->release(*p.ep);
      return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
    }
    r = head->listen(*where[0]);
    bool first = true;
    if (r && where[1]) {
      first = false;
      head->other_family_ = ref<service_point>(new (std::nothrow) service_point(ia, evd, p, head.get()), adopt);
      if (head->other_family_)
        r = head->other_family_->listen(*where[1]);
      else
        r = error(return_type::insufficient_resources, return_subtype::resource_memory);
    }
    if (r) {
      head->ready_.store(true, std::memory_order_release);
      head->publish();
      return head;
    }
    // Frees the port and the endpoint, unless another attempt follows.
    const bool taken = r.assume_error().type() == return_type::conn_qual_in_use;
    const bool again = taken && p.port == 0 && !first && tries < 16;
    if (again) {
      const std::lock_guard lock(head->mutex_);
      head->ep_ = {}; // stays reserved
    }
    head->end();
    if (again) continue;
    const auto instead = [&](return_type t) {
      return at(error(t).from(r.assume_error().verb().data(), r.assume_error().sys_errno()));
    };
    if (taken && p.kind == service_kind::csp) return instead(return_type::port_in_use);
    if (taken && p.port == 0) return instead(return_type::conn_qual_unavailable);
    return at(r.assume_error());
  }
}

DAT_DECL expected<void> service_point::listen(const ia_address& where) noexcept {
  if (auto ok = bind_id(where.with_port(head_->id_.port())); !ok) return ok;
  if (head_ == this) id_ = service_id(id_.kind(), local_.port(), id_.number()); // set before requests can arrive
  return listen_id();
}

DAT_DECL void note_request(std::uint32_t port, int err) noexcept {
  trace_points::request(port, err);
  if constexpr (trace_build)
    if (err != 0) log_event(log_level::warning, [&] { return request_refused_text(port, err); });
}

DAT_DECL void service_point::take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
  const cm_event request(e);
  ref<connection_state> c(new (std::nothrow) connection_state(ref(&ia()), connection_state::phase::waiting), adopt);
  if (!c) {
    rdma_destroy_id(child);
    return;
  }
  c->adopt_request(child, request, *this);
  // A full evd refuses the request at once: a dropped request would leave the peer waiting for a minute. A wildcard
  // address also gets the requests of other devices.
  if (!ia().is_ours(*child)) return c->abandon();
  const delivery d = head_->deliver(c);
  constexpr int outcome[] = {0, ENOBUFS, ENOMEM, ECONNREFUSED};
  note_request(head_->port(), outcome[static_cast<std::size_t>(d)]);
  if (d != delivery::taken) c->abandon();
}

DAT_DECL service_point::delivery service_point::deliver(const ref<connection_state>& c) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_ || used_) return delivery::over;
  struct context {
    merged_evd* evd;
    record r;
  } to{merged(evd_.get()), record{request_ref(ref<connection_base>(c.get()))}};
  const auto push = [](void* p) noexcept {
    auto& t = *static_cast<context*>(p);
    return t.evd->push_request(std::move(t.r));
  };
  const auto before = c->set_service(id_);
  bool taken;
  bool no_memory = false;
  if (id_.kind() == service_kind::rsp && !makes_eps_) {
    taken = ep_ && endpoints_->take_request(*ep_, c, push, &to);
  } else if (makes_eps_) {
    const ref<ia_child> made = endpoints_->create_for(c);
    no_memory = !made;
    c->set_endpoint(made, endpoints_);
    taken = made && push(&to);
    if (!taken && made) {
      c->set_endpoint({}, nullptr);
      made->end();
    }
  } else {
    taken = push(&to);
  }
  used_ = taken && id_.kind() == service_kind::rsp;
  if (taken) return delivery::taken;
  to.r.request.done(); // the caller keeps the request
  c->set_service(before);
  return no_memory ? delivery::no_memory : delivery::no_room;
}

DAT_DECL ref<service_point> service_point::find(ia_core& ia, std::uint16_t port, const ia_address& local) noexcept {
  ref<ia_child> found = ia.find(child_kind::service_point, [&](ia_child& c) {
    const auto& s = static_cast<service_point&>(c);
    return s.ready_.load(std::memory_order_acquire) && s.port() == port && s.answers(local);
  });
  return {static_cast<service_point*>(found.detach()), adopt};
}

DAT_DECL void service_point::teardown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (ep_ && !used_) endpoints_->release(*ep_);
  }
  if (other_family_) other_family_->end();
  destroy_id();
  evd_->users.fetch_sub(1, std::memory_order_release);
}

}}} // namespace dat::v0::detail
