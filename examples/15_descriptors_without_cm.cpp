// Connections without a connection manager: each side sends 64 bytes over a channel that the program has anyway.
// Start `15_descriptors_without_cm`, then `15_descriptors_without_cm HOST`. Here the channel is a TCP connection.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <dat/descriptor.hpp>
#include <numeric>
#include <string>

namespace {

using tcp = boost::asio::ip::tcp;

/// The data that each side sends to the other: its endpoint, and the memory that it opens.
constexpr auto rights = dat::remote_write;
using remote_words = dat::remote_segment<std::uint32_t, rights>;
struct introduction {
  dat::ib::descriptor::wire endpoint;
  remote_words::wire memory;
};

dat::expected<void> run(const char* host, tcp::socket& channel) {
  constexpr dat::timeout limit = std::chrono::seconds(10);
  DAT_TRY(auto ia, host ? dat::ia::open_by_route(host) : dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<dat::stream::dto | dat::stream::connection>(16)); // no requests: nothing listens
  DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd));
  std::array<std::uint32_t, 16> inbox{};
  std::array<std::uint32_t, 16> outbox{};
  std::iota(outbox.begin(), outbox.end(), host ? 1u : 101u);
  DAT_TRY(auto in, pz.register_memory(inbox, rights));
  DAT_TRY(auto out, pz.register_memory(outbox, dat::local_read));
  DAT_TRYV(ep.post(dat::recv{})); // posted before the peer gets the descriptor

  DAT_TRY(const auto mine, ep.export_descriptor());
  const introduction own{mine.to_wire(), in.remote().to_wire()};
  introduction other{};
  boost::asio::write(channel, boost::asio::buffer(&own, sizeof own));
  boost::asio::read(channel, boost::asio::buffer(&other, sizeof other));
  DAT_TRY(const auto peer, dat::ib::descriptor::from_wire(other.endpoint)); // verifies the checksum
  DAT_TRY(const auto there, remote_words::from_wire(other.memory));
  DAT_TRYV(ep.connect(peer));
  DAT_TRYV(evd.wait_for<dat::established>(limit));

  // The peer may connect later than this side. A message that is sent before would be lost, so each side reports that
  // it is ready.
  char ready = 'r';
  boost::asio::write(channel, boost::asio::buffer(&ready, 1));
  boost::asio::read(channel, boost::asio::buffer(&ready, 1));
  DAT_TRYV(ep.post(dat::rdma_write{out, there}.immediate(16)));
  DAT_TRYV(evd.wait_for<dat::ib::rdma_write_immediate_done>(limit));
  DAT_TRYV(evd.wait_for<dat::ib::recv_write_immediate_done>(limit));
  std::cout << (host ? "the client has " : "the server has ") << inbox.front() << " to " << inbox.back() << '\n';

  // No connection manager notifies the peer of the end, so each side waits until both have finished.
  boost::asio::write(channel, boost::asio::buffer(&ready, 1));
  boost::asio::read(channel, boost::asio::buffer(&ready, 1));
  return dat::success();
}

} // namespace

int main(int argc, char** argv) try {
  const char* const host = argc > 1 ? argv[1] : nullptr;
  boost::asio::io_context io;
  tcp::socket channel(io);
  if (host) {
    boost::asio::connect(channel, tcp::resolver(io).resolve(host, "7471"));
  } else {
    tcp::acceptor acceptor(io, tcp::endpoint(tcp::v4(), 7471));
    const auto ia = dat::ia::open();
    std::cout << "listening on " << (ia ? ia.value().address().host_string() : "-") << " port 7471" << std::endl;
    channel = acceptor.accept();
  }
  return report(run(host, channel));
} catch (const boost::system::system_error& e) { // an error of the TCP connection
  std::cerr << e.what() << '\n';
  return 1;
}
