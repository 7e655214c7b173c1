// The client: agrees with the server on a test, and runs it for each size.
// SPDX-License-Identifier: BSL-1.0
#include "progress.hpp"
#include "session.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <memory>
#include <numeric>
#include <stdexcept>

namespace perf {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

namespace {

std::uint64_t sum(const std::vector<std::uint64_t>& of) {
  return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
}

result run_size(control& peer, links& on, worker& with, const options& o, std::uint32_t size, const observer& seen) {
  with.begin(size);
  peer.send(start{size});
  (void)peer.expect<start>(); // the server is ready
  const outcome of = exchange(peer, on, with, o.run, seen);
  result r;
  r.bytes = size;
  r.endpoints = of.mine.sent;
  r.sent = sum(of.mine.sent);
  r.times = with.times();
  const bool datagrams = o.run.operation == operation::datagram;
  if (o.run.test == test::latency) {
    r.lost = with.lost();
    r.out = {r.times.count(), of.mine.seconds};
  } else {
    r.out = {datagrams ? sum(of.arrived_there.counts) : r.sent, of.mine.seconds};
    r.back = {o.run.bidirectional ? sum(with.received()) : 0, of.theirs.seconds};
    if (datagrams) {
      r.sent += sum(of.theirs.sent);
      r.lost = r.sent - r.out.operations - r.back.operations;
    }
  }
  return r;
}

} // namespace

report run_client(const options& o) {
  std::string step = "open";
  try {
    auto ia = o.address.empty() ? dat::ia::open_by_route(o.host).value()
                                : dat::ia::open(dat::ia_address::parse(o.address).value()).value();
    auto pz = ia.create_pz().value();
    step = "connect";
    const dat::ia_address server = address_of(ia, o.host);
    control peer(ia, pz, o.limit);
    peer.connect(server, o.port);
    step = "set up";
    std::unique_ptr<links> on;
    setup mine{o.run, {}};
    if (o.run.test != test::connections) {
      on = std::make_unique<links>(ia, pz, o.run, true);
      mine.memory = on->offer();
    }
    peer.send(mine);
    const ready theirs = peer.expect<ready>();
    report all;
    all.client = {host_name(), std::string(ia.name()), ia.address().host_string()};
    all.server = {theirs.host, theirs.adapter, theirs.address};
    progress shown(o);
    if (o.run.test == test::connections) {
      step = "connections";
      all.results.push_back(connect_again_and_again(peer, ia, pz, o, server, theirs.token, shown.begin(1)));
    } else {
      all.max_inline = std::min(on->max_inline(), theirs.max_inline);
      on->take(theirs.memory);
      step = "connect endpoints";
      on->connect(server, o.port, theirs.token, as_timeout(o.limit));
      on->wait_established(as_timeout(o.limit));
      const auto with = make_worker(*on, o.run, true);
      for (const std::uint32_t size : o.run.sizes) {
        step = fmt::format("{} of {} bytes", to_string(o.run.test), size);
        all.results.push_back(run_size(peer, *on, *with, o, size, shown.begin(size)));
        all.results.back().course = shown.course();
      }
    }
    shown.end();
    step = "end";
    peer.send(bye());
    (void)peer.expect<bye>();
    peer.finish();
    return all;
  } catch (const std::exception& e) {
    throw std::runtime_error(fmt::format("{}: {}", step, e.what()));
  }
}

} // namespace perf
