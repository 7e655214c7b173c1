// Rails under load on real devices: every link in turn is cut, slowed, made lossy, and restored.
// SPDX-License-Identifier: BSL-1.0

// rails_load RAILS MESSAGES [DISTURBANCE...] [timed]: for dat-lab with 2 * RAILS links. Rail k goes from link 2k+1 to
// link 2k+2. Both ends write and receive, each in a thread of its own, while the main thread disturbs the links by tc.
// Each disturbance lasts until MESSAGES more messages have arrived at both ends. Prints a line for each disturbance;
// exit code 1 if a message was lost, came twice, came out of order, or had other bytes, if the rail of a cut link has
// not failed, or if a restored rail carries nothing; with `timed`, also if a cut rail has failed later than within
// failover_within. That result is reproducible only if the clock does not depend on the load (dat-lab --counted).
#include <dat/dat.hpp>
#include <dat/rails.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::size_t slots = 512;
constexpr std::size_t words = 512;     // 64-bit words of a message, at most
constexpr std::uint64_t most = 60'000; // the most messages that the ends count; tags have 16 bits

template <class T>
T must(dat::expected<T> r) {
  if (!r) {
    std::fprintf(stderr, "rails_load: %s\n", r.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(r).value();
}

/// One end: writes numbered messages, and checks those of the other end.
struct end {
  std::list<dat::ia> ias;
  std::vector<dat::rail_path> paths;
  dat::rails rails;
  std::vector<std::uint64_t> out = std::vector<std::uint64_t>(slots * words);
  std::vector<std::uint64_t> in = std::vector<std::uint64_t>(slots * words);
  dat::rails_memory from, into;
  dat::rails_remote there;
  std::uint64_t written = 0;
  std::array<std::uint64_t, slots> done_up_to{}; // for each slot: the number after the latest message that is done
  std::vector<std::uint8_t> done = std::vector<std::uint8_t>(most);
  std::vector<std::uint8_t> here = std::vector<std::uint8_t>(most);
  std::uint64_t next_ordered = 0; // numbers of ordered messages are even
  std::uint64_t wrong = 0;
  std::array<std::atomic<std::uint64_t>, dat::rails::max_rails> downs{}; // by rail
  std::array<std::atomic<std::uint64_t>, dat::rails::max_rails> sent{};  // by rail
  std::atomic<std::uint64_t> arrived{0};
  std::array<std::atomic<std::uint64_t>, slots> taken{}; // for each slot: the number after the latest taken message
  std::atomic<std::uint64_t> aim{0};                     // the number of messages to write
  std::atomic<std::size_t> up{0};
  std::atomic<std::uint64_t> finished{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> show{false};
  end* other = nullptr;

  static std::size_t length(std::uint64_t n) { return n % 7 == 0 ? words : 1 + n % 32; }

  void operator()(const dat::rails_message& m) {
    const std::uint64_t n = m.tag;
    const std::size_t slot = n % slots;
    if (n >= most || here[n]++ != 0 || m.bytes != length(n) * 8 || m.ordered != (n % 2 == 0)) ++wrong;
    for (std::size_t i = 0; i < length(n); ++i) wrong += in[slot * words + i] != n * 1000 + i;
    if (m.ordered) {
      wrong += n != next_ordered;
      next_ordered = n + 2;
    }
    taken[slot].store(n + 1);
    arrived.fetch_add(1);
  }
  void operator()(const dat::rails_write_done& e) {
    wrong += done[e.cookie]++ != 0;
    done_up_to[e.cookie % slots] = e.cookie + 1;
    finished.fetch_add(1);
  }
  void operator()(const dat::rails_write_failed&) { ++wrong; }
  void operator()(const dat::rail_up&) {}
  void operator()(const dat::rail_down& e) {
    downs[e.rail].fetch_add(1);
    std::fprintf(stderr, "  rail %zu down: %.*s\n", e.rail, int(e.cause.size()), e.cause.data());
  }

  void write_some() {
    while (written < aim.load()) {
      const std::uint64_t n = written;
      const std::size_t slot = n % slots;
      // The slot's previous message must be done at this end and taken at the other.
      if (n >= slots && (done_up_to[slot] != n - slots + 1 || other->taken[slot].load() != n - slots + 1)) return;
      for (std::size_t i = 0; i < length(n); ++i) out[slot * words + i] = n * 1000 + i;
      const std::size_t at = slot * words * 8;
      const auto ok = rails.write(from, at, length(n) * 8, there, at,
                                  {.cookie = n, .tag = static_cast<std::uint16_t>(n), .ordered = n % 2 == 0});
      if (!ok) {
        if (ok.error().type() != dat::return_type::insufficient_resources) must(ok);
        return;
      }
      ++written;
    }
  }
  void run() {
    while (!stop) {
      write_some();
      const auto n = rails.wait(*this, 20ms);
      if (!n && n.error().type() != dat::return_type::timeout_expired &&
          n.error().type() != dat::return_type::interrupted_call)
        must(n);
      up = rails.up();
      for (std::size_t k = 0; k < rails.size(); ++k) sent[k] = rails.health(k).sent;
      if (show.exchange(false)) print();
    }
  }
  void print() const {
    std::string text = "  " + std::to_string(written) + " written, " + std::to_string(finished) + " done, " +
                       std::to_string(rails.not_done()) + " not done, " + std::to_string(arrived) +
                       " arrived, next ordered " + std::to_string(next_ordered) + '\n';
    for (std::size_t k = 0; k < rails.size(); ++k) {
      const auto h = rails.health(k);
      text += "    rail " + std::to_string(k) + (h.up ? " up" : " down") + ", " + std::to_string(h.lives) + " lives, " +
              std::to_string(h.sent) + " sent, " + std::to_string(h.received) + " received, " +
              std::to_string(h.under_way) + " under way; " + std::string(h.cause.substr(0, 60)) + '\n';
    }
    std::fputs(text.c_str(), stderr);
  }
};

void shell(const std::string& command) {
  if (std::system(command.c_str()) == 0) return;
  std::fprintf(stderr, "rails_load: failed: %s\n", command.c_str());
  std::exit(1);
}

[[noreturn]] void failed(const std::string& what) {
  std::fprintf(stderr, "rails_load: %s\n", what.c_str());
  std::_Exit(1); // the threads of the ends still run
}

/// Waits while the devices work; dat-lab limits the time. After a minute without progress both ends print their counts.
void until(end& a, end& b, const auto& holds) {
  std::uint64_t before = 0;
  for (int still = 0; !holds(); ++still) {
    std::this_thread::sleep_for(5ms);
    const std::uint64_t now = a.arrived + a.finished + b.arrived + b.finished + a.up + b.up;
    if (std::exchange(before, now) != now) still = 0;
    if (still % 12000 == 11999) a.show = b.show = true;
  }
}

} // namespace

int main(int argc, char** argv) {
  const std::size_t rails = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4;
  const std::uint64_t messages = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 500;
  constexpr std::array<std::string_view, 4> words_known{"cut", "slow", "lossy", "restored"};
  std::vector<std::string_view> chosen(argv + std::min(argc, 3), argv + argc);
  const bool timed = std::erase(chosen, "timed") != 0;
  const bool known = std::all_of(chosen.begin(), chosen.end(), [&](std::string_view w) {
    return std::find(words_known.begin(), words_known.end(), w) != words_known.end();
  });
  if (!known || rails < 1 || rails > dat::rails::max_rails || messages < 1 || messages * (rails * 5 + 1) > most) {
    std::fprintf(
        stderr,
        "usage: rails_load RAILS MESSAGES [cut|slow|lossy|restored]... [timed]  (1 to 16; MESSAGES * (5 * RAILS "
        "+ 1) at most %llu)\n",
        static_cast<unsigned long long>(most));
    return 2;
  }
  end a;
  end b;
  const auto address = [](std::size_t link) {
    return must(dat::ia_address::parse("10.78." + std::to_string(link) + ".1"));
  };
  for (std::size_t k = 0; k < rails; ++k) {
    a.ias.push_back(must(dat::ia::open(address(2 * k + 1))));
    b.ias.push_back(must(dat::ia::open(address(2 * k + 2))));
    a.paths.push_back({&a.ias.back(), address(2 * k + 2), 7471});
    b.paths.push_back({&b.ias.back(), {}, 7471});
  }
  const dat::rails_options options{.failover_within = 1000ms, .cool_down = 200ms, .max_cool_down = 1000ms};
  b.rails = must(dat::rails::listen(b.paths, options));
  a.rails = must(dat::rails::connect(a.paths, options));
  for (end* e : {&a, &b}) {
    e->from = must(e->rails.register_memory(e->out));
    e->into = must(e->rails.register_memory(e->in));
    e->other = e == &a ? &b : &a;
  }
  a.there = must(dat::rails_remote::from_wire(b.into.to_wire()));
  b.there = must(dat::rails_remote::from_wire(a.into.to_wire()));
  std::jthread one([&] { a.run(); });
  std::jthread two([&] { b.run(); });

  const auto all_up = [&] { until(a, b, [&] { return a.up == rails && b.up == rails; }); };
  const auto transfer = [&] {
    a.aim += messages;
    b.aim += messages;
    until(a, b, [&] { return b.arrived == a.aim && a.arrived == b.aim && a.finished == a.aim && b.finished == b.aim; });
  };
  all_up();
  transfer();
  bool late = false;
  struct disturbance {
    std::string_view name;
    std::string begin, end;
  };
  for (std::size_t k = 0; k < rails; ++k) {
    const std::string link = "v" + std::to_string(2 * k + 1);
    const std::string add = "tc qdisc add dev " + link + " root netem ";
    const std::string del = "tc qdisc del dev " + link + " root";
    for (const disturbance& d :
         {disturbance{"cut", add + "loss 100%", del}, disturbance{"slow", add + "delay 20ms", del},
          disturbance{"lossy", add + "loss 3%", del}, disturbance{"restored", "true", "true"}}) {
      if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), d.name) == chosen.end()) continue;
      const std::uint64_t downs = a.downs[k] + b.downs[k];
      const std::uint64_t sent = a.sent[k] + b.sent[k];
      std::chrono::milliseconds noticed{0};
      shell(d.begin);
      const auto began = std::chrono::steady_clock::now();
      if (d.name == "cut") {
        a.aim += messages;
        b.aim += messages; // otherwise an idle rail would wait for its probe
        until(a, b, [&] { return a.downs[k] + b.downs[k] != downs; });
        noticed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
        if (timed && noticed > options.failover_within) late = true;
      }
      transfer();
      shell(d.end);
      all_up();
      if (d.name == "restored" && a.sent[k] + b.sent[k] == sent) failed("the restored rail carries nothing");
      std::printf("%s %.*s: %llu messages each way so far", link.c_str(), int(d.name.size()), d.name.data(),
                  static_cast<unsigned long long>(a.aim.load()));
      if (d.name == "cut") std::printf(", rail %zu down after %lld ms", k, static_cast<long long>(noticed.count()));
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  if (late) failed("a cut rail was down later than within failover_within");
  a.stop = b.stop = true;
  one.join();
  two.join();
  std::uint64_t lost = 0;
  const std::uint64_t dropped = a.rails.duplicates() + b.rails.duplicates(); // the devices have delivered them again
  std::uint64_t twice = 0;
  std::uint64_t failures = 0;
  const std::uint64_t wrong = a.wrong + b.wrong;
  for (std::size_t k = 0; k < rails; ++k) failures += a.downs[k] + b.downs[k];
  for (const end* e : {&a, &b})
    for (std::uint64_t n = 0; n < a.written; ++n) {
      lost += e->here[n] == 0 || e->done[n] == 0;
      twice += e->here[n] > 1 || e->done[n] > 1;
    }
  for (std::size_t k = 0; k < rails; ++k)
    std::printf("rail %zu: %u lives, sent %llu, received %llu\n", k, a.rails.health(k).lives,
                static_cast<unsigned long long>(a.rails.health(k).sent),
                static_cast<unsigned long long>(a.rails.health(k).received));
  std::printf(
      "%llu written each way, %llu lost, %llu twice, %llu wrong, %llu failures of rails, %llu dropped as copies\n",
      static_cast<unsigned long long>(a.written), static_cast<unsigned long long>(lost),
      static_cast<unsigned long long>(twice), static_cast<unsigned long long>(wrong),
      static_cast<unsigned long long>(failures), static_cast<unsigned long long>(dropped));
  return lost + twice + wrong == 0 ? 0 : 1;
}
