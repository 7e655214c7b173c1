// Event dispatchers.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

namespace provider {
namespace {

/// The return value of a dequeue that finds no event. An empty evd of completions returns the bare number, without the
/// class of an error, as OFA's provider does: programs that poll compare the whole word.
[[nodiscard]] DAT_RETURN no_event(const evd_object& e, dat::error why) noexcept {
  const bool completions = (e.evd.stream_set() & (dat::streams::dto | dat::streams::rmr_bind)) != dat::streams{};
  return completions && why.type() == return_type::queue_empty ? DAT_RETURN{DAT_QUEUE_EMPTY} : word(why);
}

/// Attaches a cno, or none.
[[nodiscard]] DAT_RETURN attach(evd_object& e, DAT_CNO_HANDLE cno, const char* call) noexcept {
  const call_on<cno_object> c(cno);
  if (cno && (!c || &c->ia != &e.ia)) return bad_handle(return_subtype::handle_cno, call);
  const dat::cno none;
  const auto attached = e.evd.modify_cno(c ? c->cno : none);
  if (attached) e.cno.store(cno);
  return word(attached);
}

[[nodiscard]] DAT_RETURN create_evd(const entry_call<adapter>& a, DAT_COUNT qlen, DAT_CNO_HANDLE cno,
                                    DAT_EVD_FLAGS flags, DAT_EVD_HANDLE* evd) noexcept {
  if (qlen < 1) return a.bad_argument(2);
  constexpr std::uint32_t all = DAT_EVD_DEFAULT_FLAG | DAT_EVD_SOFTWARE_FLAG | DAT_IB_EVD_EXTENSION_FLAG;
  if (flags == 0 || !within(flags, all)) return a.bad_argument(4);
  if (!evd) return a.bad_argument(5);
  // The bits of the streams are those of the flags. Datagrams are an extension of DAT, which has no flag for them.
  const auto streams = static_cast<dat::streams>(static_cast<std::uint32_t>(flags)) | dat::streams::datagrams;
  auto made = dat::dynamic::create_evd(a->ia, streams, static_cast<std::uint32_t>(qlen));
  if (!made) return word(made);
  auto e = make_object<evd_object>(*a, std::move(made).assume_value());
  if (e && cno)
    if (const DAT_RETURN failed = attach(*e, cno, a.name())) return failed;
  return issue(*a, std::move(e), evd, DCNT_IA_EVD_CREATE, a.name());
}

[[nodiscard]] DAT_RETURN close(evd_object& e) noexcept {
  // The evd that was made with the ia ends with the ia.
  if (e.self == e.ia.async_evd) return refuse(return_type::invalid_state, return_subtype::evd_in_use, "dat_evd_free");
  const DAT_RETURN closed = word(e.evd.close());
  if (closed == success) e.ia.counters.add(DCNT_IA_EVD_FREE);
  return closed;
}

[[nodiscard]] dat::expected<DAT_EVD_PARAM> parameters(const evd_object& e) noexcept {
  const auto attributes = e.evd.query();
  if (!attributes) return attributes.assume_error();
  const auto mode = attributes.assume_value().config;
  const int config = mode == dat::completion_notification::solicited_wait ? DAT_EVD_STATE_CONFIG_SOLICITED
                     : mode == dat::completion_notification::selective    ? DAT_EVD_STATE_CONFIG_NOTIFY
                                                                          : DAT_EVD_STATE_CONFIG_THRESHOLD;
  const int enabled = e.evd.enabled() ? DAT_EVD_STATE_ENABLED : DAT_EVD_STATE_DISABLED;
  const int waitable = e.evd.waitable() ? DAT_EVD_STATE_WAITABLE : DAT_EVD_STATE_UNWAITABLE;
  return DAT_EVD_PARAM{.ia_handle = e.ia.self,
                       .evd_qlen = to_count(e.evd.capacity()),
                       .evd_state = static_cast<DAT_EVD_STATE>(enabled | waitable | config),
                       .cno_handle = e.cno.load(),
                       .evd_flags =
                           static_cast<DAT_EVD_FLAGS>(static_cast<std::uint32_t>(e.evd.stream_set()) & 0x1ffu)};
}

[[nodiscard]] DAT_RETURN wait(const entry_call<evd_object>& e, DAT_TIMEOUT timeout, DAT_COUNT threshold,
                              DAT_EVENT* event, DAT_COUNT* more) noexcept {
  if (threshold < 1) return e.bad_argument(3);
  if (!event) return e.bad_argument(4);
  if (!more) return e.bad_argument(5);
  const auto copy = [evd = e->self, event](dat::dto_operation what, dat::cookie posted, std::size_t bytes,
                                           dat::cookie ep) noexcept {
    write_dto(*event, evd, what, posted, bytes, ep);
  };
  e->counters.add(DCNT_EVD_WAIT);
  e->waiters.fetch_add(1);
  for (;;) {
    const event_writer write(*e, *event);
    const auto left = e->evd.wait(write, to_timeout(timeout), static_cast<std::size_t>(threshold), copy);
    if (left && event->event_number == 0) continue; // C does not have that event
    e->waiters.fetch_sub(1);
    *more = to_count(left ? left.assume_value() : left.assume_error().index());
    return word(left);
  }
}

DAT_RETURN dequeue(DAT_EVD_HANDLE evd, DAT_EVENT* event) {
  static constexpr const char* call = "dat_evd_dequeue";
  const call_on<evd_object> e(handle::called(evd));
  if (!e) [[unlikely]]
    return bad_handle(return_subtype::handle1, call);
  if (!event) [[unlikely]]
    return bad_argument(2, call);
  // Not the lambda of dat_evd_wait: compilers specialise code that has one caller.
  const auto copy = [evd, event](dat::dto_operation what, dat::cookie posted, std::size_t bytes,
                                 dat::cookie ep) noexcept { write_dto(*event, evd, what, posted, bytes, ep); };
  const event_writer write(*e, *event);
  const auto taken = e->evd.dequeue(write, copy);
  if (!taken) [[unlikely]] {
    e->counters.add(DCNT_EVD_DEQUEUE_NOT_FOUND);
    return no_event(*e, taken.assume_error());
  }
  if (event->event_number == 0) [[unlikely]] // C does not have that event
    return dequeue(evd, event);
  e->counters.add(DCNT_EVD_DEQUEUE_FOUND);
  return success;
}

} // namespace

void add_evd_entries(DAT_PROVIDER& table) noexcept {
  table.evd_create_func = entry<adapter, "dat_evd_create", create_evd>();
  table.evd_query_func = query<evd_object, "dat_evd_query", DAT_EVD_FIELD_ALL>([](auto& e) { return parameters(e); });
  table.evd_modify_cno_func =
      entry<evd_object, "dat_evd_modify_cno">([](auto& e, DAT_CNO_HANDLE cno) { return attach(*e, cno, e.name()); });
  table.evd_enable_func = entry<evd_object, "dat_evd_enable">([](auto& e) { return e->evd.enable(); });
  table.evd_disable_func = entry<evd_object, "dat_evd_disable">([](auto& e) { return e->evd.disable(); });
  table.evd_set_unwaitable_func =
      entry<evd_object, "dat_evd_set_unwaitable">([](auto& e) { return e->evd.set_unwaitable(); });
  table.evd_clear_unwaitable_func =
      entry<evd_object, "dat_evd_clear_unwaitable">([](auto& e) { return e->evd.clear_unwaitable(); });
  table.evd_wait_func = entry<evd_object, "dat_evd_wait", wait>();
  table.evd_dequeue_func = dequeue;
  table.evd_resize_func = entry<evd_object, "dat_evd_resize">([](auto& e, DAT_COUNT qlen) {
    return qlen < 1 ? e.bad_argument(2) : word(e->evd.resize(static_cast<std::uint32_t>(qlen)));
  });
  table.evd_post_se_func = entry<evd_object, "dat_evd_post_se">([](auto& e, const DAT_EVENT* event) {
    if (!event || event->event_number != DAT_SOFTWARE_EVENT) return e.bad_argument(2);
    return word(e->evd.post(dat::cookie(event->event_data.software_event_data.pointer)));
  });
  table.evd_free_func =
      entry<evd_object, "dat_evd_free">([](auto& e) { return end_object(e, close, return_subtype::evd_waiter); });
}

} // namespace provider
