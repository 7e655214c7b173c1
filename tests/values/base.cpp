// The parts that all other code uses: lists, owners of C objects and descriptors, byte orders, deadlines.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <dat/detail/base/big_endian.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/fd.hpp>
#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/verbs/null_device.hpp>

#include <support/catch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <span>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace detail = dat::detail;

namespace {

int freed = 0;
void free_int(int* p) {
  ++freed;
  delete p;
}
using int_owner = detail::unique_c<int, free_int>;

struct item : detail::list_node {
  explicit item(int n) : number(n) {}
  int number;
};
std::vector<int> numbers(detail::intrusive_list<item>& list) {
  std::vector<int> all;
  for (item* i = list.front(); i; i = list.after(*i)) all.push_back(i->number);
  std::vector<int> back;
  for (item* i = list.back(); i; i = list.before(*i)) back.insert(back.begin(), i->number);
  CHECK(all == back);
  return all;
}

} // namespace

TEST_CASE("the owner of a C object frees it once, and keeps it when it is moved to itself") {
  freed = 0;
  {
    int_owner a(new int(1));
    int_owner b(std::move(a));
    CHECK_FALSE(a);
    CHECK(*b.get() == 1);
    auto& same = b;
    b = std::move(same);
    REQUIRE(b);
    CHECK(*b.get() == 1);
    CHECK(freed == 0);
    int_owner c(new int(2));
    c = std::move(b);
    CHECK(freed == 1);
    CHECK_FALSE(b);
    CHECK(*c.get() == 1);
    c.reset();
    CHECK(freed == 2);
    c.reset();
    CHECK(freed == 2);
    c = int_owner(new int(3));
  }
  CHECK(freed == 3);
}

TEST_CASE("a list keeps its order, and an element knows whether it is linked") {
  item one(1), two(2), three(3);
  detail::intrusive_list<item> list;
  CHECK(list.empty());
  CHECK(list.front() == nullptr);
  CHECK(list.back() == nullptr);
  CHECK(list.pop_front() == nullptr);
  CHECK_FALSE(one.linked());
  list.push_back(one);
  list.push_back(three);
  list.insert_after(&one, two);
  CHECK_FALSE(list.empty());
  CHECK(one.linked());
  CHECK(numbers(list) == std::vector<int>{1, 2, 3});
  two.unlink();
  two.unlink(); // without effect
  CHECK_FALSE(two.linked());
  CHECK(numbers(list) == std::vector<int>{1, 3});
  list.insert_after(nullptr, two);
  CHECK(numbers(list) == std::vector<int>{2, 1, 3});
  CHECK(list.pop_front_if([](const item& i) { return i.number == 1; }) == nullptr);
  CHECK(list.pop_front() == &two);
  CHECK_FALSE(two.linked());
  CHECK(numbers(list) == std::vector<int>{1, 3});
  CHECK(list.pop_front() == &one);
  CHECK(list.pop_front() == &three);
  CHECK(list.empty());
}

TEST_CASE("a wake descriptor is readable from raise to clear, and open and close change nothing else") {
  detail::wake_fd fd;
  CHECK(fd.get() == -1);
  REQUIRE(fd.open() == 0);
  const auto readable = [&] {
    pollfd p{fd.get(), POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  };
  CHECK_FALSE(readable());
  fd.raise();
  fd.raise();
  CHECK(readable());
  fd.clear();
  CHECK_FALSE(readable());
  CHECK((::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("an owned descriptor is closed once, and kept when it is moved to itself") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  detail::unique_fd a(ends[0]);
  detail::unique_fd b(ends[1]);
  auto& same = a;
  a = std::move(same);
  CHECK(a.get() == ends[0]);
  CHECK(open(ends[0]));
  CHECK(detail::make_nonblocking(a.get()) == 0);
  CHECK((::fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
  a = std::move(b);
  CHECK_FALSE(open(ends[0]));
  CHECK(a.get() == ends[1]);
  CHECK_FALSE(b);
  CHECK(b.get() == -1);
  a.reset();
  CHECK_FALSE(open(ends[1]));
  CHECK_FALSE(a);
  CHECK(detail::make_nonblocking(-1) == EBADF);
}

TEST_CASE("descriptor 0 is owned and closed as any other") {
  const auto open = [] { return ::fcntl(STDIN_FILENO, F_GETFD) >= 0; };
  const int input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3); // fails where the program has no standard input
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (other != STDIN_FILENO) {
    REQUIRE(::dup2(other, STDIN_FILENO) == STDIN_FILENO);
    ::close(other);
  }
  {
    const detail::unique_fd owner(STDIN_FILENO);
    CHECK(owner);
    CHECK(open());
  }
  CHECK_FALSE(open());
  if (input >= 0) {
    ::dup2(input, STDIN_FILENO);
    ::close(input);
  }
}

TEST_CASE("numbers have the same bytes on the wire on every machine") {
  std::array<std::byte, 8> to{};
  detail::put_be(to.data(), std::uint64_t{0x0102030405060708});
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::to_integer<int>(to[i]) == static_cast<int>(i) + 1);
  CHECK(detail::get_be<std::uint64_t>(to.data()) == 0x0102030405060708);
  CHECK(detail::get_be<std::uint32_t>(to.data()) == 0x01020304);
  CHECK(detail::get_be<std::uint16_t>(to.data()) == 0x0102);
  CHECK(detail::get_be<std::uint8_t>(to.data()) == 0x01);
  CHECK(detail::get_be<std::uint8_t>(&to[7]) == 0x08);
  CHECK(detail::swap_bytes(std::uint32_t{0x01020304}) == 0x04030201);
  CHECK(detail::swap_bytes(std::uint16_t{0x0102}) == 0x0201);
}

TEST_CASE("a deadline is passed when its time has come, and one of a century never comes") {
  const auto past = detail::deadline::in(-1s);
  CHECK_FALSE(past.never());
  CHECK(past.passed());
  CHECK(past.left().tv_sec == 0);
  CHECK(past.left().tv_nsec == 0);
  const auto later = detail::deadline::in(1h);
  CHECK_FALSE(later.never());
  CHECK_FALSE(later.passed());
  CHECK(later.left().tv_sec >= 3000);
  CHECK(later.left().tv_sec < 3600);
  CHECK(later.left().tv_nsec >= 0);
  CHECK(later.left().tv_nsec < 1'000'000'000);
  constexpr dat::timeout century = std::chrono::hours(24 * 36525);
  CHECK(detail::deadline::in(century).never());
  CHECK_FALSE(detail::deadline::in(century).passed());
  CHECK_FALSE(detail::deadline::in(century - 1us).never());
}

TEST_CASE("smallest, largest and nearest value, also where two are equal") {
  CHECK(detail::min(1, 2) == 1);
  CHECK(detail::min(2, 1) == 1);
  CHECK(detail::max(1, 2) == 2);
  CHECK(detail::max(2, 1) == 2);
  CHECK(detail::within(1, 0, 3) == 1);
  CHECK(detail::within(1, 2, 3) == 2);
  CHECK(detail::within(1, 4, 3) == 3);
  const std::array<std::byte, 2> zeros{};
  CHECK_FALSE(detail::any_nonzero(zeros));
  CHECK_FALSE(detail::any_nonzero({}));
  CHECK(detail::any_nonzero(std::array{std::byte{0}, std::byte{1}}));
  std::array<std::byte, 2> to{std::byte{9}, std::byte{9}};
  CHECK(detail::copy_bytes({}, to.data()) == to.data());
  CHECK(detail::copy_bytes(std::span(zeros).first(1), to.data()) == &to[1]);
  CHECK(to[0] == std::byte{0});
  CHECK(to[1] == std::byte{9});
}

TEST_CASE("each thread has an identity of its own") {
  const char* const here = &detail::this_thread();
  CHECK(here == &detail::this_thread());
  const char* there = nullptr;
  std::thread([&] { there = &detail::this_thread(); }).join();
  CHECK(there != here);
  CHECK(detail::this_thread() == 0);
}

TEST_CASE("the null device refuses all work, and has no completions") {
  detail::null_device none;
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr* bad_recv = nullptr;
  ibv_wc wc{};
  CHECK(ibv_post_send(none.qp(), nullptr, &bad_send) == detail::null_device_errno);
  CHECK(none.qp()->context->ops.post_recv(none.qp(), nullptr, &bad_recv) == detail::null_device_errno);
  CHECK(none.srq()->context->ops.post_srq_recv(none.srq(), nullptr, &bad_recv) == detail::null_device_errno);
  CHECK(none.cq()->context->ops.poll_cq(none.cq(), 1, &wc) == 0);
}
