// Atomic writes: posted by an extended queue pair where the device has them, refused elsewhere.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/ib_query.hpp>
#include <dat/policies.hpp>
#include <dat/srq.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

using namespace unit;
using dat::return_type;

namespace {

fake::world with_atomic_writes(bool extended_qps = true) {
  fake::world w;
  for (auto& d : w.devices) {
    d.atomic_writes = true;
    d.extended_qps = extended_qps;
  }
  return w;
}

/// Two connected sides, and words of `b` that `a` may write.
struct word_pair : pair {
  static constexpr auto rights = all_rights.value;
  using words = dat::remote_segment<std::uint64_t, rights>;
  std::array<std::uint64_t, 4> value{};
  dat::lmr<std::uint64_t, rights> mem = must(b.pz.register_memory(value, all_rights));

  explicit word_pair(const dat::ep_attributes& attributes = {}) : pair(attributes) {}
  [[nodiscard]] words at(std::size_t i) const { return must(mem.remote().slice(i, 1)); }
};

} // namespace

TEST_CASE("an atomic write puts its word at the peer and completes with its own event", "[ib]") {
  clean_world world(with_atomic_writes());
  word_pair p;
  CHECK(must(dat::ib::query_extensions(p.a.ia)).atomic_write);
  must(p.a.ep.post(dat::ib::atomic_write{p.at(1), 0x0123'4567'89ab'cdef}.cookie(5)));
  p.settle();
  CHECK(p.value == std::array<std::uint64_t, 4>{0, 0x0123'4567'89ab'cdef, 0, 0});
  const auto e = must(p.a.evd.wait_for<dat::ib::atomic_write_done>(p.a.ep, plenty));
  CHECK(e.cookie() == dat::cookie(5));
  CHECK(e.bytes() == 8);
  CHECK(e.ep() == p.a.ep);
  CHECK(e.message().starts_with("ib::atomic_write_done"));
  must(p.a.ep.post<dat::unchecked>(dat::ib::atomic_write{p.at(2), 7}.cookie(6)));
  must(p.a.ep.post<dat::tracked>(dat::ib::atomic_write{p.at(3), 8}.cookie(7)));
  CHECK(p.a.take() == events{"word written 6", "word written 7"});
  CHECK((p.value[2] == 7 && p.value[3] == 8));
}

TEST_CASE("an atomic write keeps its place among other requests, and takes their flags", "[ib]") {
  clean_world world(with_atomic_writes());
  word_pair p;
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.suppress_completion()));
  must(p.a.ep.post(dat::ib::atomic_write{p.at(0), 1}.suppress_completion()));
  must(p.a.ep.post(dat::ib::atomic_write{p.at(0), 2}.fence().cookie(2)));
  must(p.a.ep.post(dat::send{}.cookie(3)));
  CHECK(p.a.take() == events{"word written 2", "sent 3"});
  CHECK(p.value[0] == 2);
  is_error(p.a.ep.post(dat::ib::atomic_write{p.at(0), 3}.suppress_notification()), return_type::invalid_parameter,
           dat::return_subtype::arg5);
  CHECK(p.value[0] == 2);
}

TEST_CASE("an atomic write of memory that the peer has not granted breaks the connection", "[ib]") {
  clean_world world(with_atomic_writes());
  word_pair p;
  const auto readable = must(p.b.pz.register_memory(p.value, dat::local_write | dat::remote_read));
  auto wire = readable.remote().to_wire();
  wire[22] |= static_cast<std::byte>(dat::mem_priv::remote_write); // like a peer that sends false rights
  const auto there = must(dat::remote_segment<std::uint64_t, dat::mem_priv::remote_write>::from_wire(wire));
  must(p.a.ep.post(dat::ib::atomic_write{there, 1}.cookie(4)));
  p.settle();
  const auto e = std::get<dat::dto_failure>(must(p.a.evd.dequeue()));
  CHECK(e.cookie() == dat::cookie(4));
  CHECK(e.operation() == dat::dto_operation::atomic_write);
  CHECK(e.status() == dat::dto_status::remote_access);
  CHECK(p.value[0] == 0);
  (void)p.a.take();
  (void)p.b.take();
}

TEST_CASE("an atomic write that cannot be posted is refused, and the endpoint stays usable", "[ib]") {
  clean_world world(with_atomic_writes());
  word_pair p({.max_request_dtos = 2});
  const auto post = [&](const auto& where) { return p.a.ep.post(dat::ib::atomic_write{where, 1}); };
  is_error(post(must(p.mem.remote().slice(0, 0))), return_type::length_error, {});
  auto odd = dat::detail::segment_access::raw(p.at(0));
  odd.address += 1;
  is_error(post(dat::detail::segment_access::make<word_pair::words>(odd)), return_type::invalid_parameter,
           dat::return_subtype::arg6);

  // The device refuses the request, so no request is outstanding.
  fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
  const auto refused = post(p.at(0));
  is_error(refused, return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(refused.error().verb() == "ibv_wr_complete");
  CHECK(p.value[0] == 0);

  must(post(p.at(0)));
  must(post(p.at(1)));
  is_error(post(p.at(2)), return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(p.a.take() == events{"word written 0", "word written 0"});
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.a.ep.post(dat::ib::atomic_write{p.at(2), 9}.cookie(9)));
  CHECK(p.a.take() == events{"disconnected", "flushed 9"});
  CHECK(p.value[2] == 0);
  must(p.a.ep.reset());
  is_error(post(p.at(2)), return_type::invalid_state, dat::return_subtype::ep_unconnected);
  (void)p.b.take();
  is_error(dat::ep<dat::rc>().post(dat::ib::atomic_write{p.at(2), 9}), return_type::invalid_handle,
           dat::return_subtype::handle_ep);
}

TEST_CASE("an adapter or a provider without atomic writes refuses them, and the endpoint stays usable", "[ib]") {
  // The kernel can have atomic writes although the library of its devices is older.
  const bool old_provider = GENERATE(false, true);
  clean_world world(old_provider ? with_atomic_writes(false) : fake::world{});
  word_pair p;
  is_error(p.a.ep.post(dat::ib::atomic_write{p.at(0), 1}), return_type::model_not_supported, {});
  is_error(p.a.ep.post<dat::unchecked>(dat::ib::atomic_write{p.at(0), 1}), return_type::model_not_supported, {});
  CHECK(p.value[0] == 0);
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
  if (!old_provider) CHECK_FALSE(must(dat::ib::query_extensions(p.a.ia)).atomic_write);
}

TEST_CASE("a queue pair that the device cannot create now costs the endpoint no atomic writes", "[ib][ep]") {
  clean_world world(with_atomic_writes());
  word_pair p;
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.b.ep.reset());
  const auto refuse = [](const auto& call) {
    fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
    is_error(call(), return_type::insufficient_resources, dat::return_subtype::resource_tep);
  };
  refuse([&] { return p.a.pz.create_ep<dat::rc>(p.a.evd); });
  refuse([&] { return p.a.ep.reset(); });
  must(p.a.ep.reset());
  refuse([&] { return p.a.ep.modify({.max_inline = 8}); });
  must(p.a.ep.modify({.max_inline = 8}));
  p.connect();
  must(p.a.ep.post(dat::ib::atomic_write{p.at(1), 7}.cookie(5)));
  CHECK(p.a.take() == events{"word written 5"});
  CHECK(p.value[1] == 7);
}

TEST_CASE("an endpoint that posts atomic writes takes its receives from its shared queue", "[ib][srq]") {
  clean_world world(with_atomic_writes());
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 4, .max_recv_iov = 1}));
  a.make_ep();
  auto shares = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(shares));
  settle(a, b);
  CHECK(b.take() == events{"established"});
  must(srq.post(dat::recv{b.at(0, 8)}.cookie(3)));
  must(a.ep.post(dat::send{a.at(0, 8)}));
  CHECK(b.take() == events{"received 3"});
}

TEST_CASE("an atomic write begins and ends one list of requests at the device", "[ib]") {
  clean_world world(with_atomic_writes());
  word_pair p;
  static int begun;
  static void (*start)(ibv_qp_ex*);
  begun = 0;
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(p.a.ep.native_handle());
  REQUIRE(qp);
  start = std::exchange(qp->wr_start, [](ibv_qp_ex* of) {
    ++begun;
    start(of);
  });
  must(p.a.ep.post(dat::ib::atomic_write{p.at(0), 1}));
  CHECK(begun == 1);
  qp->wr_start = start;
  CHECK(p.a.take().size() == 1);
}
