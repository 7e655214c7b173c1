// Definitions of support.hpp.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"
#include "device_table.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <poll.h>
#include <random>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace device {

void fail(const std::string& what, place where) {
  std::string_view file = where.file;
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  throw failure(std::string(file) + ':' + std::to_string(where.line) + ": " + what);
}

// --- adapters ------------------------------------------------------------------------------------------------------

bool in_lab() {
  const char* lab = std::getenv("DAT_LAB");
  return lab && std::string_view(lab) == "machine";
}

const std::array<dat::ia_address, 2>& addresses() {
  static const std::array<dat::ia_address, 2> both = [] {
    ::signal(SIGPIPE, SIG_IGN); // siw raises the signal in a thread that posts on a connection that its peer has closed
    if (const char* given = std::getenv("DAT_TEST_ADDRESSES")) {
      const std::string text = given;
      const auto comma = text.find(',');
      const auto first = must(dat::ia_address::parse(text.substr(0, comma)));
      if (comma == std::string::npos) return std::array{first, first};
      return std::array{first, must(dat::ia_address::parse(text.substr(comma + 1)))};
    }
    if (in_lab())
      return std::array{must(dat::ia_address::parse("10.78.1.1")), must(dat::ia_address::parse("10.78.2.1"))};
    const auto only = must(dat::ia::open()).address();
    return std::array{only, only};
  }();
  return both;
}

dat::conn_qual next_port() {
  static std::atomic<unsigned> used{0};
  // Parallel processes, and leftovers of an earlier run, must not use the same port.
  const unsigned base = 20'000 + static_cast<unsigned>(::getpid()) % 100 * 100;
  return must(dat::conn_qual::make(base + used++ % 10'000));
}

resources resources::now() {
  resources r = of(::getpid());
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++r.count["descriptors"];
  return r;
}

resources resources::of(pid_t process) {
  resources r;
  const std::string mine = " pid " + std::to_string(process) + " ";
  if (FILE* list = ::popen("for k in qp cm_id cq mr pd; do rdma resource show $k 2>/dev/null; done", "r")) {
    char line[1024];
    std::string text;
    while (std::fgets(line, sizeof line, list)) {
      text = line;
      if (!text.empty() && text.back() == '\n') text.back() = ' ';
      if (text.find(mine) == std::string::npos) continue;
      // "link rx1/1 lqpn 17 ..." or "dev rx1 pdn 3 ...": the word before the number names the kind.
      for (const char* kind : {"lqpn", "cm-idn", "cqn", "mrn", "pdn"})
        if (text.find(std::string(" ") + kind + " ") != std::string::npos) {
          ++r.count[kind];
          break;
        }
    }
    ::pclose(list);
  }
  return r;
}

bool resources::no_more_than(const resources& before) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::string excess;
  do {
    excess.clear();
    for (const auto& [kind, n] : now().count) {
      const auto had = before.count.find(kind);
      const std::size_t allowed = had == before.count.end() ? 0 : had->second;
      if (n > allowed)
        excess += kind + ": " + std::to_string(n) + " where there were " + std::to_string(allowed) + "; ";
    }
    if (excess.empty()) return true;
  } while (std::chrono::steady_clock::now() < until);
  WARN(excess);
  return false;
}

namespace {
/// Runs: tc qdisc `what` dev `whose` root `how`
bool set_wires(cut_wire::of whose, const std::string& what, const std::string& how) {
  bool good = true;
  for (const auto& [one, wire] :
       {std::pair(cut_wire::of::first, " dev v1 root "), {cut_wire::of::second, " dev v2 root "}})
    if (whose == cut_wire::of::both || whose == one)
      good = std::system(("tc qdisc " + what + wire + how).c_str()) == 0 && good;
  return good;
}
} // namespace

cut_wire::cut_wire(of whom) : whom_(whom), done_(set_wires(whom, "add", "netem loss 100%")) {}
cut_wire::~cut_wire() { (void)set_wires(whom_, "del", ""); }

// --- sides ---------------------------------------------------------------------------------------------------------

side::side(std::size_t which, dat::progress how, std::uint32_t qlen)
    : side(must(dat::ia::open(addresses().at(which), {.progress = how})), qlen) {}

namespace {
/// Drivers of iWARP cannot resize the queue of an evd, so on iWARP the queue has room for many endpoints from the
/// start.
std::uint32_t length_on(const dat::ia& ia, std::uint32_t qlen) {
  const bool fixed = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  return fixed && qlen >= usual_qlen ? std::max(qlen, 64u * 1024) : qlen;
}
} // namespace

side::side(dat::ia opened, std::uint32_t qlen)
    : ia(std::move(opened)), pz(must(ia.create_pz())), evd(must(ia.create_evd<all_streams>(length_on(ia, qlen)))) {}

std::string describe(const event& e) {
  return std::visit([](const auto& one) { return describe(one); }, e);
}

std::string sequence(const std::vector<event>& events) {
  std::string text;
  for (const auto& e : events) {
    if (!text.empty()) text += ' ';
    if (const auto* f = std::get_if<dat::dto_failure>(&e))
      text += to_string(f->status());
    else
      text += describe(e);
  }
  return text;
}

two_sides::two_sides(const pair_options& options)
    : a(0, options.progress, options.qlen),
      b(1, options.progress, options.qlen),
      psp(must(b.ia.create_psp(next_port(), b.evd))),
      manual_(options.progress == dat::progress::manual) {}

void two_sides::connect(endpoint& active, endpoint& passive, place where) {
  must(active.connect(target(), port(), patience), where);
  auto request = at_b<dat::connection_request>({}, where);
  must(request.accept(passive), where);
  (void)at_a<dat::established>(active, where);
  (void)at_b<dat::established>(passive, where);
}

void two_sides::disconnect(endpoint& active, endpoint& passive, place where) {
  must(active.disconnect(), where);
  (void)at_a<dat::disconnected>(active, where);
  (void)at_b<dat::disconnected>(passive, where);
}

// --- memory --------------------------------------------------------------------------------------------------------

namespace {
/// Calls `each` with the place, the number and the expected value of the bytes of each block from the block of `begin`
/// on, while it returns true. One computation yields eight bytes, because the tests are not optimised, and the lab
/// emulates the processor.
template <class F>
void each_block(std::size_t begin, std::size_t size, std::uint32_t seed, F each) {
  std::uint64_t words[512];
  const std::uint64_t start = (std::uint64_t{seed} + 1) * 0xbf58476d1ce4e5b9u;
  for (std::size_t first = begin - begin % sizeof words; first < size; first += sizeof words) {
    const std::size_t count = std::min(sizeof words, size - first);
    for (std::size_t i = 0; i * sizeof words[0] < count; ++i) {
      std::uint64_t x = (first / sizeof words[0] + i + 1) * 0x9e3779b97f4a7c15u ^ start;
      x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
      words[i] = x ^ (x >> 29);
    }
    if (!each(first, count, reinterpret_cast<const std::byte*>(words))) return;
  }
}
} // namespace

void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  each_block(0, bytes.size(), seed, [&](std::size_t first, std::size_t count, const std::byte* expected) {
    std::memcpy(bytes.data() + first, expected, count);
    return true;
  });
}

std::size_t first_difference(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::size_t at = 0;
  const auto differs = [&] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::size_t begin = at;
    at = bytes.size();
    each_block(begin, bytes.size(), seed, [&](std::size_t first, std::size_t count, const std::byte* expected) {
      if (std::memcmp(bytes.data() + first, expected, count) == 0) return true;
      const auto found = std::mismatch(expected, expected + count, bytes.data() + first).first;
      if (found == expected + count) return true; // the data has arrived meanwhile
      at = first + static_cast<std::size_t>(found - expected);
      return false;
    });
    return at < bytes.size();
  };
  // Where a write completes before its data is at the peer, the data may arrive during this call.
  if (differs() && !this_device().completes_at_peer) (void)comes_true([&] { return !differs(); });
  return at;
}

std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed) {
  std::vector<std::byte> v(size);
  fill(v, seed);
  return v;
}

std::uint32_t random_seed() {
  static const std::uint32_t seed = [] {
    if (const char* given = std::getenv("DAT_TEST_SEED"))
      return static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
    return static_cast<std::uint32_t>(std::random_device{}());
  }();
  return seed;
}

// --- other threads -------------------------------------------------------------------------------------------------

void until_in_ppoll(pid_t thread, place where) {
  const std::string file = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  const std::string wanted = std::to_string(SYS_ppoll) + ' ';
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    if (line.starts_with(wanted)) return;
    if (std::chrono::steady_clock::now() > until) fail("the thread does not wait: " + line, where);
    std::this_thread::yield();
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
std::optional<std::size_t> allocations_of_this_thread() { return std::nullopt; }
#elif defined(__clang__)
// clang reports its sanitizers in another way; this program is compiled by clang only for them.
std::optional<std::size_t> allocations_of_this_thread() { return std::nullopt; }
#else
} // namespace device

// Counts all allocations of the program, including those of the libraries below dat.
namespace {
thread_local std::size_t allocations = 0;
}
extern "C" {
void* __libc_malloc(std::size_t) noexcept;
void* __libc_calloc(std::size_t, std::size_t) noexcept;
void* __libc_realloc(void*, std::size_t) noexcept;
void* malloc(std::size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) noexcept {
  ++allocations;
  return __libc_calloc(n, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  ++allocations;
  return __libc_realloc(old, size);
}
}

namespace device {
std::optional<std::size_t> allocations_of_this_thread() { return allocations; }
#endif

// --- another process -----------------------------------------------------------------------------------------------

channel::~channel() {
  ::close(in_);
  ::close(out_);
}

void channel::say(const std::string& line, place where) {
  const std::string text = line + '\n';
  if (::write(out_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail("the other process does not listen: " + std::string(std::strerror(errno)), where);
}

std::string channel::hear(place where) {
  for (;;) {
    if (const auto end = rest_.find('\n'); end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    pollfd p{in_, POLLIN, 0};
    const int ready = ::poll(&p, 1, static_cast<int>(patience.count() / 1000));
    if (ready == 0) fail("the other process says nothing", where);
    char part[512];
    const ssize_t n = ::read(in_, part, sizeof part);
    if (n == 0) fail("the other process is gone", where);
    if (n > 0) rest_.append(part, static_cast<std::size_t>(n));
  }
}

bool channel::closed() {
  pollfd p{in_, POLLIN, 0};
  char part[512];
  while (::poll(&p, 1, static_cast<int>(patience.count() / 1000)) > 0)
    if (::read(in_, part, sizeof part) <= 0) return true;
  return false;
}

namespace {
constexpr const char* role_variable = "DAT_TEST_ROLE";
constexpr const char* peer_test = "this process runs as the peer of another one";

std::map<std::string, role_function>& roles() {
  static std::map<std::string, role_function> all;
  return all;
}
} // namespace

role::role(const char* name, role_function f) { roles().emplace(name, f); }

peer_process::peer_process(const std::string& role, const std::vector<std::string>& arguments) {
  ::signal(SIGPIPE, SIG_IGN); // writing to a dead process returns an error and does not end this one
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) fail("pipe2", place::here());
  channel_ = std::make_unique<channel>(from_child[0], to_child[1]);

  std::string variable = std::string(role_variable) + '=' + role;
  for (const auto& a : arguments) variable += '\n' + a;
  std::vector<char*> environment;
  for (char** e = environ; *e; ++e)
    if (!std::string_view(*e).starts_with(std::string(role_variable) + '=') &&
        !std::string_view(*e).starts_with("DAT_TESTS_RECORD=")) // record and report belong to this process
      environment.push_back(*e);
  environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string self = "/proc/self/exe";
  std::string test = peer_test;
  char* argv[] = {self.data(), test.data(), nullptr};

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Descriptors 3 and 4 of the child: its input and its output. The descriptors are moved through high numbers, so that
  // none overwrites the other's source.
  posix_spawn_file_actions_adddup2(&actions, to_child[0], 103);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 104);
  posix_spawn_file_actions_adddup2(&actions, 103, 3);
  posix_spawn_file_actions_adddup2(&actions, 104, 4);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0); // the report is this process's
  posix_spawn_file_actions_addclose(&actions, 103);
  posix_spawn_file_actions_addclose(&actions, 104);
  const int err = ::posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]);
  ::close(from_child[1]);
  if (err != 0) fail("posix_spawn: " + std::string(std::strerror(err)), place::here());
}

peer_process::~peer_process() {
  if (status_) return;
  channel_.reset(); // ends a peer that waits for a line
  ::kill(pid_, SIGKILL);
  (void)wait();
}

void peer_process::kill() {
  ::kill(pid_, SIGKILL);
  (void)wait();
}

int peer_process::wait() {
  if (!status_) {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return *status_;
}

// The other process enters here: it runs this one test case, which is hidden from ordinary runs.
TEST_CASE("this process runs as the peer of another one", "[.peer]") {
  const char* variable = std::getenv(role_variable);
  if (!variable) SKIP("only of use when another test starts it");
  std::vector<std::string> words;
  for (std::string_view rest = variable;;) {
    const auto end = rest.find('\n');
    words.emplace_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const auto found = roles().find(words.front());
  int code = 1;
  if (found == roles().end()) {
    std::fprintf(stderr, "no role named %s\n", words.front().c_str());
  } else {
    try {
      ::signal(SIGPIPE, SIG_IGN);
      channel talk(3, 4);
      code = found->second(talk, {words.begin() + 1, words.end()});
    } catch (const std::exception& e) {
      std::fprintf(stderr, "peer process, %s: %s\n", words.front().c_str(), e.what());
    }
  }
  std::exit(code);
}

} // namespace device
