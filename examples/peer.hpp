// One end of a connection between two processes: rung 02 as a class, which the later rungs use.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <initializer_list>
#include <iostream>
#include <list>
#include <span>
#include <sys/epoll.h>
#include <sys/signalfd.h>

/// A server, or the client of a server on `host`. `More` names streams that the rung needs besides.
template <dat::streams More = dat::streams{}>
struct peer {
  static constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests | More;
  static constexpr dat::timeout limit = std::chrono::seconds(10);
  using private_data = std::array<std::byte, 56>; // the largest private data of a connect or an accept

  const char* host = nullptr; ///< null in the server
  dat::ia ia{};
  dat::pz pz{};
  dat::evd<streams> evd{};
  dat::ep<dat::rc> ep{};

  /// Opens the adapter that leads to the host; in the server, the default adapter.
  dat::expected<void> open(const dat::ep_attributes& attributes = {}) {
    DAT_TRY(ia, host ? dat::ia::open_by_route(host) : dat::ia::open());
    DAT_TRY(pz, ia.create_pz());
    DAT_TRY(evd, ia.create_evd<streams>(64));
    DAT_TRY(ep, pz.create_ep<dat::rc>(evd, attributes));
    return dat::success();
  }

  /// A service point for the requests of clients. The line that it prints is what examples/run.sh waits for.
  dat::expected<dat::psp> listen(dat::conn_qual port = 7471) {
    DAT_TRY(auto psp, ia.create_psp(port, evd));
    std::cout << "listening on " << ia.address().host_string() << " port " << psp.port() << std::endl;
    return psp;
  }

  /// Connects the endpoint, on which receives may be posted already. Each side gets the data that the other side passes
  /// as `mine`.
  dat::expected<private_data> connect(std::span<const std::byte> mine = {}, dat::conn_qual port = 7471) {
    private_data theirs{};
    const auto keep = [&](std::span<const std::byte> data) {
      std::copy_n(data.begin(), std::min(data.size(), theirs.size()), theirs.begin());
    };
    if (host) {
      DAT_TRY(const auto addresses, dat::resolve(host));
      DAT_TRYV(ep.connect(addresses.front(), port, limit, mine));
      DAT_TRY(const auto up, evd.template wait_for<dat::established>(ep, limit));
      keep(up.private_data());
    } else {
      DAT_TRY(const auto psp, listen(port));
      DAT_TRY(auto request, evd.template wait_for<dat::connection_request>());
      keep(request.private_data());
      DAT_TRYV(request.accept(ep, mine));
      DAT_TRYV(evd.template wait_for<dat::established>(ep, limit));
    }
    return theirs;
  }

  /// The client ends the connection when its requests have completed. The server waits for that end.
  dat::expected<void> finish() {
    if (host) DAT_TRYV(ep.disconnect(dat::close_mode::graceful));
    DAT_TRYV(evd.template wait_for<dat::disconnected>(ep, limit));
    return dat::success();
  }
};

/// The clients of a server. The context of an endpoint leads to its session: every event of the endpoint finds it so.
template <class Session>
struct session_list : std::list<Session> {
  static Session* of(const auto& event) { return event.ep().template context<Session>(); }

  void end(Session* whose) {
    if (!whose) return;                            // the session has ended before
    if (whose->ep) (void)whose->ep.set_context(0); // an event of the endpoint may be queued
    this->remove_if([&](const Session& s) { return &s == whose; });
  }
  /// Ends a session that cannot be served. The server continues.
  void end_unless(const dat::expected<void>& good, Session& whose) {
    if (good) return;
    std::cerr << good.error().message() << '\n';
    end(&whose);
  }
};

/// A descriptor that is readable after Ctrl-C and SIGTERM, which no longer end the process. A thread that exists before
/// the call can still get the signals: call it before dat starts its thread.
inline int descriptor_of_signals() {
  sigset_t ends{};
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  return signalfd(-1, &ends, SFD_CLOEXEC);
}

/// An epoll set that is readable when one of the descriptors is. The event's data is the descriptor.
inline int epoll_of(std::initializer_list<int> descriptors) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : descriptors) {
    epoll_event readable{.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &readable);
  }
  return set;
}

/// The end of main: the message of an error, and the exit code.
inline int report(const dat::expected<void>& done) {
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
