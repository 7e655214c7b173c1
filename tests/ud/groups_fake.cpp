// The membership of datagram endpoints in groups: what is attached when, how a membership ends, and what fails.
// SPDX-License-Identifier: BSL-1.0
#include <unit/async_events.hpp>
#include <unit/datagram_end.hpp>
#include <unit/lock_waits.hpp>
#include <unit/world.hpp>

#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <array>
#include <cerrno>
#include <thread>
#include <type_traits>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
using fake::call;

namespace {

const dat::ia_address group_1 = must(dat::ia_address::parse("239.1.2.3"));
const dat::ia_address group_2 = must(dat::ia_address::parse("239.1.2.4"));

/// An endpoint, and the last event of its groups.
struct joining_end : datagram_end {
  joining_end() : datagram_end("fk1") {}
  /// Asks for a membership, and takes the answer.
  dat::ib::multicast_group join(const dat::ia_address& group = group_1,
                                dat::ib::membership how = dat::ib::membership::full) {
    auto g = must(dat::ib::multicast_group::join(ep, group, how));
    answer();
    return g;
  }
  /// "joined", "unreachable <errno>", or "nothing".
  std::string answer() {
    ia.run();
    last = evd.dequeue();
    if (!last) return "nothing";
    if (std::holds_alternative<dat::ib::group_joined>(last.value())) return "joined";
    if (const auto* e = std::get_if<dat::connection_unreachable>(&last.value()))
      return "unreachable " + std::to_string(e->reason());
    return "another";
  }
  /// Queue pair attachments and their ends so far.
  static std::size_t attached() { return fake::count(call::ibv_attach_mcast); }
  static std::size_t detached() { return fake::count(call::ibv_detach_mcast); }

  dat::expected<dat::event<ud_streams>> last = dat::error(dat::return_type::queue_empty);
};

} // namespace

TEST_CASE("a join whose call fails names the call, and holds nothing of the adapter", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  const auto idle = fake::live().ids;
  for (const auto verb : {call::rdma_create_id, call::rdma_bind_addr, call::rdma_join_multicast_ex}) {
    INFO(fake::name(verb));
    fake::fail(verb, 1, ENOMEM);
    const auto r = dat::ib::multicast_group::join(m.ep, group_1);
    is_error(r, return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(r.error().call() == "multicast_group.join");
    CHECK(std::string_view(fake::name(verb)).starts_with(r.error().verb()));
    CHECK(r.error().sys_errno() == ENOMEM);
    CHECK(fake::live().ids == idle);
  }
  CHECK(fake::count(call::rdma_leave_multicast) == 0); // no membership was asked for
  auto group = m.join();
  CHECK(group.peer());
  must(group.leave());
  CHECK(fake::count(call::rdma_leave_multicast) == 1);
  CHECK(fake::live().ids == idle);
}

TEST_CASE("a group needs a multicast address of a family that the adapter has", "[ud][multicast]") {
  const clean_world clean({.devices = {{"fk1", {{{"10.99.1.1"}}}}}});
  joining_end m;
  const auto join = [&](const char* text) {
    return dat::ib::multicast_group::join(m.ep, must(dat::ia_address::parse(text)));
  };
  is_error(join("10.99.1.1"), return_type::invalid_address, return_subtype::address_malformed);
  is_error(join("ff0e::1:2"), return_type::invalid_address, return_subtype::address_unreachable);
  must(m.ep.close());
  is_error(join("239.1.2.3"), return_type::invalid_handle, return_subtype::handle_ep);
}

TEST_CASE("a disconnected endpoint cannot join a group, because it would get no answer", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  must(m.ep.disconnect());
  CHECK(m.answer() == "another"); // disconnected
  const auto refused = dat::ib::multicast_group::join(m.ep, group_1);
  is_error(refused, return_type::invalid_state, return_subtype::ep_disconnected);
  CHECK(refused.error().call() == "multicast_group.join");
  CHECK(fake::count(call::rdma_join_multicast_ex) == 0);
  must(m.ep.reset());
  const auto group = m.join();
  CHECK(std::holds_alternative<dat::ib::group_joined>(m.last.value()));
}

TEST_CASE("an empty group has no address and no peer, and cannot be left", "[ud][multicast]") {
  dat::ib::multicast_group none;
  CHECK_FALSE(none);
  CHECK(none.address() == dat::ia_address());
  is_error(none.peer(), return_type::invalid_handle, return_subtype::handle_ep);
  is_error(none.leave(), return_type::invalid_handle, return_subtype::handle_ep);
}

TEST_CASE("a group names its address without a port, and has a peer from the join on", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto group = must(dat::ib::multicast_group::join(m.ep, group_1.with_port(77)));
  CHECK(group);
  CHECK(group.address() == group_1);
  is_error(group.peer(), return_type::invalid_state);
  REQUIRE(m.answer() == "joined");
  const auto& joined = std::get<dat::ib::group_joined>(m.last.value());
  CHECK(joined.group() == group_1);
  CHECK(joined.ep() == m.ep);
  CHECK_THAT(joined.message(), support::contains_text("ib::group_joined"));
  const auto all = must(group.peer({.service_level = std::uint8_t{3}}));
  CHECK(all.qp_number() == 0xff'ffff);
  CHECK(all.qkey() == RDMA_UDP_QKEY);
  const auto path = fake::ah_attributes().back();
  CHECK(path.sl == 3);
  CHECK(path.is_global == 1);
  CHECK(path.grh.dgid.raw[0] == 0xff);
  must(group.leave());
  CHECK_FALSE(group);
}

TEST_CASE("a member that only sends gets no messages: its queue pair is not attached", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto sender = m.join(group_1, dat::ib::membership::send_only);
  CHECK(m.attached() == 0);
  CHECK(sender.peer());
  must(sender.leave());
  CHECK(m.detached() == 0);
  auto full = m.join(group_1);
  CHECK(m.attached() == 1);
  // Its own message reaches it, because the network delivers messages of the group to members that receive.
  std::array<char, 64> memory{};
  auto mem = must(m.pz.register_memory(memory, all_rights));
  must(m.ep.post(dat::recv{mem}.cookie(1)));
  must(m.ep.post(dat::ib::send_to{must(full.peer())}));
  std::size_t received = 0;
  m.evd.drain([&]<class E>(const E&) { received += std::is_same_v<E, dat::ib::datagram_recv_done> ? 1 : 0; });
  CHECK(received == 1);
  must(full.leave());
  CHECK(m.detached() == 1);
}

TEST_CASE("a group whose attachment fails is not joined", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto group = must(dat::ib::multicast_group::join(m.ep, group_1));
  fake::fail(call::ibv_attach_mcast, 1, ENOMEM);
  CHECK(m.answer() == "unreachable " + std::to_string(ENOMEM));
  is_error(group.peer(), return_type::invalid_state);
  must(group.leave());
  CHECK(m.detached() == 0);
}

TEST_CASE("a lost membership ends the attachment at once, and only once", "[ud][multicast]") {
  const clean_world clean;
  for (const auto how : {RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_DEVICE_REMOVAL}) {
    INFO(rdma_event_str(how));
    joining_end m;
    const auto before = m.detached();
    auto group = m.join();
    fake::deliver({.event = how, .status = -ENETRESET, .id = fake::ids().back()});
    CHECK(m.answer() == "unreachable " + std::to_string(ENETRESET));
    CHECK(m.detached() == before + 1);
    is_error(group.peer(), return_type::invalid_state);
    must(group.leave());
    CHECK(m.detached() == before + 1);
  }
}

TEST_CASE("a group is joined once, and other events of its id mean nothing", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  fake::hold_events(RDMA_CM_EVENT_MULTICAST_JOIN);
  auto group = must(dat::ib::multicast_group::join(m.ep, group_1));
  rdma_cm_id* const id = fake::ids().back();
  fake::deliver({.event = RDMA_CM_EVENT_TIMEWAIT_EXIT, .id = id});
  CHECK(m.answer() == "nothing");
  fake::release_events();
  REQUIRE(m.answer() == "joined");
  fake::deliver({.event = RDMA_CM_EVENT_MULTICAST_JOIN, .id = id});
  CHECK(m.answer() == "nothing");
  CHECK(m.attached() == 1);
  CHECK(group.peer());
}

TEST_CASE("a group that was left is not attached again by a reset of its endpoint", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto left = m.join(group_1);
  const auto event = std::move(m.last); // keeps what the group was
  auto kept = m.join(group_2);
  CHECK(m.attached() == 2);
  must(left.leave());
  must(m.ep.disconnect());
  must(m.ep.reset());
  CHECK(m.attached() == 3);
  CHECK(m.detached() == 2);
  must(kept.leave());
  CHECK(m.detached() == 3);
  CHECK(event);
}

TEST_CASE("the end of an endpoint that is in a group is no failure", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto group = m.join();
  must(m.ep.close());
  std::size_t n = 0;
  m.ia.async_evd().drain([&](const auto&) { ++n; });
  CHECK(n == 0);
}

TEST_CASE("a group that is left while the answer to its join is read is not attached", "[ud][multicast]") {
  const clean_world clean;
  joining_end m;
  auto group = must(dat::ib::multicast_group::join(m.ep, group_1));
  std::optional<std::jthread> leaver;
  fake::intercept(call::rdma_ack_cm_event, [&] {
    if (leaver) return;
    const auto before = fake::count(call::rdma_destroy_id);
    leaver.emplace([&] { (void)group.leave(); });
    while (fake::count(call::rdma_destroy_id) == before) std::this_thread::yield(); // it waits for this event
  });
  CHECK(m.answer() == "nothing");
  REQUIRE(leaver);
  leaver->join();
  fake::intercept(call::rdma_ack_cm_event, {});
  CHECK(m.attached() == 0);
}

TEST_CASE("calls on groups wait for one that attaches or detaches a queue pair", "[ud][multicast][locks]") {
  const clean_world clean;
  joining_end m;
  auto one = m.join(group_1);
  std::optional<dat::ib::multicast_group> two;
  const auto ask_two = [&] { two = must(dat::ib::multicast_group::join(m.ep, group_2)); };
  SECTION("the peer of a group that is being joined") {
    ask_two();
    CHECK(waits(
        call::ibv_attach_mcast, [&] { m.ia.run(); }, [&] { (void)two->peer(); }));
  }
  SECTION("the end of a group that is being joined") {
    ask_two();
    CHECK(waits(
        call::ibv_attach_mcast, [&] { m.ia.run(); }, [&] { (void)two->leave(); }));
  }
  SECTION("the end of another group during a join") {
    ask_two();
    CHECK(waits(
        call::ibv_attach_mcast, [&] { m.ia.run(); }, [&] { (void)one.leave(); }));
  }
  SECTION("the ends of two groups") {
    ask_two();
    REQUIRE(m.answer() == "joined");
    CHECK(waits(
        call::ibv_detach_mcast, [&] { (void)two->leave(); }, [&] { (void)one.leave(); }, true));
  }
  SECTION("the end of a group during a reset") {
    must(m.ep.disconnect());
    CHECK(waits(
        call::ibv_attach_mcast, [&] { must(m.ep.reset()); }, [&] { (void)one.leave(); }));
  }
}

TEST_CASE("on InfiniBand a queue pair is attached to the LID of its group", "[ud][multicast]") {
  fake::world w;
  w.devices[0].ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  w.devices[0].ports[0].lid = 0x11;
  const clean_world clean(w);
  joining_end m;
  auto group = must(dat::ib::multicast_group::join(m.ep, group_1));
  CHECK(m.answer() == "joined");
  const auto to_all = must(group.peer());
  CHECK(fake::ah_attributes().back().dlid > 0xc000);
  must(m.ep.disconnect());
  must(m.ep.reset()); // attaches it again, to the same LID
  CHECK(take_async<dat::provider_internal_error>(m.ia) == 0);
  must(group.leave());
  CHECK(m.detached() == 2);
}

TEST_CASE("the kinds of membership have names", "[ud][multicast]") {
  CHECK(to_string(dat::ib::membership::full) == "full");
  CHECK(to_string(dat::ib::membership::send_only) == "send_only");
  CHECK(to_string(static_cast<dat::ib::membership>(2)) == "unknown membership");
}
