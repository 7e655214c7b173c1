// One end in dat, connected like the end in hand-written verbs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "link.hpp"

#include <dat/dat.hpp>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace pingpong {

/// `Streams` are those of the evd for completions: an evd of one stream has no lock.
template <dat::streams Streams>
class basic_dat_link {
public:
  static constexpr const char* name = "dat";

  template <class Ready>
  void serve(const std::string& local, std::uint16_t port, Ready ready) {
    open(local);
    auto psp = must(ia_.create_psp(must(dat::conn_qual::make(port)), events_));
    ready();
    auto request = must(events_.wait_for<dat::connection_request>());
    const windows mine{must(region_.remote(buffers::target, largest)).to_wire(), word_.remote().to_wire()};
    must(request.accept(ep_, std::as_bytes(std::span(mine))));
    (void)must(events_.wait_for<dat::established>(ep_));
  }

  void connect(const std::string& local, const std::string& remote, std::uint16_t port) {
    open(local);
    must(ep_.connect(must(dat::ia_address::parse(remote)), must(dat::conn_qual::make(port)), dat::infinite));
    const auto up = must(events_.wait_for<dat::established>(ep_));
    const auto theirs = up.private_data();
    if (theirs.size() < sizeof(windows)) give_up("private data", "missing");
    there_ = must(far::from_wire(theirs.first(far::wire_size)));
    words_ = must(words::from_wire(theirs.subspan(far::wire_size)));
    counter_ = must(words_.word(0));
  }

  void send(std::size_t bytes) { post(dat::send{must(out_.slice(0, bytes))}); }
  /// Only one of `quiet` such sends has a completion.
  void send_quietly(std::size_t bytes) {
    if (++sends_ % quiet == 0) return send(bytes);
    post(dat::send{must(out_.slice(0, bytes))}.suppress_completion());
  }
  void write(std::size_t bytes) { post(dat::rdma_write{must(out_.slice(0, bytes)), there_}); }
  void read(std::size_t bytes) { post(dat::rdma_read{must(out_.slice(0, bytes)), there_}); }
  void add() { post(dat::ib::fetch_and_add{old_, *counter_, 1}); }

  /// Waits until the peer has ended the connection.
  void await_end() { (void)must(events_.wait_for<dat::disconnected>(ep_)); }

  /// Takes completions until `enough` returns true.
  template <waiting How, class Enough>
  void until(Enough enough) {
    const dat::overloaded visit{[&](const dat::recv_done& r) {
                                  ++done.received;
                                  receive(r.cookie().as<std::size_t>());
                                },
                                [&](const dat::send_done&) { ++done.sent; },
                                [&](const dat::rdma_write_done&) { ++done.written; },
                                [&](const dat::rdma_read_done&) { ++done.written; },
                                [&](const dat::ib::fetch_and_add_done&) { ++done.written; },
                                [](const dat::dto_failure& f) { give_up("completion", f.message().c_str()); },
                                [](const auto&) { give_up("completion", "unexpected"); }};
    while (!enough()) {
      if (completions_.drain(visit) != 0 || How == waiting::polling) continue;
      auto event = must(completions_.wait());
      std::visit(visit, event);
    }
  }

  counters done;

private:
  static constexpr auto rights =
      dat::local_read | dat::local_write | dat::remote_read | dat::remote_write | dat::remote_atomic;
  using near = dat::local_segment<char, decltype(rights)::value>;
  using far = dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;
  using windows = std::array<far::wire, 2>; // of the target, and of the counter
  using words = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>;

  template <class T>
  static T must(dat::expected<T>&& result) {
    if (!result) give_up("dat", result.error().message().c_str());
    if constexpr (!std::is_void_v<T>) return std::move(result.assume_value());
  }
  void open(const std::string& local) {
    ia_ = must(dat::ia::open(must(dat::ia_address::parse(local))));
    pz_ = must(ia_.create_pz());
    completions_ = must(ia_.create_evd<Streams>(2 * depth));
    events_ = must(ia_.create_evd<dat::stream::connection | dat::stream::connection_requests>(16));
    ep_ = must(pz_.create_ep<dat::rc>({completions_, completions_, events_},
                                      {.max_request_dtos = depth, .max_recv_dtos = depth}));
    region_ = must(pz_.register_memory(memory_.memory, rights));
    word_ = must(pz_.register_memory(counter_here_, dat::remote_atomic | dat::local_write));
    old_ = must(pz_.register_memory(before_, dat::local_write));
    out_ = must(region_.slice(buffers::out, largest));
    for (std::size_t i = 0; i < receives; ++i) receive(i);
  }
  template <class D>
  void post(const D& operation) {
    if (auto r = ep_.post(operation); !r) give_up("ep.post", r.error().message().c_str());
  }
  void receive(std::size_t i) { post(dat::recv{must(region_.slice(buffers::in(i), largest))}.cookie(i)); }

  std::size_t sends_ = 0;
  buffers memory_;
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<Streams> completions_;
  dat::evd<dat::stream::connection | dat::stream::connection_requests> events_;
  dat::ep<dat::rc> ep_;
  dat::lmr<char, decltype(rights)::value> region_;
  near out_;
  far there_;
  words words_;
  std::optional<dat::ib::remote_word> counter_;
  std::array<std::uint64_t, 1> counter_here_{};
  dat::lmr<std::uint64_t, dat::mem_priv::remote_atomic | dat::mem_priv::local_write> word_;
  std::array<std::uint64_t, 1> before_{};
  dat::lmr<std::uint64_t, dat::mem_priv::local_write> old_;
};

using dat_link = basic_dat_link<dat::stream::dto>;
/// The same on an evd that has a second stream.
using merged_dat_link = basic_dat_link<dat::stream::dto | dat::stream::software>;

} // namespace pingpong
