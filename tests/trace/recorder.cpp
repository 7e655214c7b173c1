// The recorder: from records to the events of a trace file.
// SPDX-License-Identifier: BSL-1.0
#include "records.hpp"

#include <dat/srq.hpp>
#include <dat/trace_recorder.hpp>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace trace_tests;
using nlohmann::json;

namespace {

/// The events of a trace whose member has a value.
std::vector<json> events_with(const json& trace, const char* member, const json& value) {
  std::vector<json> found;
  for (const json& e : trace["traceEvents"])
    if (e.contains(member) && e[member] == value) found.push_back(e);
  return found;
}
json named(const json& trace, const std::string& name, const char* phase) {
  for (const json& e : events_with(trace, "name", name))
    if (e["ph"] == phase) return e;
  FAIL("no event " << name << " " << phase << " in " << trace.dump(1));
  return {};
}

} // namespace

TEST_CASE("a recorded connection is a trace with rows, states, events and operations", "[trace][recorder]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  dat::trace::recorder recorder;
  a.make_ep();
  b.make_ep();
  const std::string ep_a = "ep " + std::to_string(a.ep.number());
  const std::string ep_b = "ep " + std::to_string(b.ep.number());
  must(b.ep.post(dat::recv{b.at(0, 32)}.cookie(1)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(a.ep.post(dat::rdma_write{a.at(0, 8), b.mem.remote()}.cookie(2).suppress_completion()));
  must(a.ep.post(dat::send{a.at(0, 16)}.cookie(3)));
  must(a.ep.post(dat::rdma_read{a.at(0, 4), b.mem.remote()}.cookie(4))); // its completion is not taken
  CHECK(a.evd.drain([](const auto&) {}, 2) == 2);                        // takes `established` and the send
  (void)b.take();
  const json trace = json::parse(recorder.to_json());
  CHECK(recorder.size() > 10);
  CHECK(recorder.dropped() == 0);
  CHECK(trace["otherData"]["dropped"] == 0);

  double last = 0;
  for (const json& e : trace["traceEvents"]) {
    CHECK(e["pid"] == ::getpid());
    CHECK(e["ts"].get<double>() >= 0);
    last = std::max(last, e["ts"].get<double>());
  }
  CHECK(events_with(trace, "name", "process_name").size() == 1);
  json row_a;
  for (const json& e : events_with(trace, "name", "thread_name"))
    if (e["args"]["name"] == ep_a) row_a = e["tid"];
  REQUIRE_FALSE(row_a.is_null());

  const json up = named(trace, "established", "i");
  CHECK((up["tid"] == row_a || events_with(trace, "name", "established").size() == 2));
  const json pending = named(trace, "active connection pending", "X");
  CHECK(pending["tid"] == row_a);
  const json connected = named(trace, "connected", "X");
  CHECK(connected["ts"].get<double>() >= pending["ts"].get<double>() + pending["dur"].get<double>() - 0.002);
  CHECK(connected["dur"].get<double>() >= 0);

  const json begin = named(trace, ep_a + " send", "b");
  const json end = named(trace, ep_a + " send", "e");
  CHECK(begin["id"] == end["id"]);
  CHECK(begin["tid"] == row_a);
  CHECK(begin["ts"].get<double>() <= end["ts"].get<double>());
  CHECK(begin["args"]["bytes"] == 16);
  CHECK(begin["args"]["cookie"] == 3);
  CHECK(end["args"]["status"] == 0);
  CHECK(end["args"]["suppressed"] == 0);
  // The suppressed write ends with the send behind it.
  const json write = named(trace, ep_a + " rdma_write", "e");
  CHECK(write["ts"] == end["ts"]);
  CHECK(write["args"]["suppressed"] == 1);
  CHECK(write["id"] != end["id"]);
  CHECK(named(trace, ep_b + " recv", "e")["args"]["status"] == 0);
  CHECK(named(trace, "request on port 7471", "i")["args"]["errno"] == 0);
}

TEST_CASE("an operation that was refused is not in the trace, and one that has not completed has no end",
          "[trace][recorder]") {
  const clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  dat::trace::recorder recorder;
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1)));
  fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
  CHECK_FALSE(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(2)));
  const json trace = json::parse(recorder.to_json());
  const std::string ep = "ep " + std::to_string(p.a.ep.number());
  CHECK(events_with(trace, "name", ep + " send").size() == 1);
  CHECK(named(trace, ep + " send", "b")["args"]["cookie"] == 1);
  CHECK(events_with(trace, "name", ep + " rdma_write").empty());
}

TEST_CASE("a completion of an operation from before the trace is an event by itself", "[trace][recorder]") {
  const clean_world world;
  pair p;
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(9)));
  dat::trace::recorder recorder;
  p.a.take();
  const json trace = json::parse(recorder.to_json());
  CHECK(named(trace, "rdma_write", "i")["args"]["cookie"] == 9);
}

TEST_CASE("a buffer of a shared queue is an operation of that queue", "[trace][recorder][srq]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 8, .max_recv_iov = 1}));
  auto ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  b.take();
  dat::trace::recorder recorder;
  must(srq.post(dat::recv{b.at(0, 16)}.cookie(1)));
  must(srq.post(dat::recv{b.at(16, 16)}.cookie(2)));
  must(a.ep.post(dat::send{a.at(0, 3)}));
  CHECK(b.take().size() == 1);
  const json trace = json::parse(recorder.to_json());
  std::size_t begun = 0;
  std::size_t ended = 0;
  for (const json& e : trace["traceEvents"])
    if (const auto name = e["name"].get<std::string>(); name.starts_with("srq ") && name.ends_with(" recv"))
      (e["ph"] == "b" ? begun : ended) += 1;
  CHECK(begun == 2);
  CHECK(ended == 1);
}

TEST_CASE("each kind of receive is an operation that ends with what arrives", "[trace][recorder]") {
  const clean_world world;
  pair p;
  dat::trace::recorder recorder;
  for (unsigned i = 1; i <= 3; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.immediate(1)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(2)));
  CHECK(p.b.take().size() == 3);
  const json trace = json::parse(recorder.to_json());
  const std::string name = "ep " + std::to_string(p.b.ep.number()) + " recv";
  std::vector<json> ends;
  for (const json& e : events_with(trace, "name", name))
    if (e["ph"] == "e") ends.push_back(e);
  CHECK(ends.size() == 3);
  for (const char* unknown : {"recv", "recv_immediate", "recv_rdma_immediate"})
    CHECK(events_with(trace, "name", unknown).empty());
}

TEST_CASE("the name of the process has no characters that JSON would escape", "[trace][recorder]") {
  const clean_world world;
  const auto rename = [](const std::string& to) { std::ofstream("/proc/self/comm") << to; };
  std::string before;
  std::getline(std::ifstream("/proc/self/comm"), before);
  rename("a !~\x7f\"\\\t\x1f"
         "b#");
  const json trace = json::parse(dat::trace::recorder().to_json());
  rename(before);
  const auto named = events_with(trace, "name", "process_name");
  REQUIRE(named.size() == 1);
  CHECK(named[0]["args"]["name"] == "a !~_____b#");
}

TEST_CASE("a wait is a slice of its thread", "[trace][recorder]") {
  const clean_world world;
  end e("fk1", automatic);
  auto evd = must(e.ia.create_evd<dat::stream::software>(8));
  dat::trace::recorder recorder;
  // Each of the two threads waits for the other one, so one of them sleeps at some time; repeated until one did.
  for (bool slept = false; !slept;) {
    std::jthread waits([&] { (void)evd.wait_for<dat::software_event>(plenty); });
    must(evd.post(dat::cookie(1)));
    waits.join();
    slept = recorder.size() > 1;
  }
  const json trace = json::parse(recorder.to_json());
  bool found = false;
  for (const json& s : events_with(trace, "ph", "X")) {
    found = true;
    CHECK(s["name"].get<std::string>().starts_with("wait on evd "));
    CHECK(s["dur"].get<double>() >= 0);
    CHECK(s["tid"] != ::getpid());
  }
  CHECK(found);
}

TEST_CASE("a trace has exactly the events of its records, in the order of their times", "[trace][recorder]") {
  using dat::dto_operation;
  using dat::trace::point;
  dat::trace::recorder recorder;
  const auto give = [&](std::uint64_t time, point what, std::uint32_t number, dat::trace::record r = {}) {
    r.what = what;
    r.number = number;
    r.time = 5'000'000'900 + time;
    recorder.take(r);
  };
  const auto operation = [](dto_operation o, std::uint64_t cookie, std::uint64_t bytes = 0, int code = 0) {
    dat::trace::record r;
    r.operation = o;
    r.cookie = cookie;
    r.bytes = bytes;
    r.code = code;
    return r;
  };
  const auto to_state = [](dat::ep_state to) {
    dat::trace::record r;
    r.to = to;
    return r;
  };
  const auto shared = [&](std::uint64_t cookie) {
    auto r = operation(dto_operation::recv, cookie, 64);
    r.shared = true;
    return r;
  };
  give(0, point::sleep, 4);
  give(2'050, point::post, 7, operation(dto_operation::recv, 1, 32)); // as the send behind it, which came first
  give(2'007, point::post, 7, operation(dto_operation::send, 1, 16));
  give(1'000, point::state, 7, to_state(dat::ep_state::unconnected));
  give(1'001, point::state, 0, to_state(dat::ep_state::connected)); // the endpoint has no queue pair yet
  give(1'999'999, point::state, 7, to_state(dat::ep_state::connected));
  // The calls of this thread that are refused end neither earlier operations nor those of another thread.
  give(3'000'000, point::post, 8, operation(dto_operation::send, 2));
  give(3'000'001, point::post, 8, operation(dto_operation::recv, 3));
  give(3'000'002, point::refused, 8, operation({}, 0, 1)); // the receive
  give(3'000'003, point::post, 8, operation(dto_operation::recv, 4));
  give(3'000'004, point::post, 8, operation(dto_operation::send, 5));
  give(3'000'005, point::refused, 8, operation({}, 0, 1)); // the send
  ::pid_t other = 0;
  std::jthread([&] {
    other = ::gettid();
    give(3'000'006, point::post, 8, operation(dto_operation::send, 6));
  }).join();
  give(3'000'007, point::refused, 8, operation({}, 0, 3)); // the receive; no receive of this thread is left
  give(3'000'008, point::post, 8, operation(dto_operation::send, 10));
  // A completion ends the operations that were posted before it to its queue, and to no other queue.
  give(4'000'000, point::completion, 7, operation(dto_operation::recv_rdma_immediate, 1, 9));
  give(4'000'010, point::completion, 8, operation(dto_operation::send, 6, 0, 12));
  give(4'000'020, point::completion, 8, operation(dto_operation::send, 6, 0, 5));
  give(4'000'030, point::post, 3, shared(7));
  give(4'000'031, point::post, 3, shared(8));
  give(4'000'032, point::completion, 8, operation(dto_operation::recv, 8, 10));
  give(4'000'033, point::completion, 8, operation(dto_operation::recv_immediate, 9, 10));
  give(4'000'040, point::state, 7, to_state(dat::trace::no_state));
  give(4'000'041, point::state, 8, to_state(dat::ep_state::disconnected));
  dat::trace::record up;
  up.what = point::connection;
  up.event = "established";
  up.code = 3;
  up.time = 1;
  give(5'000'000, point::connection, 8, up);
  give(5'000'100, point::wake, 4, operation({}, 0, 0, 110));
  give(5'000'200, point::wake, 4);
  give(5'000'300, point::request, 7471, operation({}, 0, 0, 105));
  give(5'000'400, point::arm, 4, operation({}, 0, 0, 12));
  give(6'123'456, point::notify, 4);

  const auto pid = std::to_string(::getpid());
  const auto here = std::to_string(::gettid());
  const auto there = std::to_string(other);
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  const auto event = [&](const std::string& what, const char* phase, const std::string& tid, const char* time,
                         const std::string& rest) {
    return R"({"name":")" + what + R"(","ph":")" + phase + R"(","pid":)" + pid + R"(,"tid":)" + tid + R"(,"ts":)" +
           time + rest + "}";
  };
  const auto row = [&](const std::string& tid, const std::string& of) {
    return event("thread_name", "M", tid, "0.000", R"(,"args":{"name":")" + of + R"("})");
  };
  const auto begin = [&](const std::string& what, const char* id, const std::string& tid, const char* time,
                         const std::string& bytes, const std::string& cookie, const std::string& thread) {
    return event(what, "b", tid, time,
                 std::string(R"(,"cat":"dat","id":)") + id + R"(,"args":{"bytes":)" + bytes + R"(,"cookie":)" + cookie +
                     R"(,"thread":)" + thread + "}");
  };
  const auto end = [&](const std::string& what, const char* id, const std::string& tid, const char* time,
                       const char* suppressed, const char* status) {
    return event(what, "e", tid, time,
                 std::string(R"(,"cat":"dat","id":)") + id + R"(,"args":{"suppressed":)" + suppressed +
                     R"(,"status":)" + status + "}");
  };
  const auto first = std::uint64_t{1} << 22;
  const auto seven = std::to_string(first), eight = std::to_string(first + 1), queue = std::to_string(first + 2);
  const std::vector<std::string> events{
      event("process_name", "M", "0", "0.000", R"(,"args":{"name":")" + name + R"("})"),
      row(seven, "ep 7"),
      event("unconnected", "X", seven, "1.000", R"(,"dur":1998.999)"),
      begin("ep 7 recv", "2", seven, "2.050", "32", "1", here),
      end("ep 7 recv", "2", seven, "4000.000", "0", "0"),
      row(eight, "ep 8"),
      begin("ep 8 send", "3", eight, "3000.000", "0", "2", here),
      end("ep 8 send", "3", eight, "4000.010", "1", "0"),
      begin("ep 8 send", "7", eight, "3000.006", "0", "6", there),
      end("ep 8 send", "7", eight, "4000.010", "0", "12"),
      event("send", "i", eight, "4000.020", R"(,"s":"t","args":{"bytes":0,"cookie":6,"status":5})"),
      row(queue, "srq 3"),
      begin("srq 3 recv", "10", queue, "4000.031", "64", "8", here),
      end("srq 3 recv", "10", queue, "4000.032", "0", "0"),
      event("recv_immediate", "i", eight, "4000.033", R"(,"s":"t","args":{"bytes":10,"cookie":9,"status":0})"),
      event("connected", "X", seven, "1999.999", R"(,"dur":2000.041)"),
      event("established", "i", eight, "5000.000", R"(,"s":"t","args":{"reason":3})"),
      event("wait on evd 4", "X", here, "0.000", R"(,"dur":5000.100,"args":{"errno":110})"),
      event("request on port 7471", "i", here, "5000.300", R"(,"s":"t","args":{"errno":105})"),
      event("arm evd 4", "i", here, "5000.400", R"(,"s":"t","args":{"errno":12})"),
      event("notify evd 4", "i", here, "6123.456", R"(,"s":"t","args":{"errno":0})"),
      begin("srq 3 recv", "9", queue, "4000.030", "64", "7", here),
      begin("ep 7 send", "1", seven, "2.007", "16", "1", here),
      begin("ep 8 send", "8", eight, "3000.008", "0", "10", here),
      event("disconnected", "X", eight, "4000.041", R"(,"dur":2123.415)"),
  };
  std::string text = R"({"traceEvents":[)";
  const char* comma = "";
  for (const auto& one : events) {
    text += comma;
    text += "\n" + one;
    comma = ",";
  }
  text += R"(
],"displayTimeUnit":"ns","otherData":{"dropped":0}}
)";
  CHECK(recorder.to_json() == text);
  dat::trace::recorder none;
  CHECK(json::parse(none.to_json())["traceEvents"].size() == 1);
  dat::trace::recorder one;
  one.take(up);
  CHECK(named(json::parse(one.to_json()), "established", "i")["ts"] == 0.0);
}

TEST_CASE("a recorder that is full keeps the first records and counts the others", "[trace][recorder]") {
  const clean_world world;
  pair p;
  dat::trace::recorder recorder(3);
  for (unsigned i = 1; i <= 5; ++i) must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(i)));
  CHECK(recorder.size() == 3);
  CHECK(recorder.dropped() == 2);
  const json trace = json::parse(recorder.to_json());
  CHECK(trace["otherData"]["dropped"] == 2);
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(6)));
  CHECK(recorder.dropped() == 2); // to_json has ended the recording
}

TEST_CASE("a trace is written to a file, or the error names the file's", "[trace][recorder]") {
  namespace fs = std::filesystem;
  const fs::path file = fs::temp_directory_path() / ("dat-trace-" + std::to_string(::getpid()) + ".json");
  dat::trace::recorder recorder(16);
  must(recorder.write(file.string()));
  std::ifstream in(file);
  const json trace = json::parse(in);
  CHECK(trace["displayTimeUnit"] == "ns");
  CHECK(events_with(trace, "name", "process_name").size() == 1);
  fs::remove(file);
  const auto refused = recorder.write("/nowhere/trace.json");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().call() == "recorder.write");
  CHECK(refused.error().sys_errno() == ENOENT);
  const auto full = recorder.write("/dev/full");
  REQUIRE_FALSE(full);
  CHECK(full.error().sys_errno() == ENOSPC);
}

TEST_CASE("endpoints and a shared queue used by several threads are in one file", "[trace][recorder][srq]") {
  // chrome_trace.py names the file, and reads it.
  const char* const named_by_caller = std::getenv("DAT_TEST_TRACE");
  const std::filesystem::path file =
      named_by_caller ? std::filesystem::path(named_by_caller)
                      : std::filesystem::temp_directory_path() / ("dat-trace-all-" + std::to_string(::getpid()));
  const clean_world world;
  pair p;
  auto srq = must(p.b.pz.create_srq({.max_recv_dtos = 8, .max_recv_iov = 1}));
  auto shared = must(p.b.pz.create_ep<dat::rc>(p.b.evd, srq));
  auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  dat::trace::recorder recorder;
  p.connect(other, shared);
  for (unsigned i = 0; i != 4; ++i) {
    must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    must(srq.post(dat::recv{p.b.at(8, 8)}.cookie(10 + i)));
  }
  must(srq.post(dat::recv{p.b.at(8, 8)}.cookie(99))); // no message takes this receive
  std::jthread posts([&] {
    for (unsigned i = 0; i != 4; ++i) must(other.post(dat::send{p.a.at(0, 8)}.cookie(20 + i)));
  });
  for (unsigned i = 0; i != 4; ++i) must(p.a.ep.post(dat::send{p.a.at(8, 8)}.cookie(30 + i)));
  posts.join();
  p.settle();
  p.a.take();
  p.b.take();
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), must(p.b.mem.remote(0, 8))}.cookie(40)));
  must(other.disconnect());
  p.settle();
  p.a.take();
  p.b.take();
  must(recorder.write(file.string()));
  const json trace = json::parse(std::ifstream(file));
  CHECK(trace["otherData"]["dropped"] == 0);
  for (const json& e : trace["traceEvents"]) CHECK(e["tid"].get<std::uint64_t>() <= 0xffff'ffff);
  if (!named_by_caller) std::filesystem::remove(file);
}
