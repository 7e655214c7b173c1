// The descriptor of a cno: poll, epoll and select, programs without free descriptors, exec, and the cno's end.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "one_cno.hpp"
#include <support/streams.hpp>

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <unistd.h>

using namespace one_cno;
using namespace std::chrono_literals;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {

bool selected(int fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  timeval none{};
  return ::select(fd + 1, &set, nullptr, nullptr, &none) == 1;
}

} // namespace

TEST_CASE("the descriptor works in poll and in epoll, level and edge",
          "[CNO-017][CNO-019][CNO-020][CNO-046][MODEL-015]") {
  rig::begin();
  fixture f;
  const int descriptor = f.cno.fd();
  const int level = ::epoll_create1(0);
  const int edge = ::epoll_create1(0);
  epoll_event e{};
  e.events = EPOLLIN;
  REQUIRE(::epoll_ctl(level, EPOLL_CTL_ADD, f.cno.fd(), &e) == 0);
  e.events = EPOLLIN | EPOLLET;
  REQUIRE(::epoll_ctl(edge, EPOLL_CTL_ADD, f.cno.fd(), &e) == 0);
  const auto ready = [&](int set) { return ::epoll_wait(set, &e, 1, 0); };
  CHECK_FALSE(readable(f.cno.fd()));
  CHECK_FALSE(selected(f.cno.fd()));
  for (int round = 0; round < 3; ++round) {
    must(f.evd.post(1));
    CHECK(readable(f.cno.fd()));
    CHECK(selected(f.cno.fd()));
    CHECK(ready(level) == 1);
    CHECK(ready(level) == 1); // the descriptor is readable until the trigger is taken
    CHECK(ready(edge) == 1);
    CHECK(ready(edge) == 0);
    must(f.evd.post(2)); // a second trigger makes a second edge
    CHECK(ready(edge) == 1);
    std::uint64_t taken = 0;
    REQUIRE(::read(f.cno.fd(), &taken, sizeof taken) == sizeof taken);
    CHECK(taken == f.evd.id().number());
    SHOWS("CNO-002", "REQ-154"); // the evd was attached once, and triggers in each round
    CHECK_FALSE(readable(f.cno.fd()));
    CHECK(ready(level) == 0);
    while (f.evd.dequeue()) {
    }
  }
  ::close(level);
  ::close(edge);
  // Of two evds that trigger, a read names the later one.
  auto other = must(f.ia.create_evd<soft>(8));
  must(other.modify_cno(f.cno));
  must(f.evd.post(1));
  must(other.post(2));
  std::uint64_t latest = 0;
  REQUIRE(::read(f.cno.fd(), &latest, sizeof latest) == sizeof latest);
  CHECK(latest == other.id().number());
  SHOWS("CNO-021");
  CHECK(f.cno.latest().number() == latest);
  SHOWS("CNO-036");
  CHECK(f.cno.fd() == descriptor); // one descriptor for the life of the cno
}

TEST_CASE("without file descriptors, creating a cno or an evd fails, and existing objects stay usable",
          "[CNO-018][EVD-004]") {
  rig::begin();
  fixture f;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The limit of descriptors grows from none to enough, so that each descriptor is once the first that is missing.
  const auto with_few = [&](auto create) {
    int made = 0;
    for (int room = 0; room < 4; ++room) {
      const int next = ::dup(f.cno.fd()); // the lowest free descriptor
      ::close(next);
      rlimit tight = before;
      tight.rlim_cur = static_cast<rlim_t>(next + room);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
      const auto r = create();
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
      if (r)
        ++made;
      else
        CHECK(r.error().type() == return_type::insufficient_resources);
      if (room == 0) CHECK_FALSE(r);
    }
    CHECK(made > 0);
  };
  with_few([&] { return f.ia.create_cno(); });
  with_few([&] { return f.ia.create_evd<dat::stream::dto>(8); });
  must(f.evd.post(1));
  SHOWS("CNO-016");
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("a cno works after the program has closed its descriptor by close_fd", "[cno][CNO-023]") {
  rig::begin();
  fixture f;
  const int fd = f.cno.fd();
  REQUIRE(fd >= 0);
  // The cno does not detect a close(2) of its descriptor by the program: it still reports the number.
  const int copy = ::dup(fd);
  REQUIRE(::close(fd) == 0);
  CHECK(f.cno.fd() == fd);
  DEVIATES("CNO-022");
  REQUIRE(::dup2(copy, fd) == fd);
  ::close(copy);
  must(f.cno.close_fd());
  CHECK(f.cno.fd() == -1);
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(patience)) == f.evd.id());
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(2));
  a.await(1);
  const auto again = f.cno.close_fd();
  CHECK(again.error() == dat::error(return_type::invalid_state));
  CHECK(again.error().message().find("cno.close_fd") != std::string::npos);
  CHECK(f.cno.fd() == -1);
  must(f.evd.modify_cno({}));
  must(f.cno.close());
}

TEST_CASE("a cno's descriptor is closed on exec", "[COMP-085]") {
  rig::begin();
  fixture f;
  const std::string number = std::to_string(f.cno.fd());
  CHECK((::fcntl(f.cno.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(std::system(("test -e /proc/self/fd/0 && test ! -e /proc/self/fd/" + number).c_str()) == 0);
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("closing a cno wakes a thread that polls its descriptor", "[CNO-027]") {
  rig::begin();
  fixture f;
  must(f.evd.modify_cno({}));
  pollfd p{f.cno.fd(), POLLIN, 0};
  std::atomic<pid_t> thread{};
  worker poller([&](worker& w) {
    thread = ::gettid();
    const timespec limit{patience / 1s, 0};
    w.check(::ppoll(&p, 1, &limit, nullptr) == 1);
  });
  until_asleep(thread);
  must(f.cno.close());
  CHECK(f.cno.fd() == -1);
  errno = 0;
  CHECK(::fcntl(p.fd, F_GETFD) == -1); // the descriptor itself is closed
  CHECK(errno == EBADF);
  poller.join();
}
