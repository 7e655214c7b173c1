// Descriptors, locked memory, addresses and the objects that a cgroup allows run out on a device: each call reports it,
// succeeds when it is repeated, and the connection carries data.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/detail/text/remedy.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <grp.h>
#include <memory>
#include <optional>
#include <set>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace device {
namespace {

// --- limits --------------------------------------------------------------------------------------------------------

/// A limit of this process. It applies between `tighten` and `loosen`. If it affects dat only, it may apply longer, but
/// never after `end`.
class some_limit {
public:
  some_limit() = default;
  some_limit(const some_limit&) = delete;
  some_limit& operator=(const some_limit&) = delete;
  virtual ~some_limit() = default;
  virtual void tighten(std::uint64_t room) = 0;
  virtual void loosen() { end(); }
  virtual void end() = 0;
};

/// A number of /proc/self/status, in bytes.
std::uint64_t status_of(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field + ":")) return 1024 * std::stoull(line.substr(field.size() + 1));
  fail("/proc/self/status has no " + field, place::here());
}

class resource_limit : public some_limit {
public:
  /// `used` returns how much the process uses.
  resource_limit(__rlimit_resource which, std::function<std::uint64_t()> used) : which_(which), used_(std::move(used)) {
    if (::getrlimit(which_, &before_) != 0) fail("getrlimit", place::here());
  }
  ~resource_limit() override { (void)::setrlimit(which_, &before_); }
  void tighten(std::uint64_t room) override {
    rlimit tight = before_;
    tight.rlim_cur = used_() + room;
    if (::setrlimit(which_, &tight) != 0) fail("setrlimit", place::here());
  }
  void end() override { (void)::setrlimit(which_, &before_); }

private:
  __rlimit_resource which_;
  std::function<std::uint64_t()> used_;
  rlimit before_{};
};

std::uint64_t lowest_free_descriptor() {
  const int next = ::dup(STDERR_FILENO);
  if (next < 0) fail("dup", place::here());
  ::close(next);
  return static_cast<std::uint64_t>(next);
}

void write_to(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool good = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int err = errno;
  if (fd >= 0) ::close(fd);
  if (!good) fail(path + ": " + std::strerror(err), place::here());
}

/// The RDMA objects that a cgroup of this process allows.
class cgroup_limit : public some_limit {
public:
  explicit cgroup_limit(std::set<std::string> devices) : devices_(std::move(devices)) {
    if (::mkdtemp(root_) == nullptr) fail("mkdtemp", place::here());
    group_ = root_ + std::string("/few");
    if (::mount("none", root_, "cgroup2", 0, nullptr) != 0) fail("mount of cgroup2", place::here());
    std::ifstream in(root_ + std::string("/cgroup.controllers"));
    for (std::string word; in >> word;) there_ = there_ || word == "rdma";
    if (!there_) return;
    write_to(root_ + std::string("/cgroup.subtree_control"), "+rdma");
    if (::mkdir(group_.c_str(), 0755) != 0) fail("mkdir " + group_, place::here());
    write_to(group_ + "/cgroup.procs", std::to_string(::getpid()));
  }
  ~cgroup_limit() override {
    std::ofstream(root_ + std::string("/cgroup.procs")) << ::getpid();
    ::rmdir(group_.c_str());
    ::umount(root_);
    ::rmdir(root_);
  }
  [[nodiscard]] bool there() const { return there_; }
  void tighten(std::uint64_t room) override { set(std::to_string(room)); }
  void loosen() override {}
  void end() override { set("max"); }

private:
  void set(const std::string& n) {
    if (std::exchange(now_, n) == n) return;
    for (const auto& device : devices_) write_to(group_ + "/rdma.max", device + " hca_handle=max hca_object=" + n);
  }
  std::set<std::string> devices_;
  char root_[32] = "/tmp/dat-cgroup-XXXXXX";
  std::string group_ = {};
  std::string now_ = {};
  bool there_ = false;
};

// --- the flow ------------------------------------------------------------------------------------------------------

/// Calls under a limit. The first call that fails is repeated without the limit, and the calls after it run without the
/// limit.
class steps {
public:
  steps(some_limit& limit, std::uint64_t room, const std::string& remedy)
      : limit_(limit), room_(room), remedy_(remedy) {}

  template <class Call>
  auto operator()(Call call, place where = place::here()) {
    auto r = limited(call);
    if (r) return must(std::move(r), where);
    const dat::error& e = r.assume_error();
    if (e.type() != type::insufficient_resources || e.call().empty() || e.object() == dat::object_kind::none ||
        e.message().find(remedy_) == std::string::npos)
      fail("another error: " + e.message(), where);
    limit_.end();
    failed = std::string(e.call()) + ": " + std::string(e.verb()) + ", " + std::string(to_string(e.subtype()));
    return must(call(), where);
  }
  /// Runs `f` under the limit, unless a call has failed.
  template <class F>
  auto limited(F& f) {
    if (!failed.empty()) return f();
    limit_.tighten(room_);
    const std::unique_ptr<some_limit, void (*)(some_limit*)> loose(&limit_, [](some_limit* l) { l->loosen(); });
    return f();
  }
  std::string failed; ///< the call that has failed, and the function and subtype that it names

private:
  some_limit& limit_;
  std::uint64_t room_;
  const std::string& remedy_;
};

/// Opens, creates, connects, and moves data; manual progress, so that all is done in this thread.
void connect_and_send(steps& step) {
  constexpr dat::ia_options manual{.progress = dat::progress::manual};
  auto ia_a = step([&] { return dat::ia::open(addresses()[0], manual); });
  auto ia_b = step([&] { return dat::ia::open(addresses()[1], manual); });
  auto cno = step([&] { return ia_a.create_cno(); });
  auto pz_a = step([&] { return ia_a.create_pz(); });
  auto pz_b = step([&] { return ia_b.create_pz(); });
  auto evd_a = step([&] { return ia_a.create_evd<all_streams>(64); });
  auto evd_b = step([&] { return ia_b.create_evd<all_streams>(64); });
  step([&] { return evd_a.modify_cno(cno); });
  alignas(4096) static std::array<std::byte, 64 * 1024> memory;
  auto mem_a = step([&] { return pz_a.register_memory(memory, all_rights); });
  auto mem_b = step([&] { return pz_b.register_memory(memory, all_rights); });
  auto a = step([&] { return pz_a.create_ep<dat::rc>(evd_a); });
  auto b = step([&] { return pz_b.create_ep<dat::rc>(evd_b); });
  const auto port = next_port();
  auto psp = step([&] { return ia_b.create_psp(port, evd_b); });
  step([&] { return a.connect(ia_b.address(), port, patience); });
  const std::function<void()> turns = [&] {
    ia_a.run();
    ia_b.run();
  };
  auto request = await<dat::connection_request>(evd_b, {}, turns, place::here());
  step([&] { return request.accept(b); });
  (void)await<dat::established>(evd_a, {}, turns, place::here());
  (void)await<dat::established>(evd_b, {}, turns, place::here());
  std::memcpy(memory.data(), "whole", 5);
  step([&] { return b.post(dat::recv{must(mem_b.slice(4096, 8))}); });
  step([&] { return a.post(dat::send{must(mem_a.slice(0, 5))}); });
  (void)await<dat::send_done>(evd_a, {}, turns, place::here());
  if (await<dat::recv_done>(evd_b, {}, turns, place::here()).bytes() != 5) fail("another length", place::here());
  if (std::memcmp(memory.data() + 4096, "whole", 5) != 0) fail("other data", place::here());
  step([&] { return a.disconnect(); });
  (void)await<dat::disconnected>(evd_b, {}, turns, place::here());
}

/// Runs the flow with each room, and reports the calls that have failed. The last room suffices.
int run_short(channel& to, some_limit& limit, const std::vector<std::uint64_t>& rooms, const std::string& remedy) {
  try {
    static const std::string everything;
    {
      steps none(limit, ~0ull >> 2, everything); // creates the objects that the libraries keep
      none.failed = "none";
      connect_and_send(none);
    }
    const auto before = lowest_free_descriptor();
    for (const auto room : rooms) {
      steps step(limit, room, remedy);
      connect_and_send(step);
      limit.end();
      to.say(step.failed.empty() ? "enough" : step.failed);
      if (lowest_free_descriptor() != before) fail("a descriptor is left", place::here());
      if (step.failed.empty() && room != rooms.front()) break;
    }
    to.say("end");
    return 0;
  } catch (const std::exception& e) {
    to.say(std::string("wrong: ") + e.what());
    return 1;
  }
}

/// An ordinary user, whose locked memory is limited.
void become_ordinary() {
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &all) != 0) fail("setrlimit", place::here());
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0))
    fail("setuid", place::here());
}

std::vector<std::uint64_t> powers(std::uint64_t first, std::uint64_t last, std::uint64_t factor) {
  std::vector<std::uint64_t> all;
  for (auto n = first; n <= last; n *= factor) all.push_back(n);
  return all;
}
std::vector<std::uint64_t> numbers(std::uint64_t last) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t n = 0; n <= last; ++n) all.push_back(n);
  return all;
}

int descriptors_role(channel& to, const std::vector<std::string>&) {
  resource_limit limit(RLIMIT_NOFILE, [first = lowest_free_descriptor()] { return first; });
  return run_short(to, limit, numbers(60), "ulimit -n");
}
const role descriptors_registered("few descriptors", &descriptors_role);

int addresses_role(channel& to, const std::vector<std::string>&) {
  resource_limit limit(RLIMIT_AS, [] { return status_of("VmSize"); });
  return run_short(to, limit, powers(64 << 10, 1 << 30, 4), "ulimit -v");
}
const role addresses_registered("few addresses", &addresses_role);

int pinned_role(channel& to, const std::vector<std::string>&) {
  become_ordinary();
  resource_limit limit(RLIMIT_MEMLOCK, [] { return std::uint64_t{0}; });
  return run_short(to, limit, powers(4 << 10, 256 << 10, 2), "RLIMIT_MEMLOCK");
}
const role pinned_registered("few pinned pages", &pinned_role);

int locked_role(channel& to, const std::vector<std::string>&) {
  become_ordinary();
  resource_limit limit(RLIMIT_MEMLOCK, [] { return status_of("VmLck"); });
  if (::mlockall(MCL_FUTURE) != 0) fail("mlockall", place::here());
  return run_short(to, limit, powers(64 << 10, 64 << 20, 2), "ulimit -l");
}
const role locked_registered("few locked pages", &locked_role);

int cgroup_role(channel& to, const std::vector<std::string>&) {
  std::set<std::string> devices;
  for (const auto& a : addresses())
    devices.insert(std::string(must(dat::ia::open(a, {.progress = dat::progress::manual})).name()));
  cgroup_limit limit(devices);
  if (!limit.there()) {
    to.say("absent");
    return 0;
  }
  return run_short(to, limit, numbers(20), "rdma.max");
}
const role cgroup_registered("few objects", &cgroup_role);

/// Creates a zone and windows while the cgroup allows no further object, and again when it does.
int zones_role(channel& to, const std::vector<std::string>&) {
  auto ia = must(dat::ia::open(addresses()[0], {.progress = dat::progress::manual}));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<all_streams>(64));
  auto srq = must(pz.create_srq());
  cgroup_limit limit({std::string(ia.name())});
  if (!limit.there()) {
    to.say("absent");
    return 0;
  }
  const auto tell = [&](const auto& made) {
    to.say(made ? "made"
                : std::string(to_string(made.error().type())) + ' ' + std::string(to_string(made.error().subtype())));
  };
  limit.tighten(0);
  tell(ia.create_pz());
  tell(pz.create_rmr());
  tell(pz.create_rmr_for_ep());
  tell(pz.create_ep<dat::rc>(evd, srq));
  limit.end();
  tell(ia.create_pz());
  tell(pz.create_rmr());
  tell(pz.create_rmr_for_ep());
  tell(pz.create_ep<dat::rc>(evd, srq));
  return 0;
}
const role zones_registered("no further objects", &zones_role);

/// Opens an ia with a service thread where no thread may start.
int threads_role(channel& to, const std::vector<std::string>&) {
  become_ordinary();
  rlimit before{};
  if (::getrlimit(RLIMIT_NPROC, &before) != 0) fail("getrlimit", place::here());
  rlimit none = before;
  none.rlim_cur = 0;
  if (::setrlimit(RLIMIT_NPROC, &none) != 0) fail("setrlimit", place::here());
  const auto refused = error_of(dat::ia::open(addresses()[0]));
  auto manual = must(dat::ia::open(addresses()[0], {.progress = dat::progress::manual}));
  if (::setrlimit(RLIMIT_NPROC, &before) != 0) fail("setrlimit", place::here());
  auto automatic = must(dat::ia::open(addresses()[0]));
  to.say(std::string(to_string(refused.type())) + ' ' + std::string(to_string(refused.subtype())));
  to.say(refused.message());
  return 0;
}
const role threads_registered("no threads", &threads_role);

/// Resizes an evd without room for more memory, and then with room.
int resize_role(channel& to, const std::vector<std::string>&) {
  auto ia = must(dat::ia::open(addresses()[0]));
  auto evd = must(ia.create_evd<dat::stream::dto>(64));
  const auto most = must(ia.query()).max_evd_qlen;
  const auto before = evd.capacity();
  std::optional<dat::error> refused;
  {
    resource_limit none(RLIMIT_AS, [] { return status_of("VmSize"); });
    none.tighten(0);
    if (auto r = evd.resize(most); !r) refused = r.error();
  }
  to.say(refused ? std::string(to_string(refused->type())) + ' ' + std::string(to_string(refused->subtype()))
                 : "resized");
  to.say(evd.capacity() == before ? "unchanged" : "changed");
  must(evd.resize(static_cast<std::uint32_t>(before) + 100));
  to.say(evd.capacity() >= before + 100 ? "larger" : "smaller");
  return 0;
}
const role resize_registered("resize without memory", &resize_role);

/// The calls that have failed in the peer process with this role, each named once, in order.
std::vector<std::string> failures_of(const std::string& role) {
  peer_process peer(role);
  std::vector<std::string> all;
  for (std::string line = peer.hear(); line != "end"; line = peer.hear()) {
    if (line == "absent") return {line};
    if (line.starts_with("wrong")) FAIL(line);
    if (all.empty() || all.back() != line) all.push_back(line);
  }
  CHECK(peer.wait() == 0);
  return all;
}

bool names(const std::vector<std::string>& failures, const std::string& call) {
  for (const auto& f : failures)
    if (f.starts_with(call)) return true;
  return false;
}

} // namespace

TEST_CASE("descriptors run out at each call that needs one, and the calls can be repeated", "[no_room]") {
  const auto failures = failures_of("few descriptors");
  CHECK(names(failures, "ia.open"));
  CHECK(names(failures, "ia.create_evd"));
  CHECK(names(failures, "ia.create_cno"));
  CHECK(failures.back() == "enough");
}

TEST_CASE("an evd that cannot grow for lack of memory is unchanged, and grows later", "[no_room]") {
  peer_process peer("resize without memory");
  if (!this_device().resizes_queues) {
    CHECK(peer.hear() == "model_not_supported none");
    SKIP("this device does not resize the queues of evds");
  }
  CHECK(peer.hear() == "insufficient_resources resource_tevd");
  SHOWS("ERR-031");
  CHECK(peer.hear() == "unchanged");
  SHOWS("EVD-041", "EVD-042");
  CHECK(peer.hear() == "larger");
  CHECK(peer.wait() == 0);
}

TEST_CASE("addresses run out, and the calls can be repeated", "[no_room]") {
  const auto failures = failures_of("few addresses");
  CHECK(failures.size() > 1);
  CHECK(std::ranges::any_of(failures, [](const auto& f) { return f.ends_with(", resource_memory"); }));
  SHOWS("ERR-031", "DTO-067");
  CHECK(failures.back() == "enough");
}

TEST_CASE("pinned memory runs out, and the calls can be repeated", "[no_room][LMR-028]") {
  const auto failures = failures_of("few pinned pages");
  CHECK(names(failures, "pz.register_memory"));
  CHECK(failures.back() == "enough");
}

TEST_CASE("memory that mlockall locks runs out, and the calls can be repeated", "[no_room]") {
  const auto failures = failures_of("few locked pages");
  CHECK(failures.size() > 1);
  CHECK(failures.back() == "enough");
}

TEST_CASE("where no thread may start, an ia with manual progress can be opened", "[no_room]") {
  peer_process peer("no threads");
  CHECK(peer.hear() == "insufficient_resources resource_error_handler"); // the thread also handles the device's events
  SHOWS("ERR-031");
  const auto message = peer.hear();
  CHECK_THAT(message, support::contains_text("pthread_create gave EAGAIN"));
  CHECK_THAT(message, support::contains_text("ulimit -u"));
  CHECK_THAT(message, support::contains_text("dat::progress::manual"));
  CHECK(peer.wait() == 0);
}

TEST_CASE("the objects that a cgroup allows run out at each call that makes one", "[no_room]") {
  if (::geteuid() != 0 || !in_lab()) SKIP("only the lab's root makes cgroups here");
  const auto failures = failures_of("few objects");
  if (failures.front() == "absent") SKIP("the kernel has no cgroup controller for RDMA");
  for (const auto* call :
       {"ia.open", "ia.create_evd: ibv_create_cq", "pz.register_memory: ibv_reg_mr", "pz.create_ep: ibv_create_qp"})
    CHECK(names(failures, call));
  SHOWS("EP-014");
  CHECK(failures.back() == "enough");
}

TEST_CASE("zones and windows are refused while a cgroup allows no further object", "[no_room]") {
  if (::geteuid() != 0 || !in_lab()) SKIP("only the lab's root makes cgroups here");
  peer_process peer("no further objects");
  const auto zone = peer.hear();
  if (zone == "absent") SKIP("the kernel has no cgroup controller for RDMA");
  CHECK(zone == "insufficient_resources resource_protection_domain");
  SHOWS("PZ-004", "ERR-031");
  SHOWS("DTO-067");
  for (int i = 0; i < 2; ++i) CHECK(peer.hear() == "insufficient_resources resource_memory_region");
  SHOWS("RMR-007");
  CHECK(peer.hear().starts_with("insufficient_resources")); // an endpoint with a shared queue
  SHOWS("EP-030");
  for (int i = 0; i < 4; ++i) CHECK(peer.hear() == "made");
  CHECK(peer.wait() == 0);
}

} // namespace device
