// Which completions wake, on a device.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <thread>

namespace device {

namespace {

constexpr auto mixed = dat::dto | dat::software;

/// The passive side's receives come to an evd of their own, in the given mode.
template <dat::streams S>
struct receiver : two_sides {
  explicit receiver(dat::waking how)
      : receives(must(b.ia.create_evd<S>(64))),
        active(a.make_ep()),
        passive(must(b.pz.create_ep<dat::rc>({.recv = receives, .request = requests(), .connect = b.evd},
                                             {.recv_completion = how}))) {
    connect(active, passive);
  }
  dat::evd<S> receives;
  dat::evd<dat::dto> own;
  endpoint active;
  endpoint passive;

private:
  const dat::evd<dat::dto>& requests() { return own = must(b.ia.create_evd<dat::dto>(64)); }
};

template <dat::streams S>
void solicited() {
  receiver<S> link(dat::waking::solicited_wait);
  for (int i = 0; i < 16; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  CHECK(error_of(link.passive.post(dat::recv{}.unsignalled())) == dat::error(type::invalid_parameter, subtype::arg5));
  background waiter([&] { return link.receives.wait(patience); });
  waiter.until_asleep();
  for (int i = 0; i < 10; ++i) must(link.active.post(dat::send{}));
  for (int i = 0; i < 10; ++i) (void)link.template at_a<dat::sent>(); // all have arrived
  waiter.until_asleep();
  CHECK_FALSE(waiter.done());
  must(link.active.post(dat::send{}.solicited()));
  CHECK(std::get<dat::received>(must(waiter.get())).cookie() == dat::cookie(0));
  for (int i = 1; i < 11; ++i) CHECK(next<dat::received>(link.receives).cookie() == dat::cookie(i));
  // When the time is over, what came meanwhile counts, though nobody was woken for it.
  background late([&] { return link.receives.wait(1s); });
  late.until_asleep();
  must(link.active.post(dat::send{}));
  CHECK(std::get<dat::received>(must(late.get())).cookie() == dat::cookie(11));
  // The end of the connection wakes, though nobody solicits it.
  background other([&] { return link.receives.wait(patience); });
  other.until_asleep();
  must(link.active.disconnect());
  CHECK(std::get<dat::dto_failure>(must(other.get())).cookie() == dat::cookie(12));
}

} // namespace

TEST_CASE("who waits for solicited receives sleeps through the others",
          "[notification][EVENT-050][EVENT-051][EVENT-058][COMP-024][COMP-026][EVENT-043][DTO-097][DTO-113]"
          "[EVD-053][COMP-023][DTO-112][DTO-162][EPATTR-005]"
          "[MODEL-014][MODEL-026][REQ-109][REQ-110][REQ-163]") {
  SECTION("on an evd of completions alone") { solicited<dat::dto>(); }
  SECTION("on a merged one") { solicited<mixed>(); }
}

TEST_CASE(
    "who waits sleeps through unsignalled completions",
    "[notification][EVENT-009][EVENT-044][EVENT-046][EVENT-047][EVENT-056][EVENT-062][COMP-018][COMP-019][COMP-021]"
    "[COMP-022]"
    "[MODEL-014][REQ-108][REQ-109][REQ-135][REQ-163]") {
  two_sides link;
  auto own = must(link.a.ia.create_evd<mixed>(64));
  auto active = must(link.a.pz.create_ep<dat::rc>(
      {.recv = own, .request = own, .connect = link.a.evd},
      {.recv_completion = dat::waking::unsignalled, .request_completion = dat::waking::unsignalled}));
  auto passive = link.b.make_ep();
  link.connect(active, passive);
  for (int i = 0; i < 40; ++i) must(passive.post(dat::recv{}));
  const auto sends_then = [&](auto release) {
    background waiter([&] { return own.wait(patience); });
    waiter.until_asleep();
    for (int i = 0; i < 10; ++i) must(active.post(dat::send{}.unsignalled().cookie(i)));
    for (int i = 0; i < 10; ++i) (void)link.at_b<dat::received>();
    waiter.until_asleep();
    CHECK_FALSE(waiter.done());
    release();
    CHECK(std::get<dat::sent>(must(waiter.get())).cookie() == dat::cookie(0));
    for (int i = 1; i < 10; ++i) CHECK(next<dat::sent>(own).cookie() == dat::cookie(i));
  };
  sends_then([&] { must(active.post(dat::send{}.cookie(10))); });
  CHECK(next<dat::sent>(own).cookie() == dat::cookie(10));
  sends_then([&] { must(own.post(11)); });
  CHECK(next<dat::software_event>(own).cookie() == dat::cookie(11));
  // At the end of the time limit what is there is given.
  background waiter([&] { return own.wait(600ms); });
  waiter.until_asleep();
  must(active.post(dat::recv{}.unsignalled().cookie(12)));
  must(passive.post(dat::send{}));
  CHECK(std::get<dat::received>(must(waiter.get())).cookie() == dat::cookie(12));
}

namespace {

/// The active side's completions come to an evd of their own with a cno, in the given mode.
struct requester : two_sides {
  explicit requester(dat::waking how)
      : evd(must(a.ia.create_evd<mixed>(64))),
        cno(must(a.ia.create_cno())),
        active(
            must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.rnr_retry_count = 1, .recv_completion = how, .request_completion = how}))),
        passive(b.make_ep()) {
    must(evd.modify_cno(cno));
    connect(active, passive);
  }
  /// The next completion, without a wait that would give notice a meaning of its own.
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
  /// To be asked when what may have woken has been taken.
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

TEST_CASE(
    "unsignalled endpoints: the cno is triggered by what was not posted unsignalled",
    "[notification][DTO-076][DTO-162][COMP-016][COMP-021][COMP-022][CNO-013][EVENT-042][EVENT-044][EVD-067][DTO-040]") {
  requester link(dat::waking::unsignalled);
  for (int i = 0; i < 8; ++i) must(link.passive.post(dat::recv{}));
  must(link.active.post(dat::send{}.cookie(1).unsignalled()));
  CHECK(link.poll<dat::sent>().cookie() == dat::cookie(1));
  CHECK(link.asleep());
  must(link.active.post(dat::send{}.suppress()));
  must(link.active.post(dat::send{}.suppress().unsignalled()));
  must(link.active.post(dat::send{}.cookie(2)));
  CHECK(link.woken());
  CHECK(link.poll<dat::sent>().cookie() == dat::cookie(2)); // nothing of the suppressed ones
  must(link.active.post(dat::recv{}.cookie(3).unsignalled(), dat::recv{}.cookie(4)));
  must(link.passive.post(dat::send{}.solicited())); // what the sender asks for does not count
  CHECK(link.poll<dat::received>().cookie() == dat::cookie(3));
  CHECK(link.asleep());
  must(link.passive.post(dat::send{}));
  CHECK(link.woken());
  CHECK(link.poll<dat::received>().cookie() == dat::cookie(4));
  must(link.evd.post(5)); // other streams always do
  CHECK(link.woken());
  CHECK(next<dat::software_event>(link.evd).cookie() == dat::cookie(5));
  CHECK(is_empty(link.evd));
}

TEST_CASE("unsignalled endpoints: a failure triggers the cno unless it was posted unsignalled, suppressed or not",
          "[notification][DTO-162][COMP-008][COMP-017][COMP-018][COMP-019]") {
  const bool quiet = GENERATE(false, true);
  const bool suppressed = GENERATE(false, true);
  requester link(dat::waking::unsignalled);
  auto s = dat::send{}.cookie(9);
  if (quiet) s.unsignalled();
  if (suppressed) s.suppress();
  must(link.active.post(s)); // nobody receives
  if (!quiet) CHECK(link.woken());
  const auto failed = link.poll<dat::dto_failure>();
  CHECK(failed.cookie() == dat::cookie(9));
  CHECK(failed.status() == dat::dto_status::receiver_not_ready);
  CHECK(link.asleep());
}

TEST_CASE("threshold endpoints: everything triggers the cno, and nothing can be posted unsignalled",
          "[notification][COMP-011][COMP-012][COMP-014][COMP-015][COMP-025][DTO-076][DTO-112][DTO-162]") {
  requester link(dat::waking::evd_threshold);
  const auto refused = dat::error(type::invalid_parameter, subtype::arg5);
  CHECK(error_of(link.active.post(dat::send{}.unsignalled())) == refused);
  CHECK(error_of(link.active.post(dat::send{}.unsignalled().suppress())) == refused);
  CHECK(error_of(link.active.post(dat::recv{}.unsignalled())) == refused);
  must(link.passive.post(dat::recv{}));
  must(link.passive.post(dat::recv{}));
  must(link.active.post(dat::send{}.suppress()));
  must(link.active.post(dat::send{}.cookie(1)));
  CHECK(link.woken());
  CHECK(link.poll<dat::sent>().cookie() == dat::cookie(1)); // all that was posted
  CHECK(is_empty(link.evd));
  must(link.active.post(dat::send{}.suppress().cookie(2))); // nobody receives: an event all the same
  CHECK(link.woken());
  CHECK(link.poll<dat::dto_failure>().cookie() == dat::cookie(2));
}

TEST_CASE("a threshold counts every completion, solicited or not", "[notification][COMP-013][COMP-014][EVD-059]") {
  receiver<mixed> link(dat::waking::evd_threshold);
  for (int i = 0; i < 3; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  background waiter([&] { return link.receives.wait(patience, 3); });
  waiter.until_asleep();
  must(link.active.post(dat::send{}.solicited()));
  must(link.active.post(dat::send{}));
  must(link.active.post(dat::send{}));
  const auto got = must(waiter.get());
  CHECK(std::get<dat::received>(got.first).cookie() == dat::cookie(0));
  CHECK(got.more == 2);
}

} // namespace device
