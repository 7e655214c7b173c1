// A memory window: the server opens a part of its memory for one connection, and the client's answer closes it.
// Start `10_window`, then `10_window HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <dat/rmr.hpp>
#include <string_view>

namespace {

using self_type = peer<dat::stream::rmr_bind>; // a bind has a completion of its own
using window = dat::remote_segment<char, dat::remote_write>;

dat::expected<void> own(self_type& self) {
  std::array<char, 64> page{};
  std::array<std::byte, window::wire_size> outbox{};
  DAT_TRY(auto memory, self.pz.register_memory(page, dat::local_write)); // without any right for peers
  DAT_TRY(auto out, self.pz.register_memory(outbox, dat::local_read));
  DAT_TRY(auto rmr, self.pz.create_rmr_for_ep());
  DAT_TRYV(self.ep.post(dat::recv{}));
  DAT_TRYV(self.connect());

  // A bind is a posted operation: it opens the window before the send that is posted after it starts.
  DAT_TRY(const auto open, rmr.bind(self.ep, dat::bind{memory, 16, 32, dat::remote_write}));
  outbox = open.to_wire();
  DAT_TRYV(self.ep.post(dat::send{out}));
  DAT_TRYV(self.evd.wait_for<dat::bind_done>(self.limit));
  DAT_TRY(const auto answer, self.evd.wait_for<dat::recv_done>(self.limit));
  const auto key = answer.invalidated(); // the window that this message has closed
  std::cout << "the page has: " << &page[16] << (key && rmr.is(*key) ? "; the window is closed\n" : "\n");
  return self.finish();
}

dat::expected<void> use(self_type& self) {
  std::array<std::byte, window::wire_size> inbox{};
  DAT_TRY(auto in, self.pz.register_memory(inbox, dat::local_write));
  constexpr std::string_view text = "written through the window";
  DAT_TRY(auto out, self.pz.register_memory(text, dat::local_read));
  DAT_TRYV(self.ep.post(dat::recv{in}));
  DAT_TRYV(self.connect());
  DAT_TRYV(self.evd.wait_for<dat::recv_done>(self.limit));
  DAT_TRY(const auto theirs, window::from_wire(inbox));
  // The write, then the message that closes the window. A later write to the window would break the connection.
  DAT_TRYV(self.ep.post(dat::rdma_write{out, theirs}.suppress_completion(), dat::send_with_invalidate{theirs}));
  DAT_TRYV(self.evd.wait_for<dat::send_done>(self.limit));
  return self.finish();
}

dat::expected<void> run(const char* host) {
  self_type self{host};
  DAT_TRYV(self.open());
  return host ? use(self) : own(self);
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
