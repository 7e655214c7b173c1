// One side of one turn of the peers' table, for any end of pingpong.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../pingpong/link.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace peers {

using namespace pingpong;

using timer = std::chrono::steady_clock;

inline double seconds_since(timer::time_point start) {
  return std::chrono::duration<double>(timer::now() - start).count();
}

struct work {
  bool serves;
  std::string_view what;
  std::size_t bytes, count;
  std::string local, remote;
  std::uint16_t port;
};

/// The end that replies with as many bytes as it gets. It does not wait for the completion of its last message: the
/// client disconnects as soon as it has that, and the completion would come with flushed receives.
template <waiting How, class Link>
void answer(Link& link, std::size_t count, std::size_t bytes) {
  for (std::size_t seen = 1; seen <= count; ++seen) {
    link.template until<How>([&] { return link.done.received >= seen; });
    link.send_quietly(bytes);
  }
  link.await_end();
}

/// Messages before those that count: the scheduler favours two processes that have just begun less than it does later.
inline std::size_t before_counting(std::size_t bytes) { return bytes <= 4096 ? 400 : 40; }

/// Microseconds one way: half of the median round trip.
template <waiting How, class Link>
double latency(Link& link, const work& w) {
  std::vector<double> trips(w.count);
  auto trip = [&, seen = std::size_t{0}]() mutable {
    link.send_quietly(w.bytes);
    ++seen;
    link.template until<How>([&] { return link.done.received >= seen; });
  };
  for (std::size_t i = 0; i != before_counting(w.bytes); ++i) trip();
  for (double& seconds : trips) {
    const auto begin = timer::now();
    trip();
    seconds = seconds_since(begin);
  }
  const auto middle = trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2);
  std::nth_element(trips.begin(), middle, trips.end());
  return *middle / 2 * 1e6;
}

/// Operations per second with `window` of them under way; the peer takes no part.
template <waiting How, class Link, class Post>
double rate(Link& link, std::size_t count, Post post) {
  const auto start = timer::now();
  for (std::size_t posted = 0; posted < count;) {
    while (posted < count && posted - link.done.written < window) {
      post();
      ++posted;
    }
    const auto now = link.done.written;
    link.template until<How>([&] { return link.done.written > now; });
  }
  link.template until<How>([&] { return link.done.written == count; });
  return static_cast<double>(count) / seconds_since(start);
}

template <class Link, waiting How>
int run(const work& w) {
  Link link;
  if (w.serves) {
    link.serve(w.local, w.port, [] {
      std::puts("ready");
      std::fflush(stdout);
    });
    if (w.what == "latency") {
      answer<How>(link, before_counting(w.bytes) + w.count, w.bytes);
    } else {
      answer<waiting::events>(link, 1, 8); // the message behind the operations
    }
    return 0;
  }
  link.connect(w.local, w.remote, w.port);
  double result = 0;
  if (w.what == "latency") result = latency<How>(link, w);
  if (w.what == "write") result = rate<How>(link, w.count, [&] { link.write(w.bytes); });
  if (w.what == "read") result = rate<How>(link, w.count, [&] { link.read(w.bytes); });
  if (w.what == "atomic") result = rate<How>(link, w.count, [&] { link.add(); });
  if (w.what != "latency") {
    link.send(8);
    link.template until<How>([&] { return link.done.received == 1; });
  }
  std::printf("result %.4f\n", result);
  return 0;
}

template <class Link>
int run(const work& w, std::string_view how) {
  return how == "polled" ? run<Link, waiting::polling>(w) : run<Link, waiting::events>(w);
}

/// The arguments behind the way; false when they are wrong.
inline bool read_arguments(int argc, char** argv, int first, work& w, std::string_view& how) {
  constexpr std::array<std::string_view, 4> works{"latency", "write", "read", "atomic"};
  if (argc != first + 8) return false;
  const std::string_view role = argv[first];
  how = argv[first + 1];
  const long bytes = std::atol(argv[first + 3]), count = std::atol(argv[first + 4]), port = std::atol(argv[first + 7]);
  if ((role != "serve" && role != "connect") || (how != "polled" && how != "waiting") ||
      std::find(works.begin(), works.end(), argv[first + 2]) == works.end() || bytes < 1 || bytes > long{largest} ||
      count < 1 || port < 1 || port > 65535)
    return false;
  w = {role == "serve", argv[first + 2], static_cast<std::size_t>(bytes), static_cast<std::size_t>(count),
       argv[first + 5], argv[first + 6], static_cast<std::uint16_t>(port)};
  return true;
}

inline constexpr const char* arguments =
    "serve|connect polled|waiting latency|write|read|atomic BYTES COUNT LOCAL REMOTE PORT\n";

} // namespace peers
