// Arming the device: modes, notifications, and completions between two armings.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/detail/base/fd.hpp>
#include <dat/detail/events/cq_arming.hpp>

using namespace unit;
using dat::completion_notification;
using dat::detail::cq_arming;

namespace {

struct arming_rig {
  arming_rig() {
    REQUIRE(dat::detail::make_nonblocking(channel->fd) == 0);
    a.set_queue(cq, channel, 1);
  }
  ~arming_rig() {
    a.acknowledge_all();
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
  }
  void complete(bool solicited = false, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.status = status;
    fake::forge(cq, wc, solicited);
  }
  std::size_t armings() { return fake::count(fake::call::ibv_req_notify_cq); }
  clean_world clean;
  dat::ia ia = must(dat::ia::open("fk1", manual));
  ibv_comp_channel* channel = ibv_create_comp_channel(ia.native_handle());
  ibv_cq* cq = ibv_create_cq(ia.native_handle(), 64, nullptr, channel, 0);
  cq_arming a;
};

} // namespace

TEST_CASE("a completion queue that no endpoint feeds is not armed", "[evd][arming]") {
  arming_rig t;
  CHECK(t.a.arm() == 0);
  CHECK_FALSE(t.a.armed());
  CHECK(t.armings() == 0);
  t.a.add_feed();
  CHECK(t.a.arm() == 0);
  CHECK(t.a.armed());
  CHECK(t.armings() == 1);
  CHECK(t.a.remove_feed() == 0);
}

TEST_CASE("an armed device notifies once, for the next completion", "[evd][arming]") {
  arming_rig t;
  t.a.add_feed();
  t.complete(); // a completion from before the arming does not notify
  REQUIRE(t.a.arm() == 0);
  CHECK(t.a.read_all() == 0);
  CHECK_FALSE(t.a.take_fired());
  t.complete();
  t.complete();
  CHECK(t.a.read_all() == 0);
  CHECK_FALSE(t.a.armed());
  CHECK(t.a.take_fired());
  CHECK_FALSE(t.a.take_fired());
  t.complete();
  CHECK(t.a.read_all() == 0);
  CHECK_FALSE(t.a.take_fired());
}

TEST_CASE("the waiter reads its notification just before it arms the device again", "[evd][arming]") {
  arming_rig t;
  t.a.add_feed();
  REQUIRE(t.a.arm() == 0);
  t.complete();
  t.a.read_unread(); // the notification is not read yet
  CHECK_FALSE(t.a.take_fired());
  t.a.mark_unread();
  CHECK(t.a.armed());
  t.a.read_unread();
  CHECK(t.a.take_fired());
  CHECK_FALSE(t.a.armed());
}

TEST_CASE("in solicited mode only notified completions count as news", "[evd][arming]") {
  arming_rig t;
  t.a.set_mode(completion_notification::solicited_wait);
  t.a.add_feed();
  REQUIRE(t.a.arm() == 0);
  CHECK(t.a.is_selective());
  t.complete();
  CHECK(t.a.read_all() == 0);
  CHECK_FALSE(t.a.take_notified());
  t.complete(true);
  CHECK(t.a.read_all() == 0);
  CHECK(t.a.take_notified());
  CHECK_FALSE(t.a.take_notified());
  REQUIRE(t.a.arm() == 0);
  t.complete(false, IBV_WC_RETRY_EXC_ERR); // a failure counts as solicited
  CHECK(t.a.read_all() == 0);
  CHECK(t.a.take_notified());
}

TEST_CASE("a change of the mode requires that the device is armed again", "[evd][arming]") {
  arming_rig t;
  t.a.add_feed();
  REQUIRE(t.a.arm() == 0);
  t.a.set_mode(completion_notification::evd_threshold); // sets the same mode again
  CHECK(t.a.armed());
  t.a.set_mode(completion_notification::selective);
  CHECK_FALSE(t.a.armed());
}

TEST_CASE("a notification that ends early is a failure, whatever errno was before", "[evd][arming]") {
  arming_rig t;
  for (const int before : {EAGAIN, 0}) {
    fake::fail(fake::call::ibv_get_cq_event, 1, fake::no_errno);
    errno = before;
    CHECK(t.a.read_all() == EIO);
  }
}

TEST_CASE("a failure to arm is returned, and the device counts as unarmed", "[evd][arming]") {
  arming_rig t;
  t.a.add_feed();
  fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
  CHECK(t.a.arm() == EIO);
  CHECK_FALSE(t.a.armed());
  fake::fail(fake::call::ibv_get_cq_event, 1, EIO);
  CHECK(t.a.read_all() == EIO);
  CHECK(t.a.read_all() == 0);
}

TEST_CASE("a waiter reads each notification once, and acknowledges notifications in groups", "[evd][arming]") {
  arming_rig t;
  const auto reads = [&] { return fake::count(fake::call::ibv_get_cq_event); };
  const auto notify = [&] {
    REQUIRE(t.a.arm() == 0);
    t.complete(true);
    for (ibv_wc wc; ibv_poll_cq(t.cq, 1, &wc) > 0;) {
    }
    t.a.mark_unread();
  };
  CHECK(cq_arming().read_all() == 0); // it has no channel
  t.a.add_feed();
  for (int i = 0; i < 200; ++i) {
    notify();
    t.a.read_unread();
    t.a.read_unread();
  }
  CHECK(reads() == 200);
  CHECK(fake::live().unacked_cq_events < 100);
  // In a selective mode, each notification counts.
  t.a.set_mode(completion_notification::solicited_wait);
  notify();
  notify();
  t.a.read_unread();
  CHECK(reads() == 203); // the last read finds nothing
}
