// Curves over the number of evds of a cno, and of registered regions.
// SPDX-License-Identifier: BSL-1.0
#include "growth.hpp"

#include <dat/registration_cache.hpp>

#include <memory>

namespace growth {

void evds_of_a_cno(long n) {
  world w;
  using evd_of_events = dat::evd<dat::stream::software>;
  dat::cno cno = must(w.ia.create_cno());
  std::vector<evd_of_events> evds(static_cast<std::size_t>(n));
  for (auto& evd : evds) {
    evd = must(w.ia.create_evd<dat::stream::software>(4));
    must(evd.modify_cno(cno));
  }
  count("evds of a cno", "dat", n, [&] {
    for (auto& evd : evds) {
      must(evd.post(dat::cookie(7)));
      if (must(cno.wait(std::chrono::seconds(10))) != evd.id()) wrong("another evd");
      (void)must(evd.dequeue());
      if (evd.dequeue()) wrong("a second event");
    }
  });
}

void regions(long n) {
  constexpr std::size_t page = 4096;
  constexpr std::size_t more = 16; // registered and closed in one pass
  world w;
  const auto all = static_cast<std::size_t>(n);
  const auto pages = std::make_unique_for_overwrite<std::array<std::byte, page>[]>(all + more);
  {
    std::vector<dat::lmr<std::byte, dat::mem_priv::local_read>> held;
    held.reserve(all);
    for (std::size_t i = 0; i < all; ++i) held.push_back(must(w.pz.register_memory(pages[i], dat::local_read)));
    count("regions, register and close", "dat", n, [&] {
      for (std::size_t i = all; i < all + more; ++i)
        must(must(w.pz.register_memory(pages[i], dat::local_read)).close());
    });
  }
  const dat::registration_cache_limits limits{.bytes = (all + more) * page,
                                              .regions = static_cast<std::uint32_t>(all + more)};
  auto cache = must(dat::registration_cache<dat::mem_priv::local_read>::create(w.pz, limits));
  for (std::size_t i = 0; i < all; ++i) (void)must(cache.find_or_register(pages[i]));
  count("regions, found in a cache", "dat", n, [&] {
    for (std::size_t i = 0; i < more; ++i) (void)must(cache.find_or_register(pages[i * all / more]));
  });
}

} // namespace growth
