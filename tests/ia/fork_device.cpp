// Forked children: the calls that they can make, and no effect on an adapter of their parent.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/csp.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace device {

namespace {

/// The result of a child process: 0 when every check passed.
template <class Body>
pid_t in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}
int end_of(pid_t child) {
  int code = 0;
  while (::waitpid(child, &code, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(code) ? WEXITSTATUS(code) : 1000 + WTERMSIG(code);
}

/// Connects to the service from the other adapter, sends a message and disconnects; 0 when every step worked. No thread
/// is started: a forked child of a program with threads should not.
int visit(std::uint16_t service) {
  auto ia = dat::ia::open(addresses()[1], {.progress = dat::progress::manual});
  if (!ia) return 1;
  auto pz = ia.assume_value().create_pz();
  auto evd = ia.assume_value().create_evd<dat::stream::dto | dat::stream::connection>(16);
  if (!pz || !evd) return 2;
  static std::array<char, 16> memory;
  memory.fill('c');
  auto out = pz.assume_value().register_memory(memory, dat::local_read);
  auto ep = pz.assume_value().create_ep<dat::rc>(evd.assume_value());
  if (!out || !ep) return 3;
  auto& e = ep.assume_value();
  if (!e.connect(addresses()[0], dat::conn_qual::make(service).assume_value(), patience)) return 4;
  if (!evd.assume_value().wait_for<dat::established>(e, patience)) return 5;
  if (!e.post(dat::send{out.assume_value()})) return 6;
  if (!evd.assume_value().wait_for<dat::send_done>(e, patience)) return 7;
  if (!e.disconnect(dat::close_mode::graceful)) return 8;
  return evd.assume_value().wait_for<dat::disconnected>(e, patience) ? 0 : 9;
}

/// Opens and closes an adapter, and executes another program, whose exit code is 0.
int open_and_exec() {
  auto ia = dat::ia::open(addresses()[1], {.progress = dat::progress::manual});
  if (!ia || !ia.assume_value().close()) return 1;
  ::execl("/bin/true", "true", nullptr);
  return 2;
}

} // namespace

TEST_CASE("a forked child connects to its parent with its own adapter and does not affect the parent's objects",
          "[ia][REQ-026][REQ-028][IA-144][LMR-032]") {
  auto ia = must(dat::ia::open(addresses()[0], {.progress = dat::progress::manual}));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<all_streams>(64));
  auto psp = must(ia.create_psp_any(evd));
  const std::uint16_t psp_port = psp.port();
  std::array<char, 16> memory{};
  auto in = must(pz.register_memory(memory, dat::local_write));
  auto ep = must(pz.create_ep<dat::rc>(evd));
  must(ep.post(dat::recv{in}));
  auto cno = must(ia.create_cno());
  const int descriptor = cno.fd();
  auto hidden = must(ia.create_cno());
  const int hidden_descriptor = hidden.fd();
  must(hidden.close_fd());
  auto srq = must(pz.create_srq());
  auto csp = must(ia.create_csp({.domain = AF_INET, .type = SOCK_STREAM}, evd));
  auto reserved = must(pz.create_ep<dat::rc>(evd));
  auto rsp = must(ia.create_rsp(next_port(), reserved, evd));
  dat::rmr rmr;
  if (has(feature::windows)) rmr = must(pz.create_rmr());
  for (int round = 0; round < 2; ++round) {
    const pid_t child = in_child([&] {
      if (cno.fd() != -1 || ::fcntl(descriptor, F_GETFD) >= 0 || ::fcntl(hidden_descriptor, F_GETFD) >= 0) return 101;
      if (ia.create_pz() || ia.create_evd<dat::stream::dto>(8) || ia.query() || psp.close()) return 100;
      if (evd.wait(0s) || cno.wait(0s) || ep.close() || in.close()) return 102;
      if (srq.close() || csp.close() || rsp.close() || rmr.close() || cno.close() || evd.close() || pz.close())
        return 103;
      ep = {}, in = {}, psp = {}, evd = {}, pz = {}, ia = {}; // these are objects of the parent, so nothing happens
      return round == 0 ? visit(psp_port) : open_and_exec();
    });
    // Until here the child shares this page. After the write, one of the two has a page of its own. It must be the
    // child, because the adapter writes to the page that was registered.
    memory.fill('p');
    if (round == 0) {
      auto request = must(evd.wait_for<dat::connection_request>(patience));
      must(request.accept(ep));
      (void)must(evd.wait_for<dat::established>(ep, patience));
      CHECK(must(evd.wait_for<dat::recv_done>(ep, patience)).bytes() == memory.size());
      CHECK(std::all_of(memory.begin(), memory.end(), [](char c) { return c == 'c'; }));
      (void)must(evd.wait_for<dat::disconnected>(ep, patience));
      must(ep.reset());
    }
    CHECK(end_of(child) == 0);
    SHOWS("COMP-085", "SAFE-005", "REQ-020");
    if (round == 1) SHOWS("REQ-027");
    CHECK((cno.fd() == descriptor && ::fcntl(descriptor, F_GETFD) >= 0)); // that of the parent is still open
    SHOWS("CNO-024");
  }
  CHECK(must(ia.query()).state == dat::port_state::active);
  must(srq.close()); // the parent's own object works as before
  must(rsp.close());
}

TEST_CASE("children that exec other programs do not affect transfers", "[ia][REQ-027]") {
  connected_pair p;
  buffer from(p.a.pz, 4096), to(p.b.pz, 4096);
  for (std::uint32_t i = 0; i < 20; ++i) {
    fill(from.bytes, i);
    must(p.passive.post(dat::recv{to.lmr}));
    const pid_t child = in_child([] {
      ::execl("/bin/true", "true", nullptr);
      return 1;
    });
    if (i == 10) must(must(dat::ia::open(addresses()[0])).close()); // the parent opens and closes meanwhile
    must(p.active.post(dat::send{from.lmr}));
    (void)p.at_a<dat::send_done>();
    (void)p.at_b<dat::recv_done>();
    CHECK(has_pattern(to.bytes, i));
    CHECK(end_of(child) == 0);
  }
}

} // namespace device
