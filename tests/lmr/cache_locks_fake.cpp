// Calls on a cache of registrations wait while another thread changes its index.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"

#include <dat/registration_cache.hpp>

#include <dat/detail/memory/registration_cache_core.hpp>

#include <atomic>
#include <functional>
#include <thread>

namespace unit {

struct core_of_cache {
  friend dat::detail::registration_cache_core* dat::registration_cache<all_rights.value>::*member(core_of_cache);
};
template struct opened_member<core_of_cache, &dat::registration_cache<all_rights.value>::core_>;
struct numbers_of_cache {
  friend dat::detail::registration_cache_core::numbers dat::detail::registration_cache_core::*member(numbers_of_cache);
};
template struct opened_member<numbers_of_cache, &dat::detail::registration_cache_core::numbers_>;

} // namespace unit

namespace cache_lock_tests {

using namespace unit;

namespace {

using locked_cache = dat::registration_cache<all_rights.value>;

/// While it lives, the ia calls `asked` when a cache asks whether it may end a region, with the lock of the cache.
class observed {
public:
  observed(const dat::ia& ia, std::function<void()> asked) : ia_(dat::detail::core_access::of(ia).get()) {
    self_.call = std::move(asked);
    ia_->posts_observed_by = &self_;
  }
  observed(const observed&) = delete;
  observed& operator=(const observed&) = delete;
  ~observed() { ia_->posts_observed_by = nullptr; }

private:
  struct observer : dat::detail::posts_observer {
    observer()
        : posts_observer{[](posts_observer& o, const ibv_mr&, bool ending) noexcept -> dat::expected<void> {
                           if (!ending) static_cast<observer&>(o).call();
                           return dat::success();
                         },
                         [](posts_observer&) noexcept {}} {}
    std::function<void()> call;
  };
  dat::detail::ia_core* ia_;
  observer self_;
};

/// Returns when the flag is set, or after a time that no test needs.
void until(const std::atomic<bool>& flag) {
  for (const auto end = std::chrono::steady_clock::now() + 20s; !flag && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
}

struct rig {
  rig() {
    for (std::size_t i = 0; i < 3; ++i) (void)take(i); // unused regions
  }
  dat::cached_registration<char, all_rights.value> take(std::size_t i) { return must(all.find_or_register(at(i))); }
  [[nodiscard]] std::span<char> at(std::size_t i) { return std::span(memory).subspan(i * 64, 64); }

  /// The numbers of the cache, for a thread that knows that another one has the lock.
  [[nodiscard]] const dat::detail::registration_cache_core::numbers& numbers() const {
    return (all.*member(core_of_cache()))->*member(numbers_of_cache());
  }

  /// Whether `call` waits for the lock of the cache. If verbs are named, another thread takes the lock when `call` is
  /// inside one of them. `unchanged` returns, while `call` waits, whether `call` has done nothing yet that needs the
  /// lock.
  bool waits(
      const std::function<void()>& call, const std::vector<fake::call>& verbs = {},
      const std::function<bool()>& unchanged = [] { return true; }) {
    std::atomic<bool> inside{false}, go_on{false}, begun{false};
    std::optional<std::jthread> holder;
    bool waited = false;
    {
      const observed o(ia, [&] {
        if (!begun || inside.exchange(true)) return;
        until(go_on);
      });
      const auto hold = [&] {
        if (begun.exchange(true)) return;
        holder.emplace([&] { all.trim(); });
        until(inside);
      };
      for (const fake::call verb : verbs) fake::intercept(verb, hold);
      if (verbs.empty()) hold();
      other_call other(call);
      until(inside);
      waited = inside && other.waits() && unchanged();
      go_on = true;
      other.join();
      holder.reset();
      for (const fake::call verb : verbs) fake::intercept(verb, {});
    }
    return waited;
  }

  clean_world world;
  dat::ia ia = must(dat::ia::open("fk1", manual));
  dat::pz pz = must(ia.create_pz());
  std::array<char, 4096> memory{};
  locked_cache all = must(locked_cache::create(pz, {.bytes = 192, .regions = 8}));
};

/// Registrations call one of these.
const std::vector<fake::call> registers{fake::call::ibv_reg_mr, fake::call::ibv_reg_mr_iova2};

} // namespace

TEST_CASE("calls on a cache wait for one that chooses the region to end", "[memory][cache][locks]") {
  rig r;
  SECTION("read") {
    CHECK(r.waits([&] { (void)r.all.read(); }));
  }
  SECTION("a region that is found") {
    CHECK(r.waits([&] { (void)r.all.find_or_register(r.at(2)); }));
  }
  SECTION("the end of a use") {
    auto used = r.take(2);
    CHECK(r.waits([&] { used.release(); }));
  }
  SECTION("forget") {
    CHECK(r.waits([&] { r.all.forget(r.at(2).data(), 64); }));
  }
  SECTION("the hook for allocators") {
    CHECK(r.waits([&] { dat::memory_unmapped(r.at(2).data(), 64); }));
  }
  SECTION("the end of forgotten regions") {
    CHECK(r.waits([&] { r.all.forget(nullptr, 0); }));
  }
  CHECK(r.all.read().in_use == 0);
  CHECK(r.all.trim() == 0);
}

TEST_CASE("a registration waits for a thread that changes the cache meanwhile", "[memory][cache][locks]") {
  rig r;
  SECTION("with a region that has been made") {
    auto small = must(locked_cache::create(r.pz, {.bytes = 4096, .regions = 8}));
    std::swap(small, r.all);
    for (std::size_t i = 0; i < 3; ++i) (void)r.take(i);
    CHECK(r.waits([&] { (void)r.all.find_or_register(r.at(8)); }, registers,
                  [&] { return r.numbers().misses == 3 && r.numbers().in_use == 0; }));
    CHECK(r.all.find_or_register(r.at(8)));
  }
  SECTION("before it reserves the place of a region that has been ended") {
    const auto registered = [] {
      std::size_t n = 0;
      for (const fake::call verb : registers) n += fake::count(verb);
      return n;
    };
    const auto before = registered();
    CHECK(r.waits([&] { (void)r.all.find_or_register(r.at(8)); }, {fake::call::ibv_dereg_mr},
                  [&] { return registered() == before && r.numbers().regions == 2; }));
  }
  SECTION("when the device has refused the region") {
    auto large = must(locked_cache::create(r.pz, {.bytes = 4096, .regions = 8}));
    std::swap(large, r.all);
    for (std::size_t i = 0; i < 3; ++i) (void)r.take(i);
    fail_registration(ENOMEM);
    CHECK(r.waits([&] { (void)r.all.find_or_register(r.at(8)); }, registers));
  }
  CHECK(r.all.read().in_use == 0);
  CHECK(r.all.trim() == 0);
}

TEST_CASE("caches begin and end, and memory is unmapped, one at a time for the hook for allocators",
          "[memory][cache][locks]") {
  rig r;
  auto before = must(locked_cache::create(r.pz)); // the hook reaches the cache of the rig first
  std::swap(before, r.all);
  dat::ia other_ia = must(dat::ia::open("fk2", manual));
  dat::pz other_pz = must(other_ia.create_pz());
  auto last = must(locked_cache::create(other_pz, {.bytes = 64}));
  (void)must(last.find_or_register(r.at(0)));
  // A thread has the lock of the last cache, and the hook waits for it with the lock of all caches.
  std::atomic<bool> inside{false}, go_on{false};
  const observed o(other_ia, [&] {
    inside = true;
    until(go_on);
  });
  std::jthread holder([&] { last.trim(); });
  until(inside);
  other_call hook([&] { dat::memory_unmapped(r.at(1).data(), 64); });
  CHECK(hook.waits());
  CHECK(before.read().forgotten == 1);
  locked_cache made; // ends after the other threads, because the end of a cache waits, too
  std::optional<other_call> second;
  SECTION("another use of the hook") {
    second.emplace([&] { dat::memory_unmapped(r.at(2).data(), 64); });
    CHECK(second->waits());
    CHECK(before.read().forgotten == 1);
  }
  SECTION("a cache that begins") {
    second.emplace([&] { made = must(locked_cache::create(r.pz)); });
    CHECK(second->waits());
  }
  SECTION("a cache that ends") {
    second.emplace([&] { r.all = {}; });
    CHECK(second->waits());
  }
  go_on = true;
  holder.join();
  hook.join();
  second->join();
  CHECK(before.trim() <= 192);
}

} // namespace cache_lock_tests
