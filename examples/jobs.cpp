// The jobs of DOCA RDMA on one pair of endpoints, which descriptors connect: send, send with immediate, write, write
// with immediate, read, and both atomics. Buffers have a data section, and received data is appended to it.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdio>
#include <cstring>
#include <dat/buffer.hpp>
#include <dat/dat.hpp>
#include <dat/descriptor.hpp>
#include <dat/try.hpp>
using namespace std::chrono_literals;

namespace {

constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
constexpr auto atomic_rights = dat::local_write | dat::remote_atomic;
using memory = dat::lmr<std::byte, rights>;
using chain = dat::buffer<2, rights>;
using queue = dat::evd<dat::stream::dto | dat::stream::connection>;

/// Appends a text to the data section of a buffer, by copying.
void write_text(chain& to, std::byte* at, const char* text) {
  std::memcpy(at + to.data_size(), text, std::strlen(text));
  (void)to.append(std::strlen(text));
}
void show(const char* job, const chain& c) {
  std::printf("%-22s", job);
  for (std::size_t i = 0; i < c.pieces(); ++i)
    std::printf("[%.*s]", static_cast<int>(c.data_size(i)), reinterpret_cast<const char*>(c.bytes(i).data()));
  std::printf("\n");
}

dat::expected<void> run() {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(queue here, ia.create_evd<dat::stream::dto | dat::stream::connection>(64));
  DAT_TRY(queue there, ia.create_evd<dat::stream::dto | dat::stream::connection>(64));
  DAT_TRY(auto near, pz.create_ep<dat::rc>(here));
  DAT_TRY(auto far, pz.create_ep<dat::rc>(there));

  // Each side exports 64 bytes, passes them to the other side by any channel, and connects.
  DAT_TRY(auto of_near, near.export_descriptor());
  DAT_TRY(auto of_far, far.export_descriptor());
  DAT_TRY(auto arrived, dat::ib::descriptor::from_wire(of_far.to_wire()));
  DAT_TRYV(near.connect(arrived));
  DAT_TRYV(far.connect(of_near));
  DAT_TRYV(here.wait_for<dat::established>(2s));
  DAT_TRYV(there.wait_for<dat::established>(2s));

  std::array<std::byte, 64> mine{};
  std::array<std::byte, 64> theirs{};
  DAT_TRY(memory near_memory, pz.register_memory(mine, rights));
  DAT_TRY(memory far_memory, pz.register_memory(theirs, rights));
  DAT_TRY(auto first, far_memory.slice(0, 8)); // a chain of two pieces
  DAT_TRY(auto second, far_memory.slice(8, 56));
  chain inbox(first);
  if (!inbox.push_back(second)) return dat::error(dat::return_type::internal_error);
  chain out(near_memory.whole());
  write_text(out, mine.data(), "one two three ");

  // send: the receive fills the first piece, then the second.
  DAT_TRYV(far.post(dat::recv{inbox.room()}.cookie(1)));
  DAT_TRYV(near.post(dat::send{out.data()}.cookie(2)));
  DAT_TRY(auto got, there.wait_for<dat::recv_done>(2s));
  if (!inbox.append(got.bytes())) return dat::error(dat::return_type::length_error);
  show("send", inbox);

  // send with immediate data and an empty message: it uses a receive and appends nothing.
  DAT_TRYV(far.post(dat::recv{}.cookie(3)));
  DAT_TRYV(near.post(dat::send{}.immediate(42).cookie(4)));
  DAT_TRY(auto notice, there.wait_for<dat::ib::recv_immediate_done>(2s));
  if (!inbox.append(notice.bytes())) return dat::error(dat::return_type::length_error);
  std::printf("%-22s%u\n", "send with immediate", notice.immediate());

  // write, and write with immediate data: both append to the peer's second piece.
  DAT_TRY(auto window, far_memory.remote(8, 56));
  dat::remote_buffer<rights> remote(window, inbox.data_size(1));
  DAT_TRYV(near.post(dat::rdma_write{out.data(), remote.room()}));
  DAT_TRYV(here.wait_for<dat::rdma_write_done>(2s));
  if (!remote.append(out.data_size())) return dat::error(dat::return_type::length_error);
  DAT_TRYV(far.post(dat::recv{}));
  DAT_TRYV(near.post(dat::rdma_write{out.data(), remote.room()}.immediate(43)));
  DAT_TRY(auto written, there.wait_for<dat::ib::recv_write_immediate_done>(2s));
  if (!inbox.append(out.data_size() + written.bytes())) return dat::error(dat::return_type::length_error);
  if (!remote.append(out.data_size())) return dat::error(dat::return_type::length_error);
  show("writes", inbox);

  // read: appends the peer's data section to this side's.
  const auto into = out.room_for(remote);
  DAT_TRYV(near.post(dat::rdma_read{into, remote.data(into.size_bytes())}));
  DAT_TRY(auto read, here.wait_for<dat::rdma_read_done>(2s));
  if (!out.append(read.bytes())) return dat::error(dat::return_type::length_error);
  show("read", out);

  // The atomics.
  std::array<std::uint64_t, 2> words{5, 0};
  DAT_TRY(auto word_memory, pz.register_memory(words, atomic_rights));
  DAT_TRY(auto old, word_memory.slice(1, 1));
  DAT_TRYV(near.post(dat::ib::compare_and_swap{old, word_memory.remote(), 5, 7}));
  DAT_TRYV(here.wait_for<dat::ib::compare_and_swap_done>(2s));
  DAT_TRYV(near.post(dat::ib::fetch_and_add{old, word_memory.remote(), 1}));
  DAT_TRYV(here.wait_for<dat::ib::fetch_and_add_done>(2s));
  std::printf("%-22s%llu\n", "atomics", static_cast<unsigned long long>(words[0]));
  return dat::success();
}

} // namespace

int main() {
  if (const auto r = run(); !r) return std::fprintf(stderr, "%s\n", r.error().message().c_str()), 1;
  return 0;
}
