// RDMA write and read: the client changes a table in the server's memory, while the server only waits for the end.
// Start `03_write_and_read`, then `03_write_and_read HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <algorithm>
#include <cstdint>

namespace {

using table = std::array<std::uint32_t, 8>;
constexpr auto rights = dat::remote_read | dat::remote_write; // the rights that the server grants
using remote_table = dat::remote_segment<std::uint32_t, rights>;

dat::expected<void> own(peer<>& self) {
  table numbers{1, 2, 3, 4, 5, 6, 7, 8};
  DAT_TRY(auto memory, self.pz.register_memory(numbers, rights));
  DAT_TRYV(self.connect(memory.remote().to_wire())); // address, length, key and rights: 24 bytes of private data
  DAT_TRYV(self.finish());
  for (const auto number : numbers) std::cout << number << ' ';
  std::cout << '\n';
  return dat::success();
}

dat::expected<void> use(peer<>& self) {
  DAT_TRY(const auto data, self.connect());
  DAT_TRY(const auto theirs, remote_table::from_wire(data)); // refuses other rights and other element types
  table numbers{};
  DAT_TRY(auto mine, self.pz.register_memory(numbers, dat::local_read | dat::local_write));

  DAT_TRYV(self.ep.post(dat::rdma_read{mine, theirs}));
  DAT_TRYV(self.evd.wait_for<dat::rdma_read_done>(self.limit)); // from here on `numbers` has the data
  std::reverse(numbers.begin(), numbers.end());
  DAT_TRY(const auto half, mine.slice(0, 4));
  DAT_TRY(const auto to, theirs.slice(0, 4));
  DAT_TRYV(self.ep.post(dat::rdma_write{half, to}));
  DAT_TRYV(self.evd.wait_for<dat::rdma_write_done>(self.limit)); // from here on the peer's memory has the data
  return self.finish();
}

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  return host ? use(self) : own(self);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
