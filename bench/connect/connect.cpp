// Connections per second and memory per connection, between two processes, by hand and with dat in turn.
// SPDX-License-Identifier: BSL-1.0
#include "dat_end.hpp"
#include "raw_end.hpp"

#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

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

/// A pipe for one word to the other process and one from it.
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

/// One side of one way of connecting, for any number of turns. The child serves, the parent connects.
template <class Way>
class side {
public:
  side(const place& p, bool serves, const pipe_end& other) : end_(Way::open(p)), serves_(serves), other_(other) {}

  void rate(const job& j) {
    turn(j, [] {});
  }
  void memory_of(const job& j) {
    const auto before = memory::now();
    turn(j, [&] {
      const auto now = memory::now();
      const auto each = [&](std::size_t a, std::size_t b) {
        return (static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(j.total);
      };
      print(Way::name, serves_ ? "heap, accepting" : "heap, connecting", each(before.heap, now.heap));
      print(Way::name, serves_ ? "resident, accepting" : "resident, connecting", each(before.resident, now.resident));
      other_.say(); // the other side may continue after it has read its memory, too
      other_.hear();
    });
  }

private:
  using clock = std::chrono::steady_clock;

  template <class AllUp>
  void turn(const job& j, AllUp all_up) {
    if (serves_) {
      end_.serve(
          j, [&] { other_.say(); }, all_up);
    } else {
      other_.hear();
      const auto start = clock::now();
      end_.connect(j, all_up);
      const double seconds = std::chrono::duration<double>(clock::now() - start).count();
      if (!j.held)
        print(Way::name, j.together == 1 ? "one at a time" : "several at a time",
              static_cast<double>(j.total) / seconds);
    }
    std::fflush(stdout);
    other_.say(); // each side waits until both are done
    other_.hear();
  }

  decltype(Way::open(std::declval<place>())) end_;
  bool serves_;
  pipe_end other_;
};

/// The memory that a turn needs, of a side that has had no connection before.
template <class Way>
void look_at_memory(place& p, bool serves, const pipe_end& other) {
  ::malloc_trim(0); // memory that earlier turns have left would hide what this one needs
  side<Way>(p, serves, other).memory_of({256, 16, true});
  ++p.port;
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

  const int rounds = std::atoi(argv[1]);
  const std::size_t n = std::stoul(argv[2]);
  place p{serves ? argv[3] : argv[4], argv[3], 19000};
  for (int round = 0; round != 3; ++round) {
    look_at_memory<raw_way<false>>(p, serves, other);
    look_at_memory<raw_way<true>>(p, serves, other);
    look_at_memory<dat_way<dat::progress::automatic>>(p, serves, other);
    look_at_memory<dat_way<dat::progress::manual>>(p, serves, other);
  }

  // Turns are short, so that other load affects all ways alike; no way always runs behind the same other one.
  ++p.port;
  side<raw_way<false>> raw(p, serves, other);
  ++p.port;
  side<raw_way<true>> threaded(p, serves, other);
  ++p.port;
  side<dat_way<dat::progress::automatic>> automatic(p, serves, other);
  ++p.port;
  side<dat_way<dat::progress::manual>> manual(p, serves, other);
  for (const job& j : {job{n, 1, false}, job{2 * n, 16, false}})
    for (int turn = 0; turn != 4 * rounds; ++turn) {
      switch ((turn + turn / 4) % 4) {
      case 0:
        raw.rate(j);
        break;
      case 1:
        threaded.rate(j);
        break;
      case 2:
        automatic.rate(j);
        break;
      default:
        manual.rate(j);
        break;
      }
    }
  if (serves) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
