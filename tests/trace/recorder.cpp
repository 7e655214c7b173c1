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
  CHECK(a.evd.drain([](const auto&) {}, 2) == 2);                        // established, and the send
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
  must(srq.post(dat::recv{p.b.at(8, 8)}.cookie(99))); // no message comes for it
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
