// Random connection calls on the endpoints of two adapters, checked against the state table.
//
// Both adapters have manual progress: states change inside calls only, so the state before a call determines its
// effect. The same steps run in the fake world and on a device.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/csp.hpp>
#include <dat/dat.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fuzz {

using state = dat::ep_state;
inline constexpr auto all_streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
inline constexpr auto rights = dat::local_read | dat::local_write;
inline constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};

struct wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool ok, const std::string& what) {
  if (!ok) throw wrong(what);
}
template <class T>
T must(dat::expected<T>&& r) {
  if (!r) throw wrong(r.error().message());
  return std::move(r).value();
}
inline void must(dat::expected<void>&& r) {
  if (!r) throw wrong(r.error().message());
}

/// An endpoint, and its events since it was created or reset.
struct tracked {
  dat::ep<dat::rc> ep;
  bool begun = false; ///< a connect or accept has succeeded, so an end event must come
  int established = 0;
  int ended = 0;
};

struct side {
  side(const dat::ia_address& at, std::uint16_t base)
      : first(base),
        ia(must(dat::ia::open(at, {.progress = dat::progress::manual}))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<all_streams>(512))),
        mem(must(pz.register_memory(memory, rights))),
        plain(must(ia.create_psp(qualifier(0), evd))),
        making(must(ia.create_psp(qualifier(1), evd, dat::psp_flags::provider))),
        common(must(ia.create_csp(tcp, ia.address().with_port(std::uint16_t(base + 2)), evd))) {}

  [[nodiscard]] dat::conn_qual qualifier(unsigned n) const { return must(dat::conn_qual::make(first + n)); }

  std::uint16_t first;
  std::array<std::byte, 256> memory{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<all_streams> evd;
  dat::lmr<std::byte, rights.value> mem;
  dat::psp plain;  ///< first
  dat::psp making; ///< first + 1
  dat::csp common; ///< first + 2
  dat::rsp rsp;    ///< sometimes there, at first + 3
  std::vector<std::unique_ptr<tracked>> eps;
  std::vector<dat::cr> requests;
};

inline std::uint32_t bit(state s) { return 1u << static_cast<unsigned>(s); }
template <class... S>
std::uint32_t set(S... s) {
  return (bit(s) | ...);
}

class walk {
public:
  walk(const dat::ia_address& one, const dat::ia_address& other, std::uint16_t base, std::uint32_t seed)
      : random_(seed), a_(one, base), b_(other, std::uint16_t(base + 10)) {}

  /// Throws `wrong` if dat deviates from the table. `pause` is called when no event comes.
  void run(unsigned steps, std::chrono::milliseconds pause = {}) {
    for (unsigned i = 0; i < steps; ++i) {
      try {
        step();
      } catch (const wrong& w) {
        throw wrong("step " + std::to_string(i) + ": " + w.what());
      }
      if (pick(8) == 0) {
        a_.ia.run(pick(4) == 0 ? pause : std::chrono::milliseconds());
        b_.ia.run(pick(4) == 0 ? pause : std::chrono::milliseconds());
      }
      if (pick(2) == 0) look(pick(2) == 0 ? a_ : b_);
    }
  }

  /// The states in which calls were made, as bits, and the number of established connections.
  [[nodiscard]] std::uint32_t met() const { return met_; }
  [[nodiscard]] unsigned connections() const { return connections_; }

private:
  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }

  /// Takes the events of a side, and checks each against the state.
  void look(side& s) {
    (void)s.evd.drain(
        [&](auto& e) {
          using E = std::remove_cvref_t<decltype(e)>;
          if constexpr (std::is_same_v<E, dat::cr>) {
            const auto kind = e.service();
            require(kind == s.plain.id() || kind == s.making.id() || kind == s.common.id() ||
                        kind.kind() == dat::service_kind::rsp,
                    "a request of no service point");
            require(static_cast<bool>(e.ep()) == (kind == s.making.id()), "a request with the wrong endpoint");
            s.requests.push_back(std::move(e));
          } else if constexpr (std::is_base_of_v<dat::connection_event, E>) {
            tracked* t = nullptr;
            for (const auto& c : s.eps)
              if (c->ep == e.ep()) t = c.get();
            if (!t) return; // closed since
            if constexpr (std::is_same_v<E, dat::established>) {
              require(t->established == 0 && t->ended == 0, "established out of order");
              ++t->established;
              ++connections_;
              require((bit(t->ep.state()) & set(state::connected, state::disconnect_pending, state::disconnected)) != 0,
                      "established, but " + std::string(to_string(t->ep.state())));
            } else {
              require(t->begun && t->ended == 0, "an end out of order");
              if constexpr (std::is_same_v<E, dat::connection_broken>)
                require(t->established == 1, "broken before established");
              if constexpr (!std::is_same_v<E, dat::connection_broken> && !std::is_same_v<E, dat::disconnected>)
                require(t->established == 0, "a failure after established");
              ++t->ended;
              require(t->ep.state() == state::disconnected, "ended, but " + std::string(to_string(t->ep.state())));
            }
          }
        },
        1000);
    while (s.requests.size() > 5) s.requests.erase(s.requests.begin()); // refused
  }

  void step() {
    side& s = pick(2) == 0 ? a_ : b_;
    side& other = &s == &a_ ? b_ : a_;
    if (s.eps.size() < 3 && pick(4) == 0) {
      auto t = std::make_unique<tracked>();
      if (pick(4) == 0)
        t->ep = must(s.ia.create_ep<dat::rc>({.recv = s.evd, .request = s.evd}));
      else
        t->ep = must(s.pz.create_ep<dat::rc>(s.evd, {.max_request_dtos = 4, .max_recv_dtos = 4, .comm = tcp}));
      s.eps.push_back(std::move(t));
    }
    if (!s.requests.empty() && pick(3) == 0) return answer(s);
    if (s.eps.empty()) return;
    const unsigned which = pick(static_cast<unsigned>(s.eps.size()));
    tracked& t = *s.eps[which];
    const state before = t.ep.state();
    met_ |= bit(before);
    /// Checks that the call succeeds in the states `yes` and leaves one of `then`; in other states it must fail with
    /// the state, which stays.
    const auto expect = [&](const char* what, const dat::expected<void>& r, std::uint32_t yes, std::uint32_t then) {
      const state after = t.ep.state();
      const std::string text = std::string(what) + " in " + std::string(to_string(before)) + ": " +
                               (r ? "success" : r.error().message()) + "; now " + std::string(to_string(after));
      require(static_cast<bool>(r) == ((bit(before) & yes) != 0), text);
      if (r) return require((bit(after) & then) != 0, text);
      require(r.error().type() == dat::return_type::invalid_state &&
                  r.error().subtype() == dat::detail::subtype_of(before) && after == before,
              text);
    };
    using enum dat::ep_state;
    const auto ended = set(active_connection_pending, completion_pending, connected, disconnect_pending, disconnected);
    const std::uint32_t unconfigured =
        set(unconfigured_unconnected, unconfigured_reserved, unconfigured_passive, unconfigured_tentative);
    switch (pick(11)) {
    case 0:
    case 1: {
      const auto r = t.ep.connect(other.ia.address(), other.qualifier(pick(5)), std::chrono::seconds(20));
      expect("connect", r, set(unconnected), set(active_connection_pending));
      if (r) t.begun = true;
      return;
    }
    case 2: {
      if (before == unconnected && must(t.ep.query()).comm == dat::communicator{}) must(t.ep.modify({.comm = tcp}));
      if (before == unconfigured_unconnected) return;
      const auto r =
          t.ep.common_connect(other.ia.address().with_port(other.qualifier(pick(5)).port()), std::chrono::seconds(20));
      expect("common_connect", r, set(unconnected), set(active_connection_pending));
      if (r) t.begun = true;
      return;
    }
    case 3:
      return expect("disconnect", t.ep.disconnect(), ended, set(disconnected));
    case 4:
      return expect("graceful disconnect", t.ep.disconnect(dat::close_mode::graceful), ended,
                    before == connected || before == disconnect_pending ? set(disconnect_pending, disconnected)
                                                                        : set(disconnected));
    case 5: {
      if (before == disconnected) {
        look(s);
        require(t.ended == 1, "disconnected, but no event said so");
      }
      const auto r = t.ep.reset();
      expect("reset", r, set(unconnected, disconnected), set(unconnected));
      if (r && before == disconnected) t.begun = false, t.established = t.ended = 0;
      return;
    }
    case 6: {
      dat::expected<void> r = t.ep.close();
      if (r) {
        require((bit(before) & (ended | set(unconnected, unconfigured_unconnected))) != 0,
                "closed while " + std::string(to_string(before)));
        s.eps.erase(s.eps.begin() + which);
        return;
      }
      return expect("close", r, ended | set(unconnected, unconfigured_unconnected), 0);
    }
    case 7: {
      const auto r = t.ep.post(dat::recv{must(s.mem.slice(0, 16))});
      if (!r && r.error().type() == dat::return_type::insufficient_resources) return;
      return expect("post of a receive", r, ~0u, bit(before));
    }
    case 8: {
      const auto r = t.ep.post(dat::send{must(s.mem.slice(16, 16))});
      if (!r && r.error().type() == dat::return_type::insufficient_resources) return;
      return expect("post of a send", r, set(connected, disconnected), bit(before));
    }
    case 9: {
      if (s.rsp) {
        must(s.rsp.close());
        return;
      }
      auto r = s.ia.create_rsp(s.qualifier(3), t.ep, s.evd);
      if (r) s.rsp = std::move(r).value();
      return expect("create_rsp", r ? dat::expected<void>(dat::success()) : dat::expected<void>(r.error()),
                    set(unconnected, unconfigured_unconnected), set(reserved, unconfigured_reserved));
    }
    default: {
      // Supplies the rest of a configuration.
      if ((bit(before) & unconfigured) == 0) return;
      return expect("modify", t.ep.modify({.pz = &s.pz, .recv = s.evd, .request = s.evd, .connect = s.evd}), ~0u,
                    bit(dat::detail::configured(before)));
    }
    }
  }

  void answer(side& s) {
    const unsigned which = pick(static_cast<unsigned>(s.requests.size()));
    dat::cr& r = s.requests[which];
    const auto gone = [&] { s.requests.erase(s.requests.begin() + which); };
    const dat::ep_ref brought = r.local_ep();
    if (brought) met_ |= bit(brought.state());
    switch (pick(6)) {
    case 0:
      must(r.reject());
      require(!r && !r.ep(), "rejected, but still there");
      return gone();
    case 1:
      return gone();
    case 2: {
      const auto to = s.qualifier(pick(5));
      const auto from = r.service();
      const auto ok = r.handoff(to);
      if (!ok) {
        require(static_cast<bool>(r) && r.service() == from && r.local_ep() == brought, "handoff failed with effect");
        return;
      }
      // A reserved service point may have taken the port of one that is closed.
      const bool another = to.port() != from.port() || (to.port() == s.qualifier(3).port() && s.rsp.id() != from);
      require(another && !r, "handed to where it was");
      return gone();
    }
    default:
      if (brought) {
        const state before = brought.state();
        if (r.ep() && before == state::unconfigured_tentative && pick(4) != 0)
          must(r.ep().modify({.pz = &s.pz, .recv = s.evd, .request = s.evd, .connect = s.evd}));
        const state now = brought.state();
        if (now != before && pick(2) == 0) return; // used for another round
        tracked* t = nullptr;
        for (const auto& c : s.eps)
          if (c->ep == brought) t = c.get();
        const auto ok = r.accept();
        if (now == state::passive_connection_pending || now == state::tentative_connection_pending) {
          require(static_cast<bool>(ok), "accept in " + std::string(to_string(now)) + " failed");
          if (r.ep()) {
            auto made = std::make_unique<tracked>();
            made->ep = std::move(r.ep());
            made->begun = true;
            s.eps.push_back(std::move(made));
          } else if (t) {
            t->begun = true;
          }
          return gone();
        }
        require(!ok && static_cast<bool>(r), "accepted in " + std::string(to_string(now)));
        return;
      }
      if (s.eps.empty()) return;
      {
        tracked& t = *s.eps[pick(static_cast<unsigned>(s.eps.size()))];
        const state before = t.ep.state();
        const auto ok = r.accept(t.ep);
        require(static_cast<bool>(ok) == (before == state::unconnected),
                "accept in " + std::string(to_string(before)) + ": " + (ok ? "success" : ok.error().message()));
        if (!ok) return;
        t.begun = true;
        require((bit(t.ep.state()) & set(state::completion_pending, state::disconnected)) != 0, "accepted, but not so");
        return gone();
      }
    }
  }

  std::mt19937 random_;
  std::uint32_t met_ = 0;
  unsigned connections_ = 0;
  side a_;
  side b_;
};

/// The states that a sequence of some length reaches.
inline constexpr std::uint32_t every_state = (1u << 13) - 1;

} // namespace fuzz
