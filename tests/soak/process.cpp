// One process of the soak: orders come by standard input, a line each; reports leave as lines of JSON.
// SPDX-License-Identifier: BSL-1.0
#include "process.hpp"

#include <nlohmann/json.hpp>

#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOAK_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOAK_SANITIZED
#endif
#endif
#ifdef SOAK_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace soak {

namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
namespace fs = std::filesystem;

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

#ifdef SOAK_SANITIZED
constexpr bool sanitized = true;
std::size_t heap_bytes() { return __sanitizer_get_current_allocated_bytes(); }
#else
constexpr bool sanitized = false;
std::size_t heap_bytes() {
  const auto heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}
#endif

/// The mappings of this process. A sanitizer maps memory on demand, so with a sanitizer only mappings of files count.
/// The mappings of the device are among these.
std::size_t mappings() {
  std::ifstream in("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(in, line);)
    if (!sanitized || line.find('/') != std::string::npos) ++n;
  return n;
}

std::size_t resident_pages() {
  std::ifstream in("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  in >> all >> resident;
  return resident;
}

} // namespace

process::process(settings given) : given_(std::move(given)), board_(given_.board) {
  const auto found = dat::resolve(given_.peer);
  if (!found || found.value().empty()) throw std::runtime_error("no address: " + given_.peer);
  peer_ = found.value().front();
}

random process::generator(const lane& of) const {
  std::seed_seq mix{given_.seed, static_cast<std::uint64_t>(getpid()),
                    static_cast<std::uint64_t>(of.service) * 2 + of.client};
  return random(mix);
}

std::uint16_t process::port(const lane& of) const noexcept { return static_cast<std::uint16_t>(7600 + of.service); }

void process::pause(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto before = phase_.load();
  changed_.wait_for(lock, limit, [&] { return phase_.load() != before; });
}

void process::enter(phase next) {
  const std::lock_guard lock(mutex_);
  phase_ = next;
  changed_.notify_all();
}

void process::print(const std::string& line) {
  const std::lock_guard lock(printing_);
  std::fprintf(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

void process::violation(const lane& where, std::uint64_t life, const std::string& what) {
  ++violations_;
  print(json{{"violation", what}, {"lane", where.name}, {"life", life}}.dump());
}

void process::note(const lane& where, const std::string& what) {
  print(json{{"note", what}, {"lane", where.name}}.dump());
}

void process::report_rest() {
  print(json{{"rest",
              {{"fds", entries_of("/proc/self/fd")},
               {"threads", entries_of("/proc/self/task")},
               {"maps", mappings()},
               {"heap", heap_bytes()},
               {"pages", resident_pages()},
               {"async", async_events_.load()}}}}
            .dump());
}

/// Whether the lanes became idle while the phase stayed `rest`.
bool process::wait_until_idle(bool clients_only) {
  const auto busy = [&](const auto& l) { return !l->idle && (l->client || !clients_only); };
  const auto since = clock::now();
  while (std::any_of(lanes_.begin(), lanes_.end(), busy)) {
    if (gone_) return false;
    if (clock::now() - since > 3 * patience) {
      for (const auto& l : lanes_)
        if (busy(l)) violation(*l, 0, "the lane does not come to rest");
      return false;
    }
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

bool process::obey(const std::string& order) {
  if (order == "work") {
    enter(phase::work);
  } else if (order == "rest") { // ends the lives that clients of this process have begun
    enter(phase::rest);
    if (wait_until_idle(true)) print(json{{"quiet", given_.name}}.dump());
  } else if (order == "settle") { // also ends those that the other process has begun
    if (wait_until_idle(false)) report_rest();
  } else if (order == "count") {
    json lives;
    for (const auto& l : lanes_) lives[l->name] = {l->lives.load(), l->ends.load()};
    print(json{{"lives", lives}}.dump());
  } else if (order == "stop") {
    stopped_ = true;
  } else {
    throw std::runtime_error("no order: " + order);
  }
  return !stopped_;
}

/// Counts the asynchronous events. The loss of the adapter ends this opening.
void process::watch_adapter(dat::ia& ia) {
  ia.async_evd().drain(dat::overloaded{[&](const dat::ia_catastrophic&) {
                                         ++async_events_;
                                         gone_ = true;
                                       },
                                       [&](const auto&) { ++async_events_; }});
}

/// From the opening of the adapter to the end of the process, or to the loss of the adapter.
bool process::one_opening() {
  gone_ = false;
  auto opened = dat::ia::open(given_.adapter);
  if (!opened) {
    std::this_thread::sleep_for(100ms); // the port has no address now, or the adapter has been removed
    return true;
  }
  dat::ia ia = std::move(opened.value());
  for (const auto& l : lanes_) {
    l->idle = false;
    l->thread = std::jthread([this, &ia, &l] { l->run(*this, ia, *l); });
  }
  print(json{{"open", ia.name()}}.dump());
  std::string input;
  while (!stopped_ && !gone_) {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (poll(&in, 1, 200) > 0) {
      char more[256];
      const auto n = read(STDIN_FILENO, more, sizeof more);
      if (n == 0) stopped_ = true; // soak.py has ended
      if (n > 0) input.append(more, static_cast<std::size_t>(n));
    }
    for (auto end = input.find('\n'); end != std::string::npos; end = input.find('\n')) {
      const auto order = input.substr(0, end);
      input.erase(0, end + 1);
      obey(order);
    }
    watch_adapter(ia);
  }
  const auto before = now();
  enter(stopped_ ? phase::leave : phase::reopen);
  for (const auto& l : lanes_) l->thread.join();
  if (auto closed = ia.close(dat::close_mode::abrupt); !closed)
    print(json{{"violation", closed.error().message()}}.dump());
  if (!stopped_) {
    print(json{{"gone", given_.adapter}}.dump());
    enter(before == phase::work ? phase::work : phase::rest);
  }
  return !stopped_;
}

int process::run() {
  lanes_ = make_lanes(given_.services);
  while (one_opening()) {
  }
  print(json{{"end", given_.name}, {"violations", violations_.load()}}.dump());
  return violations_ == 0 ? 0 : 1;
}

} // namespace soak
