// Atomics: the client draws numbers from a counter of the server, and takes a word that only one client can have.
// Start `11_atomics`, then `11_atomics HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>

namespace {

constexpr std::size_t counter = 0; // the words of the server
constexpr std::size_t leader = 1;
using remote_words = dat::remote_segment<std::uint64_t, dat::remote_atomic>;

dat::expected<void> own(peer<>& self) {
  std::array<std::uint64_t, 2> words{100, 0};
  DAT_TRY(auto memory, self.pz.register_memory(words, dat::remote_atomic));
  DAT_TRYV(self.connect(memory.remote().to_wire()));
  DAT_TRYV(self.finish());
  std::cout << "counter " << words[counter] << ", leader " << words[leader] << '\n';
  return dat::success();
}

dat::expected<void> use(peer<>& self) {
  DAT_TRY(const auto data, self.connect());
  DAT_TRY(const auto theirs, remote_words::from_wire(data));
  std::array<std::uint64_t, 1> old{}; // every atomic returns the value before it
  DAT_TRY(auto mine, self.pz.register_memory(old, dat::local_write));

  DAT_TRY(const auto there, theirs.word(counter)); // checked here once: in range, and at a multiple of 8
  for (int i = 0; i < 3; ++i) {
    DAT_TRYV(self.ep.post(dat::ib::fetch_and_add{mine, there, 5}));
    DAT_TRYV(self.evd.wait_for<dat::ib::fetch_and_add_done>(self.limit));
    std::cout << "drew " << old[0] << '\n';
  }

  // The word becomes this client's number if it was 0. The old value shows whether it was.
  DAT_TRY(const auto office, theirs.word(leader));
  for (const std::uint64_t candidate : {7u, 8u}) {
    DAT_TRYV(self.ep.post(dat::ib::compare_and_swap{mine, office, 0, candidate}));
    DAT_TRYV(self.evd.wait_for<dat::ib::compare_and_swap_done>(self.limit));
    std::cout << candidate << (old[0] == 0 ? " leads" : " does not lead") << '\n';
  }
  return self.finish();
}

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  return host ? use(self) : own(self);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
