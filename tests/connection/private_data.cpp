// Private data between peers with dat: its bytes and its length, by each way to connect.
// SPDX-License-Identifier: BSL-1.0
#include "listening_sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace connections {
namespace {

constexpr std::size_t most = 56;

/// On iWARP the wire carries the length of private data.
bool wire_has_length(const dat::ia& ia) { return ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP; }
/// The part of the data of a request that arrives: in 56 bytes, data of 53 to 55 bytes leaves no room for its length.
std::string arrival(const dat::ia& ia, std::string data) {
  if (data.size() > most - 4 && !wire_has_length(ia)) data.resize(most);
  return data;
}
using support::text_of;

/// Connects two new endpoints with private data both ways, and returns what has arrived.
struct arrived {
  std::string request, reply;
};
arrived exchange(two& t, const std::string& asked, const std::string& answered) {
  arrived all;
  t.a.make_ep();
  t.b.make_ep();
  auto request = t.ask_with(asked);
  all.request = text_of(request.private_data());
  must(request.accept(t.b.ep, bytes_of(answered)));
  t.settle();
  all.reply = text_of(must(t.a.evd.wait_for<dat::established>(patience)).private_data());
  t.settle();
  CHECK(must(t.b.evd.wait_for<dat::established>(patience)).private_data().empty());
  must(t.a.ep.disconnect());
  t.settle();
  CHECK(t.a.take(1) == events{"disconnected"});
  CHECK(t.b.take(1) == events{"disconnected"});
  return all;
}

/// The data of a peer, up to the mark of dat and with it. `length`: the length in the mark.
std::string like_marked(char length, std::string data = {}) {
  data.resize(most - 4);
  data += "DAT";
  data += length;
  return data;
}

} // namespace

TEST_CASE("private data of each length arrives with its length, in a request and in a reply", "[connection]") {
  const int kind = GENERATE(0, 1, 2);
  two t;
  for (std::size_t n = 0; n <= most; ++n) {
    INFO(n << " bytes");
    std::string data(n, '\0');
    if (kind != 0) // without zeros, or with zeros at their end
      for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<char>(kind == 1 || i < n / 2 ? i + 1 : 0);
    const auto got = exchange(t, data, data);
    CHECK(got.request == arrival(t.a.ia, data));
    CHECK(got.reply == data);
  }
  SHOWS("EVENT-018", "CONN-047", "CR-026");
}

TEST_CASE("a request with 53 to 55 bytes arrives as 56 bytes where the wire has no length", "[connection]") {
  two t;
  for (const std::size_t n : {53u, 54u, 55u}) {
    const auto got = exchange(t, std::string(n, 'x'), {});
    if (wire_has_length(t.a.ia)) {
      CHECK(got.request == std::string(n, 'x'));
    } else {
      CHECK(got.request == std::string(n, 'x') + std::string(most - n, '\0'));
      DEVIATES("CR-008");
    }
  }
}

TEST_CASE("private data that itself ends like the mark of dat arrives whole", "[connection]") {
  two t;
  std::string short_of_one = like_marked('\0');
  short_of_one.pop_back();
  for (const auto& data : {like_marked('\0'), like_marked(3, "abc"), like_marked(52, std::string(52, 'x')),
                           like_marked(53), short_of_one, std::string("DAT"), std::string("DAT\1", 4)}) {
    INFO(data.size() << " bytes, ending in " << static_cast<int>(data.back()));
    const auto got = exchange(t, data, data);
    CHECK(got.request == arrival(t.a.ia, data));
    CHECK(got.reply == data);
  }
}

TEST_CASE("private data keeps its length at each kind of service point and by each kind of connect", "[connection]") {
  sides s;
  const std::string asked{"asked\0", 6};
  const std::string answered{"answered\0", 9};
  dat::psp psp;
  dat::rsp rsp;
  dat::csp csp;
  s.a.make_ep();
  s.b.make_ep();
  const auto arrives = [&](const dat::cr& request) { CHECK(text_of(request.private_data()) == asked); };
  const auto established = [&] {
    s.settle();
    const auto up = must(s.a.evd.wait_for<dat::established>(patience));
    CHECK(text_of(up.private_data()) == answered);
    s.settle();
    (void)must(s.b.evd.wait_for<dat::established>(patience));
  };
  SECTION("reserved") {
    rsp = must(s.b.ia.create_rsp(s.service, s.b.ep, s.b.evd));
    must(s.a.ep.connect(s.b.ia.address(), s.service, patience, bytes_of(asked)));
    s.settle();
    auto request = s.request();
    arrives(request);
    must(request.accept(bytes_of(answered)));
    established();
  }
  SECTION("with an endpoint that the service point makes") {
    psp = must(s.b.ia.create_psp(s.service, s.b.evd, dat::psp_flags::provider));
    must(s.a.ep.connect(s.b.ia.address(), s.service, patience, bytes_of(asked)));
    s.settle();
    auto request = s.request();
    arrives(request);
    must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    must(request.accept(bytes_of(answered)));
    established();
    s.b.ep = std::move(request.ep());
  }
  SECTION("handed from one to another") {
    psp = must(s.b.ia.create_psp(s.service, s.b.evd));
    const auto second = must(s.b.ia.create_psp(s.other, s.b.evd));
    must(s.a.ep.connect(s.b.ia.address(), s.service, patience, bytes_of(asked)));
    s.settle();
    must(s.request().handoff(s.other));
    auto request = s.request();
    arrives(request);
    must(request.accept(s.b.ep, bytes_of(answered)));
    established();
  }
  SECTION("common, and by the address of a connection") {
    csp = must(s.b.ia.create_csp(tcp, s.b.evd));
    s.a.ep = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
    must(s.a.ep.common_connect(must(csp.query()).address, patience, bytes_of(asked)));
    s.settle();
    auto request = s.request();
    arrives(request);
    must(request.accept(s.b.ep, bytes_of(answered)));
    established();
    auto duplicate = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
    auto other = s.make();
    must(duplicate.dup_connect(s.a.ep, patience, bytes_of(asked)));
    s.settle();
    request = s.request();
    arrives(request);
    must(request.accept(other, bytes_of(answered)));
    established();
  }
}

} // namespace connections
