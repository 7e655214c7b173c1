// One doorbell for many requests: several in one call, a number known at run time, a batch of mixed requests.
// Start `05_batch`, then `05_batch HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>
#include <dat/batch.hpp>
#include <numeric>

namespace {

constexpr std::size_t words = 64;
using table = std::array<std::uint32_t, words>;
constexpr auto rights = dat::remote_read | dat::remote_write;
using remote_table = dat::remote_segment<std::uint32_t, rights>;

dat::expected<void> own(peer<>& self) {
  table numbers{};
  DAT_TRY(auto memory, self.pz.register_memory(numbers, rights));
  std::array<std::uint32_t, 1> promised{};
  DAT_TRY(auto in, self.pz.register_memory(promised, dat::local_write));
  DAT_TRYV(self.ep.post(dat::recv{in})); // for the message after the writes
  DAT_TRYV(self.connect(memory.remote().to_wire()));
  DAT_TRYV(self.evd.wait_for<dat::recv_done>(self.limit));
  std::cout << "sum " << std::accumulate(numbers.begin(), numbers.end(), 0u) << ", promised " << promised[0] << '\n';
  return self.finish();
}

dat::expected<void> use(peer<>& self) {
  DAT_TRY(const auto data, self.connect());
  DAT_TRY(const auto theirs, remote_table::from_wire(data));
  table numbers{};
  std::iota(numbers.begin(), numbers.end(), 1u);
  DAT_TRY(auto mine, self.pz.register_memory(numbers, dat::local_read | dat::local_write));
  const std::array<std::uint32_t, 1> sum{words * (words + 1) / 2};
  DAT_TRY(auto promise, self.pz.register_memory(sum, dat::local_read));

  // Two requests, one doorbell. Only the second has a completion; it comes after the first is done.
  DAT_TRY(const auto first, mine.slice(0, 1));
  DAT_TRY(const auto second, mine.slice(1, 1));
  DAT_TRY(const auto to_first, theirs.slice(0, 1));
  DAT_TRY(const auto to_second, theirs.slice(1, 1));
  DAT_TRYV(self.ep.post(dat::rdma_write{first, to_first}.suppress_completion(), dat::rdma_write{second, to_second}));
  DAT_TRYV(self.evd.wait_for<dat::rdma_write_done>(self.limit));

  // A number of requests of one kind: the callable makes the request of an index.
  DAT_TRYV(self.ep.post_n(30, [&](std::size_t i) {
    auto write = dat::rdma_write{mine.slice(2 + i, 1).value(), theirs.slice(2 + i, 1).value()};
    return i == 29 ? write : write.suppress_completion();
  }));
  DAT_TRYV(self.evd.wait_for<dat::rdma_write_done>(self.limit));

  // Requests of several kinds, collected at run time. A batch can be posted again.
  dat::batch<8> batch;
  const auto no_room = dat::error(dat::return_type::insufficient_resources).at("05_batch");
  for (std::size_t i = 32; i < words; i += 8) {
    DAT_TRY(const auto eight, mine.slice(i, 8));
    DAT_TRY(const auto there, theirs.slice(i, 8));
    if (!batch.push_back(dat::rdma_write{eight, there}.suppress_completion())) return no_room;
  }
  // Notifies the server that all data is in place. (On InfiniBand and RoCE the last write can: `.immediate(number)`.)
  if (!batch.push_back(dat::send{promise}.suppress_completion())) return no_room;
  if (!batch.push_back(dat::rdma_read{mine, theirs})) return no_room;
  DAT_TRYV(self.ep.post(batch));
  DAT_TRYV(self.evd.wait_for<dat::rdma_read_done>(self.limit));
  std::cout << "read back " << std::accumulate(numbers.begin(), numbers.end(), 0u) << '\n';
  return self.finish();
}

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  return host ? use(self) : own(self);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
