// Connections by OFA's uDAPL. LOCAL is the name of an interface adapter in dat.conf.
// SPDX-License-Identifier: BSL-1.0
#include "joins.hpp"

#include <arpa/inet.h>
#include <dat2/udat.h>
#include <netinet/in.h>
#include <vector>

using namespace connecting;

namespace {

void check(const char* what, DAT_RETURN result) {
  if (result == DAT_SUCCESS) return;
  const char* major = "";
  const char* minor = "";
  dat_strerror(result, &major, &minor);
  give_up(what, (std::string(major) + " " + minor).c_str());
}

class ofa_end {
public:
  explicit ofa_end(place p) : place_(std::move(p)) {
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    check("dat_ia_open", dat_ia_open(place_.local.data(), 8, &async, &ia_));
    check("dat_pz_create", dat_pz_create(ia_, &pz_));
    check("dat_evd_create", dat_evd_create(ia_, 4096, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &completions_));
    check("dat_evd_create",
          dat_evd_create(ia_, 4096, DAT_HANDLE_NULL,
                         static_cast<DAT_EVD_FLAGS>(DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG), &events_));
  }
  ofa_end(const ofa_end&) = delete;
  ofa_end& operator=(const ofa_end&) = delete;
  ~ofa_end() { dat_ia_close(ia_, DAT_CLOSE_ABRUPT_FLAG); }

  template <class Ready, class AllUp>
  void serve(const job& j, Ready ready, AllUp all_up) {
    DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
    check("dat_psp_create", dat_psp_create(ia_, place_.port, events_, DAT_PSP_CONSUMER_FLAG, &psp));
    ready();
    std::size_t up = 0;
    for (std::size_t over = 0; over < j.total;) {
      const DAT_EVENT e = next();
      const DAT_EP_HANDLE ep = e.event_data.connect_event_data.ep_handle;
      switch (e.event_number) {
      case DAT_CONNECTION_REQUEST_EVENT:
        check("dat_cr_accept", dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, make(), 0, nullptr));
        break;
      case DAT_CONNECTION_EVENT_ESTABLISHED:
        if (!j.held) check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
        if (++up == j.total && j.held) all_up();
        break;
      case DAT_CONNECTION_EVENT_DISCONNECTED:
        check("dat_ep_free", dat_ep_free(ep));
        ++over;
        break;
      default:
        give_up("server", std::to_string(e.event_number).c_str());
      }
    }
    check("dat_psp_free", dat_psp_free(psp));
  }

  template <class AllUp>
  void connect(const job& j, AllUp all_up) {
    std::size_t begun = 0;
    std::vector<DAT_EP_HANDLE> held;
    held.reserve(j.total);
    for (; begun < j.together; ++begun) begin();
    for (std::size_t over = 0; over < j.total;) {
      const DAT_EVENT e = next();
      const DAT_EP_HANDLE ep = e.event_data.connect_event_data.ep_handle;
      switch (e.event_number) {
      case DAT_CONNECTION_EVENT_ESTABLISHED:
        if (!j.held) break;
        held.push_back(ep);
        if (begun < j.total) begin(), ++begun;
        if (held.size() < j.total) break;
        all_up();
        for (DAT_EP_HANDLE one : held) check("dat_ep_disconnect", dat_ep_disconnect(one, DAT_CLOSE_GRACEFUL_FLAG));
        break;
      case DAT_CONNECTION_EVENT_DISCONNECTED:
        check("dat_ep_free", dat_ep_free(ep));
        ++over;
        if (begun < j.total) begin(), ++begun;
        break;
      default:
        give_up("client", std::to_string(e.event_number).c_str());
      }
    }
  }

private:
  DAT_EVENT next() {
    DAT_EVENT e;
    DAT_COUNT more = 0;
    check("dat_evd_wait", dat_evd_wait(events_, static_cast<DAT_TIMEOUT>(DAT_TIMEOUT_INFINITE), 1, &e, &more));
    return e;
  }
  DAT_EP_HANDLE make() {
    DAT_EP_ATTR a{};
    a.service_type = DAT_SERVICE_TYPE_RC;
    a.max_rdma_size = a.max_message_size = 65536;
    a.max_recv_dtos = a.max_request_dtos = static_cast<DAT_COUNT>(depth);
    a.max_recv_iov = a.max_request_iov = static_cast<DAT_COUNT>(segments);
    DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
    check("dat_ep_create", dat_ep_create(ia_, pz_, completions_, completions_, events_, &a, &ep));
    return ep;
  }
  void begin() {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    if (inet_pton(AF_INET, place_.remote.c_str(), &to.sin_addr) != 1)
      give_up(place_.remote.c_str(), "not an IPv4 address");
    check("dat_ep_connect", dat_ep_connect(make(), reinterpret_cast<DAT_IA_ADDRESS_PTR>(&to), place_.port,
                                           static_cast<DAT_TIMEOUT>(DAT_TIMEOUT_INFINITE), 0, nullptr,
                                           DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
  }

  place place_;
  DAT_IA_HANDLE ia_ = DAT_HANDLE_NULL;
  DAT_PZ_HANDLE pz_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE completions_ = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE events_ = DAT_HANDLE_NULL;
};

} // namespace

int main(int argc, char** argv) {
  side_of_turn side{};
  if (!read_arguments(argc, argv, 1, side)) {
    std::fputs("usage: joins_ofa serve|connect connections|heap|resident COUNT LOCAL REMOTE PORT\n", stderr);
    return 2;
  }
  ofa_end end(side.where);
  return run_side(end, side);
}
