// A key-value server for many clients: a shared receive queue, a registered pool for the values, contexts, and an event
// loop over one descriptor. Ctrl-C ends it. A client that dies or misbehaves costs its own session, and nothing else.
// SPDX-License-Identifier: BSL-1.0
#include "kv.hpp"
#include <dat/pool.hpp>
#include <dat/srq.hpp>
#include <map>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <vector>

constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read;
constexpr std::size_t buffers = 128; // a client has one request at a time
using stored = std::shared_ptr<std::pmr::vector<char>>;

struct session {
  stored lent{};                        // the client may still read it, until its next request
  stored coming{};                      // the value that this side still reads from the client ...
  std::string key{};                    // ... and will store it so
  dat::ep<dat::with_srq<dat::rc>> ep{}; // ends first: then nothing uses the values
};

struct server : peer<> {
  std::array<kv::message, buffers> inbox{};
  std::array<kv::message, 1> outbox{};
  dat::lmr<kv::message, dat::local_write> in{};
  dat::lmr<kv::message, dat::local_read> out{};
  dat::memory_pool<rights> memory{};
  std::map<std::string, stored> values{};
  dat::srq srq{};
  session_list<session> clients{};
  dat::expected<void> result = dat::success();

  dat::expected<void> open() {
    DAT_TRYV(peer::open());
    DAT_TRY(in, pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, pz.register_memory(outbox, dat::local_read));
    DAT_TRY(memory, dat::memory_pool<rights>::create(pz, 64 << 20));
    DAT_TRY(srq, pz.create_srq({.max_recv_dtos = buffers}));
    for (std::size_t i = 0; i < buffers; ++i) post(i);
    return result;
  }
  void post(std::size_t buffer) { // an error of the shared queue ends the server
    if (result) result = srq.post(dat::recv{in.slice(buffer, 1).value()}.cookie(buffer));
  }

  // The visitor: one function for each kind of event.
  void operator()(dat::connection_request& request) {
    session& fresh = clients.emplace_back();
    clients.end_unless(accept(request, fresh), fresh);
  }
  void operator()(const dat::recv_done& got) {
    const auto buffer = got.cookie().as<std::size_t>();
    if (session* const from = clients.of(got)) clients.end_unless(serve(inbox[buffer], *from), *from);
    post(buffer);
  }
  void operator()(const dat::rdma_read_done& got) { // a long value has arrived
    session* const from = clients.of(got);
    if (!from) return;
    values[from->key] = std::move(from->coming);
    clients.end_unless(answer(*from, kv::message::of(kv::kind::done)), *from);
  }
  void operator()(const dat::dto_failure& failed) { // a buffer that a broken connection had taken
    if (failed.operation() == dat::dto_operation::recv) post(failed.cookie().as<std::size_t>());
  }
  void operator()(const dat::disconnected& over) { clients.end(clients.of(over)); }
  void operator()(const dat::connection_broken& over) { clients.end(clients.of(over)); }
  void operator()(const dat::accept_completion_error& over) { clients.end(clients.of(over)); }
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
  dat::expected<void> serve(kv::message& asked, session& from) {
    from.lent.reset();
    asked.key.back() = '\0'; // whatever the client has sent
    if (asked.what == kv::kind::get) return get(asked.key.data(), from);
    if (asked.what == kv::kind::put && !from.coming) return put(asked, from);
    return dat::error(dat::return_type::invalid_parameter).at("kv").hint("A client does not keep to the protocol.");
  }
  dat::expected<void> get(const std::string& key, session& from) {
    const auto found = values.find(key);
    if (found == values.end()) return answer(from, kv::message::of(kv::kind::missing, key));
    from.lent = found->second; // the value may be replaced before the client has read it
    DAT_TRY(const auto where, memory.remote(*from.lent));
    const std::string_view text(from.lent->data(), from.lent->size());
    return answer(from, kv::message::of(kv::kind::value, key, text, where.to_wire()));
  }
  dat::expected<void> put(const kv::message& asked, session& from) {
    try {
      from.key = asked.key.data();
      from.coming =
          std::make_shared<stored::element_type>(std::min<std::size_t>(asked.size, kv::longest), &memory.resource());
    } catch (const std::bad_alloc&) {
      return answer(from, kv::message::of(kv::kind::refused)); // the pool is full
    }
    if (asked.is_short()) {
      std::copy_n(asked.text.begin(), asked.size, from.coming->begin());
      values[from.key] = std::move(from.coming);
      return answer(from, kv::message::of(kv::kind::done));
    }
    DAT_TRY(const auto where, kv::place::from_wire(asked.where));
    DAT_TRY(const auto into, memory.segment(*from.coming));
    return from.ep.post(dat::rdma_read{into, where});
  }
};

dat::expected<void> run() {
  const int signals = descriptor_of_signals();
  server all;
  DAT_TRYV(all.open());
  DAT_TRY(auto cno, all.ia.create_cno());
  DAT_TRYV(all.evd.modify_cno(cno)); // events of this evd make cno.fd() readable
  const int loop = epoll_of({cno.fd(), signals});
  DAT_TRY(const auto psp, all.listen(kv::port));
  for (epoll_event ready{}; all.result && epoll_wait(loop, &ready, 1, -1) == 1 && ready.data.fd != signals;) {
    DAT_TRYV(cno.wait(dat::timeout::zero())); // takes the trigger, then the events: later ones trigger again
    all.evd.drain(all);
  }
  std::cout << all.values.size() << " values, " << all.clients.size() << " clients at the end\n";
  return all.result;
}

int main() { return report(run()); }
