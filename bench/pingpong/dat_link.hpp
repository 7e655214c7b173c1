// One end in dat, connected like the end in hand-written verbs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "link.hpp"

#include <dat/dat.hpp>

#include <string>
#include <utility>
#include <variant>

namespace pingpong {

using namespace std::chrono_literals;

class dat_link {
public:
  static constexpr const char* name = "dat";

  template <class Ready>
  void serve(const std::string& local, std::uint16_t port, Ready ready) {
    open(local);
    auto psp = must(ia_.create_psp(must(dat::conn_qual::make(port)), events_));
    ready();
    auto request = must(events_.wait_for<dat::connection_request>(10s));
    const auto mine = must(region_.remote(buffers::target, largest)).to_wire();
    must(request.accept(ep_, mine));
    (void)must(events_.wait_for<dat::established>(ep_, 10s));
  }

  void connect(const std::string& local, const std::string& remote, std::uint16_t port) {
    open(local);
    must(ep_.connect(must(dat::ia_address::parse(remote)), must(dat::conn_qual::make(port)), 10s));
    const auto up = must(events_.wait_for<dat::established>(ep_, 10s));
    there_ = must(far::from_wire(up.private_data()));
  }

  void send(std::size_t bytes) { post(dat::send{must(out_.slice(0, bytes))}); }
  void write(std::size_t bytes) { post(dat::rdma_write{must(out_.slice(0, bytes)), there_}); }

  /// Takes completions until `enough` returns true.
  template <waiting How, class Enough>
  void until(Enough enough) {
    const dat::overloaded visit{[&](const dat::recv_done& r) {
                                  ++done.received;
                                  receive(r.cookie().as<std::size_t>());
                                },
                                [&](const dat::send_done&) { ++done.sent; },
                                [&](const dat::rdma_write_done&) { ++done.written; },
                                [](const dat::dto_failure& f) { give_up("completion", f.message().c_str()); },
                                [](const auto&) { give_up("completion", "unexpected"); }};
    while (!enough()) {
      if (completions_.drain(visit) != 0 || How == waiting::polling) continue;
      auto event = must(completions_.wait(10s));
      std::visit(visit, event);
    }
  }

  counters done;

private:
  static constexpr auto rights = dat::local_read | dat::local_write | dat::remote_write;
  using near = dat::local_segment<char, decltype(rights)::value>;
  using far = dat::remote_segment<char, dat::mem_priv::remote_write>;

  template <class T>
  static T must(dat::expected<T>&& result) {
    if (!result) give_up("dat", result.error().message().c_str());
    if constexpr (!std::is_void_v<T>) return std::move(result.assume_value());
  }
  void open(const std::string& local) {
    ia_ = must(dat::ia::open(must(dat::ia_address::parse(local))));
    pz_ = must(ia_.create_pz());
    completions_ = must(ia_.create_evd<dat::stream::dto>(2 * depth));
    events_ = must(ia_.create_evd<dat::stream::connection | dat::stream::connection_requests>(16));
    ep_ = must(pz_.create_ep<dat::rc>({completions_, completions_, events_},
                                      {.max_request_dtos = depth, .max_recv_dtos = depth}));
    region_ = must(pz_.register_memory(memory_.memory, rights));
    out_ = must(region_.slice(buffers::out, largest));
    for (std::size_t i = 0; i < receives; ++i) receive(i);
  }
  template <class D>
  void post(const D& operation) {
    if (auto r = ep_.post(operation); !r) give_up("ep.post", r.error().message().c_str());
  }
  void receive(std::size_t i) { post(dat::recv{must(region_.slice(buffers::in(i), largest))}.cookie(i)); }

  buffers memory_;
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<dat::stream::dto> completions_;
  dat::evd<dat::stream::connection | dat::stream::connection_requests> events_;
  dat::ep<dat::rc> ep_;
  dat::lmr<char, decltype(rights)::value> region_;
  near out_;
  far there_;
};

} // namespace pingpong
