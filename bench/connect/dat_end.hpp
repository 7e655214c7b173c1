// The connections by dat: an endpoint each, one evd for connection events and one for completions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "ends.hpp"

#include <dat/dat.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace connecting {

class dat_end {
public:
  dat_end(const place& p, dat::progress how)
      : place_(p),
        ia_(must(dat::ia::open(must(dat::ia_address::parse(p.local)), {.progress = how}))),
        pz_(must(ia_.create_pz())),
        completions_(must(ia_.create_evd<dat::stream::dto>(4096))),
        events_(must(ia_.create_evd<dat::stream::connection | dat::stream::connection_requests>(4096))) {}

  template <class Ready, class AllUp>
  void serve(const job& j, Ready ready, AllUp all_up) {
    const auto psp = must(ia_.create_psp(must(dat::conn_qual::make(place_.port)), events_));
    endpoints all(j.total);
    ready();
    std::size_t up = 0;
    std::size_t over = 0;
    const dat::overloaded visit{[&](dat::connection_request& r) {
                                  all.push_back(make());
                                  must(r.accept(all.back()));
                                },
                                [&](const dat::established& e) {
                                  if (!j.held) must(all.of(e.ep()).disconnect());
                                  if (++up == j.total && j.held) all_up();
                                },
                                [&](const dat::disconnected& e) {
                                  all.end(e.ep());
                                  ++over;
                                },
                                [](const auto& e) { unexpected("server", e); }};
    while (over < j.total) {
      auto e = must(events_.wait(limit));
      std::visit(visit, e);
    }
  }

  template <class AllUp>
  void connect(const job& j, AllUp all_up) {
    const auto to = must(dat::ia_address::parse(place_.remote));
    const auto port = must(dat::conn_qual::make(place_.port));
    endpoints all(j.total);
    std::size_t up = 0;
    std::size_t over = 0;
    const auto begin = [&] {
      if (all.begun() == j.total) return;
      all.push_back(make());
      must(all.back().connect(to, port, limit));
    };
    const dat::overloaded visit{[&](const dat::established&) {
                                  if (!j.held) return;
                                  begin();
                                  if (++up < j.total) return;
                                  all_up();
                                  for (auto& ep : all.every) must(ep.disconnect());
                                },
                                [&](const dat::disconnected& e) {
                                  all.end(e.ep());
                                  ++over;
                                  begin();
                                },
                                [](const auto& e) { unexpected("client", e); }};
    while (all.begun() < j.together) begin();
    while (over < j.total) {
      auto e = must(events_.wait(limit));
      std::visit(visit, e);
    }
  }

private:
  static constexpr dat::timeout limit = std::chrono::seconds(30);

  template <class T>
  static T must(dat::expected<T>&& result) {
    if (!result) give_up("dat", result.error().message().c_str());
    if constexpr (!std::is_void_v<T>) return std::move(result.assume_value());
  }

  template <class E>
  [[noreturn]] static void unexpected(const char* who, const E& e) {
    give_up(who, e.message().c_str());
  }

  /// The endpoint of an event, found by the number in its context.
  struct endpoints {
    std::vector<dat::ep<dat::rc>> every;
    explicit endpoints(std::size_t n) { every.reserve(n); }
    [[nodiscard]] std::size_t begun() const { return every.size(); }
    void push_back(dat::ep<dat::rc> ep) {
      must(ep.set_context(dat::cookie(every.size())));
      every.push_back(std::move(ep));
    }
    dat::ep<dat::rc>& back() { return every.back(); }
    dat::ep<dat::rc>& of(dat::ep_ref e) { return every[must(e.context()).as<std::size_t>()]; }
    void end(dat::ep_ref e) { must(of(e).close()); }
  };

  dat::ep<dat::rc> make() {
    return must(pz_.create_ep<dat::rc>(
        {completions_, completions_, events_},
        {.max_request_dtos = depth, .max_recv_dtos = depth, .max_request_iov = segments, .max_recv_iov = segments}));
  }

  place place_;
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<dat::stream::dto> completions_;
  dat::evd<dat::stream::connection | dat::stream::connection_requests> events_;
};

} // namespace connecting
