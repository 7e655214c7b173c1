// Which completions wake, on a device.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

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
  background waiter([&] { return link.receives.wait(patience); });
  waiter.until_asleep();
  for (int i = 0; i < 10; ++i) must(link.active.post(dat::send{}));
  for (int i = 0; i < 10; ++i) (void)link.template at_a<dat::sent>(); // all have arrived
  waiter.until_asleep();
  CHECK_FALSE(waiter.done());
  must(link.active.post(dat::send{}.solicited()));
  CHECK(std::get<dat::received>(must(waiter.get())).cookie() == dat::cookie(0));
  for (int i = 1; i < 11; ++i) CHECK(next<dat::received>(link.receives).cookie() == dat::cookie(i));
  // The end of the connection wakes, though nobody solicits it.
  background other([&] { return link.receives.wait(patience); });
  other.until_asleep();
  must(link.active.disconnect());
  CHECK(std::get<dat::dto_failure>(must(other.get())).cookie() == dat::cookie(11));
}

} // namespace

TEST_CASE("who waits for solicited receives sleeps through the others",
          "[notification][EVENT-050][EVENT-051][EVENT-058][COMP-024][COMP-026][EVENT-043][DTO-097][DTO-113]"
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
  background waiter([&] { return own.wait(200ms); });
  waiter.until_asleep();
  must(active.post(dat::recv{}.unsignalled().cookie(12)));
  must(passive.post(dat::send{}));
  CHECK(std::get<dat::received>(must(waiter.get())).cookie() == dat::cookie(12));
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
