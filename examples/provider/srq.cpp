// Shared receive queues.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

[[nodiscard]] DAT_RETURN create_srq(const entry_call<adapter>& a, DAT_PZ_HANDLE pz, DAT_SRQ_ATTR* attr,
                                    DAT_SRQ_HANDLE* srq) noexcept {
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

DAT_RETURN post_to_srq(DAT_SRQ_HANDLE srq, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie) {
  static constexpr const char* call = "dat_srq_post_recv";
  const call_on<srq_object> s(srq);
  if (!s) return bad_handle(return_subtype::handle_srq, call);
  const std::lock_guard alone(s->posting);
  const auto post = [to = s.get(), user_cookie](const auto& memory) {
    return word(to->srq.post(dat::recv(memory).cookie(dat::cookie(user_cookie.as_64))));
  };
  return with_local(s->ia, s->known, n, iov, dat::local_write, call, post);
}

[[nodiscard]] dat::expected<DAT_SRQ_PARAM> parameters(const srq_object& s) noexcept {
  const auto from = s.srq.query();
  if (!from) return from.assume_error();
  const dat::srq_params& p = from.assume_value();
  return DAT_SRQ_PARAM{.ia_handle = s.ia.self,
                       .srq_state =
                           p.state == dat::srq_state::operational ? DAT_SRQ_STATE_OPERATIONAL : DAT_SRQ_STATE_ERROR,
                       .pz_handle = s.zone,
                       .max_recv_dtos = to_count(p.max_recv_dtos),
                       .max_recv_iov = to_count(p.max_recv_iov),
                       .low_watermark = to_count(p.low_watermark),
                       .available_dto_count = p.available ? to_count(*p.available) : DAT_COUNT{DAT_VALUE_UNKNOWN},
                       .outstanding_dto_count = to_count(p.outstanding)};
}

} // namespace

void add_srq_entries(DAT_PROVIDER& table) noexcept {
  table.srq_create_func = entry<adapter, "dat_srq_create", create_srq>();
  table.srq_post_recv_func = post_to_srq;
  table.srq_query_func = query<srq_object, "dat_srq_query", DAT_SRQ_FIELD_ALL>([](auto& s) { return parameters(s); });
  table.srq_resize_func = entry<srq_object, "dat_srq_resize">([](auto& s, DAT_COUNT max_recv_dtos) {
    return max_recv_dtos < 1 ? s.bad_argument(2) : word(s->srq.resize(static_cast<std::uint32_t>(max_recv_dtos)));
  });
  table.srq_set_lw_func = entry<srq_object, "dat_srq_set_lw">([](auto& s, DAT_COUNT low) {
    return low < 0 ? s.bad_argument(2) : word(s->srq.set_low_watermark(static_cast<std::uint32_t>(low)));
  });
  table.srq_free_func = free<srq_object, "dat_srq_free", DCNT_IA_SRQ_FREE>([](auto& s) { return s.srq.close(); });
}

} // namespace provider
