// The end of an rdma_cm_id, while another thread uses or ends it.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <atomic>
#include <thread>

using namespace unit;

namespace {

/// Waits until `done`, but not for long: it must not happen yet, and a thread that waits cannot be seen to wait.
template <class Done>
void wait_a_while_for(Done done) {
  for (const auto until = std::chrono::steady_clock::now() + 200ms;
       !done() && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
}

} // namespace

TEST_CASE("a graceful close returns when the service thread has ended the last connection", "[IA-034]") {
  clean_world world;
  end b{"fk2"};
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> ending = false;
  std::atomic<bool> closed = false;
  {
    end a{"fk1", automatic};
    a.make_ep();
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::cr>(plenty)).accept(b.ep));
    must(a.evd.wait_for<dat::established>(a.ep, plenty));
    must(b.evd.wait_for<dat::established>(b.ep, plenty));
    must(a.ep.disconnect(dat::close_mode::graceful));
    must(a.ep.close()); // the connection waits for the peer's answer
    must(a.evd.close());
    must(a.mem.close());
    must(a.pz.close());
    fake::intercept(fake::call::rdma_destroy_id, [&] {
      if (std::this_thread::get_id() == caller || ending.exchange(true)) return;
      wait_a_while_for([&] { return closed.load(); });
    });
    must(b.evd.wait_for<dat::disconnected>(b.ep, plenty)); // the answer
    while (!ending) std::this_thread::yield();
    must(a.ia.close(dat::close_mode::graceful));
    CHECK(fake::live().contexts == 1); // that of b
    closed = true;
  }
  fake::intercept(fake::call::rdma_destroy_id, {});
}

TEST_CASE("the last other handle ends a request only when a reject under way is done", "[CR-028]") {
  clean_world world;
  end a{"fk1"};
  a.make_ep();
  dat::cr request;
  std::thread other;
  std::atomic<bool> gone = false;
  std::atomic<bool> gone_early = false;
  {
    auto b = std::make_optional<end>("fk2");
    auto psp = must(b->ia.create_psp(service, b->evd));
    must(a.ep.connect(b->ia.address(), service, plenty));
    settle(a.ia, b->ia);
    request = request_on(b->evd);
    must(psp.close());
    fake::intercept(fake::call::rdma_reject, [&] {
      other = std::thread([&] {
        b.reset();
        gone = true;
      });
      wait_a_while_for([&] { return gone.load(); });
      gone_early = gone.load();
    });
    must(request.reject(bytes_of("no")));
    fake::intercept(fake::call::rdma_reject, {});
    other.join();
  }
  CHECK_FALSE(gone_early);
  a.ia.run();
  CHECK(a.take() == events{"peer_rejected"});
}
