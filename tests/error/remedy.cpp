// The most common failures, and mistakes of new users (docs/mistakes.md), are provoked: the message has a remedy.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/describe.hpp>
#include <dat/registry.hpp>

#include <functional>
#include <string_view>
#include <sys/resource.h>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
using fake::call;

namespace {

template <class T>
dat::error why(dat::expected<T>&& r) {
  return r ? dat::error(return_type::success).at("succeeded") : r.assume_error();
}

/// A failure: a flow of a user in which this system call returns that errno.
struct trouble {
  const char* name;
  call fails;
  int errnum;
  std::function<dat::error()> act;
  return_type type;
  std::vector<std::string> says;
};

dat::error opening() { return why(dat::ia::open("fk1", manual)); }

dat::error listening() {
  end a("fk1");
  return why(a.ia.create_psp(7471, a.evd));
}

dat::error making_an_endpoint() {
  end a("fk1");
  return why(a.pz.create_ep<dat::rc>(a.evd));
}

/// The call that connect makes.
dat::error connecting() {
  end a("fk1");
  a.ep = must(a.pz.create_ep<dat::rc>(a.evd));
  return why(a.ep.connect(a.ia.address(), 7471, plenty));
}

} // namespace

TEST_CASE("the most common failures have a remedy", "[error]"
                                                    "[REG-064]") {
  // The failure is injected at the first use of the call after the set-up.
  const std::vector<trouble> all{
      {"too little lockable memory",
       call::ibv_reg_mr,
       ENOMEM,
       [] {
         end a("fk1");
         fail_registration(ENOMEM);
         return why(a.pz.register_memory(a.memory, all_rights));
       },
       return_type::insufficient_resources,
       {"pz.register_memory", "ibv_reg_mr gave ENOMEM", "RLIMIT_MEMLOCK of this process is"}},
      {"memory that is not mapped",
       call::ibv_reg_mr,
       EFAULT,
       [] {
         end a("fk1");
         fail_registration(EFAULT);
         return why(a.pz.register_memory(a.memory, all_rights));
       },
       return_type::invalid_parameter,
       {"must be mapped"}},
      {"no RDMA in the kernel",
       call::rdma_create_event_channel,
       ENODEV,
       opening,
       return_type::provider_not_found,
       {"rdma_create_event_channel", "modprobe rdma_ucm"}},
      {"no device file of rdma_cm",
       call::rdma_create_event_channel,
       ENOENT,
       opening,
       return_type::provider_not_found,
       {"/dev/infiniband/rdma_cm is missing", "modprobe rdma_ucm"}},
      {"no right to rdma_cm",
       call::rdma_create_event_channel,
       EACCES,
       opening,
       return_type::privileges_violation,
       {"/dev/infiniband/rdma_cm", "owner and mode"}},
      {"no right to the device",
       call::ibv_open_device,
       EACCES,
       opening,
       return_type::privileges_violation,
       {"ia.open", "ibv_open_device gave EACCES", "/dev/infiniband/uverbs"}},
      {"no device file",
       call::ibv_open_device,
       ENOENT,
       opening,
       return_type::internal_error,
       {"/dev/infiniband/uverbs* is missing", "modprobe ib_uverbs"}},
      {"no verbs in the kernel",
       call::ibv_get_device_list,
       ENOSYS,
       opening,
       return_type::model_not_supported,
       {"modprobe ib_uverbs"}},
      {"too many open files",
       call::ibv_open_device,
       EMFILE,
       opening,
       return_type::insufficient_resources,
       {"ulimit -n"}},
      {"a device that was removed",
       call::ibv_query_device,
       ENODEV,
       opening,
       return_type::internal_error,
       {"ibv_query_device", "was removed", "rdma link"}},
      {"a hardware fault",
       call::ibv_query_device,
       EIO,
       opening,
       return_type::internal_error,
       {"hardware fault", "kernel log"}},
      {"a port in use",
       call::rdma_listen,
       EADDRINUSE,
       listening,
       return_type::conn_qual_in_use,
       {"ia.create_psp on psp 7471", "choose another one"}},
      {"a queue pair too many",
       call::ibv_create_qp,
       ENOMEM,
       making_an_endpoint,
       return_type::insufficient_resources,
       {"pz.create_ep", "no room for another endpoint"}},
      {"queues that the device refuses",
       call::ibv_create_qp,
       EINVAL,
       making_an_endpoint,
       return_type::invalid_parameter,
       {"fewer or smaller queues", "ia.query()"}},
      {"a completion queue too many",
       call::ibv_create_cq,
       ENOMEM,
       [] { return why(must(dat::ia::open("fk1", manual)).create_evd<dat::stream::dto>(8)); },
       return_type::insufficient_resources,
       {"ia.create_evd", "no room for another completion queue"}},
      {"no route",
       call::rdma_resolve_addr,
       ENETUNREACH,
       connecting,
       return_type::invalid_address,
       {"ep.connect", "ip route get"}},
      {"a route over an interface without RDMA",
       call::rdma_resolve_addr,
       ENODEV,
       connecting,
       return_type::invalid_address,
       {"interface without RDMA device", "rdma link"}},
  };
  for (const trouble& t : all) {
    INFO(t.name);
    fake::reset();
    // Flows that need a prepared world inject the failure themselves.
    if (t.fails != call::ibv_reg_mr) fake::fail(t.fails, 1, t.errnum);
    const dat::error e = t.act();
    CHECK(to_string(e.type()) == to_string(t.type));
    CHECK(e.sys_errno() == t.errnum);
    CHECK(e.verb() == fake::name(t.fails));
    for (const std::string& word : t.says) CHECK_THAT(e.message(), support::contains_text(word));
    CHECK(fake::leaks() == "");
  }
}

TEST_CASE("failures that need a prepared world have a remedy", "[error][REG-064]") {
  const auto says = [](const dat::error& e, std::initializer_list<const char*> words) {
    for (const char* word : words) CHECK_THAT(e.message(), support::contains_text(word));
  };
  SECTION("the limit of locked memory is too low") {
    fake::reset();
    ::rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    const ::rlimit small{48 * 1024, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &small) == 0);
    end a("fk1");
    fail_registration(ENOMEM);
    const auto e = why(a.pz.register_memory(a.memory, all_rights));
    const std::string text = e.message();
    CHECK(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK_THAT(text, support::contains_text("RLIMIT_MEMLOCK of this process is 48 KiB"));
    CHECK_THAT(text, support::contains_text("ulimit -l unlimited"));
  }
  SECTION("a port has no address, and so no usable GID") {
    fake::reset({.devices = {{"fk1", {{{}}}}}});
    says(opening(), {"No RDMA device of that name and port has an IP address", "rdma link", "ip address"});
    says(why(dat::ia::open(manual)), {"No RDMA device of this host has an IP address", "modprobe rdma_rxe"});
  }
  SECTION("the host has no device") {
    fake::reset({.devices = {}});
    says(why(dat::ia::open(manual)), {"modprobe rdma_rxe", "rdma link add"});
  }
  SECTION("a firewall drops packets, or the peer's program does not answer") {
    fake::reset();
    end a("fk1", automatic);
    end b("fk2");
    const auto psp = must(b.ia.create_psp(7471, b.evd));
    a.make_ep();
    must(a.ep.connect(b.ia.address(), 7471, 1s)); // time to send the request
    says(why(a.evd.wait_for<dat::established>(a.ep, plenty)), {"did not answer", "firewall drops UDP port 4791"});
  }
  SECTION("the host is down, or no host has the address") {
    fake::reset();
    end a("fk1");
    end b("fk2");
    const auto psp = must(b.ia.create_psp(7471, b.evd));
    a.make_ep();
    must(a.ep.connect(b.ia.address(), 7471, plenty));
    settle(a, b); // the request has been sent
    fake::deliver({.event = RDMA_CM_EVENT_UNREACHABLE, .status = -ETIMEDOUT, .qp_num = a.ep.number()});
    says(why(a.evd.wait_for<dat::established>(a.ep, plenty)), {"the host is up", "UDP port 4791"});
  }
  SECTION("the port is down") {
    fake::reset();
    end a("fk1");
    a.make_ep();
    fake::fail(call::rdma_resolve_addr, 1, ENETUNREACH); // the kernel's event when an interface goes down
    says(why(a.ep.connect(must(dat::ia_address::parse("10.99.2.1")), 7471, plenty)), {"interface is up", "ip link"});
    fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
    CHECK(must(a.ia.query()).state == dat::port_state::down);
  }
  SECTION("the peer is gone, the wire is cut, or the peer has a smaller MTU") {
    fake::reset();
    pair p;
    fake::hold(p.a.ep.native_handle());
    must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
    CHECK(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
    says(why(p.a.evd.wait_for<dat::send_done>(plenty)),
         {"link is down", "UDP port 4791", "smaller MTU", "ip link", "no receive within ack_timeout"});
  }
}

TEST_CASE("failures that dat itself finds have a remedy", "[error]") {
  fake::reset();
  end a("fk1");
  const auto says = [](const dat::error& e, return_type type, std::initializer_list<const char*> words) {
    CHECK(to_string(e.type()) == to_string(type));
    for (const char* word : words) CHECK_THAT(e.message(), support::contains_text(word));
  };
  says(why(dat::ia::open("no-such", manual)), return_type::provider_not_found,
       {"ia.open", "No RDMA device of that name", "rdma link"});
  says(why(dat::ia::open(must(dat::ia_address::parse("192.0.2.1")), manual)), return_type::invalid_address,
       {"must be one of this host", "rdma link"});
  says(why(dat::ia_address::parse("10.0.0")), return_type::invalid_address, {"10.0.0.1:7471"});
  says(why(dat::resolve("no-such-host.invalid")), return_type::invalid_address, {"check the spelling"});
  const auto first = must(a.ia.create_psp(7471, a.evd));
  says(why(a.ia.create_psp(7471, a.evd)), return_type::conn_qual_in_use, {"ia.create_psp on psp 7471", "another"});
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd, {.max_recv_dtos = 1}));
  auto second = must(a.pz.create_ep<dat::rc>(a.evd));
  says(why(ep.post(dat::send{a.mem})), return_type::invalid_state, {"ep.post", "established"});
  must(ep.post(dat::recv{a.mem}));
  says(why(ep.post(dat::recv{a.mem})), return_type::insufficient_resources, {"ep.post", "ompletions"});
  auto other = must(a.ia.create_pz());
  std::array<char, 16> foreign{};
  auto theirs = must(other.register_memory(foreign, all_rights));
  says(why(second.post(dat::recv{theirs})), return_type::protection_violation, {"protection zone"});
  says(why(a.ia.create_evd<dat::stream::dto>(1u << 30)), return_type::invalid_parameter, {"ia.create_evd"});
  says(why(a.pz.close()), return_type::invalid_state, {"pz.close", "Free the endpoints"});
  says(why(a.ia.close(dat::close_mode::graceful)), return_type::invalid_state, {"ia.close", "abruptly"});

  // No service point listens; and the text of a failed operation.
  must(ep.connect(a.ia.address(), 7999, plenty));
  says(why(a.evd.wait_for<dat::established>(ep, plenty)), return_type::invalid_state, {"no program listens"});
  CHECK(usual_cause(dat::dto_status::receiver_not_ready).find("receive") != std::string_view::npos);
  CHECK_FALSE(usual_cause(dat::dto_status::remote_access).empty());
}

// --- mistakes of new users -------------------------------------------------------------------------------------------

namespace {

/// Checks that a call has failed, and that its message has each of these texts.
template <class T, class... Text>
void refused_with(const dat::expected<T>& r, const Text&... texts) {
  REQUIRE_FALSE(r);
  const std::string message = r.error().message();
  for (const std::string_view text : {std::string_view(texts)...})
    CHECK_THAT(message, support::contains_text(std::string(text)));
}

/// The message of the next event.
std::string next_message(end& of) {
  settle(of, of);
  auto e = must(of.evd.dequeue());
  return dat::describe(e);
}

} // namespace

TEST_CASE("a full request queue names the completions to take, also where all are suppressed", "[error][mistakes]") {
  const clean_world world;
  pair p({.max_request_dtos = 4});
  fake::hold(p.a.ep.native_handle());
  const bool suppressed = GENERATE(false, true);
  for (int i = 0; i < 4; ++i)
    must(suppressed ? p.a.ep.post(dat::send{p.a.at(0, 8)}.suppress_completion())
                    : p.a.ep.post(dat::send{p.a.at(0, 8)}));
  refused_with(p.a.ep.post(dat::send{p.a.at(0, 8)}), "ep.post", "The request queue is full", "take completions",
               "max_request_dtos", "post one without suppress_completion before the queue is full");
}

TEST_CASE("a full receive queue names the completions to take", "[error][mistakes]") {
  const clean_world world;
  pair p({.max_recv_dtos = 2});
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}, dat::recv{p.a.at(0, 8)}));
  refused_with(p.a.ep.post(dat::recv{p.a.at(0, 8)}), "The receive queue is full", "max_recv_dtos");
}

TEST_CASE("a post of memory that a moved-from lmr names is refused", "[error][mistakes]") {
  const clean_world world;
  pair p;
  const auto moved = std::move(p.a.mem);
  const auto there = p.b.mem.remote();
  refused_with(p.a.ep.post(dat::send{p.a.mem}), "A segment is of an lmr that is empty or closed"); // NOLINT
  refused_with(p.a.ep.post(dat::rdma_write{p.a.mem, there}),
               "A segment is of an lmr that is empty or closed"); // NOLINT
  CHECK(p.b.take().empty());
}

TEST_CASE("a write past the end of the remote segment is refused by the post", "[error][mistakes]") {
  const clean_world world;
  pair p;
  refused_with(p.a.ep.post(dat::rdma_write{p.a.at(0, 9), must(p.b.mem.remote().slice(0, 8))}),
               "more local bytes than the remote segment has");
}

TEST_CASE("a segment of another zone names the zone", "[error][mistakes]") {
  const clean_world world;
  pair p;
  auto other = must(p.a.ia.create_pz());
  auto memory = must(other.register_memory(p.a.memory, all_rights));
  refused_with(p.a.ep.post(dat::send{memory}), "Every segment must be of an lmr of the endpoint's own pz");
}

TEST_CASE("calls in the wrong state of a connection say which call comes first", "[error][mistakes]") {
  const clean_world world;
  pair p;
  auto fresh = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  refused_with(fresh.post(dat::send{p.a.at(0, 8)}), "Connect the endpoint, and wait for the established event, first.");
  refused_with(p.a.ep.connect(p.b.ia.address(), service, plenty), "Disconnect the endpoint first.");
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  refused_with(p.a.ep.connect(p.b.ia.address(), service, plenty), "Reset the endpoint, then connect it again.");
}

TEST_CASE("a connect to a loopback address is refused at once, with the address to use", "[error][mistakes]") {
  const clean_world world;
  end a;
  a.make_ep();
  refused_with(a.ep.connect(must(dat::ia_address::parse("127.0.0.1")), service, plenty),
               "RDMA adapters have no loopback address", "ia.address()");
}

TEST_CASE("private data that is too long names the limit", "[error][mistakes]") {
  const clean_world world;
  end a;
  a.make_ep();
  const std::array<std::byte, 64> data{};
  refused_with(a.ep.connect(a.ia.address(), service, plenty, data), "Private data has at most 56 bytes.");
}

TEST_CASE("a qualifier that is taken names the program that shows its user", "[error][mistakes]") {
  const clean_world world;
  end b;
  auto psp = must(b.ia.create_psp(service, b.evd));
  refused_with(b.ia.create_psp(service, b.evd), "create_psp", "RDMA ports are not those of TCP");
}

TEST_CASE("an empty handle says how it became empty", "[error][mistakes]") {
  const clean_world world;
  end a;
  a.make_ep();
  const auto moved_ep = std::move(a.ep);
  const auto moved_pz = std::move(a.pz);
  const auto moved_evd = std::move(a.evd);
  refused_with(a.ep.post(dat::recv{}), "The handle is empty", "moved from");                     // NOLINT
  refused_with(a.pz.register_memory(a.memory, all_rights), "The handle is empty", "moved from"); // NOLINT
  refused_with(a.evd.dequeue(), "The handle is empty", "moved from");                            // NOLINT
}

TEST_CASE("objects closed in the wrong order say what to free first", "[error][mistakes]") {
  const clean_world world;
  end a;
  a.make_ep();
  refused_with(a.evd.close(), "Free the endpoints and service points that feed it first.");
  refused_with(a.pz.close(), "Free the endpoints, memory regions and shared receive queues of the zone first.");
  refused_with(a.ia.close(dat::close_mode::graceful), "Close what was made from the ia first");
}

TEST_CASE("the peer of an accepted endpoint that goes out of scope hears what may have happened", "[error][mistakes]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  {
    b.make_ep();
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    b.ep = {};
  }
  settle(a, b);
  CHECK(must(a.evd.dequeue()).index() < std::variant_npos); // established
  CHECK_THAT(next_message(a), support::contains_text("disconnected") && support::contains_text("closed its endpoint"));
}

TEST_CASE("memory that cannot be registered is refused, with the cause", "[error][mistakes]") {
  const clean_world world;
  end a("fk1");
  const auto empty = a.pz.register_memory(std::span<char>(), all_rights);
  refused_with(empty, "pz.register_memory", "empty range");
  CHECK(empty.error().message().find("argument 3") == std::string::npos); // its position in uDAPL's function in C
  fail_registration(EFAULT);
  refused_with(a.pz.register_memory(a.memory, all_rights), "pz.register_memory", "must be mapped");
}

TEST_CASE("an operation that is posted after the end of its connection is flushed, and its text says so",
          "[error][mistakes]") {
  const clean_world world;
  pair p;
  must(p.b.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  CHECK_THAT(next_message(p.a), support::contains_text("disconnected"));
  CHECK_THAT(next_message(p.a),
             support::contains_text("flushed") && support::contains_text("disconnected before this operation began"));
}

TEST_CASE("the peer of an endpoint that ends with operations under way is disconnected, with this cause",
          "[error][mistakes]") {
  const clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.a.ep = {};
  p.settle();
  CHECK_THAT(next_message(p.b),
             support::contains_text("disconnected") && support::contains_text("closed its endpoint"));
}

TEST_CASE("a wait that ends without an event names operations that ended with their endpoint", "[error][mistakes]") {
  const clean_world world;
  pair p;
  const bool taken = GENERATE(true, false);
  must(p.b.ep.post(dat::recv{p.b.mem}));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.settle();
  if (taken) must(p.a.evd.wait_for<dat::send_done>(p.a.ep, plenty));
  p.a.ep = {};
  const auto none = p.a.evd.wait_for<dat::send_done>(0s);
  REQUIRE_FALSE(none);
  CHECK(none.error().type() == return_type::timeout_expired);
  CHECK((none.error().message().find("while operations of it were outstanding") == std::string::npos) == taken);
}

TEST_CASE("a message that found no receive says so, on hardware and on Soft-RoCE", "[error][mistakes]") {
  const clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  const auto [status, text] = GENERATE(table<ibv_wc_status, const char*>(
      {{IBV_WC_RNR_RETRY_EXC_ERR, "The peer had no receive posted"},
       {IBV_WC_RETRY_EXC_ERR, "when the peer posts no receive within ack_timeout times retry_count"}}));
  REQUIRE(fake::complete(p.a.ep.native_handle(), {}, status));
  CHECK_THAT(next_message(p.a), support::contains_text(text));
}

TEST_CASE("a failed access to the peer's memory and a receive that is too small say which side is wrong",
          "[error][mistakes]") {
  const clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}));
  const auto [status, text] = GENERATE(
      table<ibv_wc_status, const char*>({{IBV_WC_REM_ACCESS_ERR, "its registration is gone, or it lacks the right"},
                                         {IBV_WC_REM_OP_ERR, "a message too long for its receive buffer"},
                                         {IBV_WC_LOC_LEN_ERR, "longer than the receive buffer it met"},
                                         {IBV_WC_LOC_PROT_ERR, "its lmr was freed, or it lacks the right"}}));
  REQUIRE(fake::complete(p.a.ep.native_handle(), {}, status));
  CHECK_THAT(next_message(p.a), support::contains_text(text));
}
