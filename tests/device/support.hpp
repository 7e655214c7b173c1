// Support of the device tests: adapters, connected pairs, patterned memory, a second process.
//
// The test framework's assertions are not thread-safe, and a helper has no useful expression to show: helpers throw
// device::failure, which names the caller's place and dat's error. The exception passes through threads (std::async)
// and ends the test case.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <support/catch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

// Catch2 shows an error as its code and its message.
template <>
struct Catch::StringMaker<dat::error> {
  static std::string convert(const dat::error& e) {
    return std::string(to_string(e.type())) + '(' + std::string(to_string(e.subtype())) + ") \"" + e.message() + '"';
  }
};
template <>
struct Catch::StringMaker<dat::ep_state> {
  static std::string convert(dat::ep_state s) { return std::string(to_string(s)); }
};
template <>
struct Catch::StringMaker<dat::dto_status> {
  static std::string convert(dat::dto_status s) { return std::string(to_string(s)); }
};
template <>
struct Catch::StringMaker<dat::dto_operation> {
  static std::string convert(dat::dto_operation o) { return std::string(to_string(o)); }
};
template <>
struct Catch::StringMaker<dat::ia_address> {
  static std::string convert(const dat::ia_address& a) { return a.to_string(); }
};

namespace device {

using namespace std::chrono_literals;
using type = dat::return_type;
using subtype = dat::return_subtype;
using state = dat::ep_state;
using endpoint = dat::ep<dat::rc>;

/// Time limit for events that must come. It is long, because it matters only after a failure: the lab's processors are
/// emulated, and sanitizers slow them down further.
inline constexpr dat::timeout patience = 30s;

/// Time limit for a connect without an answer. It is short, because the test waits for its end, but long enough for a
/// busy machine to send the request first.
inline constexpr dat::timeout unanswered_limit = 3s;

class failure : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The place that called a helper.
struct place {
  const char* file;
  int line;
  static place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept { return {file, line}; }
};
[[noreturn]] void fail(const std::string& what, place where);

/// The value, or a failure with the error's message.
template <class T>
T must(dat::expected<T> r, place where = place::here()) {
  if (!r) fail(r.assume_error().message(), where);
  if constexpr (!std::is_void_v<T>) return std::move(r.assume_value());
}

/// The error, or a failure if the call succeeded.
template <class T>
[[nodiscard]] dat::error error_of(const dat::expected<T>& r, place where = place::here()) {
  if (r) fail("success where an error was expected", where);
  return r.assume_error();
}

// --- adapters ------------------------------------------------------------------------------------------------------

/// Addresses of the two adapters: DAT_TEST_ADDRESSES="a,b" (or one), else the lab's, else the host's first adapter.
[[nodiscard]] const std::array<dat::ia_address, 2>& addresses();
/// True in the lab's machine, where no other program uses the adapters and the network is known.
[[nodiscard]] bool in_lab();
/// A port that no other test of this process uses.
[[nodiscard]] dat::conn_qual next_port();

/// Descriptors and RDMA objects of this process.
struct resources {
  std::map<std::string, std::size_t> count; ///< "descriptors", and by kind what the `rdma` tool lists for this process
  [[nodiscard]] static resources now();
  /// RDMA objects of another process; none when the process has ended.
  [[nodiscard]] static resources of(pid_t process);
  /// Whether the process has no more objects of any kind than at `before`. An adapter's thread may close objects a
  /// moment after the last handle, so the function repeats the comparison for a while.
  [[nodiscard]] static bool no_more_than(const resources& before);
};

/// While the object exists, the lab's wire drops the packets of one adapter, or all packets.
class cut_wire {
public:
  enum class of { first, second, both };
  explicit cut_wire(of whom);
  cut_wire(const cut_wire&) = delete;
  cut_wire& operator=(const cut_wire&) = delete;
  ~cut_wire();
  explicit operator bool() const noexcept { return done_; }

private:
  const of whom_;
  const bool done_;
};

// --- one side of a connection --------------------------------------------------------------------------------------

inline constexpr dat::streams all_streams =
    dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
using event = dat::event<all_streams>;
using queue = dat::evd<all_streams>;

/// The name of an event, for messages.
template <class E>
[[nodiscard]] std::string describe(const E& e) {
  if constexpr (std::is_same_v<E, dat::dto_failure>)
    return e.message() + ", cookie " + std::to_string(e.cookie().value());
  else if constexpr (std::is_base_of_v<dat::transfer, E>)
    return "success, cookie " + std::to_string(e.cookie().value()) + ", " + std::to_string(e.bytes()) + " bytes";
  else if constexpr (std::is_same_v<E, dat::bind_done>)
    return std::string(to_string(e.operation())) + " done, cookie " + std::to_string(e.cookie().value());
  else if constexpr (std::is_same_v<E, dat::established>)
    return "established";
  else if constexpr (std::is_same_v<E, dat::peer_rejected>)
    return "peer_rejected";
  else if constexpr (std::is_same_v<E, dat::non_peer_rejected>)
    return "non_peer_rejected, reason " + std::to_string(e.reason());
  else if constexpr (std::is_same_v<E, dat::accept_completion_error>)
    return "accept_completion_error, reason " + std::to_string(e.reason());
  else if constexpr (std::is_same_v<E, dat::disconnected>)
    return "disconnected";
  else if constexpr (std::is_same_v<E, dat::connection_broken>)
    return "broken";
  else if constexpr (std::is_same_v<E, dat::connection_timed_out>)
    return "timed_out";
  else if constexpr (std::is_same_v<E, dat::connection_unreachable>)
    return "unreachable, reason " + std::to_string(e.reason());
  else
    return "a connection request";
}
template <class... E>
[[nodiscard]] std::string describe(const std::variant<E...>& e) {
  return std::visit([](const auto& one) { return describe(one); }, e);
}
[[nodiscard]] std::string describe(const event& e); // compiled once

inline constexpr std::uint32_t usual_qlen = 1024;

/// An adapter, a zone, and one evd for everything.
struct side {
  dat::ia ia;
  dat::pz pz;
  queue evd;

  explicit side(std::size_t which, dat::progress how = dat::progress::automatic, std::uint32_t qlen = usual_qlen);
  side(dat::ia opened, std::uint32_t qlen);

  [[nodiscard]] endpoint make_ep(const dat::ep_attributes& a = {}) { return must(pz.create_ep<dat::rc>(evd, a)); }
};

/// Waits at `at` for the next event of type E, of `of` if given, and runs the pending work of the other side.
/// `slice` is called whenever no event has come for a moment.
template <class E, dat::streams S>
E await(dat::evd<S>& at, dat::ep_ref of, const std::function<void()>& slice, place where) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    auto r = at.template wait_for<E>(of, slice ? dat::timeout(1ms) : patience);
    if (r) return std::move(r.assume_value());
    if (r.assume_error().type() != type::timeout_expired || std::chrono::steady_clock::now() > until)
      fail(r.assume_error().message(), where);
    if (slice) slice();
  }
}

/// The next event of `at`, which must be an E.
template <class E, dat::streams S>
E next(dat::evd<S>& at, place where = place::here()) {
  auto r = at.wait(patience);
  if (!r) fail(r.assume_error().message(), where);
  auto* e = std::get_if<E>(&r.assume_value());
  if (!e) fail("another event came: " + describe(r.assume_value()), where);
  return std::move(*e);
}

/// The next `n` events. `slice` is called whenever no event has come for a moment.
template <dat::streams S>
std::vector<dat::event<S>> take(dat::evd<S>& at, std::size_t n, const std::function<void()>& slice,
                                place where = place::here()) {
  std::vector<dat::event<S>> all;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (all.size() < n) {
    auto r = at.wait(slice ? dat::timeout(1ms) : patience);
    if (r) {
      all.push_back(std::move(r.assume_value()));
      continue;
    }
    if (r.assume_error().type() != type::timeout_expired || std::chrono::steady_clock::now() > until)
      fail("event " + std::to_string(all.size()) + ": " + r.assume_error().message(), where);
    if (slice) slice();
  }
  return all;
}
template <dat::streams S>
std::vector<dat::event<S>> take(dat::evd<S>& at, std::size_t n, place where = place::here()) {
  return take(at, n, {}, where);
}
template <class E, class Event>
[[nodiscard]] std::size_t count_of(const std::vector<Event>& events) {
  std::size_t n = 0;
  for (const auto& e : events) n += std::holds_alternative<E>(e) ? 1 : 0;
  return n;
}
/// The names of the events, in order.
[[nodiscard]] std::string sequence(const std::vector<event>& events);

/// The events of an evd that should be empty; true when it is empty.
struct emptiness {
  std::string had;
  operator bool() const { return had.empty(); } // NOLINT(google-explicit-constructor): CHECK prints what it converts
  friend std::ostream& operator<<(std::ostream& out, const emptiness& e) { return out << (e ? "nothing" : e.had); }
};
/// Whether the evd is empty now.
template <dat::streams S>
[[nodiscard]] emptiness is_empty(dat::evd<S>& at) {
  auto r = at.dequeue();
  if (r) return {describe(r.assume_value())};
  return {r.assume_error().type() == type::queue_empty ? std::string() : r.assume_error().message()};
}

// --- two of them ---------------------------------------------------------------------------------------------------

struct pair_options {
  dat::progress progress = dat::progress::automatic;
  dat::ep_attributes active{};
  dat::ep_attributes passive{};
  std::uint32_t qlen = usual_qlen;
};

/// Two adapters, not connected.
struct two_sides {
  side a;
  side b;
  dat::psp psp; ///< at b

  explicit two_sides(const pair_options& options = {});

  /// Runs the pending work of the other side, if progress is manual.
  template <class E>
  E at_a(dat::ep_ref of = {}, place where = place::here()) {
    return await<E>(a.evd, of, turn_of(b), where);
  }
  template <class E>
  E at_b(dat::ep_ref of = {}, place where = place::here()) {
    return await<E>(b.evd, of, turn_of(a), where);
  }
  std::vector<event> take_a(std::size_t n, place where = place::here()) { return take(a.evd, n, turn_of(b), where); }
  std::vector<event> take_b(std::size_t n, place where = place::here()) { return take(b.evd, n, turn_of(a), where); }
  /// The address that `a` connects to.
  [[nodiscard]] dat::ia_address target() const { return b.ia.address(); }
  [[nodiscard]] dat::conn_qual port() const { return must(dat::conn_qual::make(psp.port())); }

  /// Connects; returns when both sides have ESTABLISHED.
  void connect(endpoint& active, endpoint& passive, place where = place::here());
  /// Disconnects from a; returns when both sides have DISCONNECTED.
  void disconnect(endpoint& active, endpoint& passive, place where = place::here());

private:
  [[nodiscard]] std::function<void()> turn_of(side& other) {
    if (!manual_) return {};
    return [&other] { other.ia.run(); };
  }
  bool manual_;
};

/// Two adapters with one connection.
struct connected_pair : two_sides {
  endpoint active;
  endpoint passive;

  explicit connected_pair(const pair_options& options = {}, place where = place::here())
      : two_sides(options), active(a.make_ep(options.active)), passive(b.make_ep(options.passive)) {
    connect(active, passive, where);
  }
};

/// Checks that the connection still moves a message. When it has arrived, the data of earlier RDMA writes is in the
/// memory of the passive side. On iWARP the completion of a write does not say so.
inline void still_works(connected_pair& link, place where = place::here()) {
  if (link.active.state() != state::connected || link.passive.state() != state::connected) fail("not connected", where);
  if (!is_empty(link.a.evd) || !is_empty(link.b.evd)) fail("an event where none was due", where);
  must(link.passive.post(dat::recv{}.cookie(901)), where);
  must(link.active.post(dat::send{}.cookie(902)), where);
  if (next<dat::recv_done>(link.b.evd, where).cookie() != dat::cookie(901)) fail("another receive", where);
  if (next<dat::send_done>(link.a.evd, where).cookie() != dat::cookie(902)) fail("another send", where);
}

// --- memory --------------------------------------------------------------------------------------------------------

inline constexpr auto all_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using region = dat::lmr<std::byte, decltype(all_rights)::value>;
using window = dat::remote_segment<std::byte, decltype(all_rights)::value>;

/// Fills with bytes that depend on the seed and the position, without a period that could hide a copying fault.
void fill(std::span<std::byte> bytes, std::uint32_t seed);
/// The index of the first byte that differs from fill(seed), or the size.
[[nodiscard]] std::size_t first_difference(std::span<const std::byte> bytes, std::uint32_t seed);
[[nodiscard]] inline bool has_pattern(std::span<const std::byte> bytes, std::uint32_t seed) {
  return first_difference(bytes, seed) == bytes.size();
}

/// Registered memory that the object owns.
struct buffer {
  std::vector<std::byte> bytes;
  region lmr;

  buffer(dat::pz& pz, std::size_t size) : bytes(size), lmr(must(pz.register_memory(bytes, all_rights))) {}
  [[nodiscard]] auto slice(std::size_t first, std::size_t count) const { return must(lmr.slice(first, count)); }
  /// The region as a peer gets it: through the wire form.
  [[nodiscard]] window remote() const { return must(window::from_wire(lmr.remote().to_wire())); }
  [[nodiscard]] window remote(std::size_t first, std::size_t count) const { return must(remote().slice(first, count)); }
  [[nodiscard]] std::span<std::byte> part(std::size_t first, std::size_t count) {
    return std::span(bytes).subspan(first, count);
  }
};

/// The seed of this run's random choices, shown by INFO where it matters; DAT_TEST_SEED repeats a run.
[[nodiscard]] std::uint32_t random_seed();

/// The bytes of a text, for private data.
[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s)); }
[[nodiscard]] std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed);

/// Whether the condition becomes true in time.
template <class Condition>
[[nodiscard]] bool comes_true(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Returns when the thread is inside ppoll; fails when that does not happen in time.
void until_in_ppoll(pid_t thread, place where);

// --- other threads -------------------------------------------------------------------------------------------------

/// Runs `f` in a thread of its own; `get` waits for its result and rethrows its exception.
template <class F>
class background {
public:
  explicit background(F f)
      : result_(std::async(std::launch::async,
                           [this, f = std::move(f)] {
                             tid_.set_value(::gettid());
                             return f();
                           })),
        id_(tid_.get_future().get()) {}
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() = default;

  [[nodiscard]] auto get() { return result_.get(); }
  [[nodiscard]] bool done() const { return result_.wait_for(0s) == std::future_status::ready; }
  /// Returns when the thread sleeps in an evd's wait.
  void until_asleep(place where = place::here()) const { until_in_ppoll(id_, where); }
  [[nodiscard]] pid_t id() const noexcept { return id_; }

private:
  std::promise<pid_t> tid_;
  std::future<std::invoke_result_t<F>> result_;
  pid_t id_;
};

/// The number of allocations of this thread; empty where a sanitizer replaces the allocator.
[[nodiscard]] std::optional<std::size_t> allocations_of_this_thread();

// --- another process -----------------------------------------------------------------------------------------------

/// The lines that a process and its parent exchange.
class channel {
public:
  channel(int in, int out) noexcept : in_(in), out_(out) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  ~channel();

  void say(const std::string& line, place where = place::here());
  /// The next line; fails when none comes in time or the other end has closed.
  [[nodiscard]] std::string hear(place where = place::here());
  /// Whether the other end has closed, after at most `patience`.
  [[nodiscard]] bool closed();

private:
  int in_;
  int out_;
  std::string rest_;
};

/// Another process that runs this program in a registered role. RDMA objects do not survive a
/// fork, so it is always a new program.
class peer_process {
public:
  explicit peer_process(const std::string& role, const std::vector<std::string>& arguments = {});
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;
  ~peer_process();

  [[nodiscard]] channel& talk() noexcept { return *channel_; }
  void say(const std::string& line, place where = place::here()) { channel_->say(line, where); }
  [[nodiscard]] std::string hear(place where = place::here()) { return channel_->hear(where); }
  /// Ends the process by SIGKILL.
  void kill();
  [[nodiscard]] pid_t id() const noexcept { return pid_; }
  /// The exit code of the process, 128 + n for signal n.
  int wait();

private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::unique_ptr<channel> channel_;
};

/// Registers the function of a role; its result is the exit code of the process.
using role_function = int (*)(channel&, const std::vector<std::string>& arguments);
struct role {
  role(const char* name, role_function f);
};

/// Private data as text, without the zeros that pad it.
inline std::string text_of(std::span<const std::byte> data) {
  std::string s(reinterpret_cast<const char*>(data.data()), data.size());
  s.resize(s.find_last_not_of('\0') + 1);
  return s;
}

} // namespace device
