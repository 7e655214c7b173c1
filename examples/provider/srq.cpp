// Shared receive queues.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {

DAT_RETURN srq_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_SRQ_ATTR* attr, DAT_SRQ_HANDLE* srq) {
  const entry_call<adapter> a(ia, "dat_srq_create");
  if (!a) return a.bad_handle();
  const call_on<pz_object> zone(pz);
  if (!zone || &zone->ia != a.get()) return a.bad_handle(return_subtype::handle_pz);
  // An empty queue would be below its low watermark at once: dat_srq_set_lw arms it.
  if (!attr || attr->max_recv_dtos < 1 || attr->max_recv_iov < 0 || attr->low_watermark != DAT_SRQ_LW_DEFAULT)
    return a.bad_argument(3);
  if (!srq) return a.bad_argument(4);
  auto made = zone->pz.create_srq({.max_recv_dtos = static_cast<std::uint32_t>(attr->max_recv_dtos),
                                   .max_recv_iov = static_cast<std::uint32_t>(std::max(attr->max_recv_iov, 1))});
  return issue<srq_object>(*a, std::move(made), srq, DCNT_IA_SRQ_CREATE, a.name(), pz);
}

DAT_RETURN srq_free(DAT_SRQ_HANDLE srq) {
  return end_object<srq_object>(srq, "dat_srq_free", DCNT_IA_SRQ_FREE, [](srq_object& s) { return s.srq.close(); });
}

DAT_RETURN srq_post_recv(DAT_SRQ_HANDLE srq, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie) {
  static constexpr const char* call = "dat_srq_post_recv";
  const call_on<srq_object> s(srq);
  if (!s) return bad_handle(return_subtype::handle_srq, call);
  const std::lock_guard alone(s->posting);
  const auto post = [to = s.get(), user_cookie](const auto& memory) {
    return word(to->srq.post(dat::recv(memory).cookie(dat::cookie(user_cookie.as_64))));
  };
  return with_local(s->ia, s->known, n, iov, dat::local_write, call, post);
}

DAT_RETURN srq_query(DAT_SRQ_HANDLE srq, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM* param) {
  const auto fill = [](const srq_object& s, DAT_SRQ_PARAM& to) {
    const auto from = s.srq.query();
    if (!from) return word(from);
    const dat::srq_params& p = from.assume_value();
    to = {};
    to.ia_handle = s.ia.self;
    to.srq_state = p.state == dat::srq_state::operational ? DAT_SRQ_STATE_OPERATIONAL : DAT_SRQ_STATE_ERROR;
    to.pz_handle = s.zone;
    to.max_recv_dtos = to_count(p.max_recv_dtos);
    to.max_recv_iov = to_count(p.max_recv_iov);
    to.low_watermark = to_count(p.low_watermark);
    to.available_dto_count = p.available ? to_count(*p.available) : DAT_COUNT{DAT_VALUE_UNKNOWN};
    to.outstanding_dto_count = to_count(p.outstanding);
    return success;
  };
  return query<srq_object>(srq, mask, DAT_SRQ_FIELD_ALL, param, "dat_srq_query", fill);
}

DAT_RETURN srq_resize(DAT_SRQ_HANDLE srq, DAT_COUNT max_recv_dtos) {
  const entry_call<srq_object> s(srq, "dat_srq_resize");
  if (!s) return s.bad_handle();
  return max_recv_dtos < 1 ? s.bad_argument(2) : word(s->srq.resize(static_cast<std::uint32_t>(max_recv_dtos)));
}

DAT_RETURN srq_set_lw(DAT_SRQ_HANDLE srq, DAT_COUNT low) {
  const entry_call<srq_object> s(srq, "dat_srq_set_lw");
  if (!s) return s.bad_handle();
  return low < 0 ? s.bad_argument(2) : word(s->srq.set_low_watermark(static_cast<std::uint32_t>(low)));
}

} // namespace provider
