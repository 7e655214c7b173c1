// A shared receive queue: a server with many clients has one pool of buffers for the messages of all of them.
// Start `06_shared_queue`, then four times `06_shared_queue HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>
#include <dat/srq.hpp>
#include <list>
using namespace std::chrono_literals;

namespace {

constexpr std::size_t clients = 4; // the server ends after this number of clients
constexpr std::size_t questions = 50;
constexpr std::size_t buffers = 8; // enough, because a client asks again only after it has the answer
using number = std::uint64_t;

/// The state of one client at the server.
struct session {
  dat::ep<dat::with_srq<dat::rc>> ep{};
  number sum = 0;
};

struct server {
  peer<>& self;
  std::array<number, buffers> inbox{};
  dat::lmr<number, dat::local_write> memory{};
  dat::srq srq{};
  std::list<session> sessions{};
  std::size_t gone = 0;
  dat::expected<void> result = dat::success();

  dat::expected<void> post(std::size_t buffer) {
    DAT_TRY(const auto one, memory.slice(buffer, 1));
    return srq.post(dat::recv{one}.cookie(buffer));
  }
  dat::expected<void> accept(dat::connection_request& request) {
    session& fresh = sessions.emplace_back();
    DAT_TRY(fresh.ep, self.pz.create_ep<dat::rc>(self.evd, srq));
    DAT_TRYV(fresh.ep.set_context(&fresh)); // every event of the endpoint leads to the session
    return request.accept(fresh.ep);
  }
  void operator()(dat::connection_request& request) {
    if (auto done = accept(request); !done) result = done;
  }
  void operator()(const dat::recv_done& got) {
    const auto buffer = got.cookie().as<std::size_t>(); // any buffer of the queue
    session* const whose = got.ep().context<session>(); // the client whose message took it
    whose->sum += inbox[buffer];
    if (auto done = post(buffer); !done) result = done;
    (void)whose->ep.post(dat::send{}); // the answer is empty; if the client has gone, an event will say so
  }
  void operator()(const dat::disconnected& end) {
    session* const whose = end.ep().context<session>();
    std::cout << "a client sent " << whose->sum << '\n';
    sessions.remove_if([whose](const session& s) { return &s == whose; }); // ends the endpoint
    ++gone;
  }
  void operator()(const auto&) {}
};

dat::expected<void> serve(peer<>& self) {
  server all{self};
  DAT_TRY(all.memory, self.pz.register_memory(all.inbox, dat::local_write));
  DAT_TRY(all.srq, self.pz.create_srq({.max_recv_dtos = buffers}));
  for (std::size_t i = 0; i < buffers; ++i) DAT_TRYV(all.post(i));
  DAT_TRY(auto psp, self.ia.create_psp(7471, self.evd));
  std::cout << "listening on " << self.ia.address().host_string() << " port " << psp.port() << std::endl;
  while (all.result && all.gone < clients) DAT_TRYV(self.evd.wait_and_drain(all, 30s));
  if (all.result) std::cout << all.gone << " clients have come and gone\n";
  return all.result;
}

dat::expected<void> ask(peer<>& self) {
  std::array<number, 1> out{};
  DAT_TRY(auto memory, self.pz.register_memory(out, dat::local_read));
  DAT_TRYV(self.connect());
  for (out[0] = 1; out[0] <= questions; ++out[0]) {
    DAT_TRYV(self.ep.post(dat::recv{})); // posted before the question, so that the answer finds a receive
    DAT_TRYV(self.ep.post(dat::send{memory}));
    DAT_TRYV(self.evd.wait_for<dat::send_done>(self.limit));
    DAT_TRYV(self.evd.wait_for<dat::recv_done>(self.limit));
  }
  return self.finish();
}

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  return host ? ask(self) : serve(self);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
