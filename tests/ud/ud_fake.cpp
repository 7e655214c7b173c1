// Datagram endpoints, groups and buffers, with failures that a device does not show on demand.
// SPDX-License-Identifier: BSL-1.0
#include "known_pair.hpp"
#include "world.hpp"

#include <dat/buffer.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <cstring>

using namespace unit;

namespace {

/// Runs through all operations of datagram endpoints. The first failure ends the run and is its result.
class ud_flow {
public:
  std::string run() {
    if (!both() && why_.empty()) why_ = "no reason";
    return why_;
  }

private:
  template <class T>
  bool is(dat::expected<T>&& r, T& to) {
    if (!r) return why_ = r.error().message(), false;
    to = std::move(r).value();
    return true;
  }
  bool is(dat::expected<void>&& r) { return r ? true : (why_ = r.error().message(), false); }
  void settle() { unit::settle(a_.ia, b_.ia); }
  /// Takes the next event of a side, which must be an E.
  template <class E>
  std::optional<E> take(ud_end& at) {
    settle();
    auto e = at.evd.dequeue();
    if (!e) {
      why_ = "nothing came: " + e.error().message();
      return {};
    }
    if (auto* wanted = std::get_if<E>(&e.value())) return std::move(*wanted);
    why_ = "event " + std::visit(describe_datagrams{}, e.value());
    return {};
  }
  bool open(ud_end& e, const char* device) {
    return is(dat::ia::open(device, manual), e.ia) && is(e.ia.create_pz(), e.pz) &&
           is(e.ia.create_evd<ud_streams>(64), e.evd) && is(e.pz.register_memory(e.memory, all_rights), e.mem) &&
           is(e.pz.create_ep<dat::ud>(e.evd), e.ep);
  }
  auto part(ud_end& e, std::size_t first, std::size_t n) { return must(e.mem.slice(first, n)); }
  /// Sends one message from a to b by `to`.
  bool send(const dat::ib::address_handle& to, const char* text) {
    std::memcpy(a_.memory.data(), text, 5);
    if (!is(b_.ep.post(dat::recv{part(b_, 0, 64)}.cookie(1)))) return false;
    if (!is(a_.ep.post(dat::ib::send_to{part(a_, 0, 5), to}.cookie(2)))) return false;
    if (!take<dat::ib::datagram_send_done>(a_)) return false;
    const auto got = take<dat::ib::datagram_recv_done>(b_);
    if (!got) return false;
    const dat::ib::datagram_view view(*got, part(b_, 0, 64));
    CHECK(text_of(view.payload()) == std::string_view(text, 5));
    CHECK(got->source_qp_number() == a_.ep.number());
    CHECK(view.header().source() == must(dat::ia_address::parse("10.99.1.1")));
    last_ = view.header();
    event_ = got;
    return true;
  }
  bool both() {
    if (!open(a_, "fk1") || !open(b_, "fk2")) return false;
    dat::ib::datagram_service service;
    if (!is(dat::ib::datagram_service::listen(b_.ia, unit::service, b_.evd), service)) return false;
    if (!is(a_.ep.connect(b_.ia.address(), unit::service, plenty, bytes_of("who")))) return false;
    auto request = take<dat::ib::datagram_request>(b_);
    if (!request) return settle(), false;
    CHECK(text_of(request->private_data()) == "who");
    if (!is(request->accept(b_.ep, bytes_of("me")))) return false;
    const auto at_b = take<dat::ib::datagram_established>(b_);
    const auto at_a = at_b ? take<dat::ib::datagram_established>(a_) : std::nullopt;
    if (!at_a) return false;
    CHECK(text_of(at_a->private_data()) == "me");
    dat::ib::address_handle to_b;
    dat::ib::address_handle to_a;
    if (!is(at_a->peer(), to_b) || !is(at_b->peer(), to_a) || !send(to_b, "hello")) return false;
    dat::ib::address_handle reply;
    if (!is(b_.ep.reply_to(*event_, last_), reply)) return false;
    CHECK(reply.qp_number() == a_.ep.number());
    // The endpoints exchange descriptors.
    dat::ib::descriptor where;
    dat::ib::address_handle found;
    if (!is(b_.ep.export_descriptor(), where) || !is(a_.ep.connect(where), found) || !send(found, "again"))
      return false;
    if (!connections()) return false;
    // A group, whose membership a reset keeps.
    dat::ib::multicast_group group;
    if (!is(dat::ib::multicast_group::join(b_.ep, must(dat::ia_address::parse("239.1.2.3"))), group)) return false;
    if (!take<dat::ib::group_joined>(b_)) return false;
    if (!is(b_.ep.disconnect()) || !take<dat::disconnected>(b_) || !is(b_.ep.reset())) return false;
    dat::ib::multicast_group sender;
    if (!is(dat::ib::multicast_group::join(a_.ep, must(dat::ia_address::parse("239.1.2.3")),
                                           dat::ib::membership::send_only),
            sender))
      return false;
    dat::ib::address_handle all;
    if (!take<dat::ib::group_joined>(a_) || !is(sender.peer(), all) || !send(all, "group")) return false;
    return is(group.leave()) && is(a_.ep.close()) && is(service.close());
  }
  bool connections() {
    dat::ep<dat::rc> near;
    dat::ep<dat::rc> far;
    dat::ib::descriptor of_near;
    dat::ib::descriptor of_far;
    if (!is(a_.pz.create_ep<dat::rc>(a_.evd), near) || !is(b_.pz.create_ep<dat::rc>(b_.evd), far) ||
        !is(near.export_descriptor(), of_near) || !is(far.export_descriptor(), of_far))
      return false;
    if (!is(far.post(dat::recv{part(b_, 0, 64)})) || !is(near.connect(of_far)) || !is(far.connect(of_near)))
      return false;
    if (!take<dat::established>(a_) || !take<dat::established>(b_)) return false;
    if (!is(near.post(dat::send{part(a_, 0, 5)}.immediate(7)))) return false;
    const auto done = take<dat::send_done>(a_);
    const auto got = done ? take<dat::ib::recv_immediate_done>(b_) : std::nullopt;
    if (!got) return false;
    CHECK(got->immediate() == 7);
    return true;
  }

  ud_end a_;
  ud_end b_;
  std::string why_;
  dat::ib::grh last_{};
  std::optional<dat::ib::datagram_recv_done> event_;
};

} // namespace

TEST_CASE("every failing call of datagrams, groups and descriptors is returned and leaves no resource behind",
          "[ud][descriptor][multicast]") {
  const fake::with roce{fake::personality::kind};
  const auto result = fake::for_each_failure([](const fake::injected& i) {
    const std::string told = ud_flow().run();
    INFO(i.text() << " -> " << told);
    if (!i.active) CHECK(told.empty());
    // A failure that no call can return becomes an event. Two failures need no report: of reading a table of which one
    // entry is used, and an adapter without an address.
    if (!told.empty() && !told.starts_with("event") && !told.starts_with("nothing came")) {
      const std::string_view name = fake::name(i.which);
      if (!name.starts_with("ibv_reg_mr") && !name.starts_with("ibv_query_gid") && name != "rdma_bind_addr")
        CHECK_THAT(told, support::contains_text(std::string(name.substr(0, name.find("_ex")))));
    }
  });
  for (const auto& d : result.dirty) UNSCOPED_INFO(d);
  CHECK(result.dirty.empty());
  CHECK(result.runs > 50);
}

TEST_CASE("a dropped address handle is kept until its sends have completed", "[ud][IBX-063]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(1)));
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(2).suppress_completion()));
  auto other = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  must(p.a.ep.post(dat::ib::send_to{p.out(1), other}.cookie(3)));
  p.to_b = {};
  other = {};
  CHECK(fake::live().ahs == 2);
  REQUIRE(fake::complete(p.a.ep.native_handle()));
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 1"});
  auto third = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  CHECK(fake::live().ahs == 3); // the suppressed send may still be outstanding
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 3"});
  third = {};
  CHECK(fake::live().ahs == 0);
  CHECK(fake::violations().empty());
}

TEST_CASE("refused sends do not end an address handle that other sends still use", "[ud][IBX-063]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  auto other = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  const auto refuse_one = [&] {
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::ib::send_to{p.out(1), other}));
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::ib::send_to{p.out(1), other}, dat::ib::send_to{p.out(1), other}));
  };
  refuse_one();
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(1)));
  p.to_b = {};
  refuse_one();
  auto third = must(p.a.ep.connect(must(p.b.ep.export_descriptor()))); // frees handles that no send uses
  CHECK(fake::live().ahs == 3);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 1"});
  third = {};
  other = {};
  CHECK(fake::live().ahs == 0);
  CHECK(fake::violations().empty());
}

TEST_CASE("an address handle that outlives its endpoint is harmless and names no peer", "[ud]") {
  clean_world world;
  known_pair p;
  auto kept = std::move(p.to_b);
  p.a.ep = {};
  CHECK(fake::live().ahs == 0);
  p.a.ep = must(p.a.pz.create_ep<dat::ud>(p.a.evd));
  CHECK(p.a.ep.post(dat::ib::send_to{p.out(1), kept}).error().type() == dat::return_type::protection_violation);
  CHECK(p.b.ep.post(dat::ib::send_to{kept}).error().type() == dat::return_type::protection_violation);
}

TEST_CASE("a datagram endpoint whose device fails breaks once and can be reset", "[ud][IBX-068]") {
  clean_world world;
  known_pair p;
  must(p.a.ep.post(dat::recv{must(p.a.mem.slice(0, 64))}.cookie(4)));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::ib::send_to{p.out(3), p.to_b}.cookie(5)));
  REQUIRE(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_LOC_QP_OP_ERR));
  auto seen = p.events_of(p.a);
  p.a.ia.run();
  for (auto& e : p.events_of(p.a)) seen.push_back(e);
  CHECK(std::ranges::count(seen, "broken") == 1);
  CHECK(std::ranges::count(seen, "flushed 4") == 1);
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
  must(p.a.ep.reset());
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  must(p.a.ep.post(dat::ib::send_to{p.out(3), p.to_b}.cookie(6)));
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 6"});
  // The failure does not change the queue pair, but its receives are flushed.
  must(p.a.ep.post(dat::recv{must(p.a.mem.slice(0, 64))}.cookie(7)));
  fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
  p.a.ia.run();
  auto both = p.events_of(p.a);
  std::ranges::sort(both);
  CHECK(both == std::vector<std::string>{"broken", "flushed 7"});
  // A close suffices instead of a disconnect.
  must(p.a.ep.reset());
  must(p.a.ep.post(dat::recv{must(p.a.mem.slice(0, 64))}.cookie(8)));
  must(p.a.ep.close());
  CHECK(p.events_of(p.a).empty());
  must(p.a.mem.close());
}

TEST_CASE("a full queue of datagrams refuses posts, and takes posts again when completions are taken",
          "[ud][IBX-066]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  for (std::uint64_t i = 0; i < 4; ++i) must(p.a.ep.post(dat::ib::send_to{p.to_b}.cookie(i)));
  CHECK(p.a.ep.post(dat::ib::send_to{p.to_b}).error().type() == dat::return_type::insufficient_resources);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a).size() == 4);
  must(p.a.ep.post(dat::ib::send_to{p.to_b}, dat::ib::send_to{p.out(2), p.to_b}));
  CHECK(p.events_of(p.a).size() == 2);
  fake::fail(fake::call::ibv_post_send, 1, EIO);
  CHECK(p.a.ep.post(dat::ib::send_to{p.to_b}).error().sys_errno() == EIO);
  must(p.a.ep.post(dat::ib::send_to{p.to_b}));
  CHECK(p.events_of(p.a).size() == 1);
}

TEST_CASE("the status of a datagram endpoint shows what is outstanding in each of its queues", "[ud]") {
  const clean_world clean;
  known_pair p;
  const auto idle = [](const dat::ep<dat::ud>& ep) {
    const auto s = must(ep.status());
    return std::string(to_string(s.state)) + (s.recv_idle ? " idle" : " receives") +
           (s.request_idle ? " idle" : " sends");
  };
  CHECK(idle(p.a.ep) == "connected idle idle");
  must(p.b.ep.post(dat::recv{must(p.b.mem.slice(0, 64))}));
  CHECK(idle(p.b.ep) == "connected receives idle");
  must(p.a.ep.post(dat::ib::send_to{p.out(8), p.to_b}));
  CHECK(idle(p.a.ep) == "connected idle sends");
  fake::finish();
  CHECK(p.events_of(p.a).size() == 1);
  CHECK(p.events_of(p.b).size() == 1);
  for (auto* e : {&p.a, &p.b}) CHECK(idle(e->ep) == "connected idle idle");
  must(p.a.ep.disconnect());
  CHECK(idle(p.a.ep) == "disconnected idle idle");
  must(p.a.ep.close());
  is_error(p.a.ep.status(), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
}

TEST_CASE("the address of a datagram peer has a handle of a type of its own", "[ud][type][IBX-011]") {
  using address = dat::ib::address_handle;
  STATIC_REQUIRE_FALSE(std::is_convertible_v<address, dat::ep_ref>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<dat::ep<dat::ud>, address>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<address>);
}

TEST_CASE("extension events carry at most 64 bytes", "[ud][IBX-015]") {
  STATIC_REQUIRE(sizeof(dat::ib::datagram_recv_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::recv_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_established) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_request) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_send_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_recv_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::recv_write_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::rdma_write_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::fetch_and_add_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::compare_and_swap_done) <= 64);
}

TEST_CASE("the data section of a buffer grows piece by piece, and never beyond its room",
          "[DOCA-009][DOCA-010][DOCA-013]") {
  clean_world world;
  std::array<std::byte, 48> bytes{};
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto region = must(pz.register_memory(bytes, all_rights));
  dat::buffer<3, all_rights.value> chain;
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(chain.push_back(must(region.slice(16 * i, 16))));
  CHECK_FALSE(chain.push_back(must(region.slice(0, 1))));
  REQUIRE(chain.append(40));
  CHECK(chain.data_size(0) == 16);
  CHECK(chain.data_size(1) == 16);
  CHECK(chain.data_size(2) == 8);
  CHECK(chain.room().size_bytes() == 8);
  CHECK(chain.data().size() == 3);
  CHECK_FALSE(chain.append(9));
  CHECK(chain.data_size() == 40);
  dat::buffer<1, all_rights.value> small;
  CHECK_FALSE(small.push_back(must(region.slice(0, 4)), 5));
  CHECK(small.pieces() == 0);
  dat::remote_buffer<all_rights.value> remote(region.remote(), 100);
  CHECK(remote.data_size() == 48);
  CHECK_FALSE(remote.append(1));
  CHECK(remote.data(7).size() == 7);
}
