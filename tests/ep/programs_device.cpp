// Random programs of operations, run on the device and on a model in memory: both must have the same bytes at the end.
//
// DAT_TEST_SEED repeats a run; the seed of each program is shown when it fails.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

namespace device {
namespace {

// The memory of each side: sources of sends, windows for the peer, and targets of receives and reads.
constexpr std::size_t third = 16 * 1024;
constexpr std::size_t sources = 0;
constexpr std::size_t window_at = third;
constexpr std::size_t sinks = 2 * third;
using bytes = std::vector<std::byte>;
using word_region = dat::lmr<std::uint64_t, (all_rights | dat::remote_atomic).value>;

/// One side, on the device and in the model.
struct one_side {
  explicit one_side(dat::pz& pz, std::uint32_t seed)
      : real(3 * third / 8),
        lmr(must(pz.register_memory(std::as_writable_bytes(std::span(real)), all_rights))),
        as_words(must(pz.register_memory(real, all_rights | dat::remote_atomic))) {
    fill(std::as_writable_bytes(std::span(real)), seed);
    const auto b = std::as_bytes(std::span(real));
    model.assign(b.begin(), b.end());
  }
  std::vector<std::uint64_t> real;
  region lmr;
  word_region as_words;
  bytes model;
  [[nodiscard]] std::size_t first_wrong() const {
    const auto b = std::as_bytes(std::span(real));
    return static_cast<std::size_t>(std::mismatch(b.begin(), b.end(), model.begin()).first - b.begin());
  }
};

using list = dat::iov<6, all_rights.value>;
/// The positions of the pieces of a list, for the model.
struct cut_range {
  list real;
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
};

class program {
public:
  program(connected_pair& link, std::uint32_t seed)
      : link_(link), random_(seed), a_(link.a.pz, seed), b_(link.b.pz, seed + 1) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      turned_ = flip();
      const std::size_t n = upto(5) + 1;
      std::vector<std::string> expected;
      for (std::size_t k = 0; k < n; ++k) one();
      finish();
      for (const one_side* p : {&a_, &b_})
        if (const auto at = p->first_wrong(); at != 3 * third)
          FAIL("step " << i << ": byte " << at << " of side " << (p == &a_ ? "a" : "b") << " differs");
    }
  }

private:
  [[nodiscard]] std::size_t upto(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random_); }
  [[nodiscard]] bool flip() { return upto(1) == 1; }
  [[nodiscard]] std::size_t length() { return flip() ? upto(64) : flip() ? upto(2100) : upto(9000); }
  [[nodiscard]] one_side& from() { return turned_ ? b_ : a_; }
  [[nodiscard]] one_side& to() { return turned_ ? a_ : b_; }
  [[nodiscard]] endpoint& near() { return turned_ ? link_.passive : link_.active; }
  [[nodiscard]] endpoint& far() { return turned_ ? link_.active : link_.passive; }

  /// `total` bytes of an area of `p`, in up to six pieces that do not overlap, some of them empty.
  [[nodiscard]] cut_range cut(one_side& p, std::size_t area, std::size_t total) {
    cut_range c;
    const std::size_t n = upto(5) + 1;
    std::size_t left = total;
    std::size_t at = area + upto(third - total - n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t piece = i + 1 == n ? left : upto(left);
      if (!c.real.push_back(must(p.lmr.slice(at, piece)))) fail("no room in the list", place::here());
      c.pieces.emplace_back(at, piece);
      left -= piece;
      at += piece + upto(1);
    }
    return c;
  }
  [[nodiscard]] static bytes gathered(const one_side& p, const cut_range& c) {
    bytes all;
    for (const auto& [at, n] : c.pieces)
      all.insert(all.end(), p.model.begin() + long(at), p.model.begin() + long(at + n));
    return all;
  }
  static void scattered(one_side& p, const cut_range& c, const bytes& data) {
    std::size_t done = 0;
    for (const auto& [at, n] : c.pieces) {
      const std::size_t part = std::min(n, data.size() - done);
      std::copy_n(data.begin() + long(done), part, p.model.begin() + long(at));
      done += part;
    }
  }

  void one() {
    const std::uint64_t cookie = ++cookies_;
    const std::size_t n = length();
    switch (upto(5)) {
    case 0:
    case 1: { // a message, with or without immediate data
      const auto out = cut(from(), sources, n);
      const auto in = cut(to(), sinks, n + upto(100));
      must(far().post(dat::recv{in.real}.cookie(cookie)));
      const bool immediate = flip();
      if (immediate)
        must(near().post(dat::send{out.real}.immediate(static_cast<std::uint32_t>(cookie)).cookie(cookie)));
      else
        must(near().post(dat::send{out.real}.cookie(cookie)));
      scattered(to(), in, gathered(from(), out));
      done_.push_back("send " + std::to_string(cookie) + ' ' + std::to_string(n));
      received_.push_back(std::string(immediate ? "imm " : "recv ") + std::to_string(cookie) + ' ' + std::to_string(n));
      break;
    }
    case 2:
    case 3: { // a write, sometimes with immediate data
      const auto out = cut(from(), sources, n);
      const std::size_t at = window_at + upto(third - n);
      const auto target = must(must(window::from_wire(to().lmr.remote().to_wire())).slice(at, n));
      if (flip()) {
        must(near().post(dat::rdma_write{out.real, target}.cookie(cookie)));
        done_.push_back("write " + std::to_string(cookie) + ' ' + std::to_string(n));
      } else {
        must(far().post(dat::recv{}.cookie(cookie)));
        must(near().post(
            dat::rdma_write{out.real, target}.immediate(static_cast<std::uint32_t>(cookie)).cookie(cookie)));
        done_.push_back("announced " + std::to_string(cookie) + ' ' + std::to_string(n));
        received_.push_back("written " + std::to_string(cookie) + ' ' + std::to_string(n));
      }
      const bytes data = gathered(from(), out);
      std::copy(data.begin(), data.end(), to().model.begin() + long(at));
      break;
    }
    case 4: { // a read
      const auto in = cut(from(), sinks, n);
      const std::size_t at = window_at + upto(third - n);
      const auto source = must(must(window::from_wire(to().lmr.remote().to_wire())).slice(at, n));
      must(near().post(dat::rdma_read{in.real, source}.cookie(cookie)));
      scattered(from(), in, bytes(to().model.begin() + long(at), to().model.begin() + long(at + n)));
      done_.push_back("read " + std::to_string(cookie) + ' ' + std::to_string(n));
      break;
    }
    default: { // an atomic
      const std::size_t at = (window_at + upto(third - 8)) / 8;
      const std::size_t old_at = (sinks + upto(third - 8)) / 8;
      const auto word = must(to().as_words.remote(at, 1));
      const auto old = must(from().as_words.slice(old_at, 1));
      std::uint64_t was;
      std::memcpy(&was, to().model.data() + at * 8, 8);
      std::memcpy(from().model.data() + old_at * 8, &was, 8);
      std::uint64_t now = was;
      if (flip()) {
        now += cookie;
        must(near().post(dat::ib::fetch_and_add{old, word, cookie}.cookie(cookie)));
      } else {
        const bool matches = flip();
        if (matches) now = cookie;
        must(near().post(dat::ib::compare_and_swap{old, word, matches ? was : ~was, cookie}.cookie(cookie)));
      }
      std::memcpy(to().model.data() + at * 8, &now, 8);
      done_.push_back("atomic " + std::to_string(cookie) + " 8");
    }
    }
  }

  static std::string text(const event& e) {
    std::string s = "something else ";
    std::visit(
        [&]<class E>(const E& one) {
          if constexpr (std::is_same_v<E, dat::send_done>) s = "send ";
          if constexpr (std::is_same_v<E, dat::recv_done>) s = "recv ";
          if constexpr (std::is_same_v<E, dat::ib::recv_immediate_done>) s = "imm ";
          if constexpr (std::is_same_v<E, dat::rdma_write_done>) s = "write ";
          if constexpr (std::is_same_v<E, dat::ib::rdma_write_immediate_done>) s = "announced ";
          if constexpr (std::is_same_v<E, dat::ib::recv_write_immediate_done>) s = "written ";
          if constexpr (std::is_same_v<E, dat::rdma_read_done>) s = "read ";
          if constexpr (std::is_same_v<E, dat::ib::fetch_and_add_done> ||
                        std::is_same_v<E, dat::ib::compare_and_swap_done>)
            s = "atomic ";
          if constexpr (std::is_base_of_v<dat::transfer, E>)
            s += std::to_string(one.cookie().value()) + ' ' + std::to_string(one.bytes());
          if constexpr (requires { one.immediate(); })
            if (one.immediate() != one.cookie().value()) s += " with other immediate data";
        },
        e);
    return s;
  }
  /// Takes the completions of one step, in the order of the posts.
  void finish() {
    for (const auto& [evd, expected] : {std::pair{turned_ ? &link_.b.evd : &link_.a.evd, &done_},
                                        std::pair{turned_ ? &link_.a.evd : &link_.b.evd, &received_}}) {
      for (const std::string& want : *expected)
        if (const std::string got = text(take(*evd, 1).front()); got != want)
          FAIL("expected " << want << ", got " << got);
      expected->clear();
    }
  }

  connected_pair& link_;
  std::mt19937 random_;
  one_side a_;
  one_side b_;
  bool turned_ = false;
  std::uint64_t cookies_ = 0;
  std::vector<std::string> done_;
  std::vector<std::string> received_;
};

} // namespace

TEST_CASE("random programs of operations leave the bytes that a model predicts",
          "[programs][DTO-003][DTO-004][DTO-020][DTO-055][DTO-140][DTO-153]") {
  NEEDS_FEATURE(atomics);
  const std::uint32_t seed = random_seed();
  connected_pair link(
      {.active = {.max_request_iov = 6, .max_recv_iov = 6}, .passive = {.max_request_iov = 6, .max_recv_iov = 6}});
  for (std::uint32_t i = 0; i < 6; ++i) {
    INFO("DAT_TEST_SEED=" << seed << ", program " << i);
    program(link, seed + 1000 * i).run(12); // compares all bytes with the model
    CHECK(link.active.state() == state::connected);
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
}

TEST_CASE("a message of the maximum length arrives, a longer one is refused, and its data fits several messages",
          "[programs][DTO-060][DTO-094][DTO-093][DOCA-005][IA-088][IA-089]") {
  connected_pair link;
  ibv_port_attr port{};
  REQUIRE(::ibv_query_port(link.a.ia.native_handle(), 1, &port) == 0);
  const std::size_t most = must(link.a.ia.query()).max_message_size;
  CHECK(most == std::min<std::size_t>(port.max_msg_sz, longest_length));
  if (in_lab() && this_device().longest_message != 0) CHECK(most == this_device().longest_message);
  const std::size_t piece = std::min<std::size_t>(most, 8 * 1024 * 1024);
  const std::size_t all = 2 * piece;
  buffer out(link.a.pz, all);
  buffer in(link.b.pz, all);
  fill(out.bytes, 77);
  if (piece == most) { // the limit holds for one segment or several, and for every operation
    const auto refused = [&](const auto& request) {
      const auto e = error_of(link.active.post(request));
      CHECK(e.type() == type::length_error);
      CHECK_THAT(e.message(), support::contains_text("max_message_size"));
    };
    refused(dat::send{out.slice(0, most + 1)});
    refused(dat::send{dat::iov{out.slice(0, most / 2), out.slice(most / 2, most / 2 + 1)}});
    refused(dat::rdma_write{out.lmr, in.remote()});
    refused(dat::rdma_read{out.lmr, in.remote()});
  }
  // 16 MiB in one call, by operations of the largest size. (segments_device.cpp tests each operation of that size.)
  must(link.active.post_n(2, [&](std::size_t i) {
    return dat::rdma_write{out.slice(i * piece, piece), in.remote(i * piece, piece)}.cookie(i);
  }));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const auto done = next<dat::rdma_write_done>(link.a.evd);
    CHECK(done.cookie() == dat::cookie(i));
    CHECK(done.bytes() == piece);
  }
  still_works(link);
  CHECK(in.bytes == out.bytes);
  std::fill(in.bytes.begin(), in.bytes.end(), std::byte{});
  for (std::size_t i = 0; i < 2; ++i) must(link.passive.post(dat::recv{in.slice(i * piece, piece)}));
  must(link.active.post_n(2, [&](std::size_t i) { return dat::send{out.slice(i * piece, piece)}; }));
  for (int i = 0; i < 2; ++i) CHECK(next<dat::recv_done>(link.b.evd).bytes() == piece);
  CHECK(in.bytes == out.bytes);
  for (int i = 0; i < 2; ++i) CHECK(next<dat::send_done>(link.a.evd).bytes() == piece);
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{});
  must(link.active.post_n(2, [&](std::size_t i) {
    return dat::rdma_read{out.slice(i * piece, piece), in.remote(i * piece, piece)};
  }));
  for (int i = 0; i < 2; ++i) CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == piece);
  CHECK(in.bytes == out.bytes);
}

TEST_CASE("as many segments as the adapter reports can be posted, and no more", "[programs][DTO-012][DTO-081]"
                                                                                "[REQ-101][REQ-095][IA-115][DTO-007]") {
  two_sides link;
  const auto adapter = must(link.a.ia.query());
  const auto most = adapter.max_iov_segments_per_dto;
  CHECK((most > 1 && adapter.max_iov_segments_per_rdma_write > 1));
  if (this_device().name == "rxe") CHECK(adapter.max_iov_segments_per_rdma_read > 1); // iWARP allows one
  const dat::ep_attributes attributes{.max_request_iov = most, .max_recv_iov = most};
  auto active = link.a.make_ep(attributes);
  auto passive = link.b.make_ep(attributes);
  link.connect(active, passive);
  buffer out(link.a.pz, 256);
  buffer in(link.b.pz, 256);
  fill(out.bytes, 5);
  dat::iov<256, all_rights.value> list;
  dat::iov<256, all_rights.value> into;
  for (std::uint32_t i = 0; i < most; ++i) {
    REQUIRE(list.push_back(out.slice(i, 1)));
    REQUIRE(into.push_back(in.slice(i, 1)));
  }
  must(passive.post(dat::recv{into}));
  must(active.post(dat::send{list}));
  list.clear(); // a post copies the list; an attribute reports that (DTO-007)
  (void)next<dat::send_done>(link.a.evd);
  CHECK(next<dat::recv_done>(link.b.evd).bytes() == most);
  CHECK(std::equal(in.bytes.begin(), in.bytes.begin() + most, out.bytes.begin()));
  // For RDMA operations, other attributes have the number of segments.
  const auto pieces = [](buffer& of, std::uint32_t n) {
    dat::iov<256, all_rights.value> all;
    for (std::uint32_t i = 0; i < n; ++i) REQUIRE(all.push_back(of.slice(i, 1)));
    return all;
  };
  fill(out.bytes, 6);
  must(active.post(dat::rdma_write{pieces(out, adapter.max_iov_segments_per_rdma_write), in.remote()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  must(passive.post(dat::recv{}));
  must(active.post(dat::send{})); // arrives behind the data of the write
  (void)next<dat::recv_done>(link.b.evd);
  (void)next<dat::send_done>(link.a.evd);
  CHECK(std::equal(in.bytes.begin(), in.bytes.begin() + adapter.max_iov_segments_per_rdma_write, out.bytes.begin()));
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{});
  must(active.post(dat::rdma_read{pieces(out, adapter.max_iov_segments_per_rdma_read), in.remote()}));
  (void)next<dat::rdma_read_done>(link.a.evd);
  CHECK(std::equal(in.bytes.begin(), in.bytes.begin() + adapter.max_iov_segments_per_rdma_read, out.bytes.begin()));
  CHECK(must(link.a.ia.query<dat::provider_attributes>()).iov_ownership_on_return == dat::iov_ownership::consumer);
  SHOWS("COMP-047");
  CHECK(error_of(active.post(dat::send{pieces(out, most + 1)})).type() == type::invalid_parameter);
  CHECK(error_of(passive.post(dat::recv{pieces(in, most + 1)})).type() == type::invalid_parameter);
  const auto to_write = pieces(out, adapter.max_iov_segments_per_rdma_write + 1);
  CHECK(error_of(active.post(dat::rdma_write{to_write, in.remote()})).type() == type::invalid_parameter);
  CHECK(error_of(active.post(dat::rdma_write{to_write, in.remote()})).verb().empty()); // dat does not call the device
  const auto to_read = pieces(out, adapter.max_iov_segments_per_rdma_read + 1);
  CHECK(error_of(active.post(dat::rdma_read{to_read, in.remote()})).type() == type::invalid_parameter);
  CHECK(error_of(active.post(dat::rdma_read{to_read, in.remote()})).verb().empty());
}

TEST_CASE("memory of flushed operations can be freed", "[programs][DTO-006][MODEL-047]") {
  connected_pair link;
  auto in = std::make_optional<buffer>(link.b.pz, 4096);
  must(link.passive.post(dat::recv{in->lmr}));
  must(link.active.disconnect());
  (void)must(link.a.evd.wait_for<dat::disconnected>(link.active, patience));
  bool ended = false;
  bool flushed = false;
  while (!ended || !flushed) { // in any order
    const auto came = must(link.b.evd.wait(patience));
    ended = ended || std::holds_alternative<dat::disconnected>(came);
    if (const auto* failure = std::get_if<dat::dto_failure>(&came)) {
      CHECK(failure->status() == dat::dto_status::flushed);
      flushed = true;
    }
  }
  must(in->lmr.close());
  in.reset();
  must(link.passive.reset());
  must(link.active.reset());
  link.connect(link.active, link.passive);
}

TEST_CASE("of two writes to one address the second wins, if an empty fenced RDMA read is between them",
          "[programs][DTO-131][DTO-154]") {
  connected_pair link;
  buffer first(link.a.pz, 2048);
  buffer second(link.a.pz, 2048);
  buffer there(link.b.pz, 2048);
  fill(first.bytes, 1);
  fill(second.bytes, 2);
  for (int round = 0; round < 20; ++round) {
    must(link.active.post(dat::rdma_write{first.lmr, there.remote()}.suppress_completion(),
                          dat::rdma_read{first.slice(0, 0), there.remote(0, 0)}.suppress_completion(),
                          dat::rdma_write{second.lmr, there.remote()}.fence()));
    (void)next<dat::rdma_write_done>(link.a.evd);
    CHECK(has_pattern(there.bytes, 2));
  }
}

} // namespace device
