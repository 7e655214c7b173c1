// Event dispatchers.
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"
#include "entries.hpp"

namespace provider {
namespace {

/// The handle's subtype for an evd, where its use is unknown.
constexpr auto evd_handle = return_subtype::handle1;

/// A call without arguments.
template <class Call>
[[nodiscard]] DAT_RETURN apply(DAT_EVD_HANDLE evd, const char* name, Call call) noexcept {
  const entry_call<evd_object> e(evd, name);
  return e ? word(call(e->evd)) : e.bad_handle();
}

/// What a dequeue returns that has no event. An evd of completions that is empty gives the bare number, without the
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

} // namespace

DAT_RETURN evd_create(DAT_IA_HANDLE ia, DAT_COUNT qlen, DAT_CNO_HANDLE cno, DAT_EVD_FLAGS flags, DAT_EVD_HANDLE* evd) {
  const entry_call<adapter> a(ia, "dat_evd_create");
  if (!a) return a.bad_handle();
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

DAT_RETURN evd_free(DAT_EVD_HANDLE evd) {
  static constexpr const char* call = "dat_evd_free";
  const auto close = [](evd_object& e) {
    // The evd that was made with the ia ends with the ia.
    if (e.self == e.ia.async_evd) return refuse(return_type::invalid_state, return_subtype::evd_in_use, call);
    const DAT_RETURN closed = word(e.evd.close());
    if (closed == DAT_SUCCESS) e.ia.counters.add(DCNT_IA_EVD_FREE);
    return closed;
  };
  return end_object<evd_object>(evd, call, close, return_subtype::evd_waiter);
}

DAT_RETURN evd_query(DAT_EVD_HANDLE evd, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM* param) {
  const auto fill = [](const evd_object& e, DAT_EVD_PARAM& to) {
    const auto attributes = e.evd.query();
    if (!attributes) return word(attributes);
    const auto mode = attributes.assume_value().config;
    const int config = mode == dat::completion_notification::solicited_wait ? DAT_EVD_STATE_CONFIG_SOLICITED
                       : mode == dat::completion_notification::selective    ? DAT_EVD_STATE_CONFIG_NOTIFY
                                                                            : DAT_EVD_STATE_CONFIG_THRESHOLD;
    const int enabled = e.evd.enabled() ? DAT_EVD_STATE_ENABLED : DAT_EVD_STATE_DISABLED;
    const int waitable = e.evd.waitable() ? DAT_EVD_STATE_WAITABLE : DAT_EVD_STATE_UNWAITABLE;
    to = {};
    to.ia_handle = e.ia.self;
    to.evd_qlen = to_count(e.evd.capacity());
    to.evd_state = static_cast<DAT_EVD_STATE>(enabled | waitable | config);
    to.cno_handle = e.cno.load();
    to.evd_flags = static_cast<DAT_EVD_FLAGS>(static_cast<std::uint32_t>(e.evd.stream_set()) & 0x1ffu);
    return success;
  };
  return query<evd_object>(evd, mask, DAT_EVD_FIELD_ALL, param, "dat_evd_query", fill);
}

DAT_RETURN evd_modify_cno(DAT_EVD_HANDLE evd, DAT_CNO_HANDLE cno) {
  const entry_call<evd_object> e(evd, "dat_evd_modify_cno");
  return e ? attach(*e, cno, e.name()) : e.bad_handle();
}

DAT_RETURN evd_enable(DAT_EVD_HANDLE evd) {
  return apply(evd, "dat_evd_enable", [](auto& e) { return e.enable(); });
}
DAT_RETURN evd_disable(DAT_EVD_HANDLE evd) {
  return apply(evd, "dat_evd_disable", [](auto& e) { return e.disable(); });
}
DAT_RETURN evd_set_unwaitable(DAT_EVD_HANDLE evd) {
  return apply(evd, "dat_evd_set_unwaitable", [](auto& e) { return e.set_unwaitable(); });
}
DAT_RETURN evd_clear_unwaitable(DAT_EVD_HANDLE evd) {
  return apply(evd, "dat_evd_clear_unwaitable", [](auto& e) { return e.clear_unwaitable(); });
}

DAT_RETURN evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT* event, DAT_COUNT* more) {
  const entry_call<evd_object> e(evd, "dat_evd_wait");
  if (!e) return e.bad_handle();
  if (threshold < 1) return e.bad_argument(3);
  if (!event) return e.bad_argument(4);
  if (!more) return e.bad_argument(5);
  const auto copy = [evd, event](dat::dto_operation what, dat::cookie posted, std::size_t bytes,
                                 dat::cookie ep) noexcept { write_dto(*event, evd, what, posted, bytes, ep); };
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

DAT_RETURN evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT* event) {
  static constexpr const char* call = "dat_evd_dequeue";
  const call_on<evd_object> e(handle::called(evd));
  if (!e) [[unlikely]]
    return bad_handle(evd_handle, call);
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
    return evd_dequeue(evd, event);
  e->counters.add(DCNT_EVD_DEQUEUE_FOUND);
  return DAT_SUCCESS;
}

DAT_RETURN evd_resize(DAT_EVD_HANDLE evd, DAT_COUNT qlen) {
  const entry_call<evd_object> e(evd, "dat_evd_resize");
  if (!e) return e.bad_handle();
  return qlen < 1 ? e.bad_argument(2) : word(e->evd.resize(static_cast<std::uint32_t>(qlen)));
}

DAT_RETURN evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT* event) {
  const entry_call<evd_object> e(evd, "dat_evd_post_se");
  if (!e) return e.bad_handle();
  if (!event || event->event_number != DAT_SOFTWARE_EVENT) return e.bad_argument(2);
  return word(e->evd.post(dat::cookie(event->event_data.software_event_data.pointer)));
}

} // namespace provider
