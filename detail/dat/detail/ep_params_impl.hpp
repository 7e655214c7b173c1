// Definitions of the endpoint's calls about its parameters.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_params.hpp>

#include <dat/detail/adapters.hpp>
#include <dat/detail/core.hpp>

namespace dat::inline v0 {

namespace detail {

/// ep_changes without handles.
struct ep_core::changes {
  ref<pz_core> pz;
  queues evds;
  std::optional<ia_address> own;
  std::optional<communicator> comm;
  const ep_changes* values;
};

/// `a` with what is named in `c`. Tells whether the queue pair has to be another one then.
inline ep_attributes changed(ep_attributes a, const ep_changes& c, bool& rebuild) noexcept {
  const auto set = [](auto& to, const auto& from) {
    if (!from) return false;
    const bool other = to != *from;
    to = *from;
    return other;
  };
  // Not in one expression: every one is to be set.
  for (const bool other : {set(a.max_request_dtos, c.max_request_dtos), set(a.max_recv_dtos, c.max_recv_dtos),
                           set(a.max_request_iov, c.max_request_iov), set(a.max_recv_iov, c.max_recv_iov),
                           set(a.max_inline, c.max_inline)})
    rebuild = rebuild || other;
  set(a.max_message_size, c.max_message_size);
  set(a.max_rdma_read_out, c.max_rdma_read_out);
  set(a.max_rdma_read_in, c.max_rdma_read_in);
  set(a.retry_count, c.retry_count);
  set(a.rnr_retry_count, c.rnr_retry_count);
  set(a.ack_timeout, c.ack_timeout);
  set(a.min_rnr_timer, c.min_rnr_timer);
  set(a.recv_completion, c.recv_completion);
  set(a.request_completion, c.request_completion);
  if (c.comm) a.comm = *c.comm;
  return a;
}

inline expected<void> ep_core::modify(const changes& wanted) noexcept {
  static constexpr const char* call = "ep.modify";
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg3), call).hint(hint);
  };
  if (wanted.pz && (wanted.pz->dead() || &wanted.pz->ia() != &ia()))
    return at(error(return_type::invalid_handle, return_subtype::handle_pz), call)
        .hint("the zone is closed or belongs to another ia");
  if (auto ok = check_evds(ia(), wanted.evds); !ok) return at(ok.assume_error(), call);
  if (wanted.own) {
    // Asked for before the endpoint is locked: it takes a moment.
    if (!wanted.own->check(address_role::local)) return invalid("nobody can connect from such an address");
    probe p;
    if (!wanted.own->is_any() && (!p.bind(*wanted.own) || p.device() != ia().name() || p.port() != ia().where().port))
      return invalid("the address must be one of the ia's own interface");
  }

  queues old_evds; // released without the lock
  ref<pz_core> old_pz;
  const std::lock_guard lock(mutex_);
  const ep_state now = state();
  const bool plain = now == ep_state::unconnected || now == ep_state::unconfigured_unconnected;
  const bool pending = now == ep_state::reserved || now == ep_state::passive_connection_pending ||
                       now == ep_state::tentative_connection_pending || is_unconfigured(now);
  if (!plain && !pending) return wrong_state(call);
  if (wanted.pz && (now == ep_state::reserved || now == ep_state::passive_connection_pending)) return wrong_state(call);
  if ((wanted.own || wanted.comm) && !plain) return wrong_state(call);
  if (wanted.comm && attributes_.comm != communicator{}) return invalid("the communicator was set before");
  if (wanted.comm && !is_supported(*wanted.comm))
    return invalid("a communicator is {AF_INET or AF_INET6, SOCK_STREAM, 0 or IPPROTO_TCP}");
  bool rebuild = false;
  if (shares_ && wanted.values->max_recv_dtos)
    return invalid("the endpoint has no receive queue: its srq is resized by srq.resize, its high watermarks are set "
                   "by set_watermark");
  if (shares_ && wanted.pz && wanted.pz.get() != srq_->pz().get()) return invalid(other_zone_hint);
  const ep_attributes future = changed(attributes_, *wanted.values, rebuild);
  if (auto ok = check_attributes(ia(), future); !ok) return at(ok.assume_error(), call);
  queues evds = wanted.evds;
  if (auto ok = add_sink(call, ref(&ia()), evds, future, srq_.get()); !ok) return at(ok.assume_error(), call);
  const auto replaces = [](const auto& by, const auto& what) { return by && by.get() != what.get(); };
  rebuild =
      rebuild || replaces(wanted.pz, pz_) || replaces(evds.recv, evds_.recv) || replaces(evds.request, evds_.request);
  const ep_attributes old_attributes = attributes_;
  const bool other_recv = future.recv_completion != old_attributes.recv_completion;
  const bool other_request = future.request_completion != old_attributes.request_completion;
  queues added; // those of completions that are fed anew, or in another mode
  queues gone;
  if (replaces(evds.recv, evds_.recv) || other_recv) {
    added.recv = evds.recv ? evds.recv : evds_.recv;
    gone.recv = evds_.recv;
  }
  if (replaces(evds.request, evds_.request) || other_request) {
    added.request = evds.request ? evds.request : evds_.request;
    gone.request = evds_.request;
  }
  if (qp_ && (rebuild || other_recv) && rq_.used() != 0)
    return at(error(return_type::invalid_state, return_subtype::ep_notready), call)
        .hint("receives are posted, and would not be as they were with other sizes, zone, evds or recv_completion: "
              "modify first");

  const auto as_before = [&] {
    if (gone.recv) gone.recv->feed_as(old_attributes.recv_completion);
    if (gone.request) gone.request->feed_as(old_attributes.request_completion);
  };
  if (auto ok = attach(added, future, gone); !ok) {
    as_before();
    return at(ok.assume_error(), call);
  }
  old_evds = evds_;
  old_pz = pz_;
  if (wanted.pz) pz_ = wanted.pz;
  if (evds.recv) evds_.recv = evds.recv;
  if (evds.request) evds_.request = evds.request;
  if (evds.connect) evds_.connect = evds.connect;
  set_attributes(future);
  if (complete() && (!qp_ || rebuild)) {
    if (auto ok = equip(call); !ok) {
      std::swap(evds_, old_evds);
      std::swap(pz_, old_pz);
      set_attributes(old_attributes);
      detach(added);
      as_before();
      return ok;
    }
  }
  detach(gone);
  // Uses are counted only for what stays.
  const auto moved = [](const auto& from, const auto& to) {
    if (to.get() == from.get()) return;
    if (to) to->users.fetch_add(1, std::memory_order_relaxed);
    if (from) from->users.fetch_sub(1, std::memory_order_release);
  };
  moved(old_pz, pz_);
  moved(old_evds.recv, evds_.recv);
  moved(old_evds.request, evds_.request);
  moved(old_evds.connect, evds_.connect);
  if (wanted.own) own_ = *wanted.own;
  set_state(qp_ ? configured(now) : now);
  return success();
}

inline expected<void> ep_core::set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept {
  static constexpr const char* call = "ep.set_watermark";
  if (!is_watermark(soft) || !is_watermark(hard))
    return at({return_type::invalid_parameter, is_watermark(soft) ? return_subtype::arg3 : return_subtype::arg2}, call)
        .hint("a high watermark must be below 2^31, or no_watermark");
  const std::lock_guard lock(mutex_);
  if (state() == ep_dead) return wrong_state(call);
  merged_evd* const m = merged(evds_.recv.get());
  if ((soft != no_watermark || hard != no_watermark) && evds_.recv && !m)
    return at(error(return_type::model_not_supported), call).hint(uncounted_hint);
  soft_ = soft;
  hard_ = hard;
  soft_armed_ = soft != no_watermark;
  arm_alarm();
  if (m) m->drain();
  peak_.store(0, std::memory_order_relaxed); // only what is there now counts
  look_at_watermarks();
  return success();
}

} // namespace detail

inline expected<void> ep<rc>::modify(const ep_changes& wanted) noexcept {
  static constexpr const char* call = "ep.modify";
  if (!core_) return detail::empty_handle(call, return_subtype::handle_ep);
  if (wanted.pz && !*wanted.pz) return detail::empty_handle(call, return_subtype::handle_pz);
  auto evds = ep_evds{wanted.recv, wanted.request, wanted.connect}.shared();
  if (!evds) return core_->at(evds.assume_error(), call);
  return core_->modify({wanted.pz ? wanted.pz->core_.shared() : detail::ref<detail::pz_core>(), evds.assume_value(),
                        wanted.local_address, wanted.comm, &wanted});
}

inline expected<ep_params> ep<rc>::query() const noexcept {
  if (!core_ || core_->state() == detail::ep_dead) return detail::empty_handle("ep.query", return_subtype::handle_ep);
  ep_params p;
  core_->locked([&](detail::ep_core& e) {
    p.state = e.state();
    p.number = e.number();
    p.attributes = e.attributes();
    p.attributes.max_message_size = e.max_message();
    p.attributes.max_rdma_read_in = e.read_in();
    p.attributes.max_rdma_read_out = e.read_out();
    p.attributes.soft_high_watermark = e.soft_watermark();
    p.attributes.hard_high_watermark = e.hard_watermark();
    if (e.srq()) {
      p.srq = srq_ref(e.srq().get());
      p.attributes.max_recv_dtos = e.hard_watermark();
      p.attributes.max_recv_iov = 0;
    }
    p.comm = p.attributes.comm;
    p.has_pz = e.pz() != nullptr;
    const auto id = [](const auto& evd) { return evd ? evd_id(evd->number()) : evd_id(); };
    p.recv = id(e.evds().recv);
    p.request = id(e.evds().request);
    p.connect = id(e.evds().connect);
    p.local_address = e.own_address();
    if (e.own_address() == ia_address())
      for (const auto family : {address_family::ipv6, address_family::ipv4})
        if (const ia_address* own = e.ia().address(family)) p.local_address = *own;
    if (!e.connection() || p.state == ep_state::disconnected) return;
    p.remote_address = e.connection()->remote_address();
    p.local_address = e.connection()->local_address();
    if (p.comm == communicator{} && e.connection()->passive())
      p.comm = {p.local_address.family() == address_family::ipv4 ? AF_INET : AF_INET6, SOCK_STREAM, IPPROTO_TCP};
  });
  return p;
}

inline expected<ep_status> ep<rc>::status() const noexcept {
  if (!core_ || core_->state() == detail::ep_dead) return detail::empty_handle("ep.status", return_subtype::handle_ep);
  const ep_state s = core_->state();
  if (detail::is_unconfigured(s)) return ep_status{s, true, true}; // there are no queues yet
  return ep_status{s, core_->receives().used() == 0, core_->requests().used() == 0};
}

inline expected<ep_recv_buffers> ep<rc>::recv_query() const noexcept {
  if (!core_ || core_->state() == detail::ep_dead)
    return detail::empty_handle("ep.recv_query", return_subtype::handle_ep);
  if (core_->shares_receives()) return ep_recv_buffers{std::nullopt, std::nullopt};
  const std::uint32_t n = detail::is_unconfigured(core_->state()) ? 0 : core_->receives().used();
  return ep_recv_buffers{n, n};
}

inline expected<void> ep<rc>::set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept {
  static constexpr const char* call = "ep.set_watermark";
  if (!core_ || core_->state() == detail::ep_dead) return detail::empty_handle(call, return_subtype::handle_ep);
  return core_->set_watermark(soft, hard);
}

} // namespace dat::inline v0
