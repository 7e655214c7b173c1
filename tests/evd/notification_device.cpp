// Which completions wake a thread, on a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <support/streams.hpp>

#include <csignal>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace device {

namespace {

using support::mixed;

/// The passive side's receives complete on an evd of their own, in the given mode.
template <dat::streams S>
struct receiver : two_sides {
  explicit receiver(dat::completion_notification how)
      : receives(must(b.ia.create_evd<S>(64))),
        active(a.make_ep()),
        passive(must(b.pz.create_ep<dat::rc>({.recv = receives, .request = requests(), .connect = b.evd},
                                             {.recv_completion = how}))) {
    connect(active, passive);
  }
  dat::evd<S> receives;
  dat::evd<dat::stream::dto> own;
  endpoint active;
  endpoint passive;

private:
  const dat::evd<dat::stream::dto>& requests() { return own = must(b.ia.create_evd<dat::stream::dto>(64)); }
};

template <dat::streams S>
void solicited() {
  receiver<S> link(dat::completion_notification::solicited_wait);
  for (int i = 0; i < 16; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  CHECK(error_of(link.passive.post(dat::recv{}.suppress_notification())) ==
        dat::error(type::invalid_parameter, subtype::arg5));
  SHOWS("DTO-112", "DTO-041", "REQ-109", "COMP-025");
  background waiter([&] { return link.receives.wait(patience); });
  waiter.until_asleep();
  for (int i = 0; i < 10; ++i) must(link.active.post(dat::send{}));
  for (int i = 0; i < 10; ++i) (void)link.template at_a<dat::send_done>(); // all messages have arrived
  waiter.until_asleep();
  CHECK_FALSE(waiter.done());
  SHOWS("EVENT-043", "EVENT-050", "DTO-113", "EPATTR-005", "MODEL-014", "REQ-163");
  must(link.active.post(dat::send{}.solicited()));
  CHECK(std::get<dat::recv_done>(must(waiter.get())).cookie() == dat::cookie(0));
  SHOWS("COMP-026", "DTO-097", "EVENT-058", "MODEL-026", "COMP-009", "REQ-109");
  for (int i = 1; i < 11; ++i) CHECK(next<dat::recv_done>(link.receives).cookie() == dat::cookie(i));
  // A write with immediate data wakes the thread, too.
  background told([&] { return link.receives.wait(patience); });
  told.until_asleep();
  must(link.active.post(dat::rdma_write{dat::local_segment<std::byte, dat::mem_priv::local_read>(),
                                        dat::remote_segment<std::byte, dat::mem_priv::remote_write>()}
                            .solicited_immediate(7)));
  CHECK(std::get<dat::ib::recv_write_immediate_done>(must(told.get())).cookie() == dat::cookie(11));
  SHOWS("IBX-024", "COMP-026", "REQ-164");
  // At its time limit a wait returns a completion that has arrived, though it woke no thread.
  background late([&] { return link.receives.wait(3s); });
  late.until_asleep();
  must(link.active.post(dat::send{}));
  CHECK(std::get<dat::recv_done>(must(late.get())).cookie() == dat::cookie(12));
  SHOWS("EVD-053");
  // The end of the connection wakes the waiter, though it is not solicited.
  background other([&] { return link.receives.wait(patience); });
  other.until_asleep();
  must(link.active.disconnect());
  CHECK(std::get<dat::dto_failure>(must(other.get())).cookie() == dat::cookie(13));
  SHOWS("EVENT-051");
  DEVIATES("COMP-008", "COMP-024", "DTO-164");
  CHECK(must(link.a.ia.template query<dat::provider_attributes>()).completion_flags_supported.solicited_wait);
  SHOWS("REQ-110", "DTO-042");
}

} // namespace

TEST_CASE("a wait for solicited receives is not ended by unsolicited ones", "[notification][COMP-023][DTO-162]") {
  NEEDS_FEATURE(solicited_waits);
  SECTION("on a completions-only evd") { solicited<dat::stream::dto>(); }
  SECTION("on a merged evd") { solicited<mixed>(); }
}

TEST_CASE("a wait sleeps through completions without notification", "[notification]") {
  two_sides link;
  auto own = must(link.a.ia.create_evd<mixed>(64));
  auto active = must(link.a.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = link.a.evd},
                                                  {.recv_completion = dat::completion_notification::selective,
                                                   .request_completion = dat::completion_notification::selective}));
  auto passive = link.b.make_ep();
  link.connect(active, passive);
  for (int i = 0; i < 8; ++i) must(passive.post(dat::recv{}));
  // Returns the event that has ended the wait.
  const auto sends_then = [&](auto release) {
    for (int i = 0; i < 10; ++i) must(passive.post(dat::recv{}));
    background waiter([&] { return own.wait(patience, 1); });
    waiter.until_asleep();
    for (int i = 0; i < 10; ++i) must(active.post(dat::send{}.suppress_notification().cookie(i)));
    for (int i = 0; i < 10; ++i) (void)link.at_b<dat::recv_done>();
    waiter.until_asleep();
    CHECK_FALSE(waiter.done());
    SHOWS("EVENT-046", "COMP-019", "EVENT-009", "MODEL-014", "REQ-108", "REQ-135");
    release();
    const auto ended = must(waiter.get());
    const auto* sent = std::get_if<dat::send_done>(&ended.first);
    if (sent) CHECK(sent->cookie() == dat::cookie(0));
    for (int i = sent ? 1 : 0; i < 10; ++i)
      CHECK(must(own.wait_for<dat::send_done>(patience)).cookie() == dat::cookie(i));
    SHOWS("EVENT-044");
    return ended;
  };
  const auto woken = sends_then([&] { must(active.post(dat::send{}.cookie(10))); });
  CHECK(std::holds_alternative<dat::send_done>(woken.first));
  CHECK(woken.more == 10); // when the thread has the first of eleven
  SHOWS("EVENT-058", "COMP-009");
  CHECK(next<dat::send_done>(own).cookie() == dat::cookie(10));
  SHOWS("EVENT-062", "MODEL-014", "REQ-163");
  // On a busy machine acknowledgements of the sends may come behind the software event. In that case, the software
  // event ends the wait.
  for (bool in_time = false; !in_time;) {
    const auto first = sends_then([&] { must(own.post(11)); }).first;
    in_time = std::holds_alternative<dat::send_done>(first);
    const auto posted = in_time ? next<dat::software_event>(own) : std::get<dat::software_event>(first);
    CHECK(posted.cookie() == dat::cookie(11));
  }
  SHOWS("REQ-160", "MODEL-014", "EVENT-047", "EVENT-029", "REQ-163");
  for (bool in_time = false; !in_time;) {
    background waiter([&] { return own.wait(patience); });
    waiter.until_asleep();
    must(active.post(dat::recv{}.suppress_notification().cookie(12)));
    must(passive.post(dat::send{}));
    (void)link.at_b<dat::send_done>(); // the message has arrived, except where completes_at_peer is false
    waiter.until_asleep();
    CHECK_FALSE(waiter.done());
    SHOWS("COMP-021", "REQ-109", "MODEL-014", "REQ-163", "REQ-108");
    must(own.post(13));
    const auto ended = must(waiter.get());
    in_time = std::holds_alternative<dat::recv_done>(ended);
    REQUIRE((in_time || !this_device().completes_at_peer));
    auto message =
        in_time ? dat::expected<dat::recv_done>(std::get<dat::recv_done>(ended)) : own.wait_for<dat::recv_done>(0s);
    while (!message) message = own.wait_for<dat::recv_done>(0s);
    CHECK(must(message).cookie() == dat::cookie(12));
    const auto posted = in_time ? next<dat::software_event>(own) : std::get<dat::software_event>(ended);
    CHECK(posted.cookie() == dat::cookie(13));
  }
  { // A signal ends a wait with the event that is queued.
    struct sigaction action {};
    action.sa_handler = [](int) {};
    struct sigaction before {};
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    background waiter([&] { return own.wait(patience, 1); });
    waiter.until_asleep();
    for (int i = 15; i < 17; ++i) must(active.post(dat::recv{}.suppress_notification().cookie(i)));
    must(passive.post(dat::send{}, dat::send{}));
    for (int i = 0; i < 2; ++i) (void)link.at_b<dat::send_done>(); // the messages have arrived
    waiter.until_asleep();
    ::syscall(SYS_tgkill, ::getpid(), waiter.id(), SIGUSR1);
    const auto got = must(waiter.get());
    CHECK(std::get<dat::recv_done>(got.first).cookie() == dat::cookie(15));
    CHECK(got.more == 1);
    SHOWS("EVENT-055");
    CHECK(next<dat::recv_done>(own).cookie() == dat::cookie(16));
    sigaction(SIGUSR1, &before, nullptr);
  }
  // A wait returns the first queued event at its time limit. On a busy machine the messages may be later than a short
  // limit.
  for (dat::timeout limit = 600ms;; limit *= 2) {
    background waiter([&] { return own.wait(limit); });
    waiter.until_asleep();
    for (int i = 14; i < 16; ++i) must(active.post(dat::recv{}.suppress_notification().cookie(i)));
    must(passive.post(dat::send{}, dat::send{}));
    auto got = waiter.get();
    const bool in_time = got.has_value();
    if (!in_time) CHECK(error_of(got).type() == type::timeout_expired);
    while (!got) got = own.dequeue();
    CHECK(std::get<dat::recv_done>(got.value()).cookie() == dat::cookie(14));
    auto second = own.dequeue();
    while (!second) second = own.dequeue();
    CHECK(std::get<dat::recv_done>(second.value()).cookie() == dat::cookie(15));
    if (in_time) break;
  }
  SHOWS("EVENT-056", "COMP-009");
}

namespace {

/// The active side's completions go to an evd of their own with a cno, in the given mode.
struct requester : two_sides {
  explicit requester(dat::completion_notification how)
      : evd(must(a.ia.create_evd<mixed>(64))),
        cno(must(a.ia.create_cno())),
        active(
            must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.rnr_retry_count = 1, .recv_completion = how, .request_completion = how}))),
        passive(b.make_ep()) {
    must(evd.modify_cno(cno));
    connect(active, passive);
  }
  /// Polls the next completion; a wait would take part in the notification.
  template <class E>
  E poll(place where = place::here()) {
    for (;;) {
      auto e = evd.dequeue();
      if (e && std::holds_alternative<E>(e.assume_value())) return std::get<E>(e.assume_value());
      if (e) std::visit([&](const auto& other) { told(other, where); }, e.assume_value());
      std::this_thread::yield();
    }
  }
  bool woken() { return must(cno.wait(patience)) == evd.id(); }
  /// Call it after the completions that may have triggered the cno were taken.
  bool asleep() { return error_of(cno.wait(0s)).type() == type::queue_empty; }

  dat::evd<mixed> evd;
  dat::cno cno;
  endpoint active;
  endpoint passive;

private:
  template <class E>
  static void told(const E& e, place where) {
    if constexpr (!std::is_same_v<E, dat::software_event>) fail(describe(e), where);
  }
};

} // namespace

TEST_CASE("selective endpoints: only operations posted with notification trigger the cno",
          "[notification][DTO-162][COMP-016][COMP-022][CNO-013][EVENT-042][EVD-067][DTO-040]") {
  requester link(dat::completion_notification::selective);
  for (int i = 0; i < 8; ++i) must(link.passive.post(dat::recv{}));
  must(link.active.post(dat::send{}.cookie(1).suppress_notification()));
  CHECK(link.poll<dat::send_done>().cookie() == dat::cookie(1));
  CHECK(link.asleep());
  SHOWS("EVENT-043", "EVENT-045");
  must(link.active.post(dat::send{}.suppress_completion()));
  must(link.active.post(dat::send{}.suppress_completion().suppress_notification()));
  const dat::rdma_write write{dat::local_segment<std::byte, dat::mem_priv::local_read>(),
                              dat::remote_segment<std::byte, dat::mem_priv::remote_write>()};
  const dat::rdma_read read{dat::local_segment<std::byte, dat::mem_priv::local_write>(),
                            dat::remote_segment<std::byte, dat::mem_priv::remote_read>()};
  must(link.active.post(dat::rdma_write{write}.suppress_completion(), dat::rdma_read{read}.suppress_completion()));
  must(link.active.post(dat::rdma_write{write}.suppress_completion().suppress_notification(),
                        dat::rdma_read{read}.suppress_completion().suppress_notification()));
  must(link.active.post(dat::send{}.cookie(2)));
  CHECK(link.woken());
  SHOWS("COMP-018", "EVENT-045");
  CHECK(link.poll<dat::send_done>().cookie() == dat::cookie(2)); // the suppressed requests have no completion
  SHOWS("REQ-111", "COMP-004");
  NEEDS_FEATURE(immediate_data);
  must(link.active.post(dat::rdma_write{write}.immediate(1).cookie(6).suppress_notification()));
  CHECK(link.poll<dat::ib::rdma_write_immediate_done>().cookie() == dat::cookie(6));
  CHECK(link.asleep());
  SHOWS("IBX-024", "EVENT-031", "IBX-027", "REQ-108", "REQ-164", "REQ-131"); // the send above triggered once
  must(link.active.post(dat::rdma_write{write}.cookie(10).suppress_notification()));
  CHECK(link.poll<dat::rdma_write_done>().cookie() == dat::cookie(10));
  CHECK(link.asleep());
  SHOWS("DTO-055", "DTO-152", "REQ-108"); // the peer's segment is empty, and names no region
  must(link.active.post(dat::rdma_read{read}.cookie(11).suppress_notification()));
  CHECK(link.poll<dat::rdma_read_done>().cookie() == dat::cookie(11));
  CHECK(link.asleep());
  SHOWS("DTO-055", "DTO-140", "REQ-108", "COMP-001", "COMP-019");
  must(link.active.post(dat::recv{}.cookie(3).suppress_notification(), dat::recv{}.cookie(4)));
  must(link.passive.post(dat::send{}.solicited())); // `.solicited()` has no effect in this mode
  CHECK(link.poll<dat::recv_done>().cookie() == dat::cookie(3));
  CHECK(link.asleep());
  SHOWS("DTO-041", "DTO-113", "COMP-026", "COMP-021", "EVENT-043");
  must(link.passive.post(dat::send{}));
  CHECK(link.woken());
  CHECK(link.poll<dat::recv_done>().cookie() == dat::cookie(4));
  must(link.active.post(dat::recv{}.cookie(12)));
  must(link.passive.post(dat::send{}.solicited())); // nor has the flag an effect on a receive that notifies
  CHECK(link.woken());
  CHECK(link.poll<dat::recv_done>().cookie() == dat::cookie(12));
  // Nor has the flag of a write with immediate data an effect.
  must(link.active.post(dat::recv{}.cookie(13).suppress_notification()));
  must(link.passive.post(dat::rdma_write{write}.solicited_immediate(7)));
  CHECK(link.poll<dat::ib::recv_write_immediate_done>().cookie() == dat::cookie(13));
  CHECK(link.asleep());
  SHOWS("COMP-026");
  must(link.evd.post(5)); // events of other streams always trigger
  CHECK(link.woken());
  CHECK(next<dat::software_event>(link.evd).cookie() == dat::cookie(5));
  SHOWS("EVD-069");
  CHECK(is_empty(link.evd));
  // For a receive that fails, the flags of its post decide as well whether it triggers.
  must(link.active.post(dat::recv{}.cookie(7).suppress_notification(), dat::recv{}.cookie(8)));
  must(link.active.disconnect());
  CHECK(link.woken());
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(7));
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(8));
  must(link.active.post(dat::recv{}.cookie(9).suppress_notification()));
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(9));
  CHECK(link.asleep());
  SHOWS("COMP-021");
}

TEST_CASE("selective endpoints: a failure triggers the cno unless posted without notification, suppressed or not",
          "[notification][DTO-162][COMP-017][COMP-018][COMP-019][REQ-131]") {
  if (!this_device().waits_for_receives) SKIP(no_wait);
  const bool quiet = GENERATE(false, true);
  const bool suppressed = GENERATE(false, true);
  requester link(dat::completion_notification::selective);
  auto s = dat::send{}.cookie(9);
  if (quiet) s.suppress_notification();
  if (suppressed) s.suppress_completion();
  must(link.active.post(s)); // the peer has no receive for the send
  if (!quiet) CHECK(link.woken());
  const auto failed = link.poll<dat::dto_failure>();
  CHECK(failed.cookie() == dat::cookie(9));
  CHECK(failed.status() == dat::dto_status::receiver_not_ready);
  CHECK(link.asleep());
  if (suppressed) SHOWS("DTO-163", "DTO-077");
}

TEST_CASE("threshold endpoints: every completion triggers the cno, and suppress_notification is refused",
          "[notification][COMP-012][COMP-014][COMP-015][COMP-025][DTO-076][DTO-112][DTO-162]") {
  requester link(dat::completion_notification::evd_threshold);
  const auto refused = dat::error(type::invalid_parameter, subtype::arg5);
  CHECK(error_of(link.active.post(dat::send{}.suppress_notification())) == refused);
  CHECK(error_of(link.active.post(dat::send{}.suppress_notification().suppress_completion())) == refused);
  CHECK(error_of(link.active.post(dat::recv{}.suppress_notification())) == refused);
  const dat::remote_segment<std::byte, dat::mem_priv::remote_write> there;
  CHECK(error_of(link.active.post(dat::send_with_invalidate{there}.suppress_notification())) == refused);
  const dat::rdma_write write{dat::local_segment<std::byte, dat::mem_priv::local_read>(),
                              dat::remote_segment<std::byte, dat::mem_priv::remote_write>()};
  const dat::rdma_read read{dat::local_segment<std::byte, dat::mem_priv::local_write>(),
                            dat::remote_segment<std::byte, dat::mem_priv::remote_read>()};
  CHECK(error_of(link.active.post(dat::rdma_write{write}.suppress_notification())) == refused);
  CHECK(error_of(link.active.post(dat::rdma_read{read}.suppress_notification())) == refused);
  CHECK(error_of(link.active.post(dat::rdma_write{write}.suppress_completion().suppress_notification())) == refused);
  CHECK(error_of(link.active.post(dat::rdma_read{read}.suppress_completion().suppress_notification())) == refused);
  // An operation that the adapter lacks is refused as such.
  const auto lacking = dat::error(type::model_not_supported);
  const auto of_immediate = has(feature::immediate_data) ? refused : lacking;
  const auto of_atomic = has(feature::atomics) ? refused : lacking;
  CHECK(error_of(link.active.post(dat::rdma_write{write}.immediate(1).suppress_notification())) == of_immediate);
  SHOWS("IBX-027");
  CHECK(error_of(link.active.post(dat::send{}.immediate(1).suppress_notification())) == of_immediate);
  const dat::local_segment<std::uint64_t, dat::mem_priv::local_write> old_value;
  const dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic> word;
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{old_value, word, 1}.suppress_notification())) == of_atomic);
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{old_value, word, 1, 2}.suppress_notification())) ==
        of_atomic);
  CHECK(is_empty(link.evd)); // nothing was posted
  const auto after = must(link.active.status());
  CHECK((after.state == state::connected && after.recv_idle && after.request_idle));
  SHOWS("COMP-011");
  must(link.passive.post(dat::recv{}));
  must(link.passive.post(dat::recv{}));
  must(link.active.post(dat::send{}.suppress_completion()));
  must(link.active.post(dat::send{}.cookie(1)));
  CHECK(link.woken());
  CHECK(link.poll<dat::send_done>().cookie() == dat::cookie(1)); // all posted requests notify
  SHOWS("EVENT-043");
  CHECK(is_empty(link.evd));
  for (const bool solicited : {false, true}) { // each receive notifies, even if its sender does not request it
    must(link.active.post(dat::recv{}.cookie(5)));
    auto message = dat::send{};
    if (solicited) message.solicited();
    must(link.passive.post(message));
    CHECK(link.woken());
    CHECK(link.poll<dat::recv_done>().cookie() == dat::cookie(5));
    SHOWS("EVENT-045");
  }
  if (!this_device().waits_for_receives) SKIP(no_wait);
  // The peer has no receive: the failure is an event.
  must(link.active.post(dat::send{}.suppress_completion().cookie(2)));
  CHECK(link.woken());
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(2));
  // Failures count towards a threshold, suppressed or not.
  must(link.active.post(dat::send{}.suppress_completion().cookie(3)));
  must(link.active.post(dat::send{}.cookie(4)));
  const auto both = must(link.evd.wait(patience, 2));
  CHECK(std::get<dat::dto_failure>(both.first).cookie() == dat::cookie(3));
  CHECK(both.more == 1);
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(4));
}

TEST_CASE("a threshold counts every completion, solicited or not",
          "[notification][COMP-013][COMP-026][EVD-059][COMP-009]") {
  receiver<mixed> link(dat::completion_notification::evd_threshold);
  for (int i = 0; i < 3; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  background waiter([&] { return link.receives.wait(patience, 3); });
  waiter.until_asleep();
  must(link.active.post(dat::send{}.solicited()));
  must(link.active.post(dat::send{}));
  // The two sends count as well. When they have completed, the messages have arrived.
  const auto sent = must(link.a.evd.wait(patience, 2));
  CHECK((std::holds_alternative<dat::send_done>(sent.first) && sent.more == 1));
  SHOWS("COMP-015");
  waiter.until_asleep();
  CHECK_FALSE(waiter.done()); // one message is missing
  must(link.active.post(dat::send{}));
  const auto got = must(waiter.get());
  CHECK(std::get<dat::recv_done>(got.first).cookie() == dat::cookie(0));
  CHECK(got.more == 2);
  SHOWS("EVENT-058");
  for (int i = 1; i < 3; ++i) CHECK(next<dat::recv_done>(link.receives).cookie() == dat::cookie(i));
  // Receives that fail count as well.
  for (int i = 3; i < 5; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  background last([&] { return link.receives.wait(patience, 2); });
  last.until_asleep();
  must(link.active.disconnect());
  const auto flushed = must(last.get());
  CHECK(std::get<dat::dto_failure>(flushed.first).cookie() == dat::cookie(3));
  CHECK(flushed.more == 1);
}

TEST_CASE("suppress_notification follows the mode of the queue that it is posted to",
          "[notification][COMP-025][DTO-076][DTO-112]") {
  two_sides link;
  auto receives = must(link.a.ia.create_evd<mixed>(16));
  auto requests = must(link.a.ia.create_evd<mixed>(16));
  const auto make = [&](dat::completion_notification on_recv, dat::completion_notification on_request) {
    return must(link.a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = link.a.evd},
                                             {.recv_completion = on_recv, .request_completion = on_request}));
  };
  const auto refused = dat::error(type::invalid_parameter, subtype::arg5);
  using enum dat::completion_notification;
  for (const bool of_requests : {false, true}) {
    auto active = of_requests ? make(evd_threshold, selective) : make(selective, evd_threshold);
    auto passive = link.b.make_ep();
    link.connect(active, passive);
    must(passive.post(dat::recv{}));
    const auto receive = active.post(dat::recv{}.suppress_notification());
    const auto send = active.post(dat::send{}.suppress_notification());
    CHECK(receive.has_value() == !of_requests);
    CHECK(send.has_value() == of_requests);
    CHECK(passive.attributes().request_completion == evd_threshold); // the modes of one side are its own
    CHECK(passive.attributes().recv_completion == evd_threshold);
    SHOWS("EPATTR-005", "EPATTR-007");
    CHECK(error_of(of_requests ? receive : send) == refused);
    must(active.close());
    must(passive.close());
    link.b.evd.drain([](const auto&) {}, 64);
  }
}

} // namespace device
