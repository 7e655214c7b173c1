// A peer that does not use dat: a program on the C library of uDAPL 2.0 and OFA's provider.
// SPDX-License-Identifier: BSL-1.0
//
// usage: ofa_peer serve|connect|refuse LOCAL REMOTE PORT serve and connect do the same on both sides of a connection:
// each sends its memory region as private data. The other side (dat) writes there, then sends a message. This side
// checks both, writes to the other side, and sends a message. The connecting side disconnects. refuse rejects one
// request, with private data.

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dat2/udat.h>
#include <endian.h>
#include <netinet/in.h>
#include <string>
#include <unistd.h>

namespace {

constexpr DAT_TIMEOUT patience = 30'000'000; // microseconds
// The parts of the memory: the region that the peer writes to, and the data that this side sends.
constexpr std::size_t half = 1024;

void check(DAT_RETURN r, const char* what) {
  if (r == DAT_SUCCESS) return;
  const char* major = "?";
  const char* minor = "?";
  (void)dat_strerror(r, &major, &minor);
  std::fprintf(stderr, "ofa_peer: %s: %s %s\n", what, major, minor);
  std::exit(1);
}
void demand(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "ofa_peer: %s\n", what);
  std::exit(1);
}

/// The private data: big-endian, then a word that names the sender.
struct hello {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::array<char, 12> word{};
};

/// The library reads its list of adapters before main, so this program writes the list and starts itself again.
void with_adapter(char** argv) {
  if (std::getenv("DAT_OVERRIDE")) return;
  std::string file = "/tmp/ofa-peer-XXXXXX";
  const int fd = ::mkstemp(file.data());
  demand(fd >= 0, "no temporary file");
  const std::string line =
      std::string("peer u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"") + argv[2] + " 0\" \"\"\n";
  demand(::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "no dat.conf");
  ::close(fd);
  ::setenv("DAT_OVERRIDE", file.c_str(), 1);
  ::execv("/proc/self/exe", argv);
  demand(false, "exec failed");
}

class peer {
public:
  explicit peer() {
    char name[] = "peer";
    check(dat_ia_open(name, 8, &async_, &ia_), "dat_ia_open");
    check(dat_pz_create(ia_, &pz_), "dat_pz_create");
    check(dat_evd_create(ia_, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests_), "dat_evd_create, requests");
    check(dat_evd_create(ia_, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections_),
          "dat_evd_create, connections");
    check(dat_evd_create(ia_, 32, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &completions_), "dat_evd_create, completions");
    DAT_REGION_DESCRIPTION region{};
    region.for_va = memory_.data();
    DAT_VLEN size = 0;
    DAT_VADDR address = 0;
    check(dat_lmr_create(ia_, DAT_MEM_TYPE_VIRTUAL, region, memory_.size(), pz_,
                         static_cast<DAT_MEM_PRIV_FLAGS>(DAT_MEM_PRIV_ALL_FLAG), DAT_VA_TYPE_VA, &lmr_, &key_, &rkey_,
                         &size, &address),
          "dat_lmr_create");
    check(dat_ep_create(ia_, pz_, completions_, completions_, connections_, nullptr, &ep_), "dat_ep_create");
    DAT_LMR_TRIPLET to = piece(2 * half, half);
    check(dat_ep_post_recv(ep_, 1, &to, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), "dat_ep_post_recv");
    mine_ = {htobe64(reinterpret_cast<std::uint64_t>(memory_.data())), htobe32(rkey_), {"ofa here"}};
  }
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer() { check(dat_ia_close(ia_, DAT_CLOSE_ABRUPT_FLAG), "dat_ia_close"); }

  void serve(DAT_CONN_QUAL port) {
    const DAT_CR_HANDLE request = next_request(port);
    check(dat_cr_accept(request, ep_, sizeof mine_, &mine_), "dat_cr_accept");
    (void)next(connections_, DAT_CONNECTION_EVENT_ESTABLISHED, "established");
    talk();
    (void)next(connections_, DAT_CONNECTION_EVENT_DISCONNECTED, "disconnected");
  }
  void refuse(DAT_CONN_QUAL port) {
    const DAT_CR_HANDLE request = next_request(port);
    check(dat_cr_reject(request, sizeof mine_, &mine_), "dat_cr_reject");
    ::sleep(1); // the library sends the reject in a thread of its own
  }
  void connect(const char* remote, DAT_CONN_QUAL port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    demand(::inet_pton(AF_INET, remote, &to.sin_addr) == 1, "not an IPv4 address");
    check(dat_ep_connect(ep_, reinterpret_cast<DAT_IA_ADDRESS_PTR>(&to), port, patience, sizeof mine_, &mine_,
                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG),
          "dat_ep_connect");
    DAT_EVENT e{};
    DAT_COUNT more = 0;
    check(dat_evd_wait(connections_, patience, 1, &e, &more), "dat_evd_wait");
    const auto& c = e.event_data.connect_event_data;
    if (e.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED) {
      demand(c.private_data_size >= 8 && std::memcmp(c.private_data, "dat busy", 8) == 0, "another private data");
      std::exit(3);
    }
    if (e.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED) std::exit(4);
    if (e.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
      std::fprintf(stderr, "ofa_peer: event %#x in place of a connection\n", static_cast<unsigned>(e.event_number));
      std::exit(1);
    }
    learn(c.private_data, c.private_data_size);
    talk();
    check(dat_ep_disconnect(ep_, DAT_CLOSE_GRACEFUL_FLAG), "dat_ep_disconnect");
    (void)next(connections_, DAT_CONNECTION_EVENT_DISCONNECTED, "disconnected");
  }

private:
  static DAT_DTO_COOKIE cookie(std::uint64_t value) {
    DAT_DTO_COOKIE c;
    c.as_64 = value;
    return c;
  }
  DAT_LMR_TRIPLET piece(std::size_t first, std::size_t bytes) {
    DAT_LMR_TRIPLET t{};
    t.virtual_address = reinterpret_cast<DAT_VADDR>(memory_.data() + first);
    t.segment_length = static_cast<DAT_SEG_LENGTH>(bytes);
    t.lmr_context = key_;
    return t;
  }
  static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER wanted, const char* what) {
    DAT_EVENT e{};
    DAT_COUNT more = 0;
    check(dat_evd_wait(evd, patience, 1, &e, &more), what);
    if (e.event_number != wanted) {
      std::fprintf(stderr, "ofa_peer: event %#x in place of %s\n", static_cast<unsigned>(e.event_number), what);
      std::exit(1);
    }
    return e;
  }
  DAT_DTO_COMPLETION_EVENT_DATA completion(const char* what) {
    const auto e = next(completions_, DAT_DTO_COMPLETION_EVENT, what).event_data.dto_completion_event_data;
    demand(e.status == DAT_DTO_SUCCESS, what);
    return e;
  }
  DAT_CR_HANDLE next_request(DAT_CONN_QUAL port) {
    DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
    check(dat_psp_create(ia_, port, requests_, DAT_PSP_CONSUMER_FLAG, &psp), "dat_psp_create");
    const DAT_CR_HANDLE request =
        next(requests_, DAT_CONNECTION_REQUEST_EVENT, "request").event_data.cr_arrival_event_data.cr_handle;
    DAT_CR_PARAM p{};
    check(dat_cr_query(request, DAT_CR_FIELD_ALL, &p), "dat_cr_query");
    learn(p.private_data, p.private_data_size);
    return request;
  }
  void learn(const void* data, DAT_COUNT size) {
    demand(size >= static_cast<DAT_COUNT>(sizeof theirs_), "private data too short");
    std::memcpy(&theirs_, data, sizeof theirs_);
    demand(std::strcmp(theirs_.word.data(), "dat here") == 0, "another private data");
  }
  /// The same steps on both sides of a connection.
  void talk() {
    const auto got = completion("receive");
    demand(got.user_cookie.as_64 == 1 && got.transfered_length == 5, "another message");
    demand(std::memcmp(memory_.data() + 2 * half, "ready", 5) == 0, "another message");
    for (std::size_t i = 0; i < half; ++i)
      demand(memory_[i] == static_cast<char>(i % 251), "what the peer has written");
    for (std::size_t i = 0; i < half; ++i) memory_[half + i] = static_cast<char>(i % 241);
    DAT_LMR_TRIPLET from = piece(half, half);
    DAT_RMR_TRIPLET to{};
    to.virtual_address = be64toh(theirs_.address);
    to.rmr_context = be32toh(theirs_.rkey);
    to.segment_length = half;
    check(dat_ep_post_rdma_write(ep_, 1, &from, cookie(2), &to, DAT_COMPLETION_DEFAULT_FLAG), "dat_ep_post_rdma_write");
    DAT_LMR_TRIPLET word = piece(half, 7);
    check(dat_ep_post_send(ep_, 1, &word, cookie(3), DAT_COMPLETION_DEFAULT_FLAG), "dat_ep_post_send");
    demand(completion("write").user_cookie.as_64 == 2, "completions out of order");
    demand(completion("send").user_cookie.as_64 == 3, "completions out of order");
  }

  std::array<char, 4 * half> memory_{};
  DAT_IA_HANDLE ia_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE async_ = DAT_HANDLE_NULL;
  DAT_PZ_HANDLE pz_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE requests_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE connections_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE completions_ = DAT_HANDLE_NULL;
  DAT_LMR_HANDLE lmr_ = DAT_HANDLE_NULL;
  DAT_LMR_CONTEXT key_ = 0;
  DAT_RMR_CONTEXT rkey_ = 0;
  DAT_EP_HANDLE ep_ = DAT_HANDLE_NULL;
  hello mine_;
  hello theirs_;
};

} // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: ofa_peer serve|connect|refuse LOCAL REMOTE PORT\n", stderr);
    return 2;
  }
  with_adapter(argv);
  ::unlink(std::getenv("DAT_OVERRIDE"));
  const std::string what = argv[1];
  const auto port = static_cast<DAT_CONN_QUAL>(std::stoul(argv[4]));
  peer p;
  if (what == "serve")
    p.serve(port);
  else if (what == "refuse")
    p.refuse(port);
  else
    p.connect(argv[3], port);
  return 0;
}
