// Latency and rate of messages between two processes, with hand-written verbs and with dat in turn.
// SPDX-License-Identifier: BSL-1.0
#include "dat_link.hpp"
#include "raw_link.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace pingpong;

namespace {

using timer = std::chrono::steady_clock;

struct step {
  std::size_t bytes;
  std::size_t pings;
  std::size_t writes;
};
constexpr std::array<step, 6> steps = {
    {{8, 200, 512}, {64, 200, 512}, {512, 200, 512}, {4096, 150, 384}, {16384, 80, 192}, {65536, 40, 96}}};

/// The end that replies.
template <waiting How, class Link>
void answer(Link& link) {
  auto echo = [&, seen = link.done.received](std::size_t bytes) mutable {
    ++seen;
    link.template until<How>([&] { return link.done.received >= seen; });
    link.send(bytes);
  };
  for (const step& s : steps) {
    for (std::size_t i = 0; i < s.pings; ++i) echo(s.bytes);
    echo(8); // the message behind the writes
  }
  std::size_t answers = steps.size();
  for (const step& s : steps) answers += s.pings;
  link.template until<How>([&] { return link.done.sent == answers; });
}

double seconds_since(timer::time_point start) { return std::chrono::duration<double>(timer::now() - start).count(); }

/// The end that sends first, and measures.
template <waiting How, class Link>
void ask(Link& link, const char* path) {
  auto ping = [&, seen = link.done.received](std::size_t bytes) mutable {
    ++seen;
    link.send(bytes);
    link.template until<How>([&] { return link.done.received >= seen; });
  };
  for (const step& s : steps) {
    std::vector<double> trips(s.pings);
    for (double& trip : trips) {
      const auto begin = timer::now();
      ping(s.bytes);
      trip = seconds_since(begin);
    }
    // The median, so that a trip that other load has interrupted does not count.
    std::nth_element(trips.begin(), trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2), trips.end());
    const double latency = trips[trips.size() / 2] / 2;

    const auto start = timer::now();
    const std::size_t before = link.done.written;
    for (std::size_t posted = 0; posted < s.writes;) {
      while (posted < s.writes && before + posted - link.done.written < window) {
        link.write(s.bytes);
        ++posted;
      }
      const std::size_t now = link.done.written;
      link.template until<How>([&] { return link.done.written > now; });
    }
    link.template until<How>([&] { return link.done.written == before + s.writes; });
    const double rate = static_cast<double>(s.writes) / seconds_since(start);
    ping(8);
    std::printf("%s,%s,%s,%zu,%.3f,%.1f\n", path, Link::name, How == waiting::polling ? "polling" : "events", s.bytes,
                latency * 1e6, rate);
  }
  std::fflush(stdout);
}

struct ends {
  const char* path;
  std::string server;
  std::string client;
};

/// One connection of one kind: the child serves, and the parent connects when the child is ready.
template <class Link, waiting How>
void run(const ends& e, std::uint16_t port, bool server, int pipe) {
  Link link;
  char word = 0;
  if (server) {
    link.serve(e.server, port, [&] {
      if (::write(pipe, "r", 1) != 1) give_up("pipe", "closed");
    });
    answer<How>(link);
  } else {
    if (::read(pipe, &word, 1) != 1) give_up("server", "ended");
    link.connect(e.client, e.server, port);
    ask<How>(link, e.path);
  }
  // Each side disconnects after both have got all messages.
  if (::write(pipe, "d", 1) != 1 || ::read(pipe, &word, 1) != 1) give_up("the other end", "ended");
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 5 || (argc - 2) % 3 != 0) {
    std::fputs("usage: pingpong ROUNDS (PATH SERVER CLIENT)...\n"
               "Prints path,side,waiting,bytes,microseconds one way,RDMA writes per second\n",
               stderr);
    return 2;
  }
  int pipe[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pipe) != 0) give_up("socketpair", std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) give_up("fork", std::strerror(errno));
  const bool server = child == 0;
  if (server) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(pipe[server ? 0 : 1]);
  const int mine = pipe[server ? 1 : 0];

  std::uint16_t port = 18515;
  for (int round = 0; round < std::atoi(argv[1]); ++round)
    for (int i = 2; i < argc; i += 3) {
      const ends e{argv[i], argv[i + 1], argv[i + 2]};
      run<raw_link, waiting::polling>(e, port++, server, mine);
      run<dat_link, waiting::polling>(e, port++, server, mine);
      run<raw_link, waiting::events>(e, port++, server, mine);
      run<dat_link, waiting::events>(e, port++, server, mine);
    }
  if (server) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
