// The listener behind dat::psp, dat::rsp and dat::csp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>

#include <dat/detail/connection_base.hpp>
#include <dat/detail/ep_connection.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/evd_core.hpp>

namespace dat::inline v0::detail {

class service_point final : public connection_base {
public:
  /// What to listen for.
  struct plan {
    const char* call; ///< "ia.create_psp"
    service_kind kind = service_kind::psp;
    std::uint16_t port = 0;           ///< 0: one that is free
    bool makes_eps = false;           ///< an endpoint for each request
    ref<ep_core> ep = {};             ///< rsp: the endpoint of its request
    const ia_address* only = nullptr; ///< csp: this address, not all of the ia
    communicator comm = {};           ///< csp
    [[nodiscard]] object_kind object() const noexcept {
      return kind == service_kind::psp   ? object_kind::psp
             : kind == service_kind::rsp ? object_kind::rsp
                                         : object_kind::csp;
    }
  };

  [[nodiscard]] static result<ref<service_point>> create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                         const plan& p) noexcept;

  service_point(ref<ia_core> ia, ref<evd_core> evd, const plan& p, service_point* head) noexcept
      : connection_base(std::move(ia), table),
        evd_(std::move(evd)),
        ep_(head ? ref<ep_core>() : p.ep),
        head_(head ? head : this),
        id_(head ? head->id_ : service_id(p.kind, p.port, this->ia().next_service_number())),
        comm_(p.comm),
        makes_eps_(p.makes_eps) {
    evd_->users.fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] service_id service() const noexcept { return id_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return id_.port(); }
  [[nodiscard]] std::uint32_t evd_number() const noexcept { return evd_->number(); }
  [[nodiscard]] bool makes_eps() const noexcept { return makes_eps_; }
  [[nodiscard]] const communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] const ia_address& bound() const noexcept { return local_; }
  /// The endpoint of an rsp, while it is reserved for the request or has it.
  [[nodiscard]] ref<ep_core> endpoint() noexcept {
    const std::lock_guard lock(mutex_);
    return ep_ && !ep_->dead() && (!used_ || ep_->has_request_of(id_)) ? ep_ : ref<ep_core>();
  }

  /// The service point that requests to a qualifier are handed to.
  [[nodiscard]] static ref<service_point> find(ia_core& ia, std::uint16_t port, const ia_address& local) noexcept;
  /// Whether requests that came to this address are its business.
  [[nodiscard]] bool answers(const ia_address& local) const noexcept {
    if (id_.kind() != service_kind::csp) return true;
    return local_.family() == local.family() && (local_.is_any() || local_.with_port(0) == local.with_port(0));
  }
  /// Gives a request to the consumer; false when there is no room for it, or it is not wanted any more. Nothing has
  /// changed then.
  [[nodiscard]] bool deliver(const ref<ep_connection>& request) noexcept;

private:
  friend class ia_child;

  ~service_point() = default;
  static constexpr child_kind kind_of_child = child_kind::service_point;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<service_point>();
    t.on_event = [](connection_base&, const cm_event&) noexcept { return false; }; // DEVICE_REMOVAL: nothing to tell
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<service_point&>(c).take_request(child, e);
    };
    return t;
  }

  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;
  [[nodiscard]] expected<void> listen(const ia_address& where) noexcept;
  void teardown() noexcept;

  ref<evd_core> evd_;
  std::mutex mutex_; // the head's guards ep_, used_, closed_; before an endpoint's and an evd's
  ref<ep_core> ep_;
  bool used_ = false; // rsp: its one request has come
  bool closed_ = false;
  std::atomic<bool> ready_{false}; // a head that listens everywhere: requests can be handed to it
  service_point* head_;            // the one that the handle stands for
  ref<service_point> twin_;        // an id listens on one address: this is the one on the adapter's other address
  service_id id_;
  communicator comm_;
  bool makes_eps_;
};

inline constexpr child_type service_point::table = make_table();

inline result<ref<service_point>> service_point::create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                        const plan& p) noexcept {
  const auto at = [&](error e) { return e.at(p.call, p.object(), p.port); };
  if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
  if (!evd || evd->dead() || &evd->ia() != ia.get())
    return at(error(return_type::invalid_handle, return_subtype::handle_evd_cr));
  const ia_address* where[] = {p.only ? p.only : ia->address(address_family::ipv4),
                               p.only ? nullptr : ia->address(address_family::ipv6)};
  if (!where[0]) std::swap(where[0], where[1]);
  if (!where[0]) return at(error(return_type::invalid_address, return_subtype::address_unreachable));
  if (p.ep)
    if (auto ok = p.ep->reserve(p.call, *ia); !ok) return ok.assume_error();

  // A port that is free on one address need not be on the other: then another one is tried.
  for (int tries = 0;; ++tries) {
    ref<service_point> head(new (std::nothrow) service_point(ia, evd, p, nullptr), adopt);
    expected<void> r = success();
    if (!head) {
      if (p.ep) p.ep->unreserve();
      return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
    }
    r = head->listen(*where[0]);
    bool first = true;
    if (r && where[1]) {
      first = false;
      head->twin_ = ref<service_point>(new (std::nothrow) service_point(ia, evd, p, head.get()), adopt);
      if (head->twin_)
        r = head->twin_->listen(*where[1]);
      else
        r = error(return_type::insufficient_resources, return_subtype::resource_memory);
    }
    if (r) {
      head->ready_.store(true, std::memory_order_release);
      return head;
    }
    // The port must be free again, and the endpoint, but for another try.
    const bool taken = r.assume_error().type() == return_type::conn_qual_in_use;
    const bool again = taken && p.port == 0 && !first && tries < 16;
    if (again) {
      const std::lock_guard lock(head->mutex_);
      head->ep_ = {}; // stays reserved
    }
    head->end();
    if (again) continue;
    if (!taken) return at(r.assume_error());
    if (p.kind == service_kind::csp)
      return at(error(return_type::port_in_use).from(r.assume_error().verb().data(), r.assume_error().sys_errno()));
    if (p.port == 0)
      return at(
          error(return_type::conn_qual_unavailable).from(r.assume_error().verb().data(), r.assume_error().sys_errno()));
    return at(r.assume_error());
  }
}

inline expected<void> service_point::listen(const ia_address& where) noexcept {
  if (auto ok = bind_id(where.with_port(head_->id_.port())); !ok) return ok;
  if (head_ == this) id_ = service_id(id_.kind(), local_.port(), id_.number()); // before requests come
  return listen_id();
}

inline void service_point::take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
  const cm_event request(e);
  ref<ep_connection> c(new (std::nothrow) ep_connection(ref(&ia()), ep_connection::phase::waiting), adopt);
  if (!c) {
    rdma_destroy_id(child);
    return;
  }
  c->adopt_request(child, request, *this);
  // A queue without room refuses at once: to drop the request would leave the peer waiting for a minute. A wildcard
  // address gets the requests of other devices, too.
  if (!ia().is_ours(*child) || !head_->deliver(c)) c->abandon();
}

inline bool service_point::deliver(const ref<ep_connection>& c) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_ || used_) return false;
  record r{request_ref(ref<connection_base>(c.get()))};
  const auto push = [&] { return merged(evd_.get())->push_request(std::move(r)); };
  const auto before = c->came_to(id_);
  bool taken;
  if (id_.kind() == service_kind::rsp && !makes_eps_) {
    taken = ep_ && ep_->take_request(c, push);
  } else if (makes_eps_) {
    ref<ep_core> made = ep_core::create_for(c);
    c->brings(ref<ia_child>(made.get()));
    taken = made && push();
    if (!taken && made) {
      c->brings({});
      made->end();
    }
  } else {
    taken = push();
  }
  used_ = taken && id_.kind() == service_kind::rsp;
  if (taken) return true;
  r.request.done(); // still the caller's
  c->came_to(before);
  return false;
}

inline ref<service_point> service_point::find(ia_core& ia, std::uint16_t port, const ia_address& local) noexcept {
  ref<ia_child> found = ia.find(child_kind::service_point, [&](ia_child& c) {
    const auto& s = static_cast<service_point&>(c);
    return s.ready_.load(std::memory_order_acquire) && s.port() == port && s.answers(local);
  });
  return {static_cast<service_point*>(found.detach()), adopt};
}

inline void service_point::teardown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (ep_ && !used_) ep_->unreserve();
    ep_ = {};
  }
  if (twin_) twin_->end();
  destroy_id();
  evd_->users.fetch_sub(1, std::memory_order_release);
}

} // namespace dat::inline v0::detail
