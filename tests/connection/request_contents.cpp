// The contents of requests and replies: private data and attributes, and how long they stay.
// SPDX-License-Identifier: BSL-1.0
#include "listening_sides.hpp"
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <chrono>
#include <memory>

namespace connections {

TEST_CASE("connect copies its private data and attributes", "[ADDR-009][CONN-045]") {
  two t;
  t.a.make_ep();
  auto address = std::make_unique<dat::ia_address>(t.b.ia.address());
  auto data = std::make_unique<std::string>("mine");
  must(t.a.ep.connect(*address, t.service, patience, bytes_of(*data)));
  *address = dat::ia_address();
  *data = "gone";
  address.reset();
  data.reset();
  t.settle();
  auto request = t.request();
  CHECK(text_of(request.private_data()) == "mine");
  CHECK(request.local_address() == t.b.ia.address().with_port(t.service.port()));
  must(request.reject());
  // So do the other calls that take an address.
  const auto gone = [](std::unique_ptr<dat::ia_address>& storage) {
    *storage = dat::ia_address();
    storage.reset();
  };
  address = std::make_unique<dat::ia_address>(t.b.ia.address());
  const dat::communicator comm{address->family() == dat::address_family::ipv4 ? AF_INET : AF_INET6, SOCK_STREAM, 0};
  auto csp = must(t.b.ia.create_csp(comm, *address, t.b.evd));
  gone(address);
  const auto at = must(csp.query()).address;
  CHECK(at == t.b.ia.address().with_port(csp.port()));
  auto other = must(t.a.pz.create_ep<dat::rc>(t.a.evd, {.comm = comm}));
  address = std::make_unique<dat::ia_address>(t.a.ia.address());
  must(other.modify({.local_address = *address}));
  gone(address);
  CHECK(must(other.query()).local_address == t.a.ia.address());
  address = std::make_unique<dat::ia_address>(at);
  must(other.common_connect(*address, patience));
  gone(address);
  t.settle();
  CHECK(t.request().service() == csp.id());
}

TEST_CASE("a request keeps the peer's private data after the peer has ended",
          "[CR-003][CR-010][CR-013][CR-027][CR-033][EPS-020]") {
  two t;
  auto request = t.ask_with("remember me");
  const auto from = must(t.a.ep.local_address());
  {
    support::worker reader([&](support::worker& w) {
      for (int i = 0; i < 100; ++i)
        w.check(request.remote_address() == from && text_of(request.private_data()) == "remember me" &&
                request.query().has_value());
    });
    must(t.a.ep.close());
    t.settle();
    reader.join();
  }
  CHECK(text_of(request.private_data()) == "remember me");
  SHOWS("CR-007");
  CHECK(request.remote_address() == from);
  CHECK(request.service() == t.psp.id());
  const auto all = must(request.query());
  CHECK((all.remote_address == from && all.local_address == request.local_address() && !all.local_ep));
  CHECK((all.service == t.psp.id() && text_of(all.private_data) == "remember me"));
  // An endpoint of another adapter is refused, and the request is unchanged.
  auto foreign = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  CHECK(request.accept(foreign).error().type() == return_type::invalid_handle);
  CHECK(foreign.state() == ep_state::unconnected);
  rig::end again(1); // another ia of the request's adapter
  auto neighbour = must(again.pz.create_ep<dat::rc>(again.evd));
  CHECK(request.accept(neighbour).error() == dat::error(return_type::invalid_handle, return_subtype::handle_ep));
  CHECK(neighbour.state() == ep_state::unconnected);
  CHECK(text_of(request.private_data()) == "remember me");
  t.b.make_ep();
  must(request.accept(t.b.ep));
  CHECK(request.private_data().empty());
  CHECK_FALSE(request.service());
  CHECK(request.remote_address() == dat::ia_address());
  CHECK(request.reject().error().subtype() == return_subtype::handle_cr);
  CHECK(request.query().error() == dat::error(return_type::invalid_handle, return_subtype::handle_cr));
  SHOWS("CR-006");
  t.settle();
  CHECK(t.b.take(1).at(0).starts_with("accept_completion_error")); // the peer's endpoint had ended before
  auto other = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  must(other.connect(t.b.ia.address(), t.service, patience, bytes_of("and me")));
  t.settle();
  auto unwanted = t.request();
  CHECK(text_of(unwanted.private_data()) == "and me");
  must(unwanted.reject());
  CHECK(unwanted.private_data().empty());
  CHECK(dat::conn_qual::make(0x10000).error().type() == return_type::invalid_parameter);
  SHOWS("MODEL-005");
}

TEST_CASE("the private data of an accept stays readable after the connection has ended",
          "[CONN-019][EPS-014][EPS-022][DISC-043][EP-056][EVENT-016]") {
  two t;
  auto request = t.ask_with();
  t.b.make_ep();
  must(request.accept(t.b.ep, bytes_of("welcome")));
  const auto state = t.b.ep.state(); // a device may already have established the connection
  CHECK((state == ep_state::completion_pending || state == ep_state::connected));
  t.settle();
  const auto up = must(t.a.evd.wait_for<dat::established>(patience));
  CHECK(t.a.ep.state() == ep_state::connected);
  CHECK(text_of(up.private_data()) == "welcome");
  t.settle();
  CHECK(t.b.take(1) == events{"established"});
  const auto params = must(t.a.ep.query());
  const auto from = must(t.a.ep.local_address());
  const auto recv_dtos = must(t.a.ep.query()).attributes.max_recv_dtos;
  CHECK((from.port() != 0 && recv_dtos != 0));
  must(t.a.ep.post(dat::send{t.a.at(0, 4)}.cookie(1))); // without a receive, so a graceful disconnect waits
  must(t.a.ep.disconnect(dat::close_mode::graceful));
  CHECK(t.a.ep.state() == ep_state::disconnect_pending);
  CHECK(text_of(up.private_data()) == "welcome");
  must(t.a.ep.disconnect());
  CHECK(t.a.ep.state() == ep_state::disconnected);
  CHECK(text_of(up.private_data()) == "welcome");
  for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful}) must(t.a.ep.disconnect(how));
  t.settle();
  auto seen = t.a.take(2);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == events{"disconnected", "flushed 1"});
  must(t.a.ep.disconnect());
  must(t.a.ep.close());
  CHECK(t.a.take(0).empty());
  CHECK(text_of(up.private_data()) == "welcome");
  // A copy: the endpoint has ended.
  CHECK(params.remote_address == t.b.ia.address().with_port(t.service.port()));
  CHECK(params.local_address == t.a.ia.address().with_port(from.port()));
  CHECK(params.attributes.max_recv_dtos == recv_dtos);
}

TEST_CASE("queries return the same attributes before, during and after a connection",
          "[CONN-009][CONN-067][CR-045][EP-020]"
          "[EPS-074][DISC-051]"
          "[REQ-059]") {
  two t;
  t.a.make_ep({.max_request_dtos = 7, .max_rdma_read_out = std::uint8_t{16}, .comm = tcp});
  t.b.make_ep({.max_message_size = 4096,
               .max_rdma_read_out = std::uint8_t{1},
               .max_rdma_read_in = std::uint8_t{2},
               .retry_count = 5,
               .rnr_retry_count = 6,
               .ack_timeout = std::chrono::milliseconds(300),
               .min_rnr_timer = std::chrono::microseconds(320),
               .accept_timeout = std::chrono::seconds(40)});
  const auto same = [](const dat::ep_attributes& x, const dat::ep_attributes& y) {
    return x.max_request_dtos == y.max_request_dtos && x.max_recv_dtos == y.max_recv_dtos &&
           x.max_request_iov == y.max_request_iov && x.max_recv_iov == y.max_recv_iov &&
           x.max_message_size == y.max_message_size && x.max_rdma_read_in == y.max_rdma_read_in &&
           x.max_rdma_read_out == y.max_rdma_read_out && x.max_inline == y.max_inline &&
           x.retry_count == y.retry_count && x.rnr_retry_count == y.rnr_retry_count && x.ack_timeout == y.ack_timeout &&
           x.min_rnr_timer == y.min_rnr_timer && x.accept_timeout == y.accept_timeout && x.keep_alive == y.keep_alive &&
           x.recv_completion == y.recv_completion && x.request_completion == y.request_completion && x.qos == y.qos &&
           x.comm == y.comm && x.soft_high_watermark == y.soft_high_watermark &&
           x.hard_high_watermark == y.hard_high_watermark;
  };
  must(t.a.ep.set_watermark(5, 9));
  const auto before = must(t.a.ep.query());
  const auto a = before.attributes;
  const auto b = must(t.b.ep.query()).attributes;
  CHECK((a.soft_high_watermark == 5 && a.hard_high_watermark == 9));
  CHECK(a.max_recv_dtos > 0); // the defaults are filled in
  CHECK(a.max_message_size > 0);
  CHECK(b.max_request_dtos > 0);
  SHOWS("EP-010");
  must(t.ask_with().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
  // The default attributes suffice for messages.
  must(t.a.ep.post(dat::recv{t.a.at(0, 8)}.cookie(1)));
  must(t.b.ep.post(dat::send{t.b.at(0, 4)}.cookie(2)));
  t.settle();
  CHECK(t.a.take(1) == events{"received 1"});
  CHECK(t.b.take(1) == events{"sent 2"});
  SHOWS("EPATTR-022");
  must(t.a.ep.disconnect());
  t.settle();
  CHECK(t.a.take(1) == events{"disconnected"});
  CHECK(t.b.take(1) == events{"disconnected"});
  for (auto* ep : {&t.a.ep, &t.b.ep}) {
    must(ep->reset());
    // The ports belonged to the connection that has ended.
    refuses(ep->local_address(), return_type::invalid_state, return_subtype::ep_unconnected);
    refuses(ep->remote_address(), return_type::invalid_state, return_subtype::ep_unconnected);
    CHECK(must(ep->query()).local_address.port() == 0);
  }
  const auto after = must(t.a.ep.query());
  CHECK((after.recv == before.recv && after.request == before.request && after.connect == before.connect));
  CHECK(after.connect == t.a.evd.id());
  CHECK(after.has_pz);
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
  // The communicator that the first service point set in the endpoint does not prevent a second service point.
  auto another = must(t.b.ia.create_csp(tcp, t.b.evd));
  must(t.a.ep.common_connect(must(another.query()).address, patience));
  t.settle();
  must(t.request().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  CHECK(must(t.b.ep.query()).local_address == must(another.query()).address);
}

TEST_CASE("an endpoint without read attributes can read and reports its depth",
          "[CONN-066][CR-043][EPATTR-013][EPATTR-014][EPATTR-015]") {
  two t;
  t.a.make_ep();
  t.b.make_ep();
  must(t.ask_with().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  for (auto* e : {&t.a, &t.b}) {
    CHECK(must(e->ep.query()).attributes.max_rdma_read_in > 0);
    CHECK(must(e->ep.query()).attributes.max_rdma_read_out > 0);
  }
  t.b.memory[5] = 'x';
  must(t.a.ep.post(dat::rdma_read{t.a.at(8, 8), must(t.b.mem.remote(0, 8))}));
  t.settle();
  CHECK(t.a.take(1) == events{"read 0"});
  CHECK(t.a.memory[8 + 5] == 'x');
}

} // namespace connections
