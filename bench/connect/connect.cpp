// Connections per second and memory per connection, between two processes, by hand and with dat in turn.
// SPDX-License-Identifier: BSL-1.0
#include "dat_end.hpp"
#include "raw_end.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace connecting;

namespace {

template <bool Threaded>
struct raw_way {
  static constexpr const char* name = Threaded ? "raw, two threads" : "raw";
  static raw_end open(const place& p) { return raw_end(p, Threaded); }
};
template <dat::progress How>
struct dat_way {
  static constexpr const char* name = How == dat::progress::automatic ? "dat" : "dat manual";
  static dat_end open(const place& p) { return dat_end(p, How); }
};

/// A word to the other process, and one from it.
struct pipe_end {
  int fd;
  void say() const {
    if (::write(fd, "x", 1) != 1) give_up("the other process", "ended");
  }
  void hear() const {
    char word = 0;
    if (::read(fd, &word, 1) != 1) give_up("the other process", "ended");
  }
};

void print(const char* way, const char* what, double value) { std::printf("%s|%s|%.1f\n", way, what, value); }

/// One turn of one way. The child serves, the parent connects.
template <class Way>
void turn(const place& p, const job& j, bool serves, const pipe_end& other) {
  using clock = std::chrono::steady_clock;
  ::malloc_trim(0); // what earlier turns have left would hide what this one needs
  auto end = Way::open(p);
  const auto before = memory::now();
  const auto note = [&] {
    const auto now = memory::now();
    const auto each = [&](std::size_t a, std::size_t b) {
      return (static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(j.total);
    };
    print(Way::name, serves ? "heap, accepting" : "heap, connecting", each(before.heap, now.heap));
    print(Way::name, serves ? "resident, accepting" : "resident, connecting", each(before.resident, now.resident));
    other.say(); // the other side may go on when it has looked, too
    other.hear();
  };
  if (serves) {
    end.serve(
        j, [&] { other.say(); }, note);
  } else {
    other.hear();
    const auto start = clock::now();
    end.connect(j, note);
    const double seconds = std::chrono::duration<double>(clock::now() - start).count();
    if (!j.held)
      print(Way::name, j.together == 1 ? "one at a time" : "several at a time", static_cast<double>(j.total) / seconds);
  }
  std::fflush(stdout);
  other.say(); // neither closes before both are through
  other.hear();
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: connect ROUNDS CONNECTIONS SERVER CLIENT\n"
               "Prints way|what|connections per second or bytes\n",
               stderr);
    return 2;
  }
  int pipe[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pipe) != 0) give_up("socketpair", std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) give_up("fork", std::strerror(errno));
  const bool serves = child == 0;
  if (serves) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(pipe[serves ? 0 : 1]);
  const pipe_end other{pipe[serves ? 1 : 0]};

  const std::size_t n = std::stoul(argv[2]);
  place p{serves ? argv[3] : argv[4], argv[3], 19000};
  const std::array<job, 3> jobs{{{n, 1, false}, {n, 16, false}, {256, 16, true}}};
  for (int round = std::atoi(argv[1]); round != 0; --round)
    for (const job& j : jobs) {
      turn<raw_way<false>>(p, j, serves, other);
      ++p.port;
      turn<raw_way<true>>(p, j, serves, other);
      ++p.port;
      turn<dat_way<dat::progress::automatic>>(p, j, serves, other);
      ++p.port;
      turn<dat_way<dat::progress::manual>>(p, j, serves, other);
      ++p.port;
    }
  if (serves) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
