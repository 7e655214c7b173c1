// Definitions of ep_core: changing the parameters of an endpoint.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_params.hpp>

#include <dat/detail/discovery/find_adapter.hpp>
#include <dat/detail/endpoint/core.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// ep_changes without handles.
struct ep_core::changes {
  ref<pz_core> pz;
  queues evds;
  std::optional<ia_address> local_address;
  std::optional<communicator> comm;
  const ep_changes* values;
};

/// `a` with the changes in `c`. Sets `rebuild` when a change needs another queue pair.
[[nodiscard]] DAT_DECL ep_attributes changed(ep_attributes a, const ep_changes& c, bool& rebuild) noexcept {
  const auto set = [](auto& to, const auto& from) {
    if (!from) return false;
    const bool other = to != *from;
    to = *from;
    return other;
  };
  // This is a list and not one || expression, so that every member is set.
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
  set(a.accept_timeout, c.accept_timeout);
  const bool tests = a.keep_alive.count() != 0; // takes a place of the queue
  set(a.keep_alive, c.keep_alive);
  rebuild = rebuild || tests != (a.keep_alive.count() != 0);
  set(a.qos, c.qos);
  if (c.comm) a.comm = *c.comm;
  return a;
}

DAT_DECL expected<void> ep_core::modify(const changes& wanted) noexcept {
  static constexpr const char* call = "ep.modify";
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg3), call).hint(hint);
  };
  if (wanted.pz && (wanted.pz->dead() || &wanted.pz->ia() != &ia()))
    return at(error(return_type::invalid_handle, return_subtype::handle_pz), call)
        .hint("The zone is closed or belongs to another ia.");
  if (auto ok = check_evds(ia(), wanted.evds); !ok) return at(ok.assume_error(), call);
  if (wanted.local_address) {
    // Checked before the endpoint is locked, because the probe takes time.
    if (!wanted.local_address->check(address_role::local))
      return invalid("An endpoint cannot connect from such an address.");
    probe p;
    if (!wanted.local_address->is_any() &&
        (!p.bind(*wanted.local_address) || p.device() != ia().name() || p.port() != ia().where().port))
      return invalid("The address must be one of the ia's own interface.");
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
  if ((wanted.local_address || wanted.comm) && !plain) return wrong_state(call);
  if (wanted.comm && attributes_.comm != communicator{}) return invalid("The communicator was set before.");
  if (wanted.comm && !is_supported(*wanted.comm))
    return invalid("A communicator is {AF_INET or AF_INET6, SOCK_STREAM, 0 or IPPROTO_TCP}.");
  bool rebuild = false;
  if (shares_ && wanted.values->max_recv_dtos)
    return invalid("The endpoint has no receive queue: srq.resize resizes its srq, set_watermark sets its high "
                   "watermarks.");
  if (shares_ && wanted.pz && wanted.pz.get() != srq_->pz().get()) return invalid(other_zone_hint);
  ep_attributes future = changed(attributes_, *wanted.values, rebuild);
  if (auto ok = check_attributes(ia(), future, shares_); !ok) return at(ok.assume_error(), call);
  queues evds = wanted.evds;
  if (auto ok = add_sink(call, ref(&ia()), evds); !ok) return at(ok.assume_error(), call);
  choose_completions({.recv = evds.recv ? evds.recv : evds_.recv,
                      .request = evds.request ? evds.request : evds_.request,
                      .connect = {}},
                     shares_, future);
  const auto replaces = [](const auto& by, const auto& what) { return by && by.get() != what.get(); };
  rebuild =
      rebuild || replaces(wanted.pz, pz_) || replaces(evds.recv, evds_.recv) || replaces(evds.request, evds_.request);
  const ep_attributes old_attributes = attributes_;
  const bool other_recv = future.recv_completion != old_attributes.recv_completion;
  const bool other_request = future.request_completion != old_attributes.request_completion;
  queues added; // evds of completions that are new, or that the endpoint feeds in another mode
  queues gone;
  if (replaces(evds.recv, evds_.recv) || other_recv || future.max_recv_dtos != old_attributes.max_recv_dtos) {
    added.recv = evds.recv ? evds.recv : evds_.recv;
    gone.recv = evds_.recv;
  }
  if (replaces(evds.request, evds_.request) || other_request ||
      request_places(future) != request_places(old_attributes)) {
    added.request = evds.request ? evds.request : evds_.request;
    gone.request = evds_.request;
  }
  if (replaces(evds.connect, evds_.connect)) {
    added.connect = evds.connect;
    gone.connect = evds_.connect;
  }
  if (!shares_ && rq_.used() != 0) {
    const auto refuse = [&](const char* hint) {
      return at(error(return_type::invalid_state, return_subtype::ep_notready), call).hint(hint);
    };
    // Receives that were posted before the choice notify, whatever the choice is.
    const bool chosen = old_attributes.recv_completion != completion_notification::by_default;
    if (other_recv && chosen)
      return refuse("Receives are posted: recv_completion can be changed before the first one only.");
    if (future.max_recv_dtos < rq_.used()) return refuse("More receives are posted than max_recv_dtos.");
    if (kept_.get() && future.max_recv_iov < kept_.get()->most_segments())
      return refuse("A receive is posted that has more segments than max_recv_iov.");
  }

  const auto as_before = [&] {
    if (gone.recv) gone.recv->restore_mode(old_attributes.recv_completion);
    if (gone.request) gone.request->restore_mode(old_attributes.request_completion);
  };
  const places n = places_of(srq_.get(), future);
  if (auto ok = attach(added, n, future, srq_.get(), gone, attached_); !ok) {
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
  const bool other_queue = (qp_ || has_kept_receives()) && rebuild;
  if ((complete() && !qp_) || other_queue) {
    if (auto ok = equip(call); !ok) {
      std::swap(evds_, old_evds);
      std::swap(pz_, old_pz);
      set_attributes(old_attributes);
      detach(added, n, srq_.get(), this);
      as_before();
      return ok;
    }
  }
  connect_evd_ = evds_.connect.get();
  detach(gone, attached_, srq_.get(), this);
  if (added.recv) attached_.recv = n.recv;
  if (added.request) attached_.request = n.request;
  // Counts uses only for the objects that the endpoint keeps.
  const auto moved = [](const auto& from, const auto& to) {
    if (to.get() == from.get()) return;
    if (to) to->users.fetch_add(1, std::memory_order_relaxed);
    if (from) from->users.fetch_sub(1, std::memory_order_release);
  };
  moved(old_pz, pz_);
  moved(old_evds.recv, evds_.recv);
  moved(old_evds.request, evds_.request);
  moved(old_evds.connect, evds_.connect);
  if (wanted.local_address) local_address_ = *wanted.local_address;
  set_state(qp_ ? configured(now) : now);
  return success();
}

DAT_DECL expected<void> ep_core::set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept {
  static constexpr const char* call = "ep.set_watermark";
  if (!is_watermark(soft) || !is_watermark(hard))
    return at({return_type::invalid_parameter, is_watermark(soft) ? return_subtype::arg3 : return_subtype::arg2}, call)
        .hint("A high watermark must be below 2^31, or no_watermark.");
  const std::lock_guard lock(mutex_);
  if (state() == ep_dead) return wrong_state(call);
  merged_evd* const m = merged(evds_.recv.get());
  if ((soft != no_watermark || hard != no_watermark) && evds_.recv && !m)
    return at(error(return_type::model_not_supported), call).hint(uncounted_hint);
  watermarks_.set(soft, hard);
  if (m) m->drain();
  watermarks_.forget_peak(); // only the present count matters
  check_watermarks();
  return success();
}

}}} // namespace dat::v0::detail
