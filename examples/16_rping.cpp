// Exchanges messages with rdma-core's rping in both roles: a program that uses dat works with every librdmacm program.
// `16_rping` serves `rping -c -a HOST -C 5 -V`. `16_rping HOST` is a client of `rping -s -a HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>
#include <endian.h>
#include <string>

namespace {

// The protocol of rping: the client sends the place of its data. The server reads the data and confirms that by a
// message. The client sends the place of a sink. The server writes the data there, and confirms that, too.
struct place { // big-endian
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t bytes;
};
constexpr dat::conn_qual port = 7174;

template <dat::mem_priv P>
place to_place(const dat::remote_segment<char, P>& mine) {
  return {htobe64(mine.address()), htobe32(mine.rkey()), htobe32(static_cast<std::uint32_t>(mine.size_bytes()))};
}
template <dat::mem_priv P>
auto to_window(const place& theirs) {
  return dat::remote_segment<char, P>::make(be64toh(theirs.address), be32toh(theirs.bytes), be32toh(theirs.key));
}

/// One end of a connection to rping.
struct rping : peer<> {
  static constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
  std::array<place, 1> inbox{};
  std::array<place, 1> outbox{};
  std::array<char, 64> text{};
  dat::lmr<place, dat::local_write> in{};
  dat::lmr<place, dat::local_read> out{};
  dat::lmr<char, rights> data{};

  dat::expected<void> open() {
    DAT_TRYV(peer::open());
    DAT_TRY(in, pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, pz.register_memory(outbox, dat::local_read));
    DAT_TRY(data, pz.register_memory(text, rights));
    DAT_TRYV(ep.post(dat::recv{in}));
    DAT_TRYV(connect({}, port));
    return dat::success();
  }
  dat::expected<void> tell(const place& where) {
    outbox[0] = where;
    DAT_TRYV(ep.post(dat::send{out}));
    DAT_TRYV(evd.wait_for<dat::send_done>(limit));
    return dat::success();
  }
  dat::expected<place> hear() {
    DAT_TRYV(evd.wait_for<dat::recv_done>(limit));
    const place what = inbox[0];
    DAT_TRYV(ep.post(dat::recv{in}));
    return what;
  }

  dat::expected<void> serve_once() {
    DAT_TRY(const place from, hear());
    DAT_TRY(const auto source, to_window<dat::mem_priv::remote_read>(from));
    DAT_TRYV(ep.post(dat::rdma_read{data, source}));
    DAT_TRYV(evd.wait_for<dat::rdma_read_done>(limit));
    std::cout << "the client of rping has: " << text.data() << '\n';
    DAT_TRYV(tell({}));
    DAT_TRY(const place to, hear());
    DAT_TRY(const auto sink, to_window<dat::mem_priv::remote_write>(to));
    DAT_TRYV(ep.post(dat::rdma_write{data, sink}.suppress_completion())); // the message that follows completes after it
    return tell({});
  }
  dat::expected<void> ping(int number) {
    const std::string question = "ping " + std::to_string(number) + " of dat";
    std::copy_n(question.c_str(), question.size() + 1, text.begin());
    DAT_TRYV(tell(to_place(data.remote()))); // the server reads ...
    DAT_TRYV(hear());
    text.fill('\0');
    DAT_TRYV(tell(to_place(data.remote()))); // ... and writes
    DAT_TRYV(hear());
    std::cout << "the server of rping returned: " << text.data() << '\n';
    return dat::success();
  }
};

dat::expected<void> run(const char* host) {
  rping self{{host}};
  DAT_TRYV(self.open());
  for (int i = 0; host && i < 5; ++i) DAT_TRYV(self.ping(i));
  if (host) return self.ep.disconnect();
  dat::expected<void> served = self.serve_once();
  while (served) served = self.serve_once();
  // The client ends the connection when it has its last answer, which may be before the server's send completes.
  return served.error().subtype() == dat::return_subtype::ep_disconnected ? dat::success() : served;
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
