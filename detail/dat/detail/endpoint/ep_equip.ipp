// Definitions of ep_core: the queue pair and the rings of a life, and the receives that move to another queue pair.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/endpoint/ep_core.hpp>
#include <dat/detail/posting/kept_receives.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/verbs/extended_post.hpp>

#include <cerrno>
#include <tuple>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL ep_life* ep_core::make_life() noexcept {
  ep_life& spare = life_ == &lives_[0] ? lives_[1] : lives_[0];
  spare.end(ia());
  const ep_life::plan p{.requests = complete() ? attributes_.max_request_dtos : 0,
                        .receives = shares_ ? 0 : attributes_.max_recv_dtos,
                        .request_kind = kind_of_work(datagrams_ ? dto_operation::send_ud : dto_operation::send),
                        .receive_kind = datagrams_ ? recv_ud_work : kind_of_work(dto_operation::recv)};
  return spare.begin(ia(), this, p) ? &spare : nullptr;
}

DAT_DECL expected<void> ep_core::equip(const char* call) noexcept {
  if (complete() && (watermarks_.soft() != no_watermark || watermarks_.hard() != no_watermark) &&
      !merged(evds_.recv.get()))
    return at(error(return_type::model_not_supported), call).hint(uncounted_hint);
  // All that can fail comes before the first change.
  const auto no_memory = [&] {
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  };
  ep_life* const fresh = make_life();
  if (!fresh) return no_memory();
  kept_receives* const kept = has_kept_receives() ? make_kept() : nullptr;
  const auto undo = [&] {
    kept_receives::destroy(kept);
    fresh->forget(ia());
    fresh->end(ia());
  };
  if (has_kept_receives() && !kept) {
    undo();
    return no_memory();
  }
  const auto before = std::tuple(max_inline_, extended_ops_, init_);
  ibv_qp* qp = nullptr;
  expected<void> ok = success();
  if (complete()) {
    auto made = make_qp(call, fresh->generation());
    if (made)
      qp = made.assume_value();
    else
      ok = made.assume_error();
  }
  if (ok) ok = move_receives(call, *fresh, qp);
  if (!ok) {
    if (qp) ibv_destroy_qp(qp);
    std::tie(max_inline_, extended_ops_, init_) = before;
    undo();
    return ok;
  }
  if (kept && kept_.get()) kept->assign(*kept_.get());
  kept_.put(kept);
  if (qp_) leave_srq();
  if (ibv_qp* const old = use_life(*fresh, qp)) ibv_destroy_qp(old);
  set_up_links();
  return success();
}

DAT_DECL expected<void> ep_core::move_receives(const char* call, ep_life& to, ibv_qp* qp) noexcept {
  const kept_receives* const kept = kept_.get();
  if (!kept || !life_) return success();
  const work_entry* const first = life_->first_receive();
  if (const int err = kept->post(first, to.receives(), qp, own_zone_))
    return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_recv", err), call);
  const auto each = [&](auto move) {
    const work_entry* from = first;
    for (const work_entry* e = to.first_receive(); e != to.receives().next(); e = e->next, from = from->next)
      if (!move(*from, *e)) return false;
    return true;
  };
  posts_observer* const records = ia().posts_observed_by.load(std::memory_order_acquire);
  if (records && records->moves &&
      !each([&](const work_entry& from, const work_entry& e) { return records->moves(*records, from.id(), e.id()); }))
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  if constexpr (checked_build)
    each([](const work_entry& from, const work_entry& e) { return work_watch<checked_build>::moved(from, e), true; });
  return success();
}

DAT_DECL ibv_qp* ep_core::use_life(ep_life& fresh, ibv_qp* qp) noexcept {
  if (life_) life_->forget(ia());
  life_ = &fresh;
  sq_.set(&life_->requests());
  rq_.set(&life_->receives());
  if (!qp) return nullptr;
  generation_.store(life_->generation(), std::memory_order_relaxed);
  deferred_.store(life_->generation() >> 32 << 32, std::memory_order_release); // clears deferred work of earlier lives
  probing_.store(false, std::memory_order_relaxed);
  was_up_ = false;
  last_wqe_seen_.store(false, std::memory_order_relaxed);
  if (!datagrams_) psn_ = random_psn();
  number_.store(qp->qp_num, std::memory_order_relaxed);
  return std::exchange(qp_, qp);
}

DAT_DECL result<ibv_qp*> ep_core::make_qp(const char* call, ep_generation life) noexcept {
  ibv_qp_init_attr init{};
  init.qp_context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(life));
  init.send_cq = evds_.request->cq();
  init.recv_cq = evds_.recv->cq();
  init.qp_type = datagrams_ ? IBV_QPT_UD : IBV_QPT_RC;
  init.sq_sig_all = 0;
  const std::uint32_t least = ia().siw() ? 1 : 0; // siw refuses an empty queue
  init.cap.max_send_wr = max(request_places(attributes_), least);
  init.cap.max_send_sge = attributes_.max_request_iov;
  if (srq_) {
    init.srq = srq_->native();
  } else {
    init.cap.max_recv_wr = max(attributes_.max_recv_dtos, least);
    init.cap.max_recv_sge = attributes_.max_recv_iov;
  }
  init.cap.max_inline_data = attributes_.max_inline;
  // The kernel can have extended requests where the provider of the device does not: this leaves the rest out.
  extended_op_set ops = extended_ops_;
  ibv_qp* qp = create_best_extended_qp(pz_->pd(), init, ops);
  if (!qp && ops.bits == 0) qp = ibv_create_qp(pz_->pd(), &init);
  if (!qp) {
    error refused = map_errno(errno, return_subtype::resource_tep, true).from("ibv_create_qp", errno);
    if (refused.type() == return_type::invalid_parameter && attributes_.max_inline != 0)
      refused = refused.hint("Try a smaller max_inline: some devices support fewer inline bytes.");
    return at(refused, call);
  }
  extended_ops_ = ops;
  max_inline_ = init.cap.max_inline_data;
  max_inline_message_ = min(max_message_, max_inline_);
  // The queue pair is in INIT from the start, so that receives can be posted before connecting.
  if (const int err = datagrams_ ? datagram_qp_to_rts(qp, ia().where().port, ia().pkey_index(), datagram_qkey)
                                 : connection_qp_to_init(qp, settings(), init_)) {
    ibv_destroy_qp(qp);
    return at(map_errno(err, return_subtype::resource_tep).from("ibv_modify_qp", err), call);
  }
  // The entries of the life refer to this endpoint already: completions find it from here on.
  if (srq_ && !srq_->endpoints.insert(qp->qp_num, static_cast<std::uint32_t>(life))) {
    ibv_destroy_qp(qp);
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  }
  return qp;
}

}}} // namespace dat::v0::detail
