// Runs the jobs of both sides over the instant device: for callgrind, for the clock, and for the count of allocations.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "instant_verbs.hpp"
#include "jobs.hpp"

#include <fake_verbs.hpp>

#include <valgrind/callgrind.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;
using namespace overhead;

namespace overhead {
std::uint64_t consumed = 0;

void wrong() {
  std::fputs("overhead: an operation failed\n", stderr);
  std::abort();
}
} // namespace overhead

// dat queries the addresses of the host, to find those on RDMA devices. This function is weak, because a fully linked
// fake has its own.
namespace {
constexpr const char* device_address = "10.99.1.1";
sockaddr_in interface_address{};
ifaddrs interface {};
} // namespace
extern "C" {
[[gnu::weak]] int getifaddrs(ifaddrs** list) noexcept {
  interface_address.sin_family = AF_INET;
  interface_address.sin_addr.s_addr = htonl((10u << 24) | (99u << 16) | (1u << 8) | 1u);
  static char name[] = "eth0";
  interface.ifa_name = name;
  interface.ifa_addr = reinterpret_cast<sockaddr*>(&interface_address);
  *list = &interface;
  return 0;
}
[[gnu::weak]] void freeifaddrs(ifaddrs*) noexcept {}
}

namespace {

/// Ends the program when a step of the set-up fails.
template <class T>
T must(dat::expected<T>&& result) {
  if (!result) {
    std::fprintf(stderr, "overhead: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result.assume_value());
}

/// The objects that exist while the jobs run.
class set_up {
public:
  set_up() : ia_(must(dat::ia::open(device_name))), pz_(must(ia_.create_pz())) {
    events_ = must(ia_.create_evd<dat::stream::connection | dat::stream::connection_requests>(16));
    peer_completions_ = must(ia_.create_evd<dat::stream::dto>(64));
    psp_ = must(ia_.create_psp(7471, events_));
    region_ = must(pz_.register_memory(memory_, rights));

    const dat::ep_attributes attributes{.max_inline = 64};
    where.completions_only.evd = must(ia_.create_evd<dat::stream::dto>(256));
    where.completions_only.ep =
        must(pz_.create_ep<dat::rc>({where.completions_only.evd, where.completions_only.evd, events_}, attributes));
    connect(where.completions_only.ep, peers_[0], events_);
    where.merged.evd = must(ia_.create_evd<dat::stream::dto | dat::stream::connection>(256));
    where.merged.ep = must(pz_.create_ep<dat::rc>(where.merged.evd, attributes));
    connect(where.merged.ep, peers_[1], where.merged.evd);

    where.shared.evd = must(ia_.create_evd<dat::stream::dto | dat::stream::software>(256));
    where.shared.srq = must(pz_.create_srq());
    where.shared.ep =
        must(pz_.create_ep<dat::rc>({where.shared.evd, where.shared.evd, events_}, where.shared.srq, attributes));
    connect(where.shared.ep, peers_[2], events_);

    where.binding.evd = must(ia_.create_evd<dat::stream::dto | dat::stream::rmr_bind>(256));
    where.binding.ep = must(pz_.create_ep<dat::rc>({where.binding.evd, where.binding.evd, events_}, attributes));
    connect(where.binding.ep, window_peer_, events_);
    where.window = must(pz_.create_rmr());
    where.region = &region_;
    fill_cache();

    constexpr std::uint32_t block = 64;
    for (std::size_t i = 0; i < where.out.size(); ++i) {
      where.out[i] = must(region_.slice(i * block, block));
      where.sge[i] = {reinterpret_cast<std::uint64_t>(memory_.data()) + i * block, block,
                      region_.native_handle()->lkey};
    }
    where.in = must(region_.slice(1024, block));
    where.there = must(region_.remote(2048, block));
    where.remote_address = reinterpret_cast<std::uint64_t>(memory_.data()) + 2048;
    where.rkey = region_.native_handle()->rkey;

    words_region_ = must(pz_.register_memory(words_, word_rights));
    where.old = must(words_region_.whole().word(0));
    where.word = must(words_region_.remote().word(1));
    where.old_sge = {reinterpret_cast<std::uint64_t>(words_.data()), 8, words_region_.native_handle()->lkey};
    where.word_address = reinterpret_cast<std::uint64_t>(&words_[1]);
    where.word_key = words_region_.native_handle()->rkey;
    where.ud_evd = must(ia_.create_evd<dat::stream::dto | dat::stream::datagrams>(256));
    where.ud = must(pz_.create_ep<dat::ud>(
        dat::ib::datagram_evds{.recv = where.ud_evd, .request = where.ud_evd, .connect = dat::drop_events}));
    where.peer = must(where.ud.address_of(must(where.ud.address())));

    context_ = where.completions_only.ep.native_handle()->context;
    instant::take_over(*context_, where.shared.ep.number());
    where.extended = instant::extend(*where.completions_only.ep.native_handle());
  }
  ~set_up() { instant::give_back(*context_); }
  set_up(const set_up&) = delete;
  set_up& operator=(const set_up&) = delete;

  place where;

private:
  static constexpr const char* device_name = "fk1";

  template <class Evd>
  void connect(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer, Evd& evd) {
    peer = must(pz_.create_ep<dat::rc>({peer_completions_, peer_completions_, events_}));
    must(ep.connect(ia_.address(), 7471, 2s));
    must(must(events_.wait_for<dat::connection_request>(2s)).accept(peer));
    must(evd.template wait_for<dat::established>(ep, 2s));
    must(events_.wait_for<dat::established>(peer, 2s));
  }

  void fill_cache() {
    where.cache = must(dat::registration_cache<dat::mem_priv::local_read>::create(pz_));
    where.cached = buffers_[buffers_.size() / 2];
    for (auto& buffer : buffers_) (void)must(where.cache.find_or_register(buffer));
  }

  std::array<char, 4096> memory_{};
  std::vector<std::array<std::byte, 8192>> buffers_ = std::vector<std::array<std::byte, 8192>>(64);
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<dat::stream::connection | dat::stream::connection_requests> events_;
  dat::evd<dat::stream::dto> peer_completions_;
  dat::psp psp_;
  memory region_;
  std::array<std::uint64_t, 2> words_{};
  words words_region_;
  dat::ep<dat::rc> window_peer_;
  std::array<dat::ep<dat::rc>, 3> peers_;
  ibv_context* context_ = nullptr;
};

/// Calls `f` with each pair of sides.
template <class F>
void for_each_job(const F& f) {
  const auto match = [&](std::span<const job> raws, std::span<const job> dats) {
    for (const job& raw : raws)
      for (const job& dat : dats)
        if (std::string_view(raw.name) == dat.name) f(raw, dat);
  };
  match(raw_jobs(), dat_jobs());
  match(raw_jobs(), dat_wait_jobs());
  match(raw_jobs(), dat_count_jobs());
  match(raw_jobs(), dat_cache_jobs());
  match(raw_ib_jobs(), dat_ib_jobs());
  match(post_send_jobs(), extended_jobs());
}

/// Runs a side and checks its result.
void run(const job& j, place& where, long n) {
  const std::uint64_t before = consumed;
  j.go(where, n);
  const auto count = static_cast<std::uint64_t>(n);
  if (consumed - before != count * (count - 1) / 2) wrong();
}

/// For callgrind: leaves a dump for n and one for 2n operations of every job and side.
void dump(place& where, long n) {
  for_each_job([&](const job& raw, const job& dat) {
    for (const job* j : {&raw, &dat}) {
      run(*j, where, at_a_time); // work that is done once, such as binding symbols
      for (const long times : {1L, 2L}) {
        CALLGRIND_ZERO_STATS;
        run(*j, where, times * n);
        const std::string label =
            std::string(j->name) + "|" + (j == &raw ? "raw" : "dat") + "|" + std::to_string(times);
        CALLGRIND_DUMP_STATS_AT(label.c_str());
      }
    }
  });
}

/// Nanoseconds per operation, the sides in turn; medians.
void clock(place& where, long rounds, long n) {
  using timer = std::chrono::steady_clock;
  for_each_job([&](const job& raw, const job& dat) {
    std::vector<double> ns[2];
    for (long round = 0; round < rounds; ++round)
      for (const int which : {0, 1}) {
        const auto start = timer::now();
        run(which == 0 ? raw : dat, where, n);
        const std::chrono::duration<double, std::nano> took = timer::now() - start;
        ns[which].push_back(took.count() / static_cast<double>(n));
      }
    for (auto& all : ns) std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
    std::printf("%s|%.2f|%.2f\n", raw.name, ns[0][static_cast<std::size_t>(rounds / 2)],
                ns[1][static_cast<std::size_t>(rounds / 2)]);
  });
}

/// Allocations of both sides in n operations. First shows that an allocation is noticed.
void allocate(place& where, long n) {
  const auto during = [](const auto& f) {
    const std::uint64_t before = allocations();
    f();
    return static_cast<unsigned long>(allocations() - before);
  };
  struct alignas(64) wide {
    char bytes[64];
  };
  void* volatile kept; // volatile, because the compiler may remove the allocation otherwise
  const bool seen = during([&] { kept = std::malloc(8), std::free(kept); }) == 1 &&
                    during([&] { kept = new char, delete static_cast<char*>(kept); }) == 1 &&
                    during([&] { kept = new wide, delete static_cast<wide*>(kept); }) == 1;
  if (!seen) {
    std::fputs("overhead: allocations go unnoticed\n", stderr);
    std::exit(1);
  }
  for_each_job([&](const job& raw, const job& dat) {
    const unsigned long by_raw = during([&] { run(raw, where, n); });
    const unsigned long by_dat = during([&] { run(dat, where, n); });
    std::printf("%s|%lu|%lu\n", raw.name, by_raw, by_dat);
  });
}

} // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "compiler") {
#if defined(__clang__)
    std::printf("clang %d\n", __clang_major__);
#else
    std::printf("g++ %d\n", __GNUC__);
#endif
    return 0;
  }
  const auto number = [&](int i) { return argc > i ? std::max(1L, std::atol(argv[i])) : 1L; };
  fake::reset({.devices = {{"fk1", {{{device_address}}}}}});
  auto everything = std::make_unique<set_up>();
  if (what == "dump" && argc == 3)
    dump(everything->where, number(2) * at_a_time);
  else if (what == "clock" && argc == 4)
    clock(everything->where, number(2), number(3) * at_a_time);
  else if (what == "allocations" && argc == 3)
    allocate(everything->where, number(2) * at_a_time);
  else {
    std::fputs("usage: overhead compiler | dump N | clock ROUNDS N | allocations N   (N: times 16 operations)\n",
               stderr);
    return 2;
  }
  return 0;
}
