// Speaks with the rping of rdma-core in both roles: a program with dat works with every program of librdmacm.
// `16_rping` serves `rping -c -a HOST -C 5 -V`. `16_rping HOST` is a client of `rping -s -a HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <algorithm>
#include <cstdint>
#include <endian.h>
#include <string>
#include <string_view>

namespace {

// The protocol of rping: the client sends the place of its data. The server reads the data and confirms that by a
// message. The client sends the place of a sink. The server writes the data there, and confirms that, too.
struct place { // big-endian
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t bytes;
};
constexpr dat::conn_qual port = 7174;
constexpr int pings = 5;

template <dat::mem_priv P>
place to_place(const dat::remote_segment<char, P>& mine) {
  return {htobe64(mine.address()), htobe32(mine.rkey()), htobe32(static_cast<std::uint32_t>(mine.size_bytes()))};
}
template <dat::mem_priv P>
auto to_window(const place& theirs) {
  return dat::remote_segment<char, P>::make(be64toh(theirs.address), be32toh(theirs.bytes), be32toh(theirs.key));
}

/// One end of a connection to rping.
struct end {
  static constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
  peer<>& self;
  std::array<place, 1> inbox{};
  std::array<place, 1> outbox{};
  std::array<char, 64> text{};
  dat::lmr<place, dat::local_write> in{};
  dat::lmr<place, dat::local_read> out{};
  dat::lmr<char, rights> data{};

  dat::expected<void> open() {
    DAT_TRYV(self.open());
    DAT_TRY(in, self.pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, self.pz.register_memory(outbox, dat::local_read));
    DAT_TRY(data, self.pz.register_memory(text, rights));
    return self.ep.post(dat::recv{in});
  }
  dat::expected<void> tell(const place& where) {
    outbox[0] = where;
    DAT_TRYV(self.ep.post(dat::send{out}));
    DAT_TRYV(self.evd.wait_for<dat::send_done>(self.limit));
    return dat::success();
  }
  /// The peer's next message, or false when it has ended the connection.
  dat::expected<bool> hear(place& what) {
    const auto got = self.evd.wait_for<dat::recv_done>(self.limit);
    if (!got && got.error().subtype() == dat::return_subtype::ep_disconnected) return false;
    if (!got) return got.error();
    what = inbox[0];
    DAT_TRYV(self.ep.post(dat::recv{in}));
    return true;
  }
};

dat::expected<void> serve(end& all) {
  peer<>& self = all.self;
  DAT_TRYV(self.connect({}, port));
  for (place where{};;) {
    DAT_TRY(const bool more, all.hear(where));
    if (!more) return dat::success();
    DAT_TRY(const auto source, to_window<dat::mem_priv::remote_read>(where));
    DAT_TRYV(self.ep.post(dat::rdma_read{all.data, source}));
    DAT_TRYV(self.evd.wait_for<dat::rdma_read_done>(self.limit));
    std::cout << "the client of rping has: " << all.text.data() << '\n';
    DAT_TRYV(all.tell({}));
    DAT_TRYV(all.hear(where));
    DAT_TRY(const auto sink, to_window<dat::mem_priv::remote_write>(where));
    DAT_TRYV(self.ep.post(dat::rdma_write{all.data, sink}));
    DAT_TRYV(self.evd.wait_for<dat::rdma_write_done>(self.limit));
    // A client that has its last answer may end the connection before this send completes.
    if (const auto told = all.tell({}); !told)
      return told.error().subtype() == dat::return_subtype::ep_disconnected ? dat::success() : told;
  }
}

dat::expected<void> ping(end& all) {
  peer<>& self = all.self;
  DAT_TRYV(self.connect({}, port));
  place ignored{};
  for (int i = 0; i < pings; ++i) {
    const std::string question = "ping " + std::to_string(i) + " of dat";
    all.text.fill('\0');
    std::copy(question.begin(), question.end(), all.text.begin());
    DAT_TRYV(all.tell(to_place(all.data.remote()))); // the server reads ...
    DAT_TRYV(all.hear(ignored));
    all.text.fill('\0');
    DAT_TRYV(all.tell(to_place(all.data.remote()))); // ... and writes
    DAT_TRYV(all.hear(ignored));
    std::cout << "the server of rping returned: " << all.text.data() << '\n';
  }
  return self.ep.disconnect();
}

} // namespace

int main(int argc, char** argv) {
  peer<> self{argc > 1 ? argv[1] : nullptr};
  end all{self};
  if (auto opened = all.open(); !opened) return report(opened);
  return report(self.host ? ping(all) : serve(all));
}
