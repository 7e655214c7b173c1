// A key-value server for many clients: a shared receive queue, a registered pool for the values, contexts, and an event
// loop over one descriptor. Ctrl-C ends it. A client that dies or misbehaves costs its own session, and nothing else.
// SPDX-License-Identifier: BSL-1.0
#include "kv.hpp"
#include <csignal>
#include <cstring>
#include <dat/pool.hpp>
#include <dat/srq.hpp>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <vector>

namespace {

constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read;
constexpr std::size_t most_clients = 64;
constexpr std::size_t buffers = 128; // a client has one request at a time
using value = std::shared_ptr<std::pmr::vector<char>>;

struct session {
  value lent{};                         // the client may still read it, until its next request
  value coming{};                       // this side still reads it from the client ...
  std::string key{};                    // ... and will store it so
  dat::ep<dat::with_srq<dat::rc>> ep{}; // ends first: then nothing uses the values
};

struct server : kv::node<buffers> {
  dat::memory_pool<rights> memory{};
  std::map<std::string, value, std::less<>> values{};
  dat::srq srq{};
  std::list<session> sessions{};
  dat::expected<void> result = dat::success();

  dat::expected<void> open() {
    DAT_TRYV(node::open(nullptr));
    DAT_TRY(memory, dat::memory_pool<rights>::create(pz, 64 << 20));
    DAT_TRY(srq, pz.create_srq({.max_recv_dtos = buffers}));
    for (std::size_t i = 0; i < buffers; ++i) DAT_TRYV(post(i));
    return dat::success();
  }
  dat::expected<void> post(std::size_t buffer) {
    DAT_TRY(const auto one, in.slice(buffer, 1));
    return srq.post(dat::recv{one}.cookie(buffer));
  }

  // The visitor. An error of a session ends the session; an error of the queue ends the server.
  void operator()(dat::connection_request& request) {
    if (sessions.size() == most_clients) return (void)request.reject();
    session& fresh = sessions.emplace_back();
    keep_if(accept(request, fresh), fresh);
  }
  void operator()(const dat::recv_done& got) {
    const auto buffer = got.cookie().as<std::size_t>();
    session& from = *got.ep().context<session>();
    keep_if(serve(inbox[buffer], from), from);
    if (auto posted = post(buffer); !posted) result = posted;
  }
  void operator()(const dat::rdma_read_done& got) { // a long value has arrived
    session& from = *got.ep().context<session>();
    values[from.key] = std::move(from.coming);
    keep_if(answer(from, kv::message::of(kv::kind::done, {})), from);
  }
  void operator()(const dat::dto_failure& failed) { // a buffer that a broken connection had taken
    if (failed.operation() != dat::dto_operation::recv) return;
    if (auto posted = post(failed.cookie().as<std::size_t>()); !posted) result = posted;
  }
  void operator()(const dat::disconnected& over) { end(over.ep().context<session>()); }
  void operator()(const dat::connection_broken& over) { end(over.ep().context<session>()); }
  void operator()(const dat::accept_completion_error& over) { end(over.ep().context<session>()); }
  void operator()(const auto&) {}

  dat::expected<void> accept(dat::connection_request& request, session& fresh) {
    DAT_TRY(fresh.ep, pz.create_ep<dat::rc>(evd, srq, {.max_inline = sizeof(kv::message)}));
    DAT_TRYV(fresh.ep.set_context(&fresh));
    return request.accept(fresh.ep);
  }
  dat::expected<void> answer(session& to, const kv::message& m) {
    outbox[0] = m;
    return to.ep.post(dat::send{out}.inlined()); // copied by the post: the outbox is free at once
  }
  dat::expected<void> serve(const kv::message& asked, session& from) {
    const std::string key(asked.key.data(), ::strnlen(asked.key.data(), asked.key.size()));
    from.lent.reset();
    if (asked.what == kv::kind::get) return get(key, from);
    if (asked.what == kv::kind::put && !from.coming) return put(key, asked, from);
    return dat::error(dat::return_type::invalid_parameter).at("kv").hint("A client does not keep to the protocol.");
  }
  dat::expected<void> get(const std::string& key, session& from) {
    const auto found = values.find(key);
    if (found == values.end()) return answer(from, kv::message::of(kv::kind::missing, key));
    from.lent = found->second; // it may be replaced before the client has read it
    DAT_TRY(const auto where, memory.remote(*from.lent));
    const std::string_view text(from.lent->data(), from.lent->size());
    return answer(from, kv::message::of(kv::kind::value, key, text, where.to_wire()));
  }
  dat::expected<void> put(const std::string& key, const kv::message& asked, session& from) {
    value v;
    try {
      v = std::make_shared<value::element_type>(std::min<std::size_t>(asked.size, kv::longest), &memory.resource());
    } catch (const std::bad_alloc&) {
      return answer(from, kv::message::of(kv::kind::refused, key)); // the pool is full
    }
    if (asked.is_short()) {
      std::copy_n(asked.text.begin(), asked.size, v->begin());
      values[key] = v;
      return answer(from, kv::message::of(kv::kind::done, key));
    }
    DAT_TRY(const auto where, kv::place::from_wire(asked.where));
    DAT_TRY(const auto into, memory.segment(*v));
    from.coming = v;
    from.key = key;
    return from.ep.post(dat::rdma_read{into, where});
  }
  void keep_if(const dat::expected<void>& good, session& whose) {
    if (good) return;
    std::cerr << good.error().message() << '\n';
    end(&whose);
  }
  void end(session* whose) {
    if (!whose) return;                            // it has ended before
    if (whose->ep) (void)whose->ep.set_context(0); // an event of the endpoint may be queued
    sessions.remove_if([&](const session& s) { return &s == whose; });
  }
};

dat::expected<void> run(int signals) {
  server all;
  DAT_TRYV(all.open());
  DAT_TRY(auto cno, all.ia.create_cno());
  DAT_TRYV(all.evd.modify_cno(cno));
  DAT_TRY(auto psp, all.ia.create_psp(kv::port, all.evd));
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {cno.fd(), signals}) {
    epoll_event readable{.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &readable);
  }
  std::cout << "listening on " << all.ia.address().host_string() << " port " << psp.port() << std::endl;
  for (epoll_event ready{}; all.result && epoll_wait(loop, &ready, 1, -1) == 1 && ready.data.fd != signals;) {
    DAT_TRYV(cno.wait(dat::timeout::zero())); // takes the trigger, then the events: later ones trigger again
    all.evd.drain(all);
  }
  std::cout << all.values.size() << " values, " << all.sessions.size() << " clients at the end\n";
  return all.result;
}

} // namespace

int main() {
  sigset_t ends{};
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr); // before dat starts its thread
  const auto done = run(signalfd(-1, &ends, SFD_CLOEXEC));
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
