// The world itself: objects by handle, one lock, counting, faults, trace, abort.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fake::impl {

namespace {

constexpr std::size_t trace_lines = 256;

std::string describe(const trace_line& l) {
  std::string s = name(l.which);
  if (l.serial) s += std::string{"("} + kind_name(l.what) + "#" + std::to_string(l.serial) + ")";
  if (l.made_serial) s += std::string{" = "} + kind_name(l.made) + "#" + std::to_string(l.made_serial);
  if (l.error) s += " -> " + errno_name(l.error);
  if (l.injected) s += " (injected)";
  if (l.times > 1) s += " x" + std::to_string(l.times);
  return s;
}

std::string trace_text(const state& w, std::size_t last) {
  std::string s;
  const auto n = w.lines.size();
  for (std::size_t i = n > last ? n - last : 0; i < n; ++i) s += describe(w.lines[i]) + '\n';
  return s;
}

void build_devices(state& w) {
  std::uint32_t n = 0;
  for (const auto& cfg : w.cfg.devices) {
    auto d = std::make_unique<device_state>();
    ++n;
    d->cfg = cfg;
    d->attr = cfg.attr.value_or(rxe_attr());
    d->guid = htobe64(0x000000fffe000000ULL | n);
    d->attr.node_guid = d->attr.sys_image_guid = d->guid;
    d->attr.phys_port_cnt = std::uint8_t(cfg.ports.size());
    d->dev.node_type = cfg.transport == IBV_TRANSPORT_IWARP ? IBV_NODE_RNIC : IBV_NODE_CA;
    d->dev.transport_type = cfg.transport;
    std::snprintf(d->dev.name, sizeof d->dev.name, "%s", cfg.name.c_str());
    std::snprintf(d->dev.ibdev_path, sizeof d->dev.ibdev_path, "%s", cfg.sysfs.c_str());
    std::snprintf(d->dev.dev_name, sizeof d->dev.dev_name, "uverbs%u", n - 1);
    w.devices.push_back(std::move(d));
  }
}

std::unique_ptr<state> fresh(const world& cfg) {
  auto w = std::make_unique<state>();
  w->cfg = cfg;
  w->ways = follow_personality(w->cfg);
  set_pace(w->ways);
  build_devices(*w);
  return w;
}

// The world is never destroyed: threads of a test may still use it when static objects are destroyed.
std::unique_ptr<state>& slot() {
  static auto* s = new std::unique_ptr<state>{fresh({})};
  return *s;
}

} // namespace

std::mutex& mutex() {
  static auto* m = new std::mutex;
  return *m;
}
std::condition_variable& acked() {
  static auto* c = new std::condition_variable;
  return *c;
}
state& the_world() { return *slot(); }

void die(const std::string& why) {
  std::fprintf(stderr, "fake verbs: %s\nlast calls:\n%s", why.c_str(), trace_text(the_world(), 30).c_str());
  std::fflush(stderr);
  std::abort();
}

const char* kind_name(kind k) {
  static constexpr const char* names[] = {"context",       "pd", "mr", "mw", "comp_channel", "cq", "srq", "qp",
                                          "event_channel", "id", "ah"};
  return names[unsigned(k)];
}

std::string object::name() const { return std::string{kind_name(what)} + "#" + std::to_string(serial); }

int signal_fd::open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  fd_ = ends[0];
  other_end_ = ends[1];
  return 0;
}
signal_fd::~signal_fd() {
  if (fd_ >= 0) ::close(fd_);
  if (!dead()) ::close(other_end_);
}
void signal_fd::kill() {
  if (dead()) return;
  ::close(other_end_);
  other_end_ = -1;
}
void signal_fd::set(bool readable) {
  if (readable == readable_ || dead()) return;
  char v = 1;
  const auto n = readable ? ::write(other_end_, &v, sizeof v) : ::read(fd_, &v, sizeof v);
  if (n != ssize_t(sizeof v)) die("the descriptor of a channel was used behind the library's back");
  readable_ = readable;
}

namespace {
thread_local int depth = 0;
} // namespace
inside_mark::inside_mark() noexcept { ++depth; }
inside_mark::~inside_mark() { --depth; }
bool is_inside() noexcept { return depth != 0; }

entry::entry(call c) : lock_{(run_interceptor(c), pace(c), std::unique_lock{mutex()})}, w{the_world()}, which_{c} {
  ++w.counts[std::size_t(c)];
  age_late();
  for (auto it = w.faults.begin(); it != w.faults.end();) {
    if (it->which == c && --it->left == 0) {
      if (fault_ == 0) fault_ = it->error;
      w.hits.push_back(it->ticket);
      it = w.faults.erase(it);
    } else {
      ++it;
    }
  }
}

entry::~entry() {
  if (quiet_ && !fault_) return;
  trace_line l{which_, what_, serial_, made_, made_serial_, error_, fault_ != 0 && error_ == fault_, 1};
  if (!w.lines.empty()) {
    auto& b = w.lines.back();
    if (!l.made_serial && b.which == l.which && b.what == l.what && b.serial == l.serial && b.error == l.error &&
        b.injected == l.injected && b.made_serial == 0) {
      ++b.times;
      return;
    }
  }
  if (w.lines.size() >= trace_lines) w.lines.pop_front();
  w.lines.push_back(l);
}

int entry::code(int error) {
  error_ = error;
  const bool by_driver = which_ == call::ibv_post_send || which_ == call::ibv_post_recv ||
                         which_ == call::ibv_post_srq_recv || which_ == call::ibv_resize_cq;
  return by_driver && w.ways.negative_errnos ? -error : error;
}
int entry::minus1(int error) {
  error_ = error;
  if (!error) return 0;
  if (error != no_errno) errno = error;
  return -1;
}
std::nullptr_t entry::null(int error) {
  errno = error_ = error;
  return nullptr;
}

void wait_acked(std::unique_lock<std::mutex>& lock, const std::string& what, const std::function<bool()>& done) {
  // Uses system_clock, because not every thread sanitizer knows pthread_cond_clockwait.
  const auto limit = std::chrono::system_clock::now() + std::chrono::seconds{5};
  if (!acked().wait_until(lock, limit, done))
    die(what + " waits for events that were fetched and not acknowledged (for 5 s: a deadlock)");
}

int wait_readable(std::unique_lock<std::mutex>& lock, int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return errno;
  if (flags & O_NONBLOCK) return EAGAIN;
  lock.unlock();
  pollfd p{fd, POLLIN, 0};
  const int n = ::poll(&p, 1, -1);
  const int error = n < 0 ? errno : 0;
  lock.lock();
  return error;
}

} // namespace fake::impl

namespace fake {

bool inside() noexcept { return impl::is_inside(); }

using namespace impl;

void reset(const world& w) {
  const std::lock_guard hold{mutex()};
  slot() = fresh(w);
  forget_interceptors();
}

void tweak(const std::function<void(world&)>& change) {
  const std::lock_guard hold{mutex()};
  auto& w = the_world();
  const auto devices = w.cfg.devices;
  change(w.cfg);
  w.cfg.devices = devices;
}

void fail(call c, unsigned nth, int error) {
  const std::lock_guard hold{mutex()};
  auto& w = the_world();
  if (nth == 0 || group_of(c) == group::none) die(std::string{"fail(): no such failure of "} + name(c));
  w.faults.push_back({c, nth, error ? error : typical_errno(c), ++w.tickets});
}

std::size_t forget_faults() {
  const std::lock_guard hold{mutex()};
  auto& f = the_world().faults;
  const auto n = f.size();
  f.clear();
  return n;
}

std::size_t count(call c) {
  const std::lock_guard hold{mutex()};
  return the_world().counts[std::size_t(c)];
}

std::string trace(std::size_t last) {
  const std::lock_guard hold{mutex()};
  return trace_text(the_world(), last);
}

} // namespace fake
