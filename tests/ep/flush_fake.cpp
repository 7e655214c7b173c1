// Flushes: posted by an extended queue pair where the device and its library have them, refused elsewhere.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/dynamic.hpp>
#include <dat/ib_query.hpp>
#include <dat/policies.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

using namespace unit;
using dat::mem_priv;
using dat::persistence;
using dat::return_type;

namespace {

fake::world with_flushes(bool of_library = true, bool atomic_writes = false) {
  fake::world w;
  for (auto& d : w.devices) {
    d.flushes = true;
    d.extended_flushes = of_library;
    d.atomic_writes = atomic_writes;
  }
  return w;
}

/// Two connected sides, and bytes of `b` that `a` may write and flush.
struct flush_pair : pair {
  static constexpr auto granted = all_rights | dat::flush_global | dat::flush_persistent;
  static constexpr auto rights = decltype(granted)::value;
  using segment = dat::remote_segment<std::byte, rights>;
  std::array<std::byte, 64> bytes{};
  dat::lmr<std::byte, rights> mem = must(b.pz.register_memory(bytes, granted));

  explicit flush_pair(const dat::ep_attributes& attributes = {}) : pair(attributes) {}
  [[nodiscard]] segment at(std::size_t first, std::size_t count) const {
    return must(mem.remote().slice(first, count));
  }
  [[nodiscard]] std::uint64_t address(std::size_t first) const {
    return reinterpret_cast<std::uintptr_t>(bytes.data() + first);
  }
};

using ranges = std::vector<fake::flushed_range>;

/// Bytes as a peer gets them that sends false rights.
template <mem_priv P, class S>
dat::remote_segment<std::byte, P> with_false_rights(const S& granted) {
  auto wire = granted.to_wire();
  wire[22] |= static_cast<std::byte>(P);
  return must(dat::remote_segment<std::byte, P>::from_wire(wire));
}

} // namespace

TEST_CASE("a flush names its range and its persistence, and completes with its own event", "[ib]") {
  clean_world world(with_flushes());
  flush_pair p;
  const auto has = must(dat::ib::query_extensions(p.a.ia));
  CHECK((has.flush_global && has.flush_persistent && has.supports(dat::dto_operation::flush)));
  CHECK_FALSE(has.atomic_write);

  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.at(0, 8)}.suppress_completion()));
  must(p.a.ep.post(dat::ib::flush{p.at(0, 8), persistence::global}.cookie(5)));
  p.settle();
  const auto e = must(p.a.evd.wait_for<dat::ib::flush_done>(p.a.ep, plenty));
  CHECK(e.cookie() == dat::cookie(5));
  CHECK(e.bytes() == 0);
  CHECK(e.ep() == p.a.ep);
  CHECK(e.message().starts_with("ib::flush_done"));

  must(p.a.ep.post<dat::unchecked>(dat::ib::flush{p.at(8, 4), persistence::persistent}.cookie(6)));
  must(p.a.ep.post<dat::tracked>(dat::ib::flush{p.at(0, 0), persistence::global}.whole_region().cookie(7)));
  auto named = dat::ib::flush{p.at(1, 2), persistence::persistent};
  named.whole_region().cookie(8).suppress_completion();
  must(p.a.ep.post(named));
  must(p.a.ep.post(dat::ib::flush{p.at(63, 1), persistence::global}.fence().cookie(9)));
  CHECK(p.a.take() == events{"memory flushed 6", "memory flushed 7", "memory flushed 9"});
  CHECK(fake::flushed() == ranges{{p.address(0), 8, 1, false},
                                  {p.address(8), 4, 2, false},
                                  {p.address(0), 0, 1, true},
                                  {p.address(1), 2, 2, true},
                                  {p.address(63), 1, 1, false}});
  is_error(p.a.ep.post(dat::ib::flush{p.at(0, 8), persistence::global}.suppress_notification()),
           return_type::invalid_parameter, dat::return_subtype::arg5);
}

TEST_CASE("one queue pair takes both atomic writes and flushes, or the one that its provider has", "[ib]") {
  const bool of_library = GENERATE(true, false);
  clean_world world(with_flushes(of_library, true));
  flush_pair p;
  const auto word = must(dat::remote_segment<std::uint64_t, mem_priv::remote_write>::make(
      p.address(0), 1, dat::detail::segment_access::raw(p.at(0, 8)).key));
  must(p.a.ep.post(dat::ib::atomic_write{word, ~std::uint64_t{0}}.cookie(1)));
  const auto flushed = p.a.ep.post(dat::ib::flush{p.at(0, 8), persistence::global}.cookie(2));
  if (of_library) {
    CHECK(flushed.has_value());
    CHECK(p.a.take() == events{"word written 1", "memory flushed 2"});
  } else {
    is_error(flushed, return_type::model_not_supported, {});
    CHECK(p.a.take() == events{"word written 1"});
  }
  CHECK(p.bytes[7] == std::byte{0xff});
  CHECK(fake::flushed().size() == (of_library ? 1U : 0U));
}

TEST_CASE("a flush of memory that the peer has not granted breaks the connection", "[ib]") {
  clean_world world(with_flushes());
  flush_pair p;
  const auto global = must(p.b.pz.register_memory(p.bytes, all_rights | dat::flush_global));
  const bool region = GENERATE(false, true);
  dat::ib::flush f{with_false_rights<mem_priv::flush_persistent>(global.remote()), persistence::persistent};
  if (region) f.whole_region();
  must(p.a.ep.post(f.cookie(4)));
  p.settle();
  const auto e = std::get<dat::dto_failure>(must(p.a.evd.dequeue()));
  CHECK(e.cookie() == dat::cookie(4));
  CHECK(e.operation() == dat::dto_operation::flush);
  CHECK(e.status() == dat::dto_status::remote_access);
  CHECK(fake::flushed().empty());
  (void)p.a.take();
  (void)p.b.take();
}

TEST_CASE("a flush of a range covers at most 4 GiB - 1", "[ib]") {
  clean_world world(with_flushes());
  flush_pair p;
  const auto post = [&](std::uint64_t length) {
    auto raw = dat::detail::segment_access::raw(p.at(0, 64));
    raw.length = length;
    return p.a.ep.post(
        dat::ib::flush{dat::detail::segment_access::make<flush_pair::segment>(raw), persistence::global}.cookie(1));
  };
  is_error(post(std::uint64_t{1} << 32), return_type::length_error, {}); // the wire format cannot name it
  must(post((std::uint64_t{1} << 32) - 1));
  p.settle();
  // The region has fewer bytes. Only the peer's adapter checks that.
  CHECK(std::get<dat::dto_failure>(must(p.a.evd.dequeue())).status() == dat::dto_status::remote_access);
  (void)p.a.take();
  (void)p.b.take();
}

TEST_CASE("a flush that cannot be posted is refused, and the endpoint stays usable", "[ib]") {
  clean_world world(with_flushes());
  flush_pair p({.max_request_dtos = 2});
  const auto post = [&](const auto& where) { return p.a.ep.post(dat::ib::flush{where, persistence::global}); };
  is_error(post(p.at(0, 0)), return_type::length_error, {});
  auto raw = dat::detail::segment_access::raw(p.at(0, 64));
  raw.length = std::uint64_t{1} << 32; // one byte more than the wire format can name
  is_error(post(dat::detail::segment_access::make<flush_pair::segment>(raw)), return_type::length_error, {});

  // The device refuses the request, so no request is outstanding.
  fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
  const auto refused = post(p.at(0, 8));
  is_error(refused, return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(refused.error().verb() == "ibv_wr_complete");
  CHECK(fake::flushed().empty());

  must(post(p.at(0, 8)));
  must(post(p.at(8, 8)));
  is_error(post(p.at(16, 8)), return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(p.a.take() == events{"memory flushed 0", "memory flushed 0"});
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.a.ep.post(dat::ib::flush{p.at(16, 8), persistence::global}.cookie(9)));
  CHECK(p.a.take() == events{"disconnected", "flushed 9"});
  CHECK(fake::flushed().size() == 2);
  must(p.a.ep.reset());
  is_error(post(p.at(0, 8)), return_type::invalid_state, dat::return_subtype::ep_unconnected);
  (void)p.b.take();
  is_error(dat::ep<dat::rc>().post(dat::ib::flush{p.at(0, 8), persistence::global}), return_type::invalid_handle,
           dat::return_subtype::handle_ep);
}

TEST_CASE("a connection without RDMA reads allows no flushes", "[ib]") {
  clean_world world(with_flushes());
  flush_pair p({.max_rdma_read_out = 0, .max_rdma_read_in = 0});
  is_error(p.a.ep.post(dat::ib::flush{p.at(0, 8), persistence::global}), return_type::invalid_parameter,
           dat::return_subtype::arg1);
  CHECK(fake::flushed().empty());
}

TEST_CASE("an adapter or a provider without flushes refuses them, and the endpoint stays usable", "[ib]") {
  // The kernel can have flushes although the library of its devices is older.
  const bool old_provider = GENERATE(false, true);
  clean_world world(old_provider ? with_flushes(false) : fake::world{});
  pair p;
  const auto there = with_false_rights<mem_priv::flush_global>(p.b.mem.remote());
  is_error(p.a.ep.post(dat::ib::flush{there, persistence::global}), return_type::model_not_supported, {});
  is_error(p.a.ep.post<dat::unchecked>(dat::ib::flush{there, persistence::global}), return_type::model_not_supported,
           {});
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
  const auto has = must(dat::ib::query_extensions(p.a.ia));
  CHECK(has.flush_global == old_provider);
  CHECK(has.flush_persistent == old_provider);
}

TEST_CASE("an adapter without flushes registers no memory for them", "[lmr]") {
  const bool flushes = GENERATE(false, true);
  clean_world world(flushes ? with_flushes(false) : fake::world{});
  end a("fk1");
  std::array<std::byte, 64> bytes{};
  const auto refused = [&](const auto& made) {
    if (flushes)
      CHECK(made.has_value());
    else
      is_error(made, return_type::model_not_supported, {});
  };
  refused(a.pz.register_memory(bytes, dat::local_write | dat::flush_global));
  refused(a.pz.register_memory(bytes, dat::local_write | dat::flush_persistent));
  refused(dat::dynamic::register_memory(a.pz, std::span(bytes), mem_priv::flush_global));
  refused(dat::dynamic::register_memory(a.pz, std::span(bytes), mem_priv::flush_persistent));
  if (flushes) {
    const auto mem = must(a.pz.register_memory(bytes, dat::local_write | dat::flush_global));
    CHECK(decltype(mem)::remotely_accessible);
    CHECK(mem.remote().size() == 64);
  }
}
