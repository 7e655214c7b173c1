// Each completion status that uDAPL names is provoked: the events on both sides, and the end of the connection.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "status_stage.hpp"

#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <array>
#include <infiniband/verbs.h>
#include <map>
#include <string_view>
#include <vector>

namespace device { namespace status_tests {
namespace {

using op = dat::dto_operation;
using status = dat::dto_status;

constexpr auto both_ways = dat::remote_read | dat::remote_write;

using remote_words = dat::remote_segment<std::uint64_t, word_rights.value>;
using to_write = dat::remote_segment<std::byte, dat::mem_priv::remote_write>;
using to_read = dat::remote_segment<std::byte, dat::mem_priv::remote_read>;

/// Changes the responder's queue pair without the library's knowledge: it refuses all access, or is reset.
void change(stage& t, ibv_qp_attr_mask mask) {
  ibv_qp_attr nothing{}; // without rights, or IBV_QPS_RESET
  if (::ibv_modify_qp(t.responder.native_handle(), &nothing, mask) != 0) fail("ibv_modify_qp", place::here());
}

/// The test binds the window without the library's knowledge, so that a bind finds it in use.
void bind_aside(stage& t) {
  t.rmr = must(t.a.pz.create_rmr_for_ep());
  (void)must(t.rmr.bind(t.initiator, dat::bind{t.near.lmr, 0, 64, both_ways}));
  CHECK(next<dat::bind_done>(t.requests).is_of(t.rmr));
  SHOWS("EP-005", "REQ-147", "EVENT-026");
  must(t.rmr.unbind(t.initiator));
  (void)next<dat::bind_done>(t.requests);
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.wr_id = ~std::uint64_t{0};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = t.rmr.native_handle();
  wr.bind_mw.rkey = t.rmr.native_handle()->rkey ^ 0x80;
  wr.bind_mw.bind_info = {.mr = t.near.lmr.native_handle(),
                          .addr = reinterpret_cast<std::uintptr_t>(t.near.bytes.data()),
                          .length = 64,
                          .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  if (::ibv_post_send(t.initiator.native_handle(), &wr, &bad) != 0) fail("ibv_post_send", place::here());
}

struct outcome {
  op operation;
  status is;                                   ///< the status by the rules
  int verbs;                                   ///< the verbs status on Soft-RoCE
  std::optional<status> on_rxe = std::nullopt; ///< set if rxe deviates from the rules: a row of deviations.toml
};
using nothing = std::optional<outcome>;

struct row {
  const char* name;
  std::vector<const char*> rules; ///< the rules that the outcome shows
  nothing at_initiator;           ///< the end of cookie 7; empty: success, since the sender cannot know
  nothing at_responder;           ///< the end of cookie 8; empty: flushed
  void (*provoke)(stage&);        ///< posts cookie 7
  enum { own, later, shared, none } receives = own; ///< later: `provoke` posts them
};

/// The rules from which rxe deviates.
const std::map<std::string_view, std::vector<const char*>> deviations = {
    {"a message longer than its receive", {"COMP-035", "COMP-053"}},
    {"a receive into memory that is no longer registered", {"DTO-158"}},
    {"a send of memory that is no longer registered", {"COMP-036", "LMR-035"}},
    {"a write of memory that is no longer registered", {"COMP-036", "LMR-035"}},
    {"closing a window that is none", {"COMP-040", "COMP-060", "DTO-104", "REQ-145"}},
};

constexpr int qp_op = IBV_WC_LOC_QP_OP_ERR;
constexpr int access_error = IBV_WC_REM_ACCESS_ERR;
constexpr int invalid = IBV_WC_REM_INV_REQ_ERR;
constexpr outcome write_refused{op::rdma_write, status::remote_access, access_error};
constexpr outcome read_refused{op::rdma_read, status::remote_access, access_error};
constexpr outcome too_long{op::recv, status::local_length, qp_op};
constexpr outcome unanswerable{op::send, status::remote_responder, IBV_WC_REM_OP_ERR};

const row rows[] = {
    {"a message longer than its receive",
     {"DTO-118", "COMP-033", "COMP-062", "COMP-041", "DOCA-011", "IA-131", "DTO-160", "COMP-048"},
     unanswerable,
     too_long,
     [](stage& t) { t.seven(dat::send{t.near.slice(0, 65)}); }},
    {"a message of several packets and immediate data, longer than its receive",
     {"DOCA-015"},
     outcome{op::send_immediate, status::remote_responder, IBV_WC_REM_OP_ERR},
     too_long,
     [](stage& t) { t.seven(dat::send{t.near.lmr}.immediate(1)); }},
    {"a message longer than the buffer of a shared queue",
     {"EPS-059"},
     unanswerable,
     too_long,
     [](stage& t) { t.seven(dat::send{t.near.lmr}); },
     row::shared},
    {"a receive into memory that is no longer registered",
     {},
     unanswerable,
     outcome{op::recv, status::local_protection, qp_op, status::local_length},
     [](stage& t) {
       must(t.far.lmr.close());
       t.seven(dat::send{t.near.slice(0, 8)});
     }},
    {"a send of memory that is no longer registered",
     {},
     outcome{op::send, status::local_protection, qp_op, status::local_ep},
     {},
     [](stage& t) {
       const auto stale = t.near.slice(0, 64);
       must(t.near.lmr.close());
       t.seven(dat::send{stale});
     }},
    {"a write of memory that is no longer registered",
     {},
     outcome{op::rdma_write, status::local_protection, qp_op, status::local_ep},
     {},
     [](stage& t) {
       const auto stale = t.near.slice(0, 64);
       must(t.near.lmr.close());
       t.seven(dat::rdma_write{stale, t.far.remote()});
     }},
    {"a read into memory that is no longer registered",
     {"DTO-160", "COMP-055"},
     outcome{op::rdma_read, status::local_protection, IBV_WC_LOC_PROT_ERR},
     {},
     [](stage& t) {
       const auto stale = t.near.slice(0, 64);
       must(t.near.lmr.close());
       t.seven(dat::rdma_read{stale, t.far.remote()});
     }},
    {"an atomic whose old value has no place any more",
     {},
     outcome{op::fetch_and_add, status::local_protection, IBV_WC_LOC_PROT_ERR},
     {},
     [](stage& t) {
       const auto stale = must(t.olds.slice(0, 1));
       must(t.olds.close());
       t.seven(dat::ib::fetch_and_add{stale, must(t.words_there.remote().slice(0, 1)), 0});
     }},
    {"writing to what may be read",
     {"DTO-151", "DTO-160", "COMP-039", "COMP-061", "LMR-018"},
     write_refused,
     {},
     [](stage& t) { t.write(forged<to_write>(t.readable.remote())); }},
    {"reading what may be written",
     {"DTO-135", "COMP-039", "COMP-048"},
     read_refused,
     {},
     [](stage& t) { t.read(forged<to_read>(t.writable.remote())); }},
    {"reading into a window what may be written",
     {"COMP-039"},
     read_refused,
     {},
     [](stage& t) {
       t.rmr = must(t.a.pz.create_rmr_for_ep());
       (void)must(t.rmr.bind(t.initiator, dat::bind{t.near.lmr, 0, 64, both_ways}));
       (void)next<dat::bind_done>(t.requests);
       const auto into = must(t.rmr.read_target<std::byte>(t.initiator, 0, 64));
       t.seven(dat::rdma_read{into, forged<to_read>(t.writable.remote())});
     }},
    {"reading memory that was registered without rights",
     {"LMR-016", "LMR-018"},
     read_refused,
     {},
     [](stage& t) { t.read(forged<to_read>(t.readable.remote(), 0, t.key_of_unusable(t.readable))); }},
    {"writing to memory that was registered without rights",
     {"LMR-016", "LMR-018"},
     write_refused,
     {},
     [](stage& t) { t.write(forged<to_write>(t.writable.remote(), 0, t.key_of_unusable(t.writable))); }},
    {"writing beyond the end",
     {"LMR-021", "LMR-020", "REQ-149", "DTO-093"},
     write_refused,
     {},
     [](stage& t) { t.write(forged<to_write>(must(t.writable.remote().slice(4032, 64)), 1)); }},
    {"reading from before the beginning",
     {"LMR-021", "LMR-020"},
     read_refused,
     {},
     [](stage& t) { t.read(forged<to_read>(t.readable.remote(), -1)); }},
    {"a key that was never given",
     {"IA-131"},
     write_refused,
     {},
     [](stage& t) { t.write(forged<to_write>(t.writable.remote(), 0, 0x5a00)); }},
    {"a region that has been closed",
     {"LMR-029", "LMR-037"},
     write_refused,
     {},
     [](stage& t) {
       const auto there = t.writable.remote();
       must(t.writable.close());
       t.write(there);
     }},
    {"a region that has been closed, for reading",
     {"LMR-037"},
     read_refused,
     {},
     [](stage& t) {
       const auto there = t.readable.remote();
       must(t.readable.close());
       t.read(there);
     }},
    {"a region of another zone than the responder",
     {"DTO-137", "PZ-002", "EP-003", "MODEL-018", "REQ-148"},
     write_refused,
     {},
     [](stage& t) {
       auto other = must(t.b.ia.create_pz());
       t.writable = must(other.register_memory(t.bytes, dat::local_write | dat::remote_write));
       t.write(t.writable.remote());
     }},
    {"a read of a region of another zone than the responder",
     {"DTO-137"},
     read_refused,
     {},
     [](stage& t) {
       auto other = must(t.b.ia.create_pz());
       t.readable = must(other.register_memory(t.bytes, dat::local_read | dat::remote_read));
       t.read(t.readable.remote());
     }},
    {"an atomic where there is no right to it",
     {"IBX-049"},
     outcome{op::fetch_and_add, status::remote_access, access_error},
     {},
     [](stage& t) {
       t.seven(dat::ib::fetch_and_add{must(t.olds.slice(0, 1)),
                                      must(forged<remote_words>(t.plain.remote()).slice(0, 1)), 1});
     }},
    {"a compare-and-swap where there is no right to it",
     {"IBX-049"},
     outcome{op::compare_and_swap, status::remote_access, access_error},
     {},
     [](stage& t) {
       t.seven(dat::ib::compare_and_swap{must(t.olds.slice(0, 1)),
                                         must(forged<remote_words>(t.plain.remote()).slice(0, 1)), 1, 3});
     }},
    {"writing with immediate data under a wrong key",
     {"IBX-023", "IBX-031"},
     outcome{op::rdma_write_immediate, status::remote_access, access_error},
     outcome{op::recv, status::local_protection, access_error},
     [](stage& t) {
       const auto wrong = forged<to_write>(t.writable.remote(), 0, 0x5a00);
       t.seven(dat::rdma_write{t.near.slice(0, 64), wrong}.immediate(3));
     }},
    {"writing to a window that is for reading",
     {"RMR-040"},
     write_refused,
     {},
     [](stage& t) { t.write(forged<to_write>(t.open(dat::remote_read))); }},
    {"writing to a window that its owner has closed",
     {"RMR-020"},
     write_refused,
     {},
     [](stage& t) {
       const auto w = t.open(both_ways);
       must(t.rmr.unbind(t.responder));
       (void)next<dat::bind_done>(t.theirs);
       t.write(w);
     }},
    {"reading from a window that a message has closed",
     {"RMR-020", "DTO-105"},
     read_refused,
     {},
     [](stage& t) {
       const auto w = t.open(both_ways);
       must(t.responder.post(dat::recv{}));
       must(t.initiator.post(dat::send_with_invalidate{w}));
       (void)next<dat::send_done>(t.requests);
       CHECK(next<dat::recv_done>(t.b.evd).invalidated());
       t.receive();
       t.read(w);
     },
     row::later},
    {"closing a window that is none",
     {},
     {},
     outcome{op::recv, status::local_ep, invalid},
     [](stage& t) { t.seven(dat::send_with_invalidate{t.far.remote()}); }},
    {"closing a window that is none, met by a shared queue",
     {},
     {},
     outcome{op::recv, status::local_ep, invalid},
     [](stage& t) { t.seven(dat::send_with_invalidate{t.far.remote()}); },
     row::shared},
    {"writing to an endpoint that lets nobody write",
     {"COMP-041", "RMR-040"},
     outcome{op::rdma_write, status::remote_responder, invalid},
     {},
     [](stage& t) {
       change(t, IBV_QP_ACCESS_FLAGS);
       t.write(t.writable.remote());
     }},
    {"reading from an endpoint that lets nobody read",
     {"RMR-040"},
     outcome{op::rdma_read, status::remote_responder, invalid},
     {},
     [](stage& t) {
       change(t, IBV_QP_ACCESS_FLAGS);
       t.read(t.readable.remote());
     }},
    {"a send that never meets a receive",
     {"DTO-099", "DTO-160", "COMP-043", "COMP-064", "CONN-068", "SRQ-012"},
     outcome{op::send, status::receiver_not_ready, IBV_WC_RNR_RETRY_EXC_ERR},
     {},
     [](stage& t) { t.seven(dat::send{}); },
     row::none},
    {"a peer that is not there any more",
     {"COMP-042", "COMP-063", "EVENT-099"},
     outcome{op::send, status::transport, IBV_WC_RETRY_EXC_ERR},
     {},
     [](stage& t) {
       change(t, IBV_QP_STATE);
       t.seven(dat::send{});
     },
     row::none},
    {"a bind that the adapter refuses",
     {"DTO-160", "COMP-045", "COMP-057", "RMR-026", "REQ-147", "COMP-048"},
     outcome{op::bind, status::rmr_operation_failed, IBV_WC_MW_BIND_ERR},
     {},
     [](stage& t) {
       bind_aside(t);
       must(t.rmr.bind(t.initiator, dat::bind{t.near.lmr, 0, 64, both_ways}.cookie(7)));
     }},
};

/// Statuses that no available adapter reports, and the tests that show them on the fake verbs library or by the types.
struct {
  status is;
  const char* why;
  const char* shown_by;
} constexpr never[] = {
    {status::bad_response, "Soft-RoCE answers with the opcodes of the protocol only",
     "each ibv_wc_status becomes the DAT status of the table, by kind of operation"},
    {status::partial_packet, "RoCE and InfiniBand truncate nothing: uDAPL 2.0 has it for other transports",
     "whatever a device reports, the status is one that DAT allows for the operation"},
    {status::local_mm_error, "of kernel consumers only",
     "whatever a device reports, the status is one that DAT allows for the operation"},
};

void as_expected(const dat::dto_failure& f, const outcome& o, const endpoint& ep, std::uint64_t cookie) {
  INFO(f.message());
  const bool rxe = in_lab();
  // The adapter of the request finds these failures before it sends anything.
  const bool local_fault = o.operation != op::recv && (o.verbs == qp_op || o.verbs == IBV_WC_MW_BIND_ERR);
  if (rxe && local_fault && !this_device().names_local_faults) {
    CHECK(f.status() == status::flushed);
    CHECK(f.verbs_status() == IBV_WC_WR_FLUSH_ERR);
  } else if (rxe) {
    CHECK(f.status() == o.on_rxe.value_or(o.is));
    CHECK(f.verbs_status() == o.verbs);
    CHECK(f.vendor_code() == 0);
  } else {
    CHECK((f.status() == o.is || f.status() == o.on_rxe));
  }
  CHECK(f.operation() == o.operation);
  CHECK(f.cookie() == dat::cookie(cookie));
  CHECK(f.ep() == ep);
  // As text: the operation, the endpoint, the status, its number in verbs and, if there is one, the adapter's code.
  const auto says = [text = f.message()](std::string_view what) { return text.find(what) != std::string::npos; };
  CHECK(says(std::string(to_string(o.operation)) + " on ep (qp " + std::to_string(ep.number()) + "): "));
  CHECK(says(std::string(to_string(f.status())) + " (verbs status " + std::to_string(f.verbs_status())));
  CHECK(says("vendor code") == (f.vendor_code() != 0));
  CHECK(says(usual_cause(f.status())));
}

/// Takes the events of `n` operations and of the connection's end; returns the operations in order.
template <class End>
std::vector<dat::dto_failure> until_over(queue& evd, std::size_t n, End&& ended) {
  std::vector<dat::dto_failure> failures;
  for (bool over = false; !over || failures.size() < n;) {
    const event e = must(evd.wait(patience));
    if (const auto* f = std::get_if<dat::dto_failure>(&e))
      failures.push_back(*f);
    else if (!over &&
             (std::holds_alternative<dat::connection_broken>(e) || std::holds_alternative<dat::disconnected>(e)))
      over = true, ended(std::holds_alternative<dat::connection_broken>(e));
    else
      FAIL("another event came: " << describe(e));
  }
  CHECK(is_empty(evd));
  return failures;
}

} // namespace

TEST_CASE("each completion status of uDAPL is produced by its fault", "[status][dto][memory]") {
  if (!this_device().completes_at_peer) SKIP(completes_early);
  std::array<bool, dat::dto_status_count> seen{};
  const auto note = [&](status s) { seen[static_cast<std::size_t>(s)] = true; };
  two_sides sides;
  for (const row& r : rows) {
    INFO(r.name);
    stage t(sides, r.receives == row::shared, r.at_initiator && r.at_initiator->is == status::transport);
    if (r.receives == row::own || r.receives == row::shared) t.receive();
    r.provoke(t);
    if (r.at_initiator) {
      // Requests behind a refused one have no effect; when the failure is local, a later request may have overtaken it.
      const auto another = [&] { must(t.initiator.post(dat::send{}.cookie(99).suppress_completion())); };
      const bool own_fault = r.at_initiator->is == status::local_protection;
      if (!own_fault) another();
      const auto first = next<dat::dto_failure>(t.requests);
      as_expected(first, *r.at_initiator, t.initiator, 7);
      note(first.status());
      if (own_fault) another();
      const auto after = next<dat::dto_failure>(t.requests);
      as_expected(after, {op::send, status::flushed, IBV_WC_WR_FLUSH_ERR}, t.initiator, 99);
      note(after.status());
    } else {
      CHECK(next<dat::send_done>(t.requests).cookie() == dat::cookie(7));
      note(status::success);
    }
    // The side with the failed completion finds the connection broken. The other side is notified by that side, or by
    // its own adapter. If its own adapter detects the failure, the other side may be the first to end the connection.
    constexpr std::array here_alone{status::local_protection, status::receiver_not_ready, status::transport};
    const bool seen_there = r.at_initiator && std::ranges::count(here_alone, r.at_initiator->is) == 0;
    CHECK(until_over(t.a.evd, 0, [&](bool broken) {
            if (!seen_there) CHECK(broken == r.at_initiator.has_value());
          }).empty());
    // Receives of a shared queue stay in the queue.
    const std::size_t ended = r.receives == row::none ? 0 : r.receives != row::shared ? 2 : r.at_responder ? 1 : 0;
    const auto there = until_over(t.b.evd, ended, [](bool) {});
    for (std::size_t i = 0; i < there.size(); ++i) {
      const bool first = i == 0 && r.at_responder;
      as_expected(there[i], first ? *r.at_responder : outcome{op::recv, status::flushed, IBV_WC_WR_FLUSH_ERR},
                  t.responder, 8 + i);
      note(there[i].status());
    }
    CHECK(is_empty(t.requests));
    CHECK(is_empty(t.theirs));
    CHECK(t.initiator.state() == state::disconnected);
    CHECK(t.responder.state() == state::disconnected);
    SHOWS("COMP-029", "COMP-030", "COMP-031", "COMP-056", "COMP-068", "DTO-048", "DTO-090", "DTO-161", "EPS-056",
          "EPS-061", "EPS-063", "MODEL-044", "REQ-132", "EPS-057", "DISC-028");
    if (r.at_initiator) SHOWS("CONN-031", "EPS-062");
    // On other devices than rxe, either outcome is possible and shows no rule.
    if (in_lab()) {
      for (const char* rule : r.rules) SHOWS(rule);
      if (const auto deviates = deviations.find(r.name); deviates != deviations.end())
        for (const char* rule : deviates->second) DEVIATES(rule);
    }
    // The memory and the counters are unchanged, and both endpoints can connect again.
    CHECK(has_pattern(t.bytes, 4));
    CHECK(t.counters == std::array<std::uint64_t, 2>{1, 2});
    CHECK(std::all_of(t.far.bytes.begin() + 64, t.far.bytes.end(), [](std::byte b) { return b == std::byte{}; }));
    t.rmr = {}; // destroyed before its queue pair, because the window that the test bound is still bound
    must(t.initiator.reset());
    must(t.responder.reset());
    sides.connect(t.initiator, t.responder);
    must(t.srq ? t.srq.post(dat::recv{}) : dat::ep_ref(t.responder).post(dat::recv{}));
    must(t.initiator.post(dat::send{}.cookie(1)));
    CHECK(next<dat::send_done>(t.requests).cookie() == dat::cookie(1));
    CHECK(next<dat::recv_done>(t.b.evd).bytes() == 0);
    SHOWS("DOCA-030", "HA-005");
    // A refused access does not change the rights of the sides to their own regions. A shared queue still has buffers
    // that other messages would take.
    if (!t.srq && t.near.lmr && t.far.lmr) {
      must(t.responder.post(dat::recv{t.far.slice(0, 8)}));
      fill(std::span(t.near.bytes).first(8), 5);
      must(t.initiator.post(dat::send{t.near.slice(0, 8)}));
      (void)next<dat::send_done>(t.requests);
      CHECK(next<dat::recv_done>(t.b.evd).bytes() == 8);
      CHECK(has_pattern(std::span(t.far.bytes).first(8), 5));
      const bool invalidated = std::string_view(r.name).starts_with("closing a window");
      if (invalidated) SHOWS("DTO-116");
    }
    sides.disconnect(t.initiator, t.responder);
  }
  for (const auto& n : never) note(n.is);
  if (in_lab() && this_device().names_local_faults) {
    CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
    SHOWS("DTO-157");
  }
}

}} // namespace device::status_tests
