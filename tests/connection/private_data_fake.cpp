// The mark of dat in requests and replies, and the private data of programs that do not use dat.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"

#include <dat/ud.hpp>

#include <cstring>
#include <vector>

using namespace unit;

namespace {

using dat::detail::before_mark;
using dat::detail::reply_mark;
using dat::detail::request_mark;

/// A message of `size` bytes with a mark.
std::string message_of(std::size_t size, std::size_t mark_at, std::size_t length, std::string data = {}) {
  data.resize(size);
  data.replace(mark_at, 3, "DAT");
  data.at(mark_at + 3) = static_cast<char>(length);
  return data;
}
std::string changed(std::string message, std::size_t at, char to) {
  message.at(at) = to;
  return message;
}
std::string data_of(const std::string& message, std::size_t mark_at) {
  return text_of(before_mark(bytes_of(message), mark_at));
}

template <class Message>
std::string sent(std::string_view data) {
  const Message m(bytes_of(data));
  return text_of(std::span<const std::byte>(m.bytes).first(m.size));
}

} // namespace

TEST_CASE("a request has the mark at its end where the data leaves room, and a reply behind all room for data",
          "[connection]") {
  using dat::detail::reply_message;
  using dat::detail::request_message;
  CHECK(sent<request_message>("") == message_of(56, 52, 0));
  CHECK(sent<request_message>("abc") == message_of(56, 52, 3, "abc"));
  const std::string room(52, 'x');
  CHECK(sent<request_message>(room) == room + "DAT4"); // '4' is 52
  CHECK(sent<request_message>(room + 'y') == room + 'y');
  CHECK(sent<request_message>(room + "DAT") == room + "DAT");
  CHECK(sent<request_message>(room + "DAT4") == room + "DAT4");
  CHECK(sent<reply_message>("") == message_of(60, 56, 0));
  CHECK(sent<reply_message>(room + "DAT4") == room + "DAT4DAT8");
}

TEST_CASE("the receiver of a request looks for no mark where data only ends like one", "[connection]") {
  using dat::detail::request_message;
  const auto may_have_mark = [](std::string_view data) { return request_message(bytes_of(data)).may_have_mark; };
  const std::string zeros(52, '\0');
  CHECK(may_have_mark(""));
  CHECK(may_have_mark("DAT"));
  CHECK(may_have_mark(zeros));
  CHECK(may_have_mark(zeros + "DA"));
  CHECK(may_have_mark(zeros + "DAT5")); // 53 is no length
  CHECK(may_have_mark(std::string(56, 'x')));
  CHECK_FALSE(may_have_mark(zeros + "DAT"));
  CHECK_FALSE(may_have_mark(zeros + "DAT4"));
  CHECK_FALSE(may_have_mark(message_of(56, 52, 5, "hello")));
}

TEST_CASE("a mark counts only in a message that dat can have sent", "[connection]") {
  const struct {
    std::size_t size, mark;
  } forms[] = {{56, request_mark}, {196, reply_mark}, {136, dat::detail::max_datagram_data}};
  for (const auto& [size, mark] : forms) {
    INFO(size << " bytes");
    const auto good = message_of(size, mark, 5, "hello");
    CHECK(data_of(good, mark) == "hello");
    CHECK(data_of(message_of(size, mark, 0), mark).empty());
    const std::string full(mark, 'x');
    CHECK(data_of(message_of(size, mark, mark, full), mark) == full);
    CHECK(data_of(message_of(size, mark, 6, "hello"), mark) == std::string("hello\0", 6));
    for (const auto& other : {message_of(size, mark, 4, "hello"), changed(good, 5, 1), changed(good, mark - 1, 1),
                              message_of(size, mark, mark + 1), message_of(size, mark, 255), changed(good, mark, 'd'),
                              changed(good, mark + 2, 't')})
      CHECK(data_of(other, mark) == other);
    if (size == mark + 4) continue;
    for (const auto& other : {changed(good, mark + 4, 1), changed(good, size - 1, 1)})
      CHECK(data_of(other, mark) == other);
  }
  const auto part = message_of(56, request_mark, 5, "hello").substr(0, 55);
  CHECK(data_of(part, request_mark) == part); // shorter than any message of dat
  CHECK(data_of("", request_mark).empty());
}

TEST_CASE("a request of a program without dat arrives with all its 56 bytes", "[connection][foreign]") {
  attempt t;
  const auto arrives = [&](const std::string& data, bool bit = true) {
    fake::cm_event e{.event = RDMA_CM_EVENT_CONNECT_REQUEST, .private_data = data, .port = service};
    e.flow_control = bit ? 1 : 0;
    fake::deliver(e);
    t.settle();
    auto request = request_on(t.b.evd);
    const auto all = text_of(request.private_data());
    must(request.reject());
    t.settle();
    return all;
  };
  const auto whole = [](std::string data) {
    data.resize(56);
    return data;
  };
  for (const std::string& data :
       {std::string(), std::string("plain"), std::string(56, 'p'), message_of(56, 52, 4, "plain"),
        message_of(56, 52, 53), message_of(56, 52, 255), changed(message_of(56, 52, 5, "plain"), 30, 'x')}) {
    CHECK(arrives(data) == whole(data));
    CHECK(arrives(data, false) == whole(data));
  }
  // Without the bit, not even a message like that of dat has a mark.
  CHECK(arrives(message_of(56, 52, 5, "plain"), false) == message_of(56, 52, 5, "plain"));
  CHECK(arrives(message_of(56, 52, 5, "plain")) == "plain");
}

TEST_CASE("a reply of a program without dat arrives with 56 bytes, or with all if it has more",
          "[connection][foreign]") {
  const auto arrives = [](const std::string& data) {
    attempt t;
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    t.connect();
    t.deliver(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
    const auto all = text_of(must(t.a.evd.wait_for<dat::established>()).private_data());
    fake::release_events();
    return all;
  };
  std::string plain("plain");
  plain.resize(56);
  CHECK(arrives("plain") == plain);
  CHECK(arrives(std::string(57, 'p')) == std::string(57, 'p') + std::string(139, '\0'));
  CHECK(arrives(message_of(56, 52, 5, "plain")) == message_of(56, 52, 5, "plain")); // there is no mark in a reply
  for (const auto& data :
       {message_of(196, 56, 4, "plain"), message_of(196, 56, 57), message_of(196, 56, 255),
        changed(message_of(196, 56, 5, "plain"), 30, 'x'), changed(message_of(196, 56, 5, "plain"), 195, 'x')})
    CHECK(arrives(data) == data);
  CHECK(arrives(message_of(196, 56, 5, "plain")) == "plain");
}
