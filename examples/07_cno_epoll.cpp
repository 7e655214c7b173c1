// RDMA in an event loop: a cno gives any number of evds one descriptor, beside those of signals, timers and sockets.
// Start `07_cno_epoll`, then `07_cno_epoll HOST` as often as you like. Ctrl-C ends the server.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <string_view>

namespace {

struct session {
  dat::ep<dat::rc> ep{};
  std::array<char, 32> text{};
  dat::lmr<char, dat::local_write> memory{};
};

/// An echo server. The event loop below calls it with each event.
struct server {
  peer<>& self;
  std::array<char, 32> echo{};
  dat::lmr<char, dat::local_read> out{};
  session_list<session> clients{};
  std::size_t answers = 0;

  dat::expected<void> accept(dat::connection_request& request, session& fresh) {
    DAT_TRY(fresh.memory, self.pz.register_memory(fresh.text, dat::local_write));
    DAT_TRY(fresh.ep, self.pz.create_ep<dat::rc>(self.evd, {.max_inline = sizeof echo}));
    DAT_TRYV(fresh.ep.set_context(&fresh)); // every event of the endpoint leads to the session
    DAT_TRYV(fresh.ep.post(dat::recv{fresh.memory}));
    return request.accept(fresh.ep);
  }
  dat::expected<void> answer(session& to, std::size_t bytes) {
    echo = to.text;
    DAT_TRYV(to.ep.post(dat::recv{to.memory})); // posted before the answer, so that the next message finds a receive
    DAT_TRY(const auto text, out.slice(0, bytes));
    return to.ep.post(dat::send{text}.inlined()); // copied by the post: the memory is free for the next answer
  }

  void operator()(dat::connection_request& request) {
    session& fresh = clients.emplace_back();
    clients.end_unless(accept(request, fresh), fresh);
  }
  void operator()(const dat::recv_done& got) {
    if (session* const from = clients.of(got)) clients.end_unless(answer(*from, got.bytes()), *from);
  }
  void operator()(const dat::send_done&) { ++answers; }
  void operator()(const dat::disconnected& over) { clients.end(clients.of(over)); }
  void operator()(const dat::connection_broken& over) { clients.end(clients.of(over)); }
  void operator()(const auto&) {}
};

dat::expected<void> serve(peer<>& self, int signals) {
  DAT_TRY(auto cno, self.ia.create_cno());
  DAT_TRYV(self.evd.modify_cno(cno)); // events of this evd make cno.fd() readable
  const int loop = epoll_of({cno.fd(), signals});
  server all{self};
  DAT_TRY(all.out, self.pz.register_memory(all.echo, dat::local_read));
  DAT_TRY(const auto psp, self.listen());
  for (epoll_event ready{}; epoll_wait(loop, &ready, 1, -1) == 1 && ready.data.fd != signals;) {
    DAT_TRYV(cno.wait(dat::timeout::zero())); // takes the trigger first; events that come later trigger again
    self.evd.drain(all);                      // then the events
  }
  std::cout << all.answers << " answers\n";
  return dat::success();
}

dat::expected<void> ask(peer<>& self) {
  constexpr std::string_view question = "are you there?";
  std::array<char, 32> answer{};
  DAT_TRY(auto out, self.pz.register_memory(question, dat::local_read));
  DAT_TRY(auto in, self.pz.register_memory(answer, dat::local_write));
  DAT_TRYV(self.connect());
  for (int i = 0; i < 10; ++i) {
    DAT_TRYV(self.ep.post(dat::recv{in}));
    DAT_TRYV(self.ep.post(dat::send{out}));
    DAT_TRYV(self.evd.wait_for<dat::recv_done>(self.limit));
  }
  return self.finish();
}

dat::expected<void> run(const char* host) {
  const int signals = host ? -1 : descriptor_of_signals();
  peer<> self{host};
  DAT_TRYV(self.open());
  return host ? ask(self) : serve(self, signals);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
